//! The character a request asks the simulation to play: the header `x-sim: key=value,key=value`; the keys are in the
//! documentation of the whole simulation.
//!
//! Invariant: parsing is strict. An unknown key is an error, since a typo would make a test prove nothing.

use std::str::FromStr;
use std::time::Duration;

use super::schedule::{Schedule, UsagePolicy};

/// A schedule and every way to depart from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Character {
    pub(super) schedule: Schedule,
    pub(super) request: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) end: Option<EarlyEnd>,
    pub(super) error_after: Option<u32>,
    pub(super) body_bytes: usize,
    pub(super) head: bool,
    pub(super) finish: bool,
    pub(super) done: bool,
    pub(super) script: Option<String>,
    pub(super) says: Says,
    /// Whether reasoning is told as a summary, in dialects that have both.
    pub(super) summary: bool,
    /// Whether an error inside a stream is an event of its own, in dialects where it may also be the reply's state.
    pub(super) error_event: bool,
}

/// What follows the reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    Text,
    Tool,
    Refusal,
}

/// How a stream ends after its last token when it does not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlyEnd {
    Reset,
    Fin,
    Truncate,
    Silence,
}

impl Character {
    /// `schedule` with nothing odd about it.
    pub(super) fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            request: None,
            status: None,
            end: None,
            error_after: None,
            body_bytes: 0,
            head: true,
            finish: true,
            done: true,
            script: None,
            says: Says::Text,
            summary: false,
            error_event: false,
        }
    }

    /// Applies the value of an `x-sim` header. The error is a sentence for the client.
    pub(super) fn apply(&mut self, header: &str) -> Result<(), String> {
        for pair in header.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("x-sim: `{pair}` is not key=value"))?;
            self.set(key.trim(), value.trim()).map_err(|problem| format!("x-sim: {key}: {problem}"))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let schedule = &mut self.schedule;
        match key {
            "head_ms" => schedule.head = millis(value)?,
            "ttft_ms" => schedule.ttft = millis(value)?,
            "itl_ms" => schedule.itl = millis(value)?,
            "prompt_ms" => schedule.per_prompt_token = millis(value)?,
            "stall_ms" => schedule.stall = millis(value)?,
            "stall_every" => schedule.stall_every = number(value)?,
            "tail_ms" => schedule.tail = millis(value)?,
            "tokens" => schedule.tokens = number(value)?,
            "tokens_per_event" => schedule.tokens_per_event = at_least_one(value)?,
            "events_per_write" => schedule.events_per_write = at_least_one(value)?,
            "role_first" => schedule.role_first = switch(value)?,
            "reasoning" => schedule.reasoning = number(value)?,
            "hidden" => schedule.hidden_reasoning = number(value)?,
            "usage" => schedule.usage = usage(value)?,
            "request" => self.request = Some(value.to_owned()),
            "status" => self.status = Some(status(value)?),
            "end" => self.end = Some(end(value)?),
            "error_after" => self.error_after = Some(number(value)?),
            "body_bytes" => self.body_bytes = number(value)?,
            "no_head" => self.head = !switch(value)?,
            "no_finish" => self.finish = !switch(value)?,
            "no_done" => self.done = !switch(value)?,
            "script" => self.script = Some(value.to_owned()),
            "tool" => self.says = says(value, Says::Tool)?,
            "refusal" => self.says = says(value, Says::Refusal)?,
            "summary" => self.summary = switch(value)?,
            "error_event" => self.error_event = switch(value)?,
            _ => return Err("no such key".into()),
        }
        Ok(())
    }
}

fn number<T: FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is not a number in range"))
}

fn at_least_one(value: &str) -> Result<u32, String> {
    match number(value)? {
        0 => Err("must be at least 1".into()),
        n => Ok(n),
    }
}

fn status(value: &str) -> Result<u16, String> {
    match number(value)? {
        n @ 200..=599 => Ok(n),
        n => Err(format!("{n} is not a final status, 200 to 599")),
    }
}

fn millis(value: &str) -> Result<Duration, String> {
    let ms: f64 = number(value)?;
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|_| format!("`{value}` is not a duration in milliseconds"))
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("`{value}` is neither 1 nor 0")),
    }
}

fn says(value: &str, what: Says) -> Result<Says, String> {
    Ok(if switch(value)? { what } else { Says::Text })
}

fn usage(value: &str) -> Result<UsagePolicy, String> {
    match value {
        "asked" => Ok(UsagePolicy::Asked),
        "always" => Ok(UsagePolicy::Always),
        "each" => Ok(UsagePolicy::EveryEvent),
        "never" => Ok(UsagePolicy::Never),
        _ => Err(format!("`{value}` is not asked, always, each or never")),
    }
}

fn end(value: &str) -> Result<EarlyEnd, String> {
    match value {
        "rst" => Ok(EarlyEnd::Reset),
        "fin" => Ok(EarlyEnd::Fin),
        "truncate" => Ok(EarlyEnd::Truncate),
        "silence" => Ok(EarlyEnd::Silence),
        _ => Err(format!("`{value}` is not rst, fin, truncate or silence")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_changes_what_it_names_and_nothing_else() {
        let mut character = Character::new(Schedule::default());
        character.apply("ttft_ms=120, itl_ms=2.5,tokens=40,end=rst,request=abc,no_done=1,").expect("valid");
        let mut expected = Character::new(Schedule {
            ttft: Duration::from_millis(120),
            itl: Duration::from_micros(2_500),
            tokens: 40,
            ..Schedule::default()
        });
        expected.end = Some(EarlyEnd::Reset);
        expected.request = Some("abc".into());
        expected.done = false;
        assert_eq!(character, expected);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (header, expected) in [
            ("tokns=4", "x-sim: tokns: no such key"),
            ("tokens", "x-sim: `tokens` is not key=value"),
            ("tokens=-1", "x-sim: tokens: `-1` is not a number in range"),
            ("tokens_per_event=0", "x-sim: tokens_per_event: must be at least 1"),
            ("itl_ms=-3", "x-sim: itl_ms: `-3` is not a duration in milliseconds"),
            ("ttft_ms=inf", "x-sim: ttft_ms: `inf` is not a duration in milliseconds"),
            ("status=101", "x-sim: status: 101 is not a final status, 200 to 599"),
            ("end=boom", "x-sim: end: `boom` is not rst, fin, truncate or silence"),
        ] {
            assert_eq!(Character::new(Schedule::default()).apply(header), Err(expected.to_owned()));
        }
    }
}
