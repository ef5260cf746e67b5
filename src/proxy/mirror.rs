//! Requests sent a second time, to another backend, to be measured there and thrown away.
//!
//! Mirrored requests run on a thread of their own, of low priority, with upstream connections of its own. The threads
//! that serve hand jobs over a bounded channel and never look back.
//!
//! Invariants: a mirror never delays, fails or changes the answer to a client: what finds no room is dropped and counted.
//! What it measures stands under a label of its own, `NAME+mirror`, and is an exchange like any other, started and ended
//! once. A client's credentials never reach a mirror.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::{HeaderMap, Method, Request, Version, http};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::beyond::Going;
use super::failure::Refusal;
use super::inference::asked;
use super::request::ModelRequest;
use super::site::Site;
use super::{Answer, Proxy, headers, local, once};
use crate::config::{MIRROR_SUFFIX, Mirror};
use crate::measure::{Meter, MirrorMeter, Observation, ObservedBody};
use crate::route::classify;
use crate::server::{Shutdown, told_to_stop};

/// How many requests may be with one mirror, those included that wait to be sent.
const MOST: usize = 32;
/// How much the bodies of all mirrored requests may take together, in KiB.
const MOST_KIB: usize = 64 << 10;
/// How long a reply may go on. No client is there to tire of it.
const LONGEST: Duration = Duration::from_secs(600);
/// How fast a reply is read, in bytes per second, after [`BURST`]: several thousand events, which no model makes, so that
/// what floods costs next to nothing and what does not is measured as it comes.
const RATE: f64 = (1_u32 << 20) as f64;
/// How much of a reply is read as fast as it comes, counted by the time that takes at [`RATE`].
const BURST: Duration = Duration::from_millis(250);

/// Where the threads that serve leave what is to be sent a second time.
pub(super) struct Mirrors {
    /// By backend index; `None` for a backend that nothing is mirrored to.
    lanes: Vec<Option<Lane>>,
    /// What the bodies still may take, in KiB.
    room: Arc<Semaphore>,
    queue: mpsc::Sender<Job>,
    /// The other end, until the thread takes it.
    jobs: Mutex<Option<mpsc::Receiver<Job>>>,
}

/// One backend that requests are mirrored to.
struct Lane {
    label: Arc<str>,
    places: Arc<Semaphore>,
    meter: MirrorMeter,
}

/// A request to be sent a second time, with the room it has until its exchange is over.
pub(super) struct Job {
    again: Again,
    room: [OwnedSemaphorePermit; 2],
}

/// What is sent again, and where.
struct Again {
    /// An index into the site's backends.
    backend: usize,
    upstream_model: Option<String>,
    /// Without the query, in which some vendors' clients carry keys.
    path: Box<str>,
    headers: HeaderMap,
    wanted: ModelRequest,
}

/// The value of the label `backend` of what is mirrored to the backend called so.
pub(super) fn label(backend: &str) -> Arc<str> {
    format!("{backend}{MIRROR_SUFFIX}").into()
}

impl Mirrors {
    /// `labels` has a label for each backend that requests are mirrored to, by backend index.
    pub(super) fn new(labels: Vec<Option<Arc<str>>>, meter: &Meter) -> Self {
        let lane = |label: Arc<str>| {
            let meter = meter.mirror(&label);
            Lane { label, places: Arc::new(Semaphore::new(MOST)), meter }
        };
        let lanes: Vec<_> = labels.into_iter().map(|label| label.map(lane)).collect();
        // A job has its place before it is sent, so that there always is room for it.
        let (queue, jobs) = mpsc::channel(MOST * lanes.len().max(1));
        Self { lanes, room: Arc::new(Semaphore::new(MOST_KIB)), queue, jobs: Mutex::new(Some(jobs)) }
    }

    /// The backends that requests are mirrored to, by their index, in order.
    pub(super) fn backends(&self) -> impl Iterator<Item = usize> {
        self.lanes.iter().enumerate().filter_map(|(index, lane)| lane.as_ref().map(|_| index))
    }

    /// Does `real`, and hands `second` over once that is under way.
    pub(super) async fn beside<T>(&self, real: impl Future<Output = T>, mut second: Option<Job>) -> T {
        let mut real = pin!(real);
        poll_fn(|cx| {
            // The client's own goes first: over an open connection one poll writes it.
            let polled = real.as_mut().poll(cx);
            if let Some(job) = second.take() {
                self.hand_over(job);
            }
            polled
        })
        .await
    }

