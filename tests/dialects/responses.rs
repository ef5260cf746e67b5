//! OpenAI's responses.

use streamgauge::measure::{Anomaly, Content, Outcome};
use streamgauge::wire::{Dialect, Usage};

use super::{OK, from_events, from_usage, named, prompt, usage, with_crlf, without_names, written};
use crate::replay::{Case, End, Piece, event, nothing, reasoning, token};

fn stream(pieces: impl IntoIterator<Item = Piece>) -> Case {
    crate::replay::stream_in(Dialect::Responses, pieces)
}

/// One JSON document, in answer to a request for one; `finishes` says that it counts as an answer.
fn document(json: &str, finishes: bool) -> Case {
    let piece = nothing(json);
    let piece = if finishes { piece.finishing() } else { piece };
    Case { stream: false, content: Content::Unlabelled, ..stream([piece]) }
}

/// A response of this status, with these output items and this usage, both JSON.
fn response(status: &str, output: &str, usage: &str) -> String {
    format!(
        r#"{{"id":"resp_1","object":"response","created_at":1760000000,"status":"{status}","error":null,"incomplete_details":null,"model":"made-up-model","output":[{output}],"parallel_tool_calls":true,"usage":{usage}}}"#
    )
}

/// Where the response stands, as an event.
fn stands(status: &str, output: &str, usage: &str) -> Piece {
    event(named(&format!(r#"{{"type":"response.{status}","response":{}}}"#, response(status, output, usage))))
}

fn created() -> Piece {
    let response = response("in_progress", "", "null");
    event(named(&format!(r#"{{"type":"response.created","response":{response},"sequence_number":0}}"#)))
}

fn counts(input: u64, output: u64) -> String {
    format!(
        r#"{{"input_tokens":{input},"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{output},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}}"#,
        input + output
    )
}

/// What [`counts`] says.
fn told(input: u64, output: u64) -> Usage {
    Usage { cached: Some(0), reasoning: Some(0), ..usage(input, output) }
}

/// An item appears, or is complete.
fn item(verb: &str, index: u32, item: &str) -> String {
    named(&format!(r#"{{"type":"response.output_item.{verb}","output_index":{index},"item":{item}}}"#))
}

const MESSAGE: &str = r#"{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}"#;

fn said_message(text: &str) -> String {
    format!(
        r#"{{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{{"type":"output_text","annotations":[],"text":"{text}"}}]}}"#
    )
}

/// An event about a part of item 0.
fn of_part(kind: &str, members: &str) -> String {
    named(&format!(
        r#"{{"type":"response.{kind}","item_id":"msg_1","output_index":0,"content_index":0,{members},"sequence_number":4}}"#
    ))
}

fn word(text: &str) -> Piece {
    token(of_part("output_text.delta", &format!(r#""delta":"{text}","logprobs":[],"obfuscation":"xK3""#)))
}

/// The text again: whole, in its part, in its item.
fn repeats(text: &str) -> [Piece; 3] {
    [
        event(of_part("output_text.done", &format!(r#""text":"{text}","logprobs":[]"#))),
        event(of_part("content_part.done", &format!(r#""part":{{"type":"output_text","text":"{text}"}}"#))),
        event(item("done", 0, &said_message(text))),
    ]
}

/// A message's item and part appear.
fn opens() -> [Piece; 3] {
    let part = r#""part":{"type":"output_text","annotations":[],"text":""}"#;
    [created(), event(item("added", 0, MESSAGE)), event(of_part("content_part.added", part))]
}

fn completed(output: &str, input: u64, tokens: u64) -> Piece {
    stands("completed", output, &counts(input, tokens)).finishing()
}

fn two_words() -> Vec<Piece> {
    let end = completed(&said_message("hello"), 9, 5);
    opens().into_iter().chain([word("hel"), word("lo")]).chain(repeats("hello")).chain([end]).collect()
}

#[test]
fn plain_text() {
    stream(two_words()).tells(OK, 1, 1, from_usage(5)).usage(told(9, 5)).under_every_cut();
}

#[test]
fn other_line_ends_and_no_names() {
    let ways: [fn(&str) -> String; 3] = [with_crlf, without_names, |text| with_crlf(&without_names(text))];
    for way in ways {
        let pieces = two_words().into_iter().map(|piece| written(piece, way));
        stream(pieces).tells(OK, 1, 1, from_usage(5)).usage(told(9, 5)).under_every_cut();
    }
}

#[test]
fn no_types_in_the_data() {
    let untyped = |text: &str| {
        let (name, data) = text.split_once("\ndata: {\"type\":\"").expect("a type");
        format!("{name}\ndata: {{{}", data.split_once("\",").expect("its end").1)
    };
    let pieces = two_words().into_iter().map(|piece| written(piece, untyped));
    stream(pieces).tells(OK, 1, 1, from_usage(5)).usage(told(9, 5)).under_every_cut();
}

#[test]
fn the_other_vendors_end_marker() {
    let done = || event("data: [DONE]\n\n");
    let pieces = two_words().into_iter().chain([done()]);
    stream(pieces).tells(OK, 1, 1, from_usage(5)).usage(told(9, 5)).under_every_cut();
    stream(opens().into_iter().chain([word("a"), word("b"), done()]))
        .tells(Outcome::Unconfirmed, 1, 1, from_events(2))
        .under_every_cut();
}

#[test]
fn a_cut_inside_a_utf8_character() {
    stream(opens().into_iter().chain([word("水"), word("é"), completed("", 9, 3)]))
        .tells(OK, 1, 1, from_usage(3))
        .usage(told(9, 3))
        .under_every_cut();
}

#[test]
fn reasoning_first_then_text() {
    let thought = |text: &str| {
        reasoning(of_part("reasoning_text.delta", &format!(r#""delta":"{text}""#)).replace("x\":0", "x\":1"))
    };
    let repeated = r#"{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm so"}]}"#;
    let pieces = [
        created(),
        event(item("added", 1, r#"{"type":"reasoning","summary":[],"content":[]}"#)),
        thought("hm"),
        thought(" so"),
        event(of_part("reasoning_text.done", r#""text":"hm so""#).replace("x\":0", "x\":1")),
        event(
            of_part("reasoning_part.done", r#""part":{"type":"reasoning_text","text":"hm so"}"#)
                .replace("x\":0", "x\":1"),
        ),
        event(item("done", 1, &repeated.replace("[{", r#"[{"type":"other"},{"#))),
        word("a"),
        word("b"),
        completed("", 9, 5),
    ];
    stream(pieces).tells(OK, 1, 3, from_usage(5)).usage(told(9, 5)).under_every_cut();
}

#[test]
fn summaries_of_reasoning_are_not_the_reasoning() {
    let of = |kind: &str, members: &str| {
        named(&format!(r#"{{"type":"response.{kind}","output_index":0,"summary_index":0,{members}}}"#))
    };
    let end = r#"{"input_tokens":9,"output_tokens":70,"output_tokens_details":{"reasoning_tokens":64}}"#;
    let pieces = [
        created(),
        event(item("added", 0, r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAAAB"}"#)),
        event(of("reasoning_summary_part.added", r#""part":{"type":"summary_text","text":""}"#)),
        reasoning(of("reasoning_summary_text.delta", r#""delta":"Looking""#)),
        reasoning(of("reasoning_summary_text.delta", r#""delta":" up""#)),
        event(of("reasoning_summary_text.done", r#""text":"Looking up""#)),
        event(of("reasoning_summary_part.done", r#""part":{"type":"summary_text","text":"Looking up"}"#)),
        event(item("done", 0, r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"Looking up"}]}"#)),
        token(item("added", 1, r#"{"type":"function_call","name":"f","arguments":""}"#)),
        stands("completed", "", end).finishing(),
    ];
    stream(pieces)
        .tells(OK, 1, 2, from_usage(6))
        .usage(Usage { reasoning: Some(64), ..usage(9, 70) })
        .partly_hidden()
        .under_every_cut();
}

#[test]
fn reasoning_that_is_not_shown_leaves_n() {
    let hidden = r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAAAB"}"#;
    let end = r#"{"input_tokens":9,"output_tokens":66,"output_tokens_details":{"reasoning_tokens":64}}"#;
    let pieces = [
        created(),
        event(item("added", 1, hidden)),
        event(item("done", 1, hidden)),
        word("a"),
        word("b"),
        stands("completed", "", end).finishing(),
    ];
    stream(pieces)
        .tells(OK, 1, 1, from_usage(2))
        .usage(Usage { reasoning: Some(64), ..usage(9, 66) })
        .under_every_cut();
}

#[test]
fn reasoning_that_is_kept_back_between_tokens_leaves_no_tpot() {
    let hidden = r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAAAB"}"#;
    let of = |reasoning: &str| format!(r#"{{"input_tokens":9,"output_tokens":66{reasoning}}}"#);
    let details = |tokens: u64| of(&format!(r#","output_tokens_details":{{"reasoning_tokens":{tokens}}}"#));
    let done = || event(item("done", 1, hidden));
    let end = |usage: &str| stands("completed", "", usage).finishing();
    // Its seconds lie between the tokens.
    stream([created(), word("a"), done(), word("b"), end(&details(64))])
        .tells(OK, 1, 1, from_usage(2))
        .usage(Usage { reasoning: Some(64), ..usage(9, 66) })
        .partly_hidden()
        .under_every_cut();
    // Before them, and nobody says how much it was.
    stream([created(), done(), word("a"), word("b"), end(&of(""))])
        .tells(OK, 1, 1, from_usage(66))
        .usage(usage(9, 66))
        .partly_hidden()
        .under_every_cut();
    // There was none, as models say that were asked for next to no reasoning.
    stream([created(), done(), word("a"), word("b"), end(&details(0))])
        .tells(OK, 1, 1, from_usage(66))
        .usage(Usage { reasoning: Some(0), ..usage(9, 66) })
        .under_every_cut();
    // What deltas have said of it is not kept back, though its end does not say it again.
    let delta = named(r#"{"type":"response.reasoning_text.delta","output_index":1,"delta":"hm"}"#);
    let bare = event(item("done", 1, r#"{"type":"reasoning","summary":[]}"#));
    stream([created(), reasoning(delta), bare, word("a"), end(&details(64))])
        .tells(OK, 1, 1, from_usage(66))
        .usage(Usage { reasoning: Some(64), ..usage(9, 66) })
        .under_every_cut();
}

#[test]
fn calls_of_tools_only() {
    for (call, given, deltas) in [
        ("function_call", "arguments", "function_call_arguments"),
        ("custom_tool_call", "input", "custom_tool_call_input"),
        ("mcp_call", "arguments", "mcp_call_arguments"),
    ] {
        let calling = |text: &str| format!(r#"{{"type":"{call}","id":"fc_1","name":"level","{given}":"{text}"}}"#);
        let pieces = [
            created(),
            token(item("added", 0, &calling(""))),
            event(of_part(&format!("{deltas}.delta"), r#""delta":"""#)),
            token(of_part(&format!("{deltas}.delta"), r#""delta":"{\"river\":""#)),
            token(of_part(&format!("{deltas}.delta"), r#""delta":"\"Rhine\"}""#)),
            event(of_part(&format!("{deltas}.done"), &format!(r#""{given}":"{{\"river\":\"Rhine\"}}""#))),
            event(item("done", 0, &calling("{}"))),
            completed(&calling("{}"), 9, 12),
        ];
        stream(pieces).tells(OK, 1, 2, from_usage(12)).usage(told(9, 12)).under_every_cut();
    }
}

#[test]
fn tools_that_the_server_runs() {
    let search = |action: &str| format!(r#"{{"type":"web_search_call","id":"ws_1","status":"x"{action}}}"#);
    let pieces = [
        created(),
        event(item("added", 0, &search(""))),
        event(of_part("web_search_call.searching", r#""x":1"#)),
        token(item("done", 0, &search(r#","action":{"type":"search","query":"Pegel"}"#))),
        event(item("added", 1, r#"{"type":"code_interpreter_call","code":"","outputs":null}"#)),
        token(named(r#"{"type":"response.code_interpreter_call_code.delta","output_index":1,"delta":"1+1"}"#)),
        event(item("done", 1, r#"{"type":"code_interpreter_call","code":"1+1","outputs":[{"logs":"2"}]}"#)),
        event(item("done", 2, r#"{"type":"image_generation_call","result":"iVBORw0","action":"generate"}"#)),
        event(item("done", 3, r#"{"type":"mcp_list_tools","name":"no","tools":[{"name":"no"}]}"#)),
        event(item("done", 4, r#"{"type":"function_call_output","output":"no","name":"no"}"#)),
        completed("", 9, 12),
    ];
    stream(pieces).tells(OK, 1, 1, from_usage(12)).usage(told(9, 12)).under_every_cut();
}

#[test]
fn a_tool_is_called_only_once_it_is_known_with_what() {
    // What stands there until then names no more than the kind of call.
    let shell = |commands: &str| {
        format!(r#"{{"type":"shell_call","id":"sh_1","action":{{"commands":[{commands}],"timeout_ms":null}}}}"#)
    };
    let patch = |diff: &str| {
        let operation = format!(r#"{{"type":"update_file","path":"gauge.rs","diff":"{diff}"}}"#);
        format!(r#"{{"type":"apply_patch_call","id":"apc_1","operation":{operation}}}"#)
    };
    let search = |query: &str| format!(r#"{{"type":"web_search_call","action":{{"type":"search"{query}}}}}"#);
    let command = |verb: &str, index: u32, member: &str| {
        named(&format!(
            r#"{{"type":"response.shell_call_command.{verb}","output_index":0,"command_index":{index},{member}}}"#
        ))
    };
    let diff = |verb: &str, member: &str| of_part(&format!("apply_patch_call_operation_diff.{verb}"), member);
    let by_deltas = [
        created(),
        event(item("added", 0, &shell(""))),
        event(command("added", 0, r#""command":"""#)),
        token(command("delta", 0, r#""delta":"ls""#)),
        token(command("delta", 0, r#""delta":" -l""#)),
        event(command("done", 0, r#""command":"ls -l""#)),
        token(command("added", 1, r#""command":"pwd""#)),
        event(command("done", 1, r#""command":"pwd""#)),
        event(named(r#"{"type":"response.shell_call_output_content.delta","output_index":1,"delta":{"stdout":"no"}}"#)),
        event(item("done", 0, &shell(r#""ls -l","pwd""#))),
        completed(&shell(r#""ls -l","pwd""#), 9, 12),
    ];
    stream(by_deltas).tells(OK, 1, 2, from_usage(12)).usage(told(9, 12)).under_every_cut();
    let by_deltas = [
        created(),
        event(item("added", 0, &patch(""))),
        token(diff("delta", r#""delta":"+a""#)),
        token(diff("delta", r#""delta":"+b""#)),
        event(diff("done", r#""diff":"+a+b""#)),
        event(item("done", 0, &patch("+a+b"))),
        completed(&patch("+a+b"), 9, 12),
    ];
    stream(by_deltas).tells(OK, 1, 1, from_usage(12)).usage(told(9, 12)).under_every_cut();
    // Without deltas it is known at the end.
    let whole = token(diff("done", r#""diff":"+a+b""#));
    let pieces = [created(), event(item("added", 0, &patch(""))), whole, event(item("done", 0, &patch("+a+b")))];
    stream(pieces.into_iter().chain([completed("", 9, 12)]))
        .tells(OK, 1, 0, from_usage(12))
        .usage(told(9, 12))
        .under_every_cut();
    for (placeholder, call) in [
        (patch(""), patch("+a+b")),
        (patch(""), patch("").replace("update_file", "delete_file")),
        (shell(""), shell(r#""ls""#)),
        (search(""), search(r#","query":"Pegel""#)),
    ] {
        let pieces = [created(), event(item("added", 0, &placeholder)), token(item("done", 0, &call))];
        stream(pieces.into_iter().chain([completed(&call, 9, 12)]))
            .tells(OK, 1, 0, from_usage(12))
            .usage(told(9, 12))
            .under_every_cut();
    }
}

#[test]
fn items_without_positions_go_by_their_ids() {
    let unplaced = |piece: Piece| written(piece, |text| text.replace(r#""output_index":0,"#, ""));
    let second = |piece: Piece| written(piece, |text| text.replace("msg_1", "msg_2"));
    // Two items, both said without deltas: the second does not repeat the first.
    let says = |text: &str| {
        let [whole, part, item] = repeats(text);
        [token(whole.bytes), part, item]
    };
    let pieces = opens().into_iter().chain(says("a")).chain(says("b").map(second)).map(unplaced);
    stream(pieces.chain([completed("", 9, 5)])).tells(OK, 1, 1, from_usage(5)).usage(told(9, 5)).under_every_cut();
}

#[test]
fn several_items_are_one_choice() {
    let second =
        token(of_part("output_text.delta", r#""delta":"b""#).replace(r#""output_index":0"#, r#""output_index":1"#));
    let pieces = opens().into_iter().chain([word("a")]).chain(repeats("a")).chain([
        event(item("added", 1, MESSAGE)),
        second,
        event(item("done", 1, &said_message("b"))),
        completed("", 9, 4),
    ]);
    stream(pieces).tells(OK, 1, 1, from_usage(4)).usage(told(9, 4)).under_every_cut();
}

#[test]
fn events_that_do_not_say_which_item_they_mean() {
    // None of them does, or only those about an item: the second one, so that position 0 cannot be meant.
    let unplaced = |text: &str| {
        text.replace(r#""output_index":0,"#, "").replace(r#""content_index":0"#, r#""content_index":null"#)
    };
    let of_item = |text: &str| {
        if text.contains("output_item") { text.replace("x\":0", "x\":1") } else { unplaced(text) }
    };
    let ways: [&dyn Fn(&str) -> String; 2] = [&unplaced, &of_item];
    for way in ways {
        let pieces = two_words().into_iter().map(|piece| written(piece, way));
        stream(pieces).tells(OK, 1, 1, from_usage(5)).usage(told(9, 5)).under_every_cut();
    }
}

#[test]
fn a_server_without_deltas() {
    // Whatever comes first is the output, and what follows repeats it.
    let [whole, part, done] = repeats("hello");
    let says = |piece: &Piece| token(piece.bytes.clone());
    let end = || completed(&said_message("hello"), 9, 5);
    let ways: [Vec<Piece>; 4] = [
        vec![says(&whole), part.clone(), done.clone(), end()],
        vec![says(&part), done.clone(), end()],
        vec![says(&done), end()],
        vec![says(&end()).finishing()],
    ];
    for rest in ways {
        let pieces = opens().into_iter().chain(rest);
        stream(pieces).tells(OK, 1, 0, from_usage(5)).usage(told(9, 5)).under_every_cut();
    }
    // A call whose name came when it was added, and its arguments with its end.
    let pieces = [
        created(),
        token(item("added", 0, r#"{"type":"function_call","name":"f","arguments":""}"#)),
        token(item("done", 0, r#"{"type":"function_call","name":"f","arguments":"{}"}"#)),
        completed(r#"{"type":"function_call","name":"f","arguments":"{}"}"#, 9, 5),
    ];
    stream(pieces).tells(OK, 1, 1, from_usage(5)).usage(told(9, 5)).under_every_cut();
}

#[test]
fn deltas_that_tell_their_tokens() {
    let two =
        r#""delta":"a b","logprobs":[{"token":"a","logprob":-0.1,"top_logprobs":[]},{"token":" b","logprob":-0.2}]"#;
    let two = token(of_part("output_text.delta", two)).carrying(2);
    stream(opens().into_iter().chain([word("x"), two, completed("", 9, 3)]))
        .tells(OK, 1, 2, from_usage(3))
        .usage(told(9, 3))
        .under_every_cut();
}

#[test]
fn audio() {
    let pieces = [
        created(),
        token(of_part("audio.delta", r#""delta":"AAAA""#)),
        token(of_part("audio.transcript.delta", r#""delta":"hi""#)),
        event(of_part("audio.done", r#""x":1"#)),
        event(of_part("audio.transcript.done", r#""transcript":"hi""#)),
        completed("", 9, 3),
    ];
    stream(pieces).tells(OK, 1, 1, from_usage(3)).usage(told(9, 3)).under_every_cut();
}

#[test]
fn a_refusal() {
    let refused = |verb: &str, member: &str| of_part(&format!("refusal.{verb}"), member);
    let pieces = [
        created(),
        event(of_part("content_part.added", r#""part":{"type":"refusal","refusal":""}"#)),
        token(refused("delta", r#""delta":"I can""#)),
        token(refused("delta", r#""delta":"not""#)),
        event(refused("done", r#""refusal":"I cannot""#)),
        event(of_part("content_part.done", r#""part":{"type":"refusal","refusal":"I cannot"}"#)),
        completed("", 9, 3),
    ];
    stream(pieces).tells(OK, 1, 1, from_usage(3)).usage(told(9, 3)).under_every_cut();
}

#[test]
fn an_empty_reply() {
    stream(opens().into_iter().chain(repeats("")).chain([completed(&said_message(""), 9, 0)]))
        .tells(OK, 0, 0, from_usage(0))
        .usage(told(9, 0))
        .under_every_cut();
    // Without counts, and without anything.
    stream([event(named(r#"{"type":"response.completed"}"#)).finishing()]).tells(OK, 0, 0, None).under_every_cut();
}

#[test]
fn incomplete() {
    let end = stands("incomplete", "", &counts(9, 2)).finishing();
    stream(opens().into_iter().chain([word("a"), word("b"), end]))
        .tells(OK, 1, 1, from_usage(2))
        .usage(told(9, 2))
        .under_every_cut();
}

#[test]
fn a_last_event_too_large_to_be_looked_at() {
    // It repeats what the deltas have said, and is the end by its name; only what it says of usage is lost.
    let all = "x".repeat(3 << 20);
    stream(opens().into_iter().chain([word("a"), word("b"), completed(&said_message(&all), 9, 2)]))
        .tells(OK, 1, 1, from_events(2))
        .anomaly(Anomaly::OversizedEvent, 1)
        .under_every_cut();
    // Without deltas it may be anything.
    stream(opens().into_iter().chain([crate::replay::unreadable(completed(&said_message(&all), 9, 2).bytes)]))
        .tells(Outcome::Truncated, 0, 0, None)
        .anomaly(Anomaly::OversizedEvent, 1)
        .under_every_cut();
}

#[test]
fn usage_only_at_the_start() {
    let early = stands("in_progress", "", r#"{"input_tokens":9}"#);
    let end = stands("completed", "", "null").finishing();
    stream([early, word("a"), word("b"), end]).tells(OK, 1, 1, from_events(2)).usage(prompt(9)).under_every_cut();
}

#[test]
fn a_stream_that_breaks_off() {
    for (end, outcome) in [
        (End::Whole, Outcome::Truncated),
        (End::Truncated, Outcome::Truncated),
        (End::Reset, Outcome::Reset),
        (End::Silence, Outcome::Timeout),
        (End::ClientLeaves, Outcome::ClientCancel),
    ] {
        // That the text is whole does not make the response so.
        let pieces = opens().into_iter().chain([word("a"), word("b")]).chain(repeats("ab"));
        stream(pieces).ending(end).tells(outcome, 1, 1, from_events(2)).under_every_cut();
    }
}

const ERROR: &str = r#"{"type":"error","code":"server_error","message":"overloaded","param":null,"sequence_number":3}"#;

#[test]
fn an_error_in_the_stream() {
    let failed = response("failed", "", "null").replace(r#""error":null"#, r#""error":{"code":"server_error"}"#);
    let failed = format!(r#"{{"type":"response.failed","response":{failed}}}"#);
    let cancelled = format!(r#"{{"type":"response.cancelled","response":{}}}"#, response("cancelled", "", "null"));
    let nested = r#"{"type":"response.error","error":{"message":"overloaded"}}"#;
    // Some servers have one event for every end.
    let done = |status: &str| {
        let response = response(status, &said_message("ab"), "null");
        named(&format!(r#"{{"type":"response.done","response":{response}}}"#))
    };
    for error in [
        named(ERROR),
        done("failed"),
        done("cancelled"),
        format!("data: {ERROR}\n\n"),
        named(&failed),
        named(&cancelled),
        named(nested),
        "data: {\"error\":{\"message\":\"overloaded\"}}\n\n".to_owned(),
    ] {
        stream(opens().into_iter().chain([word("a"), word("b"), event(error)]))
            .tells(Outcome::InbandError, 1, 1, from_events(2))
            .under_every_cut();
    }
    stream([event("event: error\ndata: overloaded\n\n")])
        .tells(Outcome::InbandError, 0, 0, None)
        .anomaly(Anomaly::MalformedEvent, 1)
        .under_every_cut();
}

#[test]
fn a_failed_tool_is_no_error() {
    let failed = event(of_part("mcp_call.failed", r#""x":1"#));
    let item = event(item("done", 0, r#"{"type":"mcp_list_tools","error":"no"}"#));
    stream(opens().into_iter().chain([failed, item, word("a"), completed("", 9, 1)]))
        .tells(OK, 1, 0, from_usage(1))
        .usage(told(9, 1))
        .under_every_cut();
}

#[test]
fn storms_of_pings() {
    let ping = || event("event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n");
    let mut pieces: Vec<_> = opens().into();
    pieces.extend((0..40).map(|_| ping()));
    pieces.extend([nothing(": ping\n\n"), event("data:\n\n"), word("a"), ping(), ping(), word("b")]);
    pieces.push(completed("", 9, 2));
    stream(pieces).tells(OK, 1, 1, from_usage(2)).usage(told(9, 2)).under_every_cut();
}

#[test]
fn events_of_types_to_come() {
    let pieces = [
        created(),
        event(of_part("hologram.delta", r#""delta":"no""#)),
        event(of_part("hologram.done", r#""text":"no""#)),
        event(of_part("output_text.annotation.added", r#""annotation":{"type":"url_citation","title":"no"}"#)),
        event(item("done", 0, r#"{"type":"hologram","content":[{"type":"output_text","text":"no"}],"name":"no"}"#)),
        event(named(r#"{"type":"hologram","delta":"no"}"#)),
        word("a"),
        word("b"),
        completed("", 9, 2),
    ];
    stream(pieces).tells(OK, 1, 1, from_usage(2)).usage(told(9, 2)).under_every_cut();
}

#[test]
fn fields_that_are_null_or_of_the_wrong_type() {
    let pieces = [
        event(named(r#"{"type":"response.created","response":null}"#)),
        event(named(r#"{"type":"response.created","response":[7]}"#)),
        event(named(r#"{"type":"response.output_item.added","item":null,"output_index":-1}"#)),
        event(named(r#"{"type":"response.output_item.added","item":{"type":"message","content":null}}"#)),
        event(named(r#"{"type":"response.content_part.added","part":7}"#)),
        event(of_part("output_text.delta", r#""delta":null"#)),
        event(of_part("output_text.delta", r#""delta":7"#)),
        event(of_part("output_text.done", r#""text":7,"refusal":{},"arguments":true"#)),
        word("a"),
        event("event: response.output_text.delta\ndata: [1]\n\n"),
        token(of_part("output_text.delta", r#""delta":"b","logprobs":{"no":1},"error":null"#)),
        event(named(r#"{"type":"response.completed","response":{"usage":7,"model":7,"output":7}}"#)).finishing(),
    ];
    stream(pieces).tells(OK, 1, 1, from_events(2)).anomaly(Anomaly::MalformedEvent, 1).under_every_cut();
}

#[test]
fn a_whole_reply() {
    let whole = response("completed", &said_message("hello"), &counts(9, 5));
    document(&whole, true).tells(OK, 0, 0, from_usage(5)).usage(told(9, 5)).under_every_cut();
    // In a stream it is one event with all of it.
    let event = token(format!("data: {whole}\n\n")).finishing();
    stream([event]).tells(OK, 1, 0, from_usage(5)).usage(told(9, 5)).under_every_cut();
    // Of reasoning that usage reports and nothing shows, the tokens are not those of the reply.
    let hidden = r#"{"input_tokens":9,"output_tokens":66,"output_tokens_details":{"reasoning_tokens":64}}"#;
    document(&response("completed", &said_message("ok"), hidden), true)
        .tells(OK, 0, 0, from_usage(2))
        .usage(Usage { reasoning: Some(64), ..usage(9, 66) })
        .under_every_cut();
    let summed = r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}"#;
    document(&response("completed", summed, hidden), true)
        .tells(OK, 0, 0, from_usage(2))
        .usage(Usage { reasoning: Some(64), ..usage(9, 66) })
        .partly_hidden()
        .under_every_cut();
    document(&response("completed", summed, &counts(9, 5)), true)
        .tells(OK, 0, 0, from_usage(5))
        .usage(told(9, 5))
        .partly_hidden()
        .under_every_cut();
}

#[test]
fn whole_replies_that_are_not_complete() {
    // Who asked for the background has the answer to that.
    for status in ["incomplete", "queued", "in_progress"] {
        document(&response(status, "", "null"), true).tells(OK, 0, 0, None).under_every_cut();
    }
    for status in ["failed", "cancelled"] {
        document(&response(status, "", "null"), false).tells(Outcome::InbandError, 0, 0, None).under_every_cut();
    }
    document(r#"{"error":{"message":"no"}}"#, false).tells(Outcome::InbandError, 0, 0, None).under_every_cut();
    document(r#"{"id":"resp_1"}"#, false).tells(Outcome::Unconfirmed, 0, 0, None).under_every_cut();
}
