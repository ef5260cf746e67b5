//! Request bodies that came encoded (RFC 9110, section 8.4): a copy is decoded, to be read.
//!
//! Invariants:
//! * No thread that serves decodes, or looks through what came out: that is done on blocking threads, [`AT_ONCE`] of them.
//!   Who leaves gives its place back, at the latest after the [`SLICE`] at hand.
//! * No copy becomes larger than a request may be, nor than is in [proportion](in_proportion) to what was sent; all its
//!   codings together take as much for each of them.
//! * What all copies take together is bounded, about, by the [`Room`] they are made in, and taken there before it is
//!   allocated.

use std::panic::resume_unwind;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::failure::Refusal;
use super::request::ModelRequest;
use super::room::{Room, Share};
use crate::wire::Dialect;
use crate::wire::encoding::{Codings, Decoder, Undecodable, in_proportion};

/// How many bodies are decoded at a time; the others wait in the order in which they came.
const AT_ONCE: usize = 4;
/// How many encoded bytes are looked at together.
const SLICE: usize = 1 << 10;
/// The least that is allocated for a copy.
const LEAST: usize = 8 << 10;

/// Where the bodies of all threads are decoded.
#[derive(Debug)]
pub(super) struct Decoding {
    room: Room,
    places: Arc<Semaphore>,
}

/// One body to be decoded, with what of the room it has begun.
struct Job {
    codings: Codings,
    encoded: Bytes,
    /// `max_body_bytes`.
    limit: usize,
    copy: Share,
    /// What the decoder itself takes, which is free again after it.
    windows: Share,
}

impl Decoding {
    /// With nothing in it.
    pub(super) fn new() -> Self {
        Self { room: Room::new(), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Reads a request whose body came encoded, of which at most `limit` bytes may come.
    pub(super) async fn read(
        &self,
        dialect: Dialect,
        codings: Codings,
        encoded: Bytes,
        limit: usize,
    ) -> Result<ModelRequest, Refusal> {
        let Ok(place) = self.places.clone().acquire_owned().await else { return Err(Refusal::NoRoomToDecode) };
        let job = Job::begin(&self.room, codings, encoded, limit)?;
        let asker = Arc::new(());
        let asking = Arc::downgrade(&asker);
        let reading = spawn_blocking(move || {
            let read = job.read(dialect, &asking);
            drop(place);
            read
        });
        let read = reading.await;
        drop(asker);
        read.unwrap_or_else(|gone| match gone.try_into_panic() {
            // It is this request's own, as if it had been read here.
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(Refusal::ClientBody),
        })
    }
}

impl Job {
    fn begin(room: &Room, codings: Codings, encoded: Bytes, limit: usize) -> Result<Self, Refusal> {
        let copy = room.begin().ok_or(Refusal::NoRoomToDecode)?;
        let mut windows = room.begin().ok_or(Refusal::NoRoomToDecode)?;
        if !windows.hold((codings.memory_mib() as usize) << 20) {
            return Err(Refusal::NoRoomToDecode);
        }
        Ok(Self { codings, encoded, limit, copy, windows })
    }

    /// Decodes the body and looks at what it asks for, unless nobody is `asking` any more.
    fn read(self, dialect: Dialect, asking: &Weak<()>) -> Result<ModelRequest, Refusal> {
        let Self { codings, encoded, limit, copy, windows } = self;
        let most = limit.min(in_proportion(encoded.len()));
        let too_much = || if most == limit { Refusal::TooLarge { limit } } else { Refusal::OutOfProportion { most } };
        let mut decoder = Decoder::within(codings, most).ok_or(Refusal::NoRoomToDecode)?;
        let mut copy = Plain { plain: Vec::new(), share: copy, most, stopped: None };
        for slice in encoded.chunks(SLICE) {
            if asking.strong_count() == 0 {
                return Err(Refusal::ClientBody);
            }
            let undone = decoder.feed(slice, &mut |piece| copy.add(piece, asking));
            match (copy.stopped, undone) {
                (Some(Stopped::NoRoom), _) => return Err(Refusal::NoRoomToDecode),
                (Some(Stopped::Left), _) => return Err(Refusal::ClientBody),
                (Some(Stopped::TooMuch), _) | (None, Err(Undecodable::Bomb)) => return Err(too_much()),
                (None, Err(error @ Undecodable::Damaged)) => {
                    return Err(Refusal::Undecodable { problem: error.to_string() });
                }
                (None, Ok(())) => {}
            }
        }
        if !decoder.is_whole() {
            return Err(Refusal::Undecodable { problem: "it breaks off".to_owned() });
        }
        drop((decoder, windows));
        let Plain { mut plain, share, .. } = copy;
        if asking.strong_count() == 0 {
            return Err(Refusal::ClientBody);
        }
        // A mirror that has it counts what is used.
        plain.shrink_to_fit();
        Ok(ModelRequest::read(dialect, plain.into())?.that_came_as(encoded, share))
    }
}

/// A copy so far.
struct Plain {
    plain: Vec<u8>,
    share: Share,
    /// How large it may become, in bytes.
    most: usize,
    /// Why nothing is added any more. `None` while something is.
    stopped: Option<Stopped>,
}

#[derive(Debug, Clone, Copy)]
enum Stopped {
    TooMuch,
    NoRoom,
    /// Nobody asks any more.
    Left,
}

impl Plain {
    fn add(&mut self, piece: &[u8], asking: &Weak<()>) {
        let length = self.plain.len() + piece.len();
        if self.stopped.is_some() {
            return;
        }
        if asking.strong_count() == 0 {
            self.stopped = Some(Stopped::Left);
            return;
        }
        if length > self.most {
            self.stopped = Some(Stopped::TooMuch);
            return;
        }
        if length > self.plain.capacity() {
            let capacity = (2 * self.plain.capacity()).max(LEAST).min(self.most).max(length);
            if !self.share.hold(capacity) {
                self.stopped = Some(Stopped::NoRoom);
                return;
            }
            self.plain.reserve_exact(capacity - self.plain.len());
        }
        self.plain.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests;
