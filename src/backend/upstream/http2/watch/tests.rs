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
        ends.iter()
            .map(|&end| watch.take_read(stream, end).and_then(|taken| taken.stamp).map_or(0, |stamp| stamp.number))
            .collect()
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
    let taken = |count| watch.take_read(1, count).unwrap();
    assert_eq!(taken(most - 1), Taken { stamp: Some(stamp(start, most - 1)), more: true });
    assert_eq!(taken(most + 3), Taken { stamp: Some(stamp(start, most + 10)), more: true });
    // Should more be handed on than was seen to come, the stream's own last read is what is known.
    arrive(&watch, start, &[(most + 20, 1, 1)]);
    assert_eq!(taken(most + 11), Taken { stamp: Some(stamp(start, most + 20)), more: false });
    assert_eq!(taken(most + 12), Taken { stamp: Some(stamp(start, most + 20)), more: false });
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
    watch.known().arrived(Told::Reset { stream: 3, refused: false }, stamp(start, 5));
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
fn a_request_that_never_reached_the_wire_makes_the_numbers_above_it_doubtful_and_no_others() {
    let (watch, start) = watch(3);
    for stream in [1, 5] {
        watch.known().left(Told::Headers { stream, last: true }, start);
    }
    assert!(!watch.failed(1) && !watch.is_retired() && watch.wrote(5).is_some());
    assert!(watch.failed(3), "nothing of it left");
    assert!(watch.is_retired());
    // A stream that runs is measured as before.
    arrive(&watch, start, &[(1, 1, 1), (2, 5, 1)]);
    assert!(watch.wrote(1).is_some() && watch.last_read(1) == Some(stamp(start, 1)));
    assert!(watch.wrote(5).is_none() && watch.take_read(5, 1).is_none());
    assert!(!watch.failed(5), "of which nothing can be said");
}

#[test]
fn what_the_server_says_it_did_not_process_is_known() {
    let (watch, start) = watch(3);
    let arrived = |told| watch.known().arrived(told, stamp(start, 1));
    for stream in [1, 3, 5] {
        watch.known().left(Told::Headers { stream, last: true }, start);
    }
    arrived(Told::Reset { stream: 1, refused: true });
    arrived(Told::Reset { stream: 3, refused: false });
    assert!(watch.failed(1) && !watch.failed(3) && !watch.failed(5) && !watch.is_retired());
    // The first end that a server sends may leave open where it is (RFC 9113, section 6.8).
    arrived(Told::GoAway { last: u32::MAX >> 1 });
    assert!(watch.is_retired() && !watch.failed(5));
    arrived(Told::GoAway { last: 3 });
    arrived(Told::GoAway { last: 7 });
    assert!(watch.failed(5) && !watch.failed(3));
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
