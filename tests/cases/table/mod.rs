//! The table: one test a case, named after it, with its outcome, its counts, N and N's source stated.

use streamgauge::measure::Outcome;
use streamgauge::measure::intervals::Source;
use streamgauge::wire::Usage;

use crate::replay::{Piece, event, token};

mod content;
mod endings;
mod framing;
mod odd;

const OK: Outcome = Outcome::Ok;

/// N counted from token events.
#[allow(clippy::unnecessary_wraps)] // what cases state
fn from_events(count: u64) -> Option<(u64, Source)> {
    Some((count, Source::Events))
}

/// N as usage gives it.
#[allow(clippy::unnecessary_wraps)] // what cases state
fn from_usage(count: u64) -> Option<(u64, Source)> {
    Some((count, Source::Usage))
}

fn usage(input: u64, output: u64) -> Usage {
    Usage { input: Some(input), output: Some(output), ..Usage::default() }
}

/// A chunk of choice 0 with this delta and finish reason, both JSON.
fn chunk(delta: &str, finish: &str) -> String {
    format!("data: {}\n\n", chunk_of(0, delta, finish))
}

/// The JSON of a chunk.
fn chunk_of(choice: u32, delta: &str, finish: &str) -> String {
    format!(r#"{{"id":"c1","model":"m-1","choices":[{{"index":{choice},"delta":{delta},"finish_reason":{finish}}}]}}"#)
}

/// A token event with this text.
fn word(text: &str) -> Piece {
    token(chunk(&format!(r#"{{"content":"{text}"}}"#), "null"))
}

fn role() -> Piece {
    event(chunk(r#"{"role":"assistant","content":""}"#, "null"))
}

fn stop() -> Piece {
    event(chunk("{}", r#""stop""#)).finishing()
}

fn done() -> Piece {
    event("data: [DONE]\n\n")
}

/// A chunk that only says these counts.
fn usage_chunk(input: u64, output: u64) -> Piece {
    event(format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{input},\"completion_tokens\":{output}}}}}\n\n"
    ))
    .never_asked("")
}
