use super::*;
use std::time::Duration;

fn watch(streams: usize) -> (Arc<Watch>, Instant) {
    let watch = Watch::new(Arc::default());
    assert_eq!((0..streams).map(|_| watch.open()).collect::<Vec<_>>(), [1, 3, 5][..streams]);
    (watch, Instant::now())
}

fn stamp(start: Instant, number: u64) -> ReadStamp {
    ReadStamp { at: start + Duration::from_millis(number), number }
}

/// Data arrives, as (read, stream, bytes).
fn arrive(watch: &Watch, start: Instant, data: &[(u64, u32, usize)]) {
    for &(read, stream, bytes) in data {
        watch.known().arrived(Told::Data { stream, bytes, last: false }, stamp(start, read));
    }
}

#[test]
fn each_frame_has_the_read_that_ended_it_whenever_it_is_handed_on() {
    let (watch, start) = watch(2);
    // Two streams in turns; the first has two frames in one read, and one of its frames is empty.
    arrive(&watch, start, &[(1, 1, 10), (1, 3, 5), (2, 1, 10), (2, 1, 7), (3, 3, 1), (4, 1, 0), (5, 1, 3), (6, 9, 4)]);
    let reads = |stream, ends: &[u64]| -> Vec<u64> {
        ends.iter().map(|&end| watch.take_read(stream, end).map_or(0, |stamp| stamp.number)).collect()
    };
    assert_eq!(reads(1, &[10, 20, 27, 30]), [1, 2, 2, 5]);
    assert_eq!(reads(3, &[5, 6]), [1, 3]);
    assert_eq!(watch.last_read(1), Some(stamp(start, 5)));
    // A stream of nobody's leaves nothing behind, nor does one that is over.
    assert_eq!((reads(9, &[4]), watch.last_read(9)), (vec![0], None));
    watch.enter();
    watch.leave(Some(1), start);
    assert!(watch.last_read(1).is_none() && watch.known().streams.len() == 1);
}

#[test]
fn reads_that_nobody_takes_are_bounded_and_the_last_stands_for_them() {
    let (watch, start) = watch(1);
    let most = MOST_READS as u64;
    for read in 1..=most + 10 {
        arrive(&watch, start, &[(read, 1, 1)]);
    }
    assert_eq!(watch.known().streams[&1].reads.len(), MOST_READS);
    assert_eq!(watch.take_read(1, most - 1), Some(stamp(start, most - 1)));
    assert_eq!(watch.take_read(1, most + 3), Some(stamp(start, most + 10)));
}

#[test]
fn a_head_is_the_last_before_data_and_a_reset_is_the_streams_own() {
    let (watch, start) = watch(2);
    let headers = |read| watch.known().arrived(Told::Headers { stream: 1, last: false }, stamp(start, read));
    headers(1);
    headers(2);
    arrive(&watch, start, &[(3, 1, 1)]);
    headers(4);
    assert_eq!((watch.head(1), watch.last_read(1)), (Some(stamp(start, 2)), Some(stamp(start, 4))));
    watch.known().arrived(Told::Reset { stream: 3 }, stamp(start, 5));
    assert!(watch.was_reset(3) && !watch.was_reset(1));
}

#[test]
fn a_request_is_sent_with_its_own_last_frame() {
    let (watch, start) = watch(2);
    let at = |millis| start + Duration::from_millis(millis);
    let left = |stream, last, millis| watch.known().left(Told::Data { stream, bytes: 1, last }, at(millis));
    left(1, false, 1);
    left(3, true, 2);
    assert_eq!((watch.wrote(1), watch.sent(1), watch.sent(3)), (Some(at(1)), None, None));
    assert_eq!(watch.known().held_back, [3]);
    left(1, true, 3);
    assert_eq!(watch.known().held_back, [3, 1]);
}

#[test]
fn a_request_that_never_reached_the_wire_makes_the_numbers_doubtful() {
    let (watch, start) = watch(2);
    watch.known().left(Told::Headers { stream: 1, last: true }, start);
    watch.failed(Some(1));
    watch.failed(None);
    assert!(!watch.is_astray() && watch.wrote(1).is_some());
    watch.failed(Some(3));
    assert!(watch.is_astray() && watch.wrote(1).is_none());
}

#[test]
fn a_servers_bound_is_kept() {
    let (watch, start) = watch(0);
    for most in [1, 2] {
        watch.known().arrived(Told::MostStreams(most), stamp(start, 1));
        assert!(watch.has_room());
        watch.enter();
        assert!(!watch.has_room());
    }
    assert_eq!((watch.idle_since(), watch.active()), (None, 2));
    watch.leave(None, start);
    watch.leave(None, start);
    assert!(watch.has_room() && watch.idle_since() == Some(start));
}
