//! What events say: roles, reasoning, tools, refusals, several choices, usage.

use streamgauge::measure::{Anomaly, Content, Outcome};
use streamgauge::wire::Usage;

use super::{OK, chunk, chunk_of, done, from_events, from_usage, role, stop, usage, usage_chunk, word};
use crate::replay::{End, event, nothing, reasoning, stream, token, tokens};

#[test]
fn empty_choices_first() {
    let filter = r#"{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}"#;
    let pieces = [event(format!("data: {filter}\n\n")), role(), word("a"), word("b"), stop(), done()];
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn a_usage_chunk_with_empty_choices() {
    // N is what usage says, also where events carry more than a token each.
    stream([role(), word("a b"), word("c"), stop(), usage_chunk(9, 3), done()])
        .tells(OK, 1, 1, from_usage(3))
        .usage(usage(9, 3))
        .under_every_cut();
}

#[test]
fn usage_in_every_chunk() {
    let counted = |text: &str, output: u64| {
        let json = chunk_of(0, &format!(r#"{{"content":"{text}"}}"#), "null");
        let json = json.strip_suffix('}').expect("an object");
        token(format!("data: {json},\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{output}}}}}\n\n"))
    };
    // The third event is known to carry three tokens: its gap counts three times.
    let pieces = [counted("a", 1), counted("b", 2), counted("c d e", 5).carrying(3), stop(), usage_chunk(5, 6), done()];
    stream(pieces).tells(OK, 1, 4, from_usage(6)).usage(usage(5, 6)).under_every_cut();
}

#[test]
fn usage_that_is_null_until_the_end() {
    let unsaid = |text: &str| {
        let json = chunk_of(0, &format!(r#"{{"content":"{text}"}}"#), "null");
        let never_asked = format!("data: {json}\n\n");
        token(format!("data: {},\"usage\":null}}\n\n", json.strip_suffix('}').expect("an object")))
            .never_asked(never_asked)
    };
    stream([unsaid("a"), unsaid("b"), stop(), usage_chunk(5, 2), done()])
        .tells(OK, 1, 1, from_usage(2))
        .usage(usage(5, 2))
        .under_every_cut();
}

#[test]
fn role_only_null_and_empty_string_first_deltas() {
    let pieces = [
        event(chunk(r#"{"role":"assistant"}"#, "null")),
        event(chunk(r#"{"role":"assistant","content":null}"#, "null")),
        event(chunk(r#"{"role":"assistant","content":"","refusal":null,"tool_calls":[]}"#, "null")),
        event(chunk(r#"{"content":""}"#, r#""""#)),
        event(chunk("null", "null")),
        word("a"),
        event(chunk(r#"{"content":""}"#, "null")),
        word("b"),
        stop(),
        done(),
    ];
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn no_token_at_all() {
    // A model that stops at once is a success without a TTFT.
    stream([role(), stop(), usage_chunk(7, 0), done()])
        .tells(OK, 0, 0, from_usage(0))
        .usage(usage(7, 0))
        .under_every_cut();
}

#[test]
fn one_token_has_no_gap() {
    stream([role(), word("a"), stop(), done()]).tells(OK, 1, 0, from_events(1)).under_every_cut();
}

#[test]
fn reasoning_first_then_content() {
    let thought = |field: &str| reasoning(chunk(&format!(r#"{{"{field}":"hm","content":null}}"#), "null"));
    let pieces = [
        role(),
        thought("reasoning_content"),
        thought("reasoning"),
        thought("reasoning_content"),
        word("a"),
        word("b"),
        stop(),
        usage_chunk(3, 5),
        done(),
    ];
    stream(pieces).tells(OK, 1, 4, from_usage(5)).usage(usage(3, 5)).under_every_cut();
}

#[test]
fn hidden_reasoning_tokens_in_usage() {
    let details = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":66,"completion_tokens_details":{"reasoning_tokens":64}}}"#;
    stream([role(), word("a"), word("b"), stop(), event(format!("data: {details}\n\n")).never_asked(""), done()])
        .tells(OK, 1, 1, from_usage(2))
        .usage(Usage { reasoning: Some(64), ..usage(3, 66) })
        .under_every_cut();
}

#[test]
fn tool_calls_only() {
    let call = |call: &str| chunk(&format!(r#"{{"tool_calls":[{{"index":0,{call}}}]}}"#), "null");
    let pieces = [
        event(chunk(r#"{"role":"assistant","content":null}"#, "null")),
        token(call(r#""id":"call_1","type":"function","function":{"name":"level","arguments":""}"#)),
        event(call(r#""function":{"arguments":""}"#)),
        token(call(r#""function":{"arguments":"{\"river\":"}"#)),
        token(call(r#""function":{"arguments":"\"Rhine\"}"}"#)),
        event(chunk("{}", r#""tool_calls""#)).finishing(),
        done(),
    ];
    stream(pieces).tells(OK, 1, 2, from_events(3)).under_every_cut();
}

#[test]
fn a_refusal() {
    let refusal = |text: &str| token(chunk(&format!(r#"{{"content":null,"refusal":"{text}"}}"#), "null"));
    let pieces = [role(), refusal("I"), refusal(" won't"), stop(), done()];
    stream(pieces).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn the_finish_reason_in_the_same_event_as_content() {
    let last = token(chunk(r#"{"content":"b"}"#, r#""length""#)).finishing();
    stream([role(), word("a"), last, done()]).tells(OK, 1, 1, from_events(2)).under_every_cut();
}

#[test]
fn two_choices_interleaved() {
    let of = |choice: u32, text: &str| {
        let json = chunk_of(choice, &format!(r#"{{"content":"{text}"}}"#), "null");
        tokens(&[choice], format!("data: {json}\n\n"))
    };
    let finish = |choice| event(format!("data: {}\n\n", chunk_of(choice, "{}", r#""stop""#))).finishing();
    let pieces = [of(0, "a"), of(1, "x"), of(0, "b"), finish(0), of(1, "y"), of(1, "z"), finish(1), done()];
    // One gap of choice 0 and two of choice 1; none between the two.
    let mut case = stream(pieces);
    case.choices = 2;
    case.tells(OK, 1, 3, from_events(5)).under_every_cut();
}

#[test]
fn one_of_two_choices_unfinished() {
    let of = |choice: u32, text: &str| {
        let json = chunk_of(choice, &format!(r#"{{"content":"{text}"}}"#), "null");
        tokens(&[choice], format!("data: {json}\n\n"))
    };
    let mut case = stream([of(0, "a"), of(1, "x"), of(0, "b"), stop()]).ending(End::Truncated);
    case.choices = 2;
    case.tells(Outcome::Truncated, 1, 1, from_events(3)).under_every_cut();
}

#[test]
fn two_choices_in_one_event() {
    let both = |first: &str, second: &str| {
        let choice = |index: u32, text: &str| {
            format!(r#"{{"index":{index},"delta":{{"content":"{text}"}},"finish_reason":null}}"#)
        };
        tokens(&[0, 1], format!("data: {{\"choices\":[{},{}]}}\n\n", choice(0, first), choice(1, second)))
    };
    let finish =
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"},{"index":1,"delta":{},"finish_reason":"stop"}]}"#;
    let pieces = [both("a", "x"), both("b", "y"), event(format!("data: {finish}\n\n")).finishing(), done()];
    // An event that feeds two choices counts two, and each choice has its own gap.
    let mut case = stream(pieces);
    case.choices = 2;
    case.tells(OK, 1, 2, from_events(4)).under_every_cut();
}

const WHOLE: &str = r#"{"id":"c1","object":"chat.completion","model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":"a b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;

#[test]
fn a_stream_wanted_and_application_json_given() {
    let mut case = stream([nothing(format!(" \n{WHOLE}")).finishing()]);
    case.content = Content::Unlabelled;
    case.tells(OK, 0, 0, from_usage(2)).usage(usage(9, 2)).anomaly(Anomaly::JsonForStream, 1).under_every_cut();
}

#[test]
fn a_whole_reply_has_no_ttft() {
    let mut case = stream([nothing(WHOLE).finishing()]);
    (case.content, case.stream) = (Content::Unlabelled, false);
    case.tells(OK, 0, 0, from_usage(2)).usage(usage(9, 2)).under_every_cut();
}

#[test]
fn sse_labelled_application_json() {
    for before in ["", "\n\n", "\u{feff}", ": ping\n\n"] {
        let mut pieces = vec![role(), word("a"), word("b"), stop(), done()];
        if !before.is_empty() {
            pieces.insert(0, nothing(before));
        }
        let mut case = stream(pieces);
        case.content = Content::Unlabelled;
        case.tells(OK, 1, 1, from_events(2)).anomaly(Anomaly::MislabelledStream, 1).under_every_cut();
    }
}
