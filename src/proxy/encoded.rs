//! Request bodies that came encoded (RFC 9110, section 8.4): a copy is decoded, to be read.
//!
//! Invariants:
//! * No more is decoded than a request may have, whatever it was encoded from, and what all copies take together is
//!   bounded by the [`Room`] they are made in.
//! * One request does not keep a thread: after [`TURN`] others have a turn.

use bytes::{Bytes, BytesMut};

use super::failure::Refusal;
use super::request::ModelRequest;
use super::room::{Room, Share};
use crate::wire::Dialect;
use crate::wire::encoding::{Codings, Decoder, Undecodable};

/// How many bytes are decoded before others have a turn, about.
const TURN: usize = 128 << 10;
/// How many encoded bytes are looked at together.
const SLICE: usize = 1 << 10;

/// A copy that is counted as long as anyone has it.
struct Copied {
    plain: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.plain
    }
}

/// Reads a request whose body came encoded, of which at most `limit` bytes may come.
pub(super) async fn read(
    dialect: Dialect,
    codings: Codings,
    encoded: Bytes,
    limit: usize,
    room: &Room,
) -> Result<ModelRequest, Refusal> {
    let plain = decoded(codings, &encoded, limit, room).await?;
    Ok(ModelRequest::read(dialect, plain)?.that_came_as(encoded))
}

async fn decoded(codings: Codings, encoded: &[u8], limit: usize, room: &Room) -> Result<Bytes, Refusal> {
    let mut share = room.begin().ok_or(Refusal::NoRoomToDecode)?;
    // What the decoder itself takes is free again after it.
    let mut window = room.begin().ok_or(Refusal::NoRoomToDecode)?;
    if !window.hold((codings.memory_mib() as usize) << 20) {
        return Err(Refusal::NoRoomToDecode);
    }
    let mut decoder = Decoder::within(codings, limit).ok_or(Refusal::NoRoomToDecode)?;
    let mut plain = BytesMut::new();
    let mut turn = TURN;
    for slice in encoded.chunks(SLICE) {
        let undone = decoder.feed(slice, &mut |piece| {
            if plain.len() <= limit {
                plain.extend_from_slice(piece);
            }
        });
        if undone == Err(Undecodable::Bomb) || plain.len() > limit {
            return Err(Refusal::TooLarge { limit });
        }
        undone.map_err(|error| Refusal::Undecodable { problem: error.to_string() })?;
        if !share.hold(plain.capacity()) {
            return Err(Refusal::NoRoomToDecode);
        }
        if plain.len() >= turn {
            turn = plain.len() + TURN;
            tokio::task::yield_now().await;
        }
    }
    if !decoder.is_whole() {
        return Err(Refusal::Undecodable { problem: "it breaks off".to_owned() });
    }
    Ok(Bytes::from_owner(Copied { plain: plain.freeze(), _share: share }))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::proxy::room::MOST;

    const LIMIT: usize = 64 << 20;

    fn gzip() -> Codings {
        Codings::named(["gzip"]).unwrap()
    }

    fn zipped(length: usize) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&vec![b'x'; length]).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn copies_are_bounded_together_and_count_while_anyone_has_them() {
        let (room, large) = (Room::new(), zipped(4 << 20));
        let mut taken = room.begin().unwrap();
        {
            let mut decoding = pin!(decoded(gzip(), &large, LIMIT, &room));
            let waits = poll_fn(|cx| Poll::Ready(decoding.as_mut().poll(cx).is_pending())).await;
            assert!(waits);
            assert!(taken.hold(MOST - (3 << 20)));
            assert!(matches!(decoding.await, Err(Refusal::NoRoomToDecode)));
        }
        assert!(matches!(decoded(gzip(), &large, LIMIT, &room).await, Err(Refusal::NoRoomToDecode)));
        drop(taken);
        let copy = decoded(gzip(), &large, LIMIT, &room).await.unwrap().slice(7..);
        let mut all = room.begin().unwrap();
        assert!(!all.hold(MOST - (3 << 20)), "a part of it keeps the whole");
        drop(copy);
        assert!(all.hold(MOST));
    }

    #[tokio::test]
    async fn others_have_a_turn_in_between() {
        let (room, large) = (Room::new(), zipped(4 << 20));
        let mut turns = 0;
        let mut decoding = pin!(decoded(gzip(), &large, LIMIT, &room));
        let plain = poll_fn(|cx| {
            turns += 1;
            decoding.as_mut().poll(cx)
        });
        assert_eq!(plain.await.unwrap().len(), 4 << 20);
        assert!(turns > 2, "{turns}");
    }
}
