//! One connection's requests, one after the other: what becomes of the connection, whole replies, and the log.
//!
//! Invariant: every request is answered, and counted as finished once everything it logged is delivered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::character::Character;
use super::dialect::{House, openai_error};
use super::events::Mark;
use super::http::{self, NoRequest, Request};
use super::log::{Entry, Kind, Recorder};
use super::peer::{Left, Peer, Sent};
use super::state::Place;
use crate::clock::monotonic_ns;

/// What becomes of the connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The next request, if both sides keep the connection.
    Next,
    /// It is closed in order.
    Close,
    /// It is closed inside the reply.
    Cut,
    /// It is reset.
    Reset,
    /// It stays open and silent until the peer leaves.
    Silence,
}

/// Serves a connection until one side ends it.
pub(super) async fn serve(mut peer: Peer, place: &Place) {
    loop {
        let request = match http::read_request(&mut peer).await {
            Ok(request) => request,
            Err(NoRequest::Left(left)) => return place.departed(None, left),
            Err(NoRequest::Malformed(what)) => {
                let body = openai_error(what, "invalid_request_error", None).to_string();
                let length = body.len().to_string();
                let headers = [("content-type", JSON), ("content-length", length.as_str()), ("connection", "close")];
                let mut out = http::response_head(400, &headers);
                out.extend_from_slice(body.as_bytes());
                // It may have left already; either way the connection is over.
                let _ = peer.send(&out).await;
                return peer.close().await;
            }
        };
        let mut exchange = Exchange::new(&mut peer, place, &request);
        let name = Arc::clone(&exchange.name);
        let then = exchange.answer().await;
        drop(exchange);
        place.finished();
        match then {
            Ok(Then::Next) if request.keep_alive => {}
            Ok(Then::Next | Then::Close) => return peer.close().await,
            Ok(Then::Cut) => return peer.cut().await,
            Ok(Then::Reset) => return peer.reset(),
            Ok(Then::Silence) => {
                let left = peer.left().await;
                return place.departed(Some(name), left);
            }
            Err(left) => return place.departed(Some(name), left),
        }
    }
}

/// One request and its reply.
pub(super) struct Exchange<'a> {
    pub(super) peer: &'a mut Peer,
    pub(super) place: &'a Place,
    pub(super) request: &'a Request,
    pub(super) name: Arc<str>,
    /// What the request's `x-sim` header makes of the configuration; or what is wrong with the header.
    pub(super) character: Result<Character, String>,
    /// Whose headers and errors the replies have.
    pub(super) house: House,
    recorder: Recorder,
    events: u32,
}

const JSON: &str = "application/json";

impl<'a> Exchange<'a> {
    fn new(peer: &'a mut Peer, place: &'a Place, request: &'a Request) -> Self {
        let mut character = Character::new(place.state.config.schedule);
        let applied = request.header("x-sim").map_or(Ok(()), |header| character.apply(header));
        let number = place.request();
        let name: Arc<str> = character.request.clone().unwrap_or_else(|| format!("req-{number}")).into();
        place.keep(&name, request);
        let character = applied.map(|()| character);
        let (house, recorder) = (House::OpenAi, place.recorder());
        Self { peer, place, request, name, character, house, recorder, events: 0 }
    }

    async fn answer(&mut self) -> Result<Then, Left> {
        let read = Sent { at: self.request.read_at, done: self.request.read_at };
        self.record(Kind::Request, self.request.read_at, read);
        let outcome = self.route().await;
        if let Err(left) = &outcome {
            self.record(Kind::PeerLeft, left.at, Sent { at: left.at, done: left.at });
        }
        outcome
    }

    /// Sends a whole reply in one write, `after` the request was read.
    pub(super) async fn body(
        &mut self,
        status: u16,
        extra: &[(&str, &str)],
        body: Option<&[u8]>,
        after: Duration,
    ) -> Result<Then, Left> {
        let length = body.unwrap_or_default().len().to_string();
        let name = Arc::clone(&self.name);
        let mut headers = vec![("x-request-id", &*name)];
        headers.extend(self.house.request_id().map(|header| (header, &*name)));
        if body.is_some() {
            headers.extend([("content-type", JSON), ("content-length", length.as_str())]);
        }
        if !self.request.keep_alive {
            headers.push(("connection", "close"));
        }
        headers.extend(extra);
        let mut out = http::response_head(status, &headers);
        if self.request.method != "HEAD" {
            out.extend_from_slice(body.unwrap_or_default());
        }
        let due = self.due(after);
        self.peer.until(due).await?;
        let sent = self.peer.send(&out).await?;
        self.record(Kind::Body, due, sent);
        Ok(Then::Next)
    }

    /// The deadline that lies `after` the arrival of the request; a year after it where the clock cannot tell.
    pub(super) fn due(&self, after: Duration) -> Instant {
        const YEAR: Duration = Duration::from_hours(365 * 24);
        let arrived = self.request.read_at;
        arrived.checked_add(after).unwrap_or(arrived + YEAR)
    }

    /// Whether what happens is logged.
    pub(super) fn logs(&self) -> bool {
        self.recorder.is_on()
    }

    /// Logs what is not an event.
    pub(super) fn record(&mut self, kind: Kind, due: Instant, sent: Sent) {
        if self.logs() {
            let entry = self.entry(kind, due, sent);
            self.recorder.record(entry);
        }
    }

    /// Logs the next event of the reply.
    pub(super) fn record_event(&mut self, mark: Mark, due: Instant, sent: Sent) {
        if self.logs() {
            let event = Some(self.events);
            self.events += 1;
            let Mark { kind, choice, tokens } = mark;
            let entry = Entry { event, choice, tokens, ..self.entry(kind, due, sent) };
            self.recorder.record(entry);
        }
    }

    fn entry(&self, kind: Kind, due: Instant, sent: Sent) -> Entry {
        Entry {
            request: Arc::clone(&self.name),
            conn: self.place.conn,
            event: None,
            kind,
            choice: 0,
            tokens: 0,
            due_ns: monotonic_ns(due),
            at_ns: monotonic_ns(sent.at),
            done_ns: monotonic_ns(sent.done),
        }
    }
}
