//! When every event of a reply is due: arithmetic alone, no clock.
//!
//! Invariant: a deadline is an offset from the request's arrival and depends on nothing that happened since.

use std::ops::Range;
use std::time::Duration;

use super::log::Kind;

/// How a reply is spread over time. All offsets count from the instant at which the request's last byte was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// When the head of a stream is due; the head of any other reply leaves together with its body.
    pub head: Duration,
    /// When the first token event is due, whatever the prompt.
    pub ttft: Duration,
    /// What each token of the prompt adds to that, as prefill does.
    pub per_prompt_token: Duration,
    /// The gap between token events: token event k is due at `ttft + k × itl`, and what stalls have added.
    pub itl: Duration,
    /// What a stall adds to a gap.
    pub stall: Duration,
    /// A stall precedes every so manyth token event after the first; 0 for none.
    pub stall_every: u32,
    /// From the last token event to the finish reason, the token counts and the end.
    pub tail: Duration,
    /// Output tokens of each choice, unless the request allows fewer.
    pub tokens: u32,
    /// Tokens in each token event, at least 1.
    pub tokens_per_event: u32,
    /// Token events in each write, at least 1; they are due together, with the first of them.
    pub events_per_write: u32,
    /// An event that only names the role, or begins the reply in dialects that have such, due right after the head.
    pub role_first: bool,
    /// How many of the tokens, from the first on, are reasoning.
    pub reasoning: u32,
    /// Reasoning tokens that are counted in `usage` but never shown.
    pub hidden_reasoning: u32,
    /// When a stream reports its token counts.
    pub usage: UsagePolicy,
}

/// When a stream reports its token counts. A reply that is not a stream always does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsagePolicy {
    /// When the request's `stream_options.include_usage` asks for it; in dialects that count unasked, always.
    Asked,
    /// Always, at the end.
    Always,
    /// In every event with choices, counting up, and at the end; in dialects without choices, at the end.
    EveryEvent,
    /// Never, not even when asked.
    Never,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            head: Duration::ZERO,
            ttft: Duration::from_millis(200),
            per_prompt_token: Duration::ZERO,
            itl: Duration::from_millis(20),
            stall: Duration::ZERO,
            stall_every: 0,
            tail: Duration::ZERO,
            tokens: 64,
            tokens_per_event: 1,
            events_per_write: 1,
            role_first: false,
            reasoning: 0,
            hidden_reasoning: 0,
            usage: UsagePolicy::Asked,
        }
    }
}

impl Schedule {
    /// How many token events carry `tokens` tokens.
    pub fn events(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.tokens_per_event.max(1))
    }

    /// When token event number `event` is due, counted from 0.
    pub fn due(&self, event: u32) -> Duration {
        let stalls = event.checked_div(self.stall_every).unwrap_or(0);
        let gaps = self.itl.saturating_mul(event).saturating_add(self.stall.saturating_mul(stalls));
        self.ttft.saturating_add(gaps)
    }

    /// The schedule of a reply to a prompt of so many tokens.
    #[must_use]
    pub fn for_prompt(self, tokens: u64) -> Self {
        let prefill = self.per_prompt_token.saturating_mul(u32::try_from(tokens).unwrap_or(u32::MAX));
        Self { ttft: self.ttft.saturating_add(prefill), per_prompt_token: Duration::ZERO, ..self }
    }

    /// When the last of `tokens` tokens is due: the instant of a whole reply. `ttft` for an empty one.
    pub fn last_due(&self, tokens: u32) -> Duration {
        self.due(self.events(tokens).saturating_sub(1))
    }
}

/// One SSE event to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) kind: Kind,
    pub(super) choice: u32,
    /// The tokens it carries; for an event without any, empty.
    pub(super) tokens: Range<u32>,
    pub(super) due: Duration,
}

impl Planned {
    /// Whether it may share a write with `other`: beginnings, token events and endings never mix.
    pub(super) fn mixes_with(&self, other: &Self) -> bool {
        let part = |kind| match kind {
            Kind::Role => 0,
            Kind::Token | Kind::Reasoning => 1,
            _ => 2,
        };
        part(self.kind) == part(other.kind)
    }
}

/// The events that a stream of `tokens` tokens in each of `choices` choices has up to its last token, in order.
pub(super) fn body_of(schedule: Schedule, tokens: u32, choices: u32) -> impl Iterator<Item = Planned> {
    let roles = (0..if schedule.role_first { choices } else { 0 }).map(move |choice| Planned {
        kind: Kind::Role,
        choice,
        tokens: 0..0,
        due: schedule.head,
    });
    let per_event = schedule.tokens_per_event.max(1);
    let token_events = (0..schedule.events(tokens)).flat_map(move |event| {
        let first = event * per_event;
        let carried = first..first.saturating_add(per_event).min(tokens);
        let kind = if carried.end <= schedule.reasoning { Kind::Reasoning } else { Kind::Token };
        (0..choices).map(move |choice| Planned { kind, choice, tokens: carried.clone(), due: schedule.due(event) })
    });
    roles.chain(token_events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_multiples_not_sums() {
        let schedule = Schedule { itl: Duration::from_nanos(333_333_333), ..Schedule::default() };
        assert_eq!(schedule.due(0), schedule.ttft);
        assert_eq!(schedule.due(9_001), schedule.ttft + Duration::from_nanos(333_333_333 * 9_001));
        assert_eq!(schedule.last_due(0), schedule.ttft);
        assert_eq!(schedule.last_due(3), schedule.due(2));
    }

    #[test]
    fn stalls_and_prompts_add_to_what_is_due() {
        let ms = Duration::from_millis;
        let stalls = Schedule { ttft: ms(100), itl: ms(10), stall: ms(500), stall_every: 3, ..Schedule::default() };
        let due: Vec<_> = (0..7).map(|event| stalls.due(event).as_millis()).collect();
        assert_eq!(due, [100, 110, 120, 630, 640, 650, 1160]);
        let prompt = Schedule { per_prompt_token: Duration::from_micros(250), ..stalls }.for_prompt(400);
        assert_eq!(prompt, Schedule { ttft: ms(200), ..stalls });
    }

    #[test]
    fn tokens_are_dealt_out_in_order_and_the_last_event_takes_the_rest() {
        let schedule = Schedule { tokens_per_event: 3, reasoning: 4, role_first: true, ..Schedule::default() };
        let plan: Vec<_> = body_of(schedule, 8, 2).map(|p| (p.kind, p.choice, p.tokens, p.due)).collect();
        let token = |kind, choice, tokens: Range<u32>, event| (kind, choice, tokens, schedule.due(event));
        assert_eq!(
            plan,
            [
                (Kind::Role, 0, 0..0, Duration::ZERO),
                (Kind::Role, 1, 0..0, Duration::ZERO),
                token(Kind::Reasoning, 0, 0..3, 0),
                token(Kind::Reasoning, 1, 0..3, 0),
                token(Kind::Token, 0, 3..6, 1),
                token(Kind::Token, 1, 3..6, 1),
                token(Kind::Token, 0, 6..8, 2),
                token(Kind::Token, 1, 6..8, 2),
            ]
        );
    }
}
