//! OpenAI's text completions.

use streamgauge::measure::{Anomaly, Content, Outcome};
use streamgauge::wire::Dialect;

use super::{OK, from_events, from_usage, usage, with_crlf, written};
use crate::replay::{Case, End, Piece, event, nothing, reasoning, token, tokens};

fn stream(pieces: impl IntoIterator<Item = Piece>) -> Case {
    crate::replay::stream_in(Dialect::Completion, pieces)
}

/// One JSON document, in answer to a request for one.
fn document(json: &str) -> Case {
    let piece = nothing(json);
    let piece = if json.contains(r#""finish_reason":""#) { piece.finishing() } else { piece };
    Case { stream: false, content: Content::Unlabelled, ..stream([piece]) }
}

/// A reply with these choices, JSON, and what else stands beside them.
fn of(choices: &str, beside: &str) -> String {
    format!(
        r#"{{"id":"cmpl-1","object":"text_completion","created":1760000000,"model":"made-up-model","choices":[{choices}]{beside}}}"#
    )
}

fn choice(index: u32, text: &str, finish: &str) -> String {
    format!(r#"{{"text":"{text}","index":{index},"logprobs":null,"finish_reason":{finish}}}"#)
}

fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}

fn word(text: &str) -> Piece {
    token(data(&of(&choice(0, text, "null"), "")))
}

fn stop() -> Piece {
    event(data(&of(&choice(0, "", r#""stop""#), ""))).finishing()
}

fn counts(input: u64, output: u64) -> String {
    format!(r#","usage":{{"prompt_tokens":{input},"completion_tokens":{output},"total_tokens":{}}}"#, input + output)
}

fn done() -> Piece {
    event("data: [DONE]\n\n")
}

#[test]
fn plain_text() {
    stream([word("hel"), word("lo"), stop(), done()]).tells(OK, 1, 1, from_events(2)).under_every_cut();
    let crlf = [word("水"), word("é"), stop(), done()].map(|piece| written(piece, with_crlf));
    stream(crlf).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn the_finish_with_the_last_text() {
    let last = token(data(&of(&choice(0, "lo", r#""length""#), &counts(9, 4)))).finishing();
    stream([word("hel"), last, done()]).tells(OK, 1, 1, from_usage(4)).usage(usage(9, 4)).under_every_cut();
}

#[test]
fn usage_in_an_event_of_its_own() {
    let counted = event(data(&of("", &counts(9, 5))));
    stream([word("a"), word("b"), stop(), counted, done()])
        .tells(OK, 1, 1, from_usage(5))
        .usage(usage(9, 5))
        .under_every_cut();
}

#[test]
fn events_that_tell_their_tokens() {
    let logprobs =
        r#"{"tokens":["b"," c"," d"],"token_logprobs":[-0.1,-0.2,-0.3],"top_logprobs":null,"text_offset":[1,2,4]}"#;
    let three = choice(0, "b c d", "null").replace(r#""logprobs":null"#, &format!(r#""logprobs":{logprobs}"#));
    stream([word("a"), token(data(&of(&three, ""))).carrying(3), stop(), done()])
        .tells(OK, 1, 3, from_events(2))
        .under_every_cut();
}

#[test]
fn an_echo_divides_no_gap() {
    // It lists the prompt's tokens beside the first of the output, in an event that no other comes before.
    let logprobs = r#"{"tokens":["the"," Rhine"," at"," Bonn"," a"],"token_logprobs":[null,-2,-3,-1,-0.1]}"#;
    let echo = |index| {
        let choice = choice(index, "the Rhine at Bonn a", "null");
        tokens(&[index], data(&of(&choice.replace(r#""logprobs":null"#, &format!(r#""logprobs":{logprobs}"#)), "")))
    };
    stream([echo(0), word("b"), stop(), done()]).tells(OK, 1, 1, from_events(2)).under_every_cut();
    let second = tokens(&[1], data(&of(&choice(1, "b", "null"), "")));
    let stops = event(data(&of(&[choice(0, "", r#""stop""#), choice(1, "", r#""stop""#)].join(","), ""))).finishing();
    let mut case = stream([echo(0), echo(1), word("b"), second, stops, done()]);
    case.choices = 2;
    case.tells(OK, 1, 2, from_events(4)).under_every_cut();
}

#[test]
fn several_choices() {
    let words =
        |text: &str| tokens(&[0, 1], data(&of(&[choice(0, text, "null"), choice(1, text, "null")].join(","), "")));
    let stops = event(data(&of(&[choice(0, "", r#""stop""#), choice(1, "", r#""stop""#)].join(","), ""))).finishing();
    let mut case = stream([words("a"), words("b"), stops, done()]);
    case.choices = 2;
    case.tells(OK, 1, 2, from_events(4)).under_every_cut();
}

#[test]
fn reasoning_under_either_name() {
    let thought = |name: &str| reasoning(data(&of(&format!(r#"{{"index":0,"text":"","{name}":"hm"}}"#), "")));
    stream([thought("reasoning"), thought("reasoning_content"), word("a"), stop(), done()])
        .tells(OK, 1, 2, from_events(3))
        .under_every_cut();
}

#[test]
fn an_empty_reply() {
    stream([stop(), done()]).tells(OK, 0, 0, None).under_every_cut();
    stream([done()]).tells(Outcome::Unconfirmed, 0, 0, None).under_every_cut();
}

#[test]
fn a_stream_that_breaks_off_or_fails() {
    for (end, outcome) in [(End::Whole, Outcome::Truncated), (End::Reset, Outcome::Reset)] {
        stream([word("a"), word("b")]).ending(end).tells(outcome, 1, 1, from_events(2)).under_every_cut();
    }
    for error in [r#"{"error":{"message":"no"}}"#, r#"{"type":"error","message":"no"}"#] {
        stream([word("a"), event(data(error)), done()])
            .tells(Outcome::InbandError, 1, 0, from_events(1))
            .under_every_cut();
    }
    stream([word("a"), word("b"), done()]).tells(Outcome::Unconfirmed, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn fields_that_are_null_or_of_the_wrong_type() {
    let pieces = [
        nothing(": ping\n\n"),
        event(data(&of(r#"{"index":0,"text":null}"#, r#","usage":null"#))),
        event(data(&of(r#"7,{"index":"x","text":["no"]}"#, r#","error":null"#))),
        event(data(r#"{"choices":null,"model":7}"#)),
        event(data("[1]")),
        word("a"),
        word("b"),
        stop(),
        done(),
    ];
    stream(pieces).tells(OK, 1, 1, from_events(2)).anomaly(Anomaly::MalformedEvent, 1).under_every_cut();
}

#[test]
fn whole_replies() {
    document(&of(&choice(0, "hello", r#""stop""#), &counts(9, 4)))
        .tells(OK, 0, 0, from_usage(4))
        .usage(usage(9, 4))
        .under_every_cut();
    document(&of(&choice(0, "hello", "null"), "")).tells(Outcome::Unconfirmed, 0, 0, None).under_every_cut();
    document(r#"{"error":{"message":"no"}}"#).tells(Outcome::InbandError, 0, 0, None).under_every_cut();
}
