//! Streams: the events of a schedule, or the steps of a script, each at its deadline.
//!
//! A client of HTTP/1.0, which knows no chunks, gets a body that ends with the connection.
//!
//! Invariant: bytes are ready before their deadline comes; between waking and writing nothing is computed.

use std::time::Instant;

use super::character::EarlyEnd;
use super::dialect::Dialect;
use super::events::{Events, LAST_CHUNK, Mark, write_chunk};
use super::exchange::{Exchange, Then};
use super::http;
use super::log::Kind;
use super::peer::Left;
use super::reply::Reply;
use super::schedule::{Planned, body_of};
use super::script::{End, Framing, Script};

impl Exchange<'_> {
    /// Streams a reply in its dialect, as its character wants it.
    pub(super) async fn play_stream(&mut self, dialect: Dialect, reply: Reply<'_>) -> Result<Then, Left> {
        let (character, schedule) = (reply.character, *reply.schedule());
        let chunked = self.request.chunked_allowed;
        if character.head {
            self.send_head(self.due(schedule.head), chunked).await?;
        }
        let whole = reply.tokens();
        let tokens = character.error_after.map_or(whole, |most| most.min(whole));
        let mut writer = dialect.writer(reply);
        let mut batch = Batch::new(chunked);
        for planned in body_of(schedule, tokens, reply.asked.choices) {
            let full = match &batch.first {
                Some(first) => {
                    !first.mixes_with(&planned)
                        || (first.kind != Kind::Role && batch.planned >= schedule.events_per_write)
                }
                None => false,
            };
            if full {
                self.send_batch(&mut batch).await?;
            }
            writer.write(&planned, &mut batch.events);
            batch.count(planned);
        }
        self.send_batch(&mut batch).await?;

        let due = schedule.last_due(tokens).saturating_add(schedule.tail);
        for (kind, choice) in endings(&reply) {
            let planned = Planned { kind, choice, tokens: tokens..tokens, due };
            writer.write(&planned, &mut batch.events);
            batch.count(planned);
        }
        let then = match character.end {
            Some(EarlyEnd::Reset) => Then::Reset,
            Some(EarlyEnd::Fin) => Then::Cut,
            Some(EarlyEnd::Silence) => Then::Silence,
            None | Some(EarlyEnd::Truncate) if chunked => {
                batch.events.bytes.extend_from_slice(LAST_CHUNK);
                Then::Next
            }
            None | Some(EarlyEnd::Truncate) => Then::Close,
        };
        self.peer.until(self.due(due)).await?;
        self.send_batch(&mut batch).await?;
        Ok(then)
    }

    /// Plays a script.
    pub(super) async fn play_script(&mut self, script: &Script) -> Result<Then, Left> {
        let framing = match script.framing {
            Framing::Chunked if !self.request.chunked_allowed => Framing::Close,
            framing => framing,
        };
        let mut after = script.head;
        if framing != Framing::Raw {
            self.send_script_head(script, framing, self.due(after)).await?;
        }
        let mut framed = Vec::new();
        for step in &script.steps {
            for _ in 0..step.repeat {
                for (wait, piece) in step.pieces() {
                    after = after.saturating_add(wait);
                    let due = self.due(after);
                    framed.clear();
                    match framing {
                        Framing::Chunked => write_chunk(&piece, &mut framed),
                        Framing::Length | Framing::Close | Framing::Raw => framed.extend_from_slice(&piece),
                    }
                    self.peer.until(due).await?;
                    if !framed.is_empty() {
                        let sent = self.peer.send(&framed).await?;
                        self.record_event(Mark { kind: Kind::Raw, choice: 0, tokens: 0 }, due, sent);
                    }
                }
            }
        }
        match script.end {
            End::Fin => return Ok(Then::Cut),
            End::Rst => return Ok(Then::Reset),
            End::Silence => return Ok(Then::Silence),
            End::Complete => {}
        }
        match framing {
            Framing::Chunked => {
                self.peer.send(LAST_CHUNK).await?;
                Ok(Then::Next)
            }
            Framing::Length | Framing::Raw => Ok(Then::Next),
            Framing::Close => Ok(Then::Close),
        }
    }

    async fn send_script_head(&mut self, script: &Script, framing: Framing, due: Instant) -> Result<(), Left> {
        let given = |name: &str| script.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let length = script.length().to_string();
        let mut headers: Vec<(&str, &str)> = Vec::new();
        if !given("content-type") {
            headers.push(("content-type", EVENT_STREAM));
        }
        if !given("content-length") && !given("transfer-encoding") {
            headers.push(match framing {
                Framing::Chunked => ("transfer-encoding", "chunked"),
                Framing::Length => ("content-length", &length),
                Framing::Close | Framing::Raw => ("connection", "close"),
            });
        }
        headers.extend(script.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let head = http::response_head(script.status, &headers);
        self.send_at(Kind::Head, due, &head).await
    }

    async fn send_head(&mut self, due: Instant, chunked: bool) -> Result<(), Left> {
        let name = self.name.clone();
        let mut headers = vec![("content-type", EVENT_STREAM), ("cache-control", "no-cache"), ("x-request-id", &*name)];
        headers.extend(self.house.request_id().map(|header| (header, &*name)));
        if chunked {
            headers.push(("transfer-encoding", "chunked"));
        }
        if !chunked || !self.request.keep_alive {
            headers.push(("connection", "close"));
        }
        self.send_at(Kind::Head, due, &http::response_head(200, &headers)).await
    }

    async fn send_at(&mut self, kind: Kind, due: Instant, bytes: &[u8]) -> Result<(), Left> {
        self.peer.until(due).await?;
        let sent = self.peer.send(bytes).await?;
        self.record(kind, due, sent);
        Ok(())
    }

    /// Sends what is in `batch` when its first event is due, and empties it.
    async fn send_batch(&mut self, batch: &mut Batch) -> Result<(), Left> {
        let due = batch.first.as_ref().map(|first| first.due);
        if let Some(due) = due {
            self.peer.until(self.due(due)).await?;
        }
        if !batch.events.bytes.is_empty() {
            let sent = self.peer.send(&batch.events.bytes).await?;
            if self.logs() {
                let due = self.due(due.unwrap_or_default());
                for mark in &batch.events.marks {
                    self.record_event(*mark, due, sent);
                }
            }
        }
        batch.clear();
        Ok(())
    }
}

