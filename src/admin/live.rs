//! `/live`: what the live page listens to, as server-sent events.
//!
//! First `hello`, then `update`, at most four a second and about one when nothing happens.
//!
//! Invariant: an update is made when the connection can take it, and never larger than [`TRACK_BYTES`] allows: a page
//! that falls behind is told how much it missed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::body::{Body, Frame};
use hyper::{Response, http};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Interval, MissedTickBehavior};

use super::message::{BackendMessage, Hello, RowMessage, Update, event};
use crate::measure::{Meter, Recent};
use crate::server::Shutdown;

/// How many pages may listen at once.
pub(super) const MOST_FEEDS: usize = 32;
/// The time between two updates.
const EVERY: Duration = Duration::from_millis(250);
/// One update in so many comes whatever has happened, and carries the percentiles.
const WHOLE: u32 = 4;
/// The most exchanges in an update, and in the first.
const ROWS: usize = 64;
const FIRST_ROWS: usize = 256;
/// The most bytes of tracks in an update; as JSON they take twice to five times as much.
const TRACK_BYTES: usize = 128 * 1024;

/// Where live pages get what they show.
pub struct Live {
    shared: Arc<Shared>,
    seats: Arc<Semaphore>,
}

struct Shared {
    recent: Arc<Recent>,
    meter: Arc<Meter>,
    /// Each backend's kind, in the order of the configuration.
    kinds: Vec<&'static str>,
    listen: SocketAddr,
    /// When this process began, in milliseconds since 1970.
    epoch: u64,
    stopping: Shutdown,
}

impl Live {
    /// Shows what `recent` holds of the backends of these `kinds`, named in the same order. Feeds end at `stopping`.
    pub fn new(
        recent: Arc<Recent>,
        meter: Arc<Meter>,
        kinds: Vec<&'static str>,
        listen: SocketAddr,
        stopping: Shutdown,
    ) -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let epoch = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        let shared = Arc::new(Shared { recent, meter, kinds, listen, epoch, stopping });
        Self { shared, seats: Arc::new(Semaphore::new(MOST_FEEDS)) }
    }

    /// One more listener. `None` when there are too many.
    pub(super) fn feed(&self) -> Option<Response<Feed>> {
        let seat = self.seats.clone().try_acquire_owned().ok()?;
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut response =
            Response::new(Feed { shared: self.shared.clone(), ticks, seen: None, until_whole: 0, _seat: seat });
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Some(response)
    }
}

/// One listener's events.
pub struct Feed {
    shared: Arc<Shared>,
    ticks: Interval,
    /// The number of the last exchange it was told of, or that it missed. `None` before the first event.
    seen: Option<u64>,
    until_whole: u32,
    _seat: OwnedSemaphorePermit,
}

impl Feed {
    /// What there is to say now. `None` when it can wait.
    fn next(&mut self) -> Option<String> {
        let Some(seen) = self.seen else {
            self.until_whole = WHOLE - 1;
            return Some(
                event("hello", &Hello::new(self.shared.epoch, self.shared.listen))
                    + &self.update(None, FIRST_ROWS, true),
            );
        };
        let whole = self.until_whole == 0;
        self.until_whole = if whole { WHOLE - 1 } else { self.until_whole - 1 };
        let (newest, last) = self.shared.recent.after(seen, 1, 0);
        (whole || last > seen || !newest.is_empty()).then(|| self.update(Some(seen), ROWS, whole))
    }

    fn update(&mut self, seen: Option<u64>, most: usize, whole: bool) -> String {
        let Shared { recent, meter, kinds, .. } = &*self.shared;
        let (rows, last) = recent.after(seen.unwrap_or(0), most, TRACK_BYTES);
        // What came before the first look was not missed.
        let missed = seen.map_or(0, |seen| last - seen - rows.len() as u64);
        self.seen = Some(last);
        let backends = whole.then(|| {
            let windows = recent.windows(Instant::now());
            let named = windows.iter().zip(kinds);
            named.map(|((name, now), kind)| BackendMessage::new(meter.in_flight(name), name, kind, now)).collect()
        });
        let rows = rows.iter().map(RowMessage::new).collect();
        event("update", &Update::new(SystemTime::now(), missed, rows, backends))
    }
}

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            ready!(self.ticks.poll_tick(cx));
            if *self.shared.stopping.borrow() {
                return Poll::Ready(None);
            }
            if let Some(events) = self.next() {
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(events)))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::Value;
    use tokio::sync::watch;

    use super::*;
    use crate::measure::{Anomalies, Exchange, Outcome, Setup, Track};
    use crate::transport::ConnectPhases;

    fn exchange() -> Exchange {
        Exchange {
            ended: SystemTime::now(),
            operation: "chat",
            backend: None,
            model: "none".into(),
            model_requested: None,
            model_served: None,
            stream: None,
            measured: true,
            outcome: Outcome::Rejected,
            status: Some(400),
            marks: crate::measure::timeline::Marks::new(Instant::now()),
            connect: ConnectPhases::default(),
            reused: None,
            usage: None,
            prompt_counted: None,
            output: None,
            partly_hidden: false,
            token_events: 0,
            choices: 0,
            stall: None,
            track: Track::default(),
            anomalies: Anomalies::default(),
            tag: None,
        }
    }

    /// The updates in a frame.
    async fn updates(feed: &mut Feed) -> Vec<Value> {
        let frame = feed.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = std::str::from_utf8(&frame).unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).filter(|data: &Value| data["version"].is_null()).collect()
    }

    #[tokio::test]
    async fn a_page_that_falls_behind_is_told_how_much_it_missed() {
        let recent = Arc::new(Recent::new([], Instant::now()));
        let meter = Arc::new(Meter::new(Setup::default(), Vec::new()));
        let (_stop, stopping) = watch::channel(false);
        let listen = "127.0.0.1:8484".parse().unwrap();
        let live = Live::new(recent.clone(), meter, Vec::new(), listen, stopping);
        let tell = recent.listener();
        let finish = |count: usize| (0..count).for_each(|_| tell(&exchange()));

        finish(3);
        let mut feed = live.feed().unwrap().into_body();
        let [first] = &updates(&mut feed).await[..] else { panic!("hello and one update") };
        assert_eq!((first["rows"].as_array().unwrap().len(), &first["skipped"]), (3, &0.into()));
        finish(ROWS + 7);
        let [next] = &updates(&mut feed).await[..] else { panic!("one update") };
        let rows = next["rows"].as_array().unwrap();
        assert_eq!((rows.len(), &next["skipped"]), (ROWS, &7.into()));
        assert_eq!((&rows[0]["seq"], &rows[ROWS - 1]["seq"]), (&11.into(), &(10 + ROWS).into()));
        assert!(next.get("backends").is_none() && first["backends"].is_array());

        // Nothing happens: the next is the one that comes every second.
        let [idle] = &updates(&mut feed).await[..] else { panic!("one update") };
        assert!(idle["backends"].is_array() && idle["rows"].as_array().unwrap().is_empty());
    }
}