    fn hand_over(&self, job: Job) {
        if let Err(error) = self.queue.try_send(job) {
            self.dropped(error.into_inner().again.backend);
        }
    }

    /// Room for a body of `length` bytes at this backend; without it, the request is counted as dropped.
    fn room(&self, backend: usize, length: usize) -> Option<[OwnedSemaphorePermit; 2]> {
        let lane = self.lanes[backend].as_ref()?;
        let kib = u32::try_from(length / 1024 + 1).ok();
        let place = lane.places.clone().try_acquire_owned().ok();
        let room = kib.and_then(|kib| self.room.clone().try_acquire_many_owned(kib).ok());
        let (Some(place), Some(room)) = (place, room) else {
            lane.meter.dropped();
            return None;
        };
        Some([place, room])
    }

    fn dropped(&self, backend: usize) {
        if let Some(lane) = &self.lanes[backend] {
            lane.meter.dropped();
        }
    }
}

impl Site {
    /// What runs on the thread `mirror`. `None` where nothing is mirrored, and after the first call.
    pub fn mirroring(self: &Arc<Self>) -> Option<Mirroring> {
        let mut jobs = self.mirrors.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.take().filter(|_| self.mirrors.backends().next().is_some())?;
        Some(Mirroring { proxy: Arc::new(self.proxy()), jobs })
    }
}

impl Proxy {
    /// A request as it is to be sent a second time. `None` where it cannot be, where a key of the mirror's would be spent on
    /// what a web page could have sent, for what is a mirror's itself or has been here before, as no request may breed, and
    /// for what is to be asked [`once`]. None of these counts as dropped.
    pub(super) fn second(&self, mirror: &Mirror, head: &http::request::Parts, wanted: &ModelRequest) -> Option<Job> {
        if head.headers.contains_key(&headers::MIRRORED) || self.has_been_here(&head.headers) {
            return None;
        }
        if !once::may_be_repeated(wanted) {
            return None;
        }
        self.guard(&self.site.backends[mirror.backend], head, false).ok()?;
        let room = self.site.mirrors.room(mirror.backend, wanted.body().len())?;
        let again = Again {
            backend: mirror.backend,
            upstream_model: mirror.upstream_model.clone(),
            path: head.uri.path().into(),
            headers: headers::for_mirror(&head.headers),
            wanted: wanted.plain(),
        };
        Some(Job { again, room })
    }

    /// Sends a request a second time, measures the reply and throws it away.
    async fn mirror(&self, Job { again, room: _room }: Job) {
        let Some(lane) = &self.site.mirrors.lanes[again.backend] else { return };
        let now = Instant::now();
        let operation = classify(&again.path).operation.label();
        let mut observation = Observation::begin(self.site.meter.clone(), operation, now, Some(again.wanted.dialect));
        observation.leave();
        observation.body_read(now);
        observation.asked(asked(&again.wanted, &again.headers));
        observation.routed(&lane.label);
        match self.ask_again(again, &mut observation).await {
            Ok(Answer::Theirs { response, framing_unknown, event_timeout, .. }) => {
                let body = ObservedBody::new(response.into_body(), observation, None, framing_unknown);
                let reading = throw_away(body.with_event_timeout(event_timeout));
                // Left at that point, as by a client.
                let _ = tokio::time::timeout(LONGEST, reading).await;
            }
            Ok(Answer::Ours(response)) => observation.finish_whole(response.status().as_u16()),
            Err(refusal) => observation.end_with(refusal.outcome(), refusal.status().as_u16()),
        }
    }

    async fn ask_again(&self, again: Again, observation: &mut Observation) -> Result<Answer, Refusal> {
        let Again { backend, upstream_model, path, headers, wanted } = again;
        if let Some(llama) = &self.site.llamas[backend] {
            return local::answer(llama, wanted, Version::HTTP_11, observation).await;
        }
        if let Some(counter) = self.site.tokens.of(backend) {
            observation.count_with(counter.clone(), wanted.body());
        }
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = Method::POST;
        head.headers = headers;
        let alias = upstream_model.as_deref().filter(|alias| wanted.model.as_deref() != Some(alias));
        let going = Going { backend, target: &classify(&path), head, wanted, alias };
        let returned = self.send_wanted(going, observation).await?;
        Ok(self.pass_wanted_on(returned, observation))
    }
}