const EVENT_STREAM: &str = "text/event-stream";

/// What one write is to carry.
struct Batch {
    events: Events,
    /// The first of what was planned for it, by whose deadline it leaves.
    first: Option<Planned>,
    /// How much was planned for it; events there may be more or fewer.
    planned: u32,
}

impl Batch {
    fn new(chunked: bool) -> Self {
        Self { events: Events::new(chunked), first: None, planned: 0 }
    }

    fn count(&mut self, planned: Planned) {
        self.first.get_or_insert(planned);
        self.planned += 1;
    }

    fn clear(&mut self) {
        self.events.clear();
        self.first = None;
        self.planned = 0;
    }
}

/// What is planned after the last token, by kind and choice.
pub(super) fn endings(reply: &Reply<'_>) -> Vec<(Kind, u32)> {
    let character = reply.character;
    if character.error_after.is_some() {
        return vec![(Kind::Error, 0)];
    }
    if character.end.is_some() {
        return Vec::new();
    }
    let mut endings = vec![(Kind::Part, 0)];
    if character.finish {
        endings.extend((0..reply.asked.choices).map(|choice| (Kind::Finish, choice)));
    }
    if reply.asked.wants_usage(&character.schedule) {
        endings.push((Kind::Usage, 0));
    }
    if character.done {
        endings.push((Kind::Done, 0));
    }
    endings
}
