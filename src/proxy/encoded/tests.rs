use std::future::poll_fn;
use std::io::Write;
use std::pin::pin;
use std::task::Poll;

use hyper::HeaderMap;

use super::*;
use crate::proxy::room::MOST;

const LIMIT: usize = 64 << 20;
/// What the bodies here are decoded to, about.
const LARGE: usize = 4 << 20;

/// A chat request that is mostly one letter, but not so much that it would be out of proportion.
fn zipped() -> Bytes {
    let mut noise = 1_u32;
    let letters = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + u8::try_from(noise >> 28).unwrap())
    });
    let body = format!(r#"{{"model":"m","x":"{}{}"}}"#, letters.take(1 << 17).collect::<String>(), "x".repeat(LARGE));
    zip(body.as_bytes())
}

fn zip(body: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap().into()
}

fn gzip() -> Codings {
    Codings::named(["gzip"]).unwrap()
}

async fn read(decoding: &Decoding, encoded: &Bytes) -> Result<ModelRequest, Refusal> {
    decoding.read(Dialect::Chat, gzip(), encoded.clone(), LIMIT).await
}

/// How much of the room is taken, in MiB.
fn taken(room: &Room) -> usize {
    let mut rest = room.begin().unwrap();
    (0..=MOST >> 20).find(|mib| rest.hold(MOST - (mib << 20))).unwrap()
}

#[test]
fn room_is_taken_before_a_copy_grows_and_given_back_where_there_is_none() {
    let (room, asker, encoded) = (Room::new(), Arc::new(()), zipped());
    let read = || Job::begin(&room, gzip(), encoded.clone(), LIMIT);
    let job = read().unwrap();
    let mut all = room.begin().unwrap();
    assert!(all.hold(MOST - (3 << 20)));
    assert!(matches!(job.read(Dialect::Chat, &Arc::downgrade(&asker)), Err(Refusal::NoRoomToDecode)));
    assert!(matches!(read(), Err(Refusal::NoRoomToDecode)));
    drop(all);
    assert_eq!(taken(&room), 0);
    assert!(read().unwrap().read(Dialect::Chat, &Arc::downgrade(&asker)).is_ok());
}

#[test]
fn nothing_is_decoded_for_one_who_has_left() {
    let room = Room::new();
    let job = Job::begin(&room, gzip(), zipped(), LIMIT).unwrap();
    assert!(matches!(job.read(Dialect::Chat, &Weak::new()), Err(Refusal::ClientBody)));
    assert_eq!(taken(&room), 0);
}

#[test]
fn what_is_out_of_proportion_or_too_large_is_told_apart() {
    let (room, asker) = (Room::new(), Arc::new(()));
    let read = |encoded: &Bytes, limit| {
        Job::begin(&room, gzip(), encoded.clone(), limit).unwrap().read(Dialect::Chat, &Arc::downgrade(&asker))
    };
    let blown = zip(&vec![b' '; LARGE]);
    let most = in_proportion(blown.len());
    assert!(most < LARGE);
    assert!(matches!(read(&blown, LIMIT), Err(Refusal::OutOfProportion { most: told }) if told == most));
    assert!(matches!(read(&blown, most - 1), Err(Refusal::TooLarge { limit }) if limit == most - 1));
    assert!(matches!(read(&zipped(), LARGE), Err(Refusal::TooLarge { limit: LARGE })));
    assert_eq!(taken(&room), 0);
}

#[tokio::test]
async fn a_copy_counts_only_while_it_is_needed() {
    let (decoding, encoded) = (Decoding::new(), zipped());
    let room = &decoding.room;
    let wanted = read(&decoding, &encoded).await.unwrap();
    assert!(taken(room) >= LARGE >> 20);
    // What goes on as it came needs none, nor does a mirror, which counts for itself.
    let mirrored = wanted.plain();
    let onward = wanted.into_onward(&mut HeaderMap::new(), None);
    assert!(onward == encoded && mirrored.body().len() > LARGE);
    assert_eq!(taken(room), 0);
    // What goes on plain is the copy, in part and whole.
    for alias in [None, Some("other")] {
        let wanted = read(&decoding, &encoded).await.unwrap();
        let part = match alias {
            Some(_) => wanted.into_onward(&mut HeaderMap::new(), alias),
            None => wanted.into_body(None),
        }
        .slice(7..);
        assert!(part.len() > LARGE && taken(room) >= LARGE >> 20);
        drop(part);
        assert_eq!(taken(room), 0);
    }
}

#[tokio::test]
async fn bodies_wait_for_a_place_and_not_on_the_thread_that_serves() {
    let (decoding, encoded) = (Decoding::new(), zipped());
    let places = decoding.places.clone();
    let all = places.clone().try_acquire_many_owned(u32::try_from(AT_ONCE).unwrap()).unwrap();
    {
        // One that leaves while it waits takes nothing along.
        let mut left = pin!(read(&decoding, &encoded));
        assert!(poll_fn(|cx| Poll::Ready(left.as_mut().poll(cx).is_pending())).await);
        assert_eq!(taken(&decoding.room), 0);
    }
    let mut waits = pin!(read(&decoding, &encoded));
    assert!(poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending())).await);
    drop(all);
    assert!(waits.await.is_ok());
    {
        let mut left = pin!(read(&decoding, &encoded));
        let _over = poll_fn(|cx| Poll::Ready(left.as_mut().poll(cx).is_ready())).await;
    }
    // One that leaves while it is decoded gives its place back, and then what it had taken.
    let _all = places.acquire_many(u32::try_from(AT_ONCE).unwrap()).await.unwrap();
    while taken(&decoding.room) > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn the_thread_that_serves_decodes_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (decoding, encoded) = (Decoding::new(), zipped());
        let (free, busy) = std::sync::mpsc::sync_channel(1);
        let other = tokio::task::spawn_blocking(move || busy.recv());
        let mut waits = pin!(read(&decoding, &encoded));
        for _ in 0..100 {
            assert!(poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending())).await);
            tokio::task::yield_now().await;
        }
        free.send(()).unwrap();
        assert!(waits.await.is_ok() && other.await.unwrap().is_ok());
    });
}
