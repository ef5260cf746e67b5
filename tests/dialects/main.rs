//! What replies in the other dialects mean, in the manner of the table of chat's: one test a case, with its outcome, its
//! counts, N and N's source stated, played under every cut of its bytes.

#[path = "../cases/replay/mod.rs"]
mod replay;
#[path = "../support/mod.rs"]
mod support;

mod completion;
mod lists;
mod messages;
mod proxied;
mod responses;

use streamgauge::measure::Outcome;
use streamgauge::measure::intervals::Source;
use streamgauge::wire::Usage;

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
    Usage { output: Some(output), ..prompt(input) }
}

/// Usage that tells nothing but this.
fn prompt(input: u64) -> Usage {
    Usage { input: Some(input), ..Usage::default() }
}

/// A JSON object with a `type`, as the data of an event of that name.
fn named(json: &str) -> String {
    let kind = json.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split_once('"')).expect("a type").0;
    format!("event: {kind}\ndata: {json}\n\n")
}

/// The same piece, however its bytes are written.
fn written(piece: replay::Piece, how: impl Fn(&str) -> String) -> replay::Piece {
    let text = String::from_utf8(piece.bytes).expect("UTF-8");
    replay::Piece { bytes: how(&text).into_bytes(), ..piece }
}

/// Without the lines that name events.
fn without_names(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with("event:")).collect()
}

fn with_crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}
