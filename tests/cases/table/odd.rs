//! What does not belong into a stream: junk, NUL bytes, events too large to be looked at.

use streamgauge::measure::{Anomaly, Outcome};

use super::{OK, chunk, done, from_events, from_usage, role, stop, usage, usage_chunk, word};
use crate::replay::{End, Piece, event, nothing, stream, token, unreadable};

const MIB: usize = 1024 * 1024;

/// An event with three megabytes of text.
fn huge() -> Piece {
    unreadable(chunk(&format!(r#"{{"content":"{}"}}"#, "x".repeat(3 * MIB)), "null"))
}

#[test]
fn non_json_data_lines() {
    let pieces = [
        event("data: [PING]\n\n"),
        word("a"),
        event("data: keep-alive\n\n"),
        event("data: {\"choices\":[{\"delta\":{\"content\":\"cut of\n\n"),
        event("data: 42\n\n"),
        nothing("not a field at all\n\n"),
        word("b"),
        stop(),
        done(),
    ];
    stream(pieces).tells(OK, 1, 1, from_events(2)).anomaly(Anomaly::MalformedEvent, 4).under_every_cut();
}

#[test]
fn nul_bytes() {
    // Escaped, NUL is text like any other. Raw, it may not stand in JSON, and what it is the name of is no field.
    let pieces = [
        nothing("id: a\0b\n\n"),
        token(chunk(r#"{"content":"\u0000"}"#, "null")),
        event("data: \0\0\n\n"),
        event(chunk("{\"content\":\"a\0b\"}", "null")),
        nothing("\0data: {}\n\n"),
        word("c"),
        stop(),
        done(),
    ];
    stream(pieces).tells(OK, 1, 1, from_events(2)).anomaly(Anomaly::MalformedEvent, 2).under_every_cut();
}

#[test]
fn bytes_that_are_not_utf8() {
    // The standard decodes them as U+FFFD, which is a token.
    let mut broken = chunk(r#"{"content":"?"}"#, "null").into_bytes();
    let at = broken.iter().position(|byte| *byte == b'?').expect("a place");
    broken[at] = 0xff;
    stream([token(broken), word("b"), stop(), done()]).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn a_3_mib_line_between_tokens() {
    // What it was is unknown: no gap on either side of it, and no count of events to rely on.
    stream([role(), word("a"), word("b"), huge(), word("c"), word("d"), stop(), done()])
        .tells(OK, 1, 2, None)
        .anomaly(Anomaly::OversizedEvent, 1)
        .under_every_cut();
}

#[test]
fn a_3_mib_line_before_the_first_token() {
    // It may have been the first token, so no TTFT is taken; usage still tells N.
    stream([role(), huge(), word("a"), word("b"), stop(), usage_chunk(2, 9), done()])
        .tells(OK, 0, 1, from_usage(9))
        .usage(usage(2, 9))
        .anomaly(Anomaly::OversizedEvent, 1)
        .under_every_cut();
}

#[test]
fn a_3_mib_line_that_never_ends() {
    // It never became an event, so it takes nothing from those before it.
    let mut cut = huge().bytes;
    cut.truncate(2 * MIB);
    stream([word("a"), word("b"), nothing(cut)])
        .ending(End::Reset)
        .tells(Outcome::Reset, 1, 1, from_events(2))
        .anomaly(Anomaly::OversizedEvent, 1)
        .anomaly(Anomaly::UnterminatedEvent, 1)
        .under_every_cut();
}

#[test]
fn a_3_mib_comment_hides_nothing() {
    let comment = nothing(format!(": {}\n\n", "x".repeat(3 * MIB)));
    stream([word("a"), comment, word("b"), stop(), done()]).tells(OK, 1, 1, from_events(2)).under_every_cut();
}