async fn throw_away<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut pace = Pace::default();
    while let Some(Ok(frame)) = body.frame().await {
        let wait = pace.after(frame.data_ref().map_or(0, Bytes::len), Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

/// Says how long to wait after each part of a reply so that it is read no faster than [`RATE`].
#[derive(Default)]
struct Pace {
    /// When what was read would have come at that rate. `None` before the first part.
    due: Option<Instant>,
}

impl Pace {
    fn after(&mut self, bytes: usize, now: Instant) -> Duration {
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let due = self.due.map_or(earliest, |due| due.max(earliest)) + Duration::from_secs_f64(bytes as f64 / RATE);
        self.due = Some(due);
        due.saturating_duration_since(now)
    }
}

/// All mirrored traffic, as one thread runs it.
pub struct Mirroring {
    proxy: Arc<Proxy>,
    jobs: mpsc::Receiver<Job>,
}

impl Mirroring {
    /// The handler whose upstream connections it uses.
    pub fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }

    /// Sends what it is handed until it is told to stop, then cuts off what still runs: at once, as no one waits for it.
    /// Exchanges cut off after [`Meter::cut_off`] count as internal.
    pub async fn run(mut self, mut stopping: Shutdown) {
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                job = self.jobs.recv() => match job {
                    Some(job) => {
                        let proxy = self.proxy.clone();
                        running.spawn(async move { proxy.mirror(job).await });
                    }
                    None => break,
                },
                Some(ended) = running.join_next() => {
                    if ended.is_err() {
                        tracing::error!("a mirrored request's task panicked; it counts as internal");
                    }
                }
                () = told_to_stop(&mut stopping) => break,
            }
        }
        running.shutdown().await;
        while let Ok(job) = self.jobs.try_recv() {
            self.proxy.site.mirrors.dropped(job.again.backend);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Setup;

    #[test]
    fn what_finds_no_room_is_dropped_and_counted() {
        let meter = Meter::new(Setup::default(), Vec::new());
        let mirrors = Mirrors::new(vec![None, Some(label("b")), Some(label("c"))], &meter);
        let dropped = |label: &str| {
            let line = format!("streamgauge_mirror_dropped_total{{backend=\"{label}\"}} ");
            meter.render().lines().find_map(|text| text.strip_prefix(&line)?.parse::<u32>().ok())
        };
        assert_eq!((dropped("b+mirror"), dropped("c+mirror"), dropped("a+mirror")), (Some(0), Some(0), None));

        // By size, all mirrors together.
        let large = mirrors.room(1, 40 << 20);
        assert!(large.is_some() && mirrors.room(2, 40 << 20).is_none() && mirrors.room(2, 20 << 20).is_some());
        assert_eq!((dropped("b+mirror"), dropped("c+mirror")), (Some(0), Some(1)));
        drop(large);
        assert!(mirrors.room(2, 60 << 20).is_some(), "an exchange that is over gives its room back");
        assert!(mirrors.room(2, usize::MAX).is_none() && mirrors.room(2, 65 << 20).is_none());

        // By number, each mirror by itself.
        let all: Vec<_> = (0..MOST).map(|_| mirrors.room(1, 100)).collect();
        assert!(all.iter().all(Option::is_some) && mirrors.room(1, 100).is_none() && mirrors.room(2, 100).is_some());
        assert_eq!((dropped("b+mirror"), dropped("c+mirror")), (Some(1), Some(3)));
    }

    #[test]
    fn a_reply_is_read_no_faster_than_the_rate_after_its_burst() {
        const QUARTER: usize = 1 << 18;
        let start = Instant::now() + BURST;
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::default();
        assert_eq!(pace.after(QUARTER, at(0)), Duration::ZERO, "the burst");
        assert_eq!(pace.after(QUARTER, at(0)), Duration::from_millis(250));
        assert_eq!(pace.after(QUARTER, at(250)), Duration::from_millis(250), "in step");
        assert_eq!(pace.after(0, at(400)), Duration::from_millis(100));
        assert_eq!(pace.after(QUARTER / 2, at(700)), Duration::ZERO, "silence gives back the burst");
        assert_eq!(pace.after(QUARTER, at(9000)), Duration::ZERO, "and no more than that");
        assert_eq!(pace.after(QUARTER, at(9000)), Duration::from_millis(250));
    }
}
