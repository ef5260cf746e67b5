//! How replies end: in order, in error, too early, in silence, or because the client left.

use streamgauge::measure::{Anomaly, Content, Outcome};

use super::{OK, chunk, done, from_events, role, stop, usage_chunk, word};
use crate::replay::{Case, End, event, nothing, stream};

const EVERY_END: [End; 5] = [End::Whole, End::Reset, End::Truncated, End::Silence, End::ClientLeaves];

fn two_words(rest: impl IntoIterator<Item = crate::replay::Piece>) -> Case {
    stream([role(), word("a"), word("b")].into_iter().chain(rest))
}

#[test]
fn finish_reason_no_done_and_an_open_socket() {
    // The socket stays open until the client hangs up, or silence lasts too long.
    for end in [End::ClientLeaves, End::Silence] {
        two_words([stop()]).ending(end).tells(OK, 1, 1, from_events(2)).under_every_cut();
    }
}

#[test]
fn done_followed_by_a_long_idle() {
    for end in [End::Silence, End::ClientLeaves] {
        two_words([stop(), done()]).ending(end).tells(OK, 1, 1, from_events(2)).under_every_cut();
    }
}

#[test]
fn once_finished_every_end_is_ok() {
    for end in EVERY_END {
        two_words([stop()]).ending(end).tells(OK, 1, 1, from_events(2)).under_every_cut();
    }
}

#[test]
fn done_twice() {
    two_words([stop(), done(), done()])
        .tells(OK, 1, 1, from_events(2))
        .anomaly(Anomaly::RepeatedDone, 1)
        .under_every_cut();
}

#[test]
fn done_without_any_finish_reason() {
    for end in EVERY_END {
        two_words([done()]).ending(end).tells(Outcome::Unconfirmed, 1, 1, from_events(2)).under_every_cut();
    }
}

#[test]
fn eof_with_neither_finish_reason_nor_done() {
    for (end, close_delimited) in [(End::Truncated, false), (End::Whole, false), (End::Whole, true)] {
        let mut case = two_words([usage_chunk(1, 2)]).ending(end);
        case.close_delimited = close_delimited;
        case.tells(Outcome::Truncated, 1, 1, super::from_usage(2)).usage(super::usage(1, 2)).under_every_cut();
    }
}

#[test]
fn a_body_that_only_its_connection_ends() {
    for rest in [vec![stop(), done()], vec![stop()]] {
        let mut case = two_words(rest);
        case.close_delimited = true;
        case.tells(OK, 1, 1, from_events(2)).under_every_cut();
    }
    // The end marker is the upstream's word that nothing follows: no break, though nothing confirms the answer.
    let mut case = two_words([done()]);
    case.close_delimited = true;
    case.tells(Outcome::Unconfirmed, 1, 1, from_events(2)).under_every_cut();
    // Its last event lacks the blank line, and yet it is the last.
    let stop = stop().bytes;
    let mut case = two_words([nothing(&stop[..stop.len() - 2]).finishing()]);
    case.close_delimited = true;
    case.tells(OK, 1, 1, from_events(2)).anomaly(Anomaly::UnterminatedEvent, 1).under_every_cut();
}

#[test]
fn upstream_reset_mid_event() {
    let half = chunk(r#"{"content":"c"}"#, "null");
    two_words([nothing(&half.as_bytes()[..half.len() / 2])])
        .ending(End::Reset)
        .tells(Outcome::Reset, 1, 1, from_events(2))
        .anomaly(Anomaly::UnterminatedEvent, 1)
        .anomaly(Anomaly::MalformedEvent, 1)
        .under_every_cut();
}

#[test]
fn upstream_that_falls_silent() {
    two_words([]).ending(End::Silence).tells(Outcome::Timeout, 1, 1, from_events(2)).under_every_cut();
    stream([role(), nothing(": ping\n\n")]).ending(End::Silence).tells(Outcome::Timeout, 0, 0, None).under_every_cut();
}

#[test]
fn client_that_leaves() {
    two_words([]).ending(End::ClientLeaves).tells(Outcome::ClientCancel, 1, 1, from_events(2)).under_every_cut();
    let silent = stream([role(), nothing(": ping\n\n")]).ending(End::ClientLeaves);
    silent.tells(Outcome::ClientCancelBeforeToken, 0, 0, None).under_every_cut();
}

const ERROR: &str = r#"{"error":{"message":"overloaded","type":"server_error","param":null,"code":503}}"#;

#[test]
fn a_framed_error_object_inside_a_200_stream() {
    // It beats whatever follows it, the end marker included.
    for end in EVERY_END {
        let pieces = [event(format!("data: {ERROR}\n\n")), done()];
        two_words(pieces).ending(end).tells(Outcome::InbandError, 1, 1, from_events(2)).under_every_cut();
    }
    let named = format!("event: error\r\ndata: {ERROR}\r\n\r\n");
    stream([event(named)]).tells(Outcome::InbandError, 0, 0, None).under_every_cut();
}

#[test]
fn a_bare_json_error_after_keep_alive_comments() {
    for bare in [ERROR.to_owned(), format!("{ERROR}\n"), ERROR.replacen(":{", ": {\n  ", 1) + "\n\n"] {
        stream([nothing(": PING\n\n"), nothing(": PING\n\n"), nothing(bare)])
            .tells(Outcome::InbandError, 0, 0, None)
            .anomaly(Anomaly::StrayJson, 1)
            .under_every_cut();
    }
    stream([nothing(": PING\n\n"), word("a"), nothing(format!("{ERROR}\n")), done()])
        .tells(Outcome::InbandError, 1, 0, from_events(1))
        .anomaly(Anomaly::StrayJson, 1)
        .under_every_cut();
}

#[test]
fn an_error_object_in_place_of_a_stream() {
    let mut case = stream([nothing(ERROR)]);
    case.content = Content::Unlabelled;
    case.tells(Outcome::InbandError, 0, 0, None).anomaly(Anomaly::JsonForStream, 1).under_every_cut();
}

#[test]
fn a_429_is_its_outcome_whatever_its_body() {
    for body in [ERROR, "slow down", "data: [DONE]\n\n"] {
        let mut case = stream([nothing(body)]);
        (case.status, case.content) = (429, Content::Unlabelled);
        case.tells(Outcome::Upstream4xx, 0, 0, None).under_every_cut();
    }
}
