use std::time::{Duration, SystemTime};

use super::*;
use crate::clock::from_monotonic_ns;
use crate::measure::intervals::{OutputTokens, Source};
use crate::measure::timeline::Marks;
use crate::measure::track::{CAPACITY, Tick, Track};
use crate::measure::{Anomalies, Outcome};
use crate::transport::ConnectPhases;

fn at(ms: u64) -> Instant {
    from_monotonic_ns(1_000_000_000_000 + ms * 1_000_000)
}

/// A stream that began at `began` ms: first token after `ttft` ms, then as many more, each `itl` ms later.
fn stream(began: u64, ttft: u64, itl: u64, more: u64) -> Exchange {
    let mut track = Track::default();
    for number in 0..=more {
        let at = Duration::from_millis(ttft + number * itl);
        let tick = Tick { at, choice: 0, tokens: 1, reasoning: false, coalesced: false, has_gap: number > 0 };
        track.push(tick);
        track.read_over(false);
    }
    let (first, last) = (at(began + ttft), at(began + ttft + itl * more));
    Exchange {
        ended: SystemTime::now(),
        operation: "chat",
        backend: Some("up".into()),
        model: "m".into(),
        model_requested: Some("m".into()),
        model_served: None,
        stream: Some(true),
        measured: true,
        outcome: Outcome::Ok,
        status: Some(200),
        marks: Marks {
            sent: Some(at(began)),
            first_event: Some(first),
            first_token: Some(first),
            last_token: Some(last),
            first_token_written: Some(first),
            last_token_written: Some(last),
            end: Some(last),
            ..Marks::new(at(began))
        },
        connect: ConnectPhases::default(),
        reused: Some(true),
        usage: None,
        prompt_counted: None,
        output: Some(OutputTokens { count: more + 1, source: Source::Events }),
        partly_hidden: false,
        token_events: more + 1,
        choices: 1,
        stall: Some(Duration::from_millis(itl)),
        track,
        anomalies: Anomalies::default(),
        tag: None,
    }
}

fn recent() -> Recent {
    Recent::new(["up".into(), "idle".into()], at(0))
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= expected * 0.01, "{found} instead of {expected}");
}

#[test]
fn percentiles_cover_the_last_minute_and_their_course_the_minutes_before() {
    let recent = recent();
    for number in 0..100 {
        // Within the first slot: TTFT 10 to 1,000 ms, and ITL 20 ms.
        recent.finished(&stream(number, 10 * (number + 1), 20, 10));
    }
    let windows = recent.windows(at(4_000));
    let [(name, up), (_, idle)] = &windows[..] else { panic!("two backends") };
    assert_eq!((&**name, up.requests, up.ok, up.cancels), ("up", 100, 100, 0));
    assert!(up.of(Shown::ItlCoalesced).0.is_none());
    let kinds = [Shown::Ttft, Shown::Itl, Shown::Tpot(Source::Events), Shown::Tgs(Source::Events)];
    let [ttft, itl, tpot, tgs] = kinds.map(|shown| up.of(shown).0.unwrap());
    assert!(up.of(Shown::Tpot(Source::Usage)).0.is_none(), "sources never mix");
    assert_eq!([ttft.count, itl.count, tpot.count, tgs.count], [100, 1000, 100, 100]);
    for (found, expected) in
        [(ttft.p50, 500.0), (ttft.p95, 950.0), (ttft.p99, 990.0), (itl.p99, 20.0), (tpot.p50, 20.0)]
    {
        near(found, expected);
    }
    // 11 tokens in 500 + 200 ms.
    near(tgs.p50, 11.0 / 0.710);
    assert!(up.course.iter().flatten().all(Option::is_none), "the slot is not over");
    assert!(idle.requests == 0 && idle.now.iter().all(Option::is_none));

    let later = recent.windows(at(12_000));
    let later = &later[0].1;
    let (now, course) = later.of(Shown::Ttft);
    assert_eq!(now, Some(ttft));
    let [median, p95] = course[SLOTS - 2].unwrap();
    near(median, 500.0);
    near(p95, 950.0);
    assert!(course[SLOTS - 1].is_none() && course.len() == SLOTS);

    let hour = recent.windows(at(3_600_000));
    let hour = &hour[0].1;
    assert!(hour.requests == 0 && hour.now.iter().all(Option::is_none));
    assert!(hour.course.iter().flatten().all(Option::is_none));
}

