//! How events are written: line ends, fields, comments, byte order marks, and where the bytes are cut.

use bytes::Bytes;
use streamgauge::measure::Anomaly;

use super::{OK, chunk, chunk_of, done, from_events, role, stop, word};
use crate::replay::{Pace, Piece, Replay, event, nothing, stream, token};

/// The same piece with other line ends.
fn with_line_ends(piece: Piece, line_end: &str) -> Piece {
    let text = String::from_utf8(piece.bytes).expect("UTF-8");
    Piece { bytes: text.replace('\n', line_end).into_bytes(), ..piece }
}

fn two_words() -> [Piece; 5] {
    [role(), word("hel"), word("lo"), stop(), done()]
}

#[test]
fn lf_line_ends() {
    stream(two_words()).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn crlf_line_ends() {
    let pieces = two_words().map(|piece| with_line_ends(piece, "\r\n"));
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn cr_and_lf_of_one_line_end_in_different_reads() {
    let pieces = two_words().map(|piece| with_line_ends(piece, "\r\n"));
    let case = stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
    // Every line end at once, so that each read but the first opens with the LF of the line before.
    let body = Bytes::from(case.bytes());
    let behind_cr: Vec<_> = (1..=body.len()).filter(|end| *end == body.len() || body[end - 1] == b'\r').collect();
    assert_eq!(behind_cr.len(), 11, "two line ends an event, and the last LF");
    let replay = |pace| Replay::reads(behind_cr.iter().copied(), pace);
    case.check_all(&body, &[replay(Pace::Patient)]);
    case.check_all(&body, &[replay(Pace::Hasty)]);
}

#[test]
fn bare_cr_line_ends() {
    let pieces = two_words().map(|piece| with_line_ends(piece, "\r"));
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn line_ends_of_all_kinds_in_one_event() {
    let mixed = token(format!("id: 1\r\nretry: 5\rdata: {}\r\n\n", chunk_of(0, r#"{"content":"x"}"#, "null")));
    stream([mixed, word("y"), stop(), done()]).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn u2028_and_u0085_raw_inside_json_are_not_line_ends() {
    let pieces = [word("a\u{2028}b"), word("\u{85}"), word("c\u{2029}"), stop(), done()];
    stream(pieces).tells(OK, 1, 2, from_events(3)).under_every_cut();
}

#[test]
fn a_cut_inside_a_utf8_character() {
    stream([word("水位"), word("é"), word("🌊"), stop(), done()]).tells(OK, 1, 2, from_events(3)).under_every_cut();
}

#[test]
fn data_without_the_space() {
    let pieces = two_words().map(|piece| {
        let text = String::from_utf8(piece.bytes).expect("UTF-8");
        Piece { bytes: text.replacen("data: ", "data:", 1).into_bytes(), ..piece }
    });
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn a_json_document_over_two_data_lines() {
    let broken_in_two = |json: String| {
        let at = json.find(r#""choices""#).expect("choices");
        format!("data: {}\ndata: {}\n\n", &json[..at], &json[at..])
    };
    let pieces = [
        token(broken_in_two(chunk_of(0, r#"{"content":"a"}"#, "null"))),
        token(broken_in_two(chunk_of(0, r#"{"content":"b"}"#, "null"))),
        event(broken_in_two(chunk_of(0, "{}", r#""stop""#))).finishing(),
        done(),
    ];
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn comments_between_events_and_glued_before_one() {
    let glued = token(format!(": ping\n{}", chunk(r#"{"content":"a"}"#, "null")));
    let pieces = [
        nothing(": ping\n\n"),
        nothing(":\n\n"),
        role(),
        nothing(": ping - 2026-01-01 00:00:00\r\n\r\n"),
        glued,
        nothing(": data: {\"choices\":[]}\n\n"),
        word("b"),
        stop(),
        done(),
        nothing(": bye\n\n"),
    ];
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn empty_data_heartbeats() {
    // The standard dispatches a lone data line, so a heartbeat is an event, though no token and nothing malformed.
    let pieces = [event("data:\n\n"), event("data: \n\n"), word("a"), event("data\n\n"), word("b"), stop(), done()];
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn a_byte_order_mark_whole_or_split() {
    let pieces = [nothing("\u{feff}"), word("a"), word("b"), stop(), done()];
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn a_byte_order_mark_that_is_none() {
    // Only the first three bytes of a stream can be one; later it makes its line's field unknown.
    let pieces = [word("a"), nothing(format!("\u{feff}{}", chunk(r#"{"content":"x"}"#, "null"))), word("b"), stop()];
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn event_id_and_retry_fields() {
    let pieces = [
        nothing("retry: 3000\n\n"),
        nothing("event: ping\n\n"),
        token(format!("event: message\nid: 7\n{}", chunk(r#"{"content":"a"}"#, "null"))),
        token(format!("id\nevent\nretry: soon\nunknown: field\n{}", chunk(r#"{"content":"b"}"#, "null"))),
        event(format!("event: finish\r\ndata: {}\r\n\r\n", chunk_of(0, "{}", r#""stop""#))).finishing(),
        done(),
    ];
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn sixty_four_events_in_one_read() {
    // Under the replay's uncut run all of them share one read: 63 ITLs, every one coalesced.
    let mut pieces = vec![token("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"); 64];
    pieces.extend([stop(), done()]);
    stream(pieces).tells(OK, 1, 63, from_events(64)).under_every_cut();
}

#[test]
fn eof_without_the_last_blank_line() {
    let last = r#"data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}"#;
    for tail in [last.to_owned(), format!("{last}\n"), format!("{last}\r")] {
        stream([word("a"), word("b"), stop(), nothing(tail).never_asked("")])
            .tells(OK, 1, 1, super::from_usage(2))
            .usage(super::usage(4, 2))
            .anomaly(Anomaly::UnterminatedEvent, 1)
            .under_every_cut();
    }
}

#[test]
fn eof_inside_the_event_with_the_finish_reason() {
    // It never became an event, so its content is no token; that the model had finished is heard.
    let tail = format!("data: {}", chunk_of(0, r#"{"content":"c"}"#, r#""stop""#));
    stream([word("a"), word("b"), nothing(tail).finishing()])
        .tells(OK, 1, 1, from_events(2))
        .anomaly(Anomaly::UnterminatedEvent, 1)
        .under_every_cut();
}
