use super::*;
use crate::clock::from_monotonic_ns;

fn at(ms: u64) -> Instant {
    from_monotonic_ns(5_000_000_000_000 + ms * 1_000_000)
}

fn stamp(number: u64, ms: u64) -> ReadStamp {
    ReadStamp { at: at(ms), number }
}

fn answer(index: u32) -> Choice {
    Choice { index, answer: true, ..Choice::default() }
}

fn event(choices: &[Choice]) -> Meaning<'static> {
    Meaning { choices: choices.into(), ..Meaning::default() }
}

fn counted(tokens: u64) -> Meaning<'static> {
    let usage = Some(Usage { output: Some(tokens), ..Usage::default() });
    Meaning { usage, ..event(&[answer(0)]) }
}

/// A timeline fed one read at a time.
struct Fed {
    timeline: Timeline,
    gaps: Vec<(u64, u32, bool)>,
}

impl Fed {
    fn new() -> Self {
        Self { timeline: Timeline::new(at(0)), gaps: Vec::new() }
    }

    fn read(&mut self, number: u64, ms: u64, events: &[Meaning<'_>]) -> Option<ReadSummary> {
        for event in events {
            self.timeline.event(event, stamp(number, ms));
        }
        self.over()
    }

    fn over(&mut self) -> Option<ReadSummary> {
        let gaps = &mut self.gaps;
        let told = |gap: Gap| (u64::try_from(gap.time.as_millis()).unwrap(), gap.tokens, gap.exact);
        let summary = self.timeline.read_over(|gap| gaps.push(told(gap)));
        // What is kept of the token events says the same.
        assert_eq!(self.timeline.track.gaps().map(told).collect::<Vec<_>>(), *gaps);
        summary
    }
}

#[test]
fn gaps_lie_between_consecutive_token_events_of_one_choice() {
    let mut fed = Fed::new();
    fed.read(1, 10, &[event(&[answer(0)])]);
    fed.read(2, 15, &[event(&[answer(1)])]);
    fed.read(3, 30, &[event(&[answer(0)])]);
    fed.read(4, 36, &[event(&[answer(1)])]);
    assert_eq!(fed.gaps, [(20, 1, true), (21, 1, true)]);
    assert_eq!(fed.timeline.longest_gap, Some(Duration::from_millis(21)));
    assert_eq!((fed.timeline.choices(), fed.timeline.counted_from_events()), (2, Some(4)));
}

#[test]
fn events_that_share_a_read_make_the_gaps_on_both_sides_coalesced() {
    let mut fed = Fed::new();
    fed.read(1, 10, &[event(&[answer(0)])]);
    let summary = fed.read(2, 20, &[event(&[]), event(&[answer(0)]), event(&[answer(0)])]);
    assert_eq!(summary, Some(ReadSummary { events: 3, token_events: 2 }));
    fed.read(3, 30, &[event(&[answer(0)])]);
    fed.read(4, 45, &[event(&[answer(0)])]);
    assert_eq!(fed.gaps, [(10, 1, false), (0, 1, false), (10, 1, false), (15, 1, true)]);
}

#[test]
fn an_event_without_output_that_shares_a_read_leaves_the_gap_exact() {
    let mut fed = Fed::new();
    fed.read(1, 10, &[event(&[]), event(&[answer(0)])]);
    fed.read(2, 20, &[event(&[answer(0)]), event(&[])]);
    assert_eq!(fed.gaps, [(10, 1, true)]);
}

#[test]
fn one_event_for_two_choices_is_one_event_and_two_feeds() {
    let mut fed = Fed::new();
    fed.read(1, 10, &[event(&[answer(0), answer(1)])]);
    fed.read(2, 22, &[event(&[answer(0), answer(1)])]);
    assert_eq!(fed.gaps, [(12, 1, true), (12, 1, true)]);
    assert_eq!((fed.timeline.token_events, fed.timeline.counted_from_events()), (2, Some(4)));
}

#[test]
fn an_event_known_to_carry_tokens_divides_its_gap() {
    let mut fed = Fed::new();
    fed.read(1, 0, &[event(&[answer(0)])]);
    fed.read(2, 30, &[event(&[Choice { tokens: Some(3), ..answer(0) }])]);
    assert_eq!(fed.gaps, [(30, 3, true)]);

    let mut fed = Fed::new();
    fed.read(1, 0, &[counted(2)]);
    fed.read(2, 30, &[counted(6)]);
    fed.read(3, 40, &[counted(6)]);
    fed.read(4, 50, &[event(&[answer(0)])]);
    fed.read(5, 60, &[counted(9)]);
    assert_eq!(fed.gaps, [(30, 4, true), (10, 1, true), (10, 1, true), (10, 1, true)]);
}

#[test]
fn a_count_beyond_belief_is_an_anomaly_and_not_a_loop() {
    let mut fed = Fed::new();
    fed.read(1, 0, &[counted(1)]);
    fed.read(2, 30, &[counted(1_000_000_000_000)]);
    assert_eq!(fed.gaps, [(30, 1, true)]);
    assert_eq!(fed.timeline.anomalies.count(Anomaly::ImplausibleCount), 1);
}

#[test]
fn a_report_beyond_belief_is_no_usage() {
    let believed = |usage: Usage| {
        let mut fed = Fed::new();
        fed.read(1, 0, &[Meaning { usage: Some(usage), ..Meaning::default() }]);
        (fed.timeline.usage.unwrap(), fed.timeline.anomalies.count(Anomaly::ImplausibleCount))
    };
    let sane = Usage { input: Some(9), output: Some(7), reasoning: Some(7), cached: Some(0) };
    assert_eq!(believed(sane), (sane, 0));
    let huge = Usage { output: Some(u64::MAX), ..sane };
    assert_eq!(believed(huge), (Usage { output: None, reasoning: None, ..sane }, 1));
    assert_eq!(believed(Usage { reasoning: Some(8), ..sane }), (Usage { reasoning: None, ..sane }, 1));
    assert_eq!(believed(Usage { cached: Some(10), ..sane }), (Usage { cached: None, ..sane }, 1));
}

#[test]
fn an_unreadable_event_leaves_no_gap_on_either_side() {
    let mut fed = Fed::new();
    fed.read(1, 0, &[event(&[answer(0)])]);
    fed.timeline.unreadable(stamp(2, 10));
    fed.over();
    fed.read(3, 20, &[event(&[answer(0)])]);
    fed.read(4, 30, &[event(&[answer(0)])]);
    assert_eq!(fed.gaps, [(10, 1, true)]);
    let timeline = &fed.timeline;
    assert_eq!((timeline.marks.first_token, timeline.marks.last_token), (Some(at(0)), Some(at(30))));
    assert_eq!((timeline.counted_from_events(), timeline.stall()), (None, None));
    assert_eq!(timeline.anomalies.count(Anomaly::OversizedEvent), 1);
}

#[test]
fn an_unreadable_event_before_the_first_token_hides_it() {
    let mut fed = Fed::new();
    fed.timeline.unreadable(stamp(1, 5));
    fed.over();
    fed.read(2, 10, &[event(&[answer(0)])]);
    let marks = &fed.timeline.marks;
    assert_eq!((marks.first_event, marks.first_token, marks.first_answer), (Some(at(5)), None, None));
    assert_eq!(marks.last_token, Some(at(10)));
}

#[test]
fn reasoning_is_a_token_but_no_answer() {
    let mut fed = Fed::new();
    let thinking = Choice { reasoning: true, ..Choice::default() };
    fed.read(1, 10, &[event(&[thinking])]);
    fed.read(2, 20, &[event(&[answer(0)])]);
    let marks = &fed.timeline.marks;
    assert_eq!((marks.first_token, marks.first_answer), (Some(at(10)), Some(at(20))));
    assert!(fed.timeline.saw_reasoning);
    assert_eq!(fed.gaps, [(10, 1, true)]);
}

/// Usage of 100 tokens of output, 64 of them reasoning.
fn of_reasoning() -> Meaning<'static> {
    let usage = Usage { output: Some(100), reasoning: Some(64), ..Usage::default() };
    Meaning { usage: Some(usage), ..Meaning::default() }
}