#[test]
fn a_slot_leaves_the_window_after_a_minute() {
    let recent = recent();
    recent.finished(&stream(1_000, 10, 1, 1));
    recent.finished(&stream(30_000, 10, 1, 1));
    for (now, requests) in [(54_999, 2), (60_001, 1), (89_400, 1), (90_001, 0)] {
        assert_eq!(recent.windows(at(now))[0].1.requests, requests, "at {now}");
    }
}

#[test]
fn what_has_no_value_enters_no_percentile() {
    let recent = recent();
    let cancelled = Exchange { outcome: Outcome::ClientCancelBeforeToken, ..stream(0, 10, 1, 0) };
    let marks = Marks { first_token: None, last_token: None, first_token_written: None, ..cancelled.marks };
    recent.finished(&Exchange { marks, output: None, track: Track::default(), ..cancelled });
    let whole = stream(0, 10, 1, 4);
    recent.finished(&Exchange { marks: Marks { first_event: None, ..whole.marks }, ..whole });
    recent.finished(&Exchange { backend: None, ..stream(0, 10, 1, 4) });
    let unmeasured = Exchange { measured: false, ..stream(0, 10, 1, 4) };
    recent.finished(&unmeasured);
    let windows = recent.windows(at(1));
    let up = &windows[0].1;
    assert_eq!((up.requests, up.ok, up.unconfirmed, up.cancels), (2, 1, 0, 1));
    assert!(up.now.iter().all(Option::is_none), "{:?}", up.now);
}

#[test]
fn the_newest_exchanges_are_kept_and_told_once() {
    let recent = recent();
    for _ in 0..MOST_ROWS + 88 {
        recent.finished(&stream(0, 10, 1, 3));
    }
    let numbers = |(rows, last): (Vec<Row>, u64)| (rows.iter().map(|row| row.number).collect::<Vec<_>>(), last);
    assert_eq!(numbers(recent.after(0, 3, usize::MAX)), (vec![598, 599, 600], 600));
    assert_eq!(numbers(recent.after(599, 3, usize::MAX)), (vec![600], 600));
    assert_eq!(numbers(recent.after(600, 3, usize::MAX)), (vec![], 600));
    assert_eq!(recent.after(0, usize::MAX, usize::MAX).0.len(), MOST_ROWS);
    // The newest comes even where it is too large.
    assert_eq!(numbers(recent.after(0, 3, 0)), (vec![600], 600));
}

#[test]
fn tracks_are_bounded_together() {
    let recent = recent();
    let long = stream(0, 10, 20, 20_000);
    for _ in 0..300 {
        recent.finished(&long);
    }
    let (rows, last) = recent.after(0, usize::MAX, usize::MAX);
    let bytes: usize = rows.iter().map(|row| row.exchange.track.size()).sum();
    assert_eq!(last, 300);
    assert!(
        bytes <= MOST_TRACK_BYTES && bytes > MOST_TRACK_BYTES - 2 * CAPACITY,
        "{bytes} bytes in {} rows",
        rows.len()
    );
}

#[test]
fn what_was_just_said_of_the_last_minutes_holds_for_a_moment() {
    let recent = recent();
    assert_eq!(recent.windows(at(1_000))[0].1.requests, 0);
    recent.finished(&Exchange { outcome: Outcome::Unconfirmed, ..stream(900, 10, 1, 1) });
    assert_eq!(recent.windows(at(1_400))[0].1.requests, 0);
    let fresh = recent.windows(at(1_500));
    assert_eq!((fresh[0].1.requests, fresh[0].1.ok, fresh[0].1.unconfirmed), (1, 0, 1));
}

#[test]
fn everything_shown_has_a_place_of_its_own() {
    let window = recent().windows(at(0))[0].1.clone();
    for (index, shown) in Shown::ALL.into_iter().enumerate() {
        let mut window = window.clone();
        window.now[index] = Some(Summary { count: 1, p50: 0.0, p95: 0.0, p99: 0.0 });
        let found: Vec<_> = Shown::ALL.into_iter().filter(|other| window.of(*other).0.is_some()).collect();
        assert_eq!(found, [shown]);
    }
}
