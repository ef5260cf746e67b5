//! Streams: the events of a schedule, or the steps of a script, each at its deadline.
//!
//! A client of HTTP/1.0, which knows no chunks, gets a body that ends with the connection.
//!
//! Invariant: bytes are ready before their deadline comes; between waking and writing nothing is computed.

use std::time::Instant;

use super::character::{Character, EarlyEnd};
use super::chat::Asked;
use super::exchange::{Exchange, Then};
use super::http;
use super::log::Kind;
use super::peer::Left;
use super::reply::{EventWriter, LAST_CHUNK, write_chunk};
use super::schedule::{Planned, body_of};
use super::script::{End, Framing, Script};

impl Exchange<'_> {
    /// Streams a reply as its character wants it.
    pub(super) async fn play_stream(&mut self, character: &Character, asked: &Asked) -> Result<Then, Left> {
        let schedule = character.schedule;
        let chunked = self.request.chunked_allowed;
        if character.head {
            self.send_head(self.due(schedule.head), chunked).await?;
        }
        let whole = asked.tokens(&schedule);
        let tokens = character.error_after.map_or(whole, |most| most.min(whole));
        let mut writer = EventWriter::new(&self.name, asked, schedule, chunked);
        let mut batch = Batch::default();
        for event in body_of(schedule, tokens, asked.choices) {
            let full = match batch.events.first() {
                Some(first) => {
                    !first.mixes_with(&event)
                        || (first.kind != Kind::Role && batch.events.len() >= schedule.events_per_write as usize)
                }
                None => false,
            };
            if full {
                self.send_batch(&mut batch).await?;
            }
            writer.write(&event, &mut batch.bytes);
            batch.events.push(event);
        }
        self.send_batch(&mut batch).await?;

        let due = schedule.last_due(tokens).saturating_add(schedule.tail);
        for (kind, choice) in endings(character, asked) {
            let event = Planned { kind, choice, tokens: tokens..tokens, due };
            writer.write(&event, &mut batch.bytes);
            batch.events.push(event);
        }
        let then = match character.end {
            Some(EarlyEnd::Reset) => Then::Reset,
            Some(EarlyEnd::Fin) => Then::Cut,
            Some(EarlyEnd::Silence) => Then::Silence,
            None | Some(EarlyEnd::Truncate) if chunked => {
                batch.bytes.extend_from_slice(LAST_CHUNK);
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
                        self.record_event(Kind::Raw, 0, 0, due, sent);
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
        if let Some(first) = batch.events.first() {
            self.peer.until(self.due(first.due)).await?;
        }
        if !batch.bytes.is_empty() {
            let sent = self.peer.send(&batch.bytes).await?;
            if self.logs() {
                let due = self.due(batch.events.first().map_or_else(Default::default, |first| first.due));
                for event in &batch.events {
                    let tokens = event.tokens.end - event.tokens.start;
                    self.record_event(event.kind, event.choice, tokens, due, sent);
                }
            }
        }
        batch.events.clear();
        batch.bytes.clear();
        Ok(())
    }
}

const EVENT_STREAM: &str = "text/event-stream";

/// Events of one write.
#[derive(Default)]
struct Batch {
    events: Vec<Planned>,
    bytes: Vec<u8>,
}

/// The events after the last token, by kind and choice.
fn endings(character: &Character, asked: &Asked) -> Vec<(Kind, u32)> {
    if character.error_after.is_some() {
        return vec![(Kind::Error, 0)];
    }
    if character.end.is_some() {
        return Vec::new();
    }
    let mut endings = Vec::new();
    if character.finish {
        endings.extend((0..asked.choices).map(|choice| (Kind::Finish, choice)));
    }
    if asked.wants_usage(&character.schedule) {
        endings.push((Kind::Usage, 0));
    }
    if character.done {
        endings.push((Kind::Done, 0));
    }
    endings
}