#[test]
fn reasoning_that_is_shown_in_part_is_not_shown() {
    let thinking = Choice { reasoning: true, ..Choice::default() };
    let hiding = |meaning| Meaning { partly_hidden: true, ..meaning };
    let (thought, summary) = (event(&[thinking]), hiding(event(&[thinking])));
    let (kept_back, word) = (hiding(Meaning::default()), event(&[answer(0)]));
    let cases = [
        ("whole", vec![&thought, &word], Reasoning::Shown, [false, false]),
        ("a summary", vec![&summary, &word], Reasoning::Hidden, [true, true]),
        ("some", vec![&thought, &kept_back, &word], Reasoning::Hidden, [true, true]),
        ("none", vec![&word], Reasoning::Hidden, [false, false]),
        ("none, as is said", vec![&kept_back, &word], Reasoning::Hidden, [true, false]),
        ("none, between tokens", vec![&word, &kept_back, &word], Reasoning::Hidden, [true, true]),
    ];
    for (what, events, reasoning, hidden) in cases {
        let mut timeline = Timeline::new(at(0));
        for (event, number) in events.into_iter().zip(1..) {
            timeline.event(event, stamp(number, number * 10));
            timeline.read_over(|_| {});
        }
        let before = timeline.partly_hidden();
        timeline.unterminated(&of_reasoning(), at(90));
        assert_eq!((timeline.reasoning(), [before, timeline.partly_hidden()]), (reasoning, hidden), "{what}");
    }
}

#[test]
fn a_clock_that_runs_back_gives_no_gap() {
    let mut fed = Fed::new();
    fed.read(1, 10, &[event(&[answer(0)])]);
    fed.read(2, 9, &[event(&[answer(0)])]);
    assert!(fed.gaps.is_empty());
    assert_eq!(fed.timeline.anomalies.count(Anomaly::Clock), 1);
}

#[test]
fn an_unterminated_event_is_heard_but_is_no_token() {
    let mut fed = Fed::new();
    let meaning = Meaning {
        usage: Some(Usage { output: Some(7), ..Usage::default() }),
        ..event(&[Choice { finished: true, ..answer(0) }])
    };
    fed.timeline.unterminated(&meaning, at(10));
    assert!(fed.timeline.all_seen_finished());
    assert_eq!((fed.timeline.token_events, fed.timeline.usage.unwrap().output), (0, Some(7)));
    assert_eq!((fed.timeline.marks.first_event, fed.timeline.marks.finish), (None, Some(at(10))));
}

#[test]
fn choices_without_end_are_not_followed() {
    let mut fed = Fed::new();
    for index in 0..200 {
        fed.read(u64::from(index), u64::from(index), &[event(&[answer(index)])]);
    }
    assert_eq!(fed.timeline.choices(), MOST_CHOICES);
    assert!(fed.timeline.anomalies.count(Anomaly::ImplausibleCount) > 0);
}
