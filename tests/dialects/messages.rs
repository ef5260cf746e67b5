//! Anthropic's messages.

use streamgauge::measure::{Anomaly, Content, Outcome};
use streamgauge::wire::{Dialect, Usage};

use super::{OK, from_events, from_usage, named, prompt, usage, with_crlf, without_names, written};
use crate::replay::{Case, End, Piece, event, nothing, reasoning, token};

fn stream(pieces: impl IntoIterator<Item = Piece>) -> Case {
    crate::replay::stream_in(Dialect::Messages, pieces)
}

/// One JSON document, in answer to a request for one.
fn document(json: &str) -> Case {
    let piece = nothing(json);
    let piece = if json.contains(r#""stop_reason":""#) { piece.finishing() } else { piece };
    Case { stream: false, content: Content::Unlabelled, ..stream([piece]) }
}

/// The beginning, with a prompt of nine tokens and the placeholder that stands where output's count will.
fn start() -> Piece {
    start_of("made-up-model", r#""input_tokens":9,"output_tokens":1"#)
}

fn start_of(model: &str, usage: &str) -> Piece {
    event(named(&format!(
        r#"{{"type":"message_start","message":{{"id":"msg_1","type":"message","role":"assistant","model":"{model}","content":[],"stop_reason":null,"stop_sequence":null,"usage":{{{usage}}}}}}}"#
    )))
}

fn opens(index: u32, block: &str) -> String {
    named(&format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#))
}

fn opens_text(index: u32) -> Piece {
    event(opens(index, r#"{"type":"text","text":""}"#))
}

fn opens_thinking(index: u32) -> Piece {
    event(opens(index, r#"{"type":"thinking","thinking":"","signature":""}"#))
}

fn closes(index: u32) -> Piece {
    event(named(&format!(r#"{{"type":"content_block_stop","index":{index}}}"#)))
}

fn delta(index: u32, delta: &str) -> String {
    named(&format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#))
}

fn word(text: &str) -> Piece {
    token(delta(0, &format!(r#"{{"type":"text_delta","text":"{text}"}}"#)))
}

fn thought(text: &str) -> Piece {
    reasoning(delta(0, &format!(r#"{{"type":"thinking_delta","thinking":"{text}"}}"#)))
}

fn signature(index: u32) -> Piece {
    event(delta(index, r#"{"type":"signature_delta","signature":"EqQBCgIYAhIM"}"#))
}

fn input(json: &str) -> Piece {
    token(delta(1, &format!(r#"{{"type":"input_json_delta","partial_json":"{json}"}}"#)))
}

/// Why it stopped, and how many tokens it had.
fn end(reason: &str, output: u64) -> Piece {
    ends(reason, &format!(r#""output_tokens":{output}"#))
}

fn ends(reason: &str, usage: &str) -> Piece {
    event(named(&format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{{usage}}}}}"#
    )))
    .finishing()
}

/// The end of a reply of 70 tokens, 64 of them thinking.
fn end_of_thinking() -> Piece {
    ends("end_turn", r#""output_tokens":70,"output_tokens_details":{"thinking_tokens":64}"#)
}

/// What [`start`] and [`end_of_thinking`] say.
fn thought_through() -> Usage {
    Usage { reasoning: Some(64), ..usage(9, 70) }
}

/// A thought of so many bytes.
fn long(bytes: usize) -> Piece {
    thought(&"m".repeat(bytes))
}

fn stop() -> Piece {
    event(named(r#"{"type":"message_stop"}"#))
}

fn ping() -> Piece {
    event(named(r#"{"type":"ping"}"#))
}

fn two_words() -> [Piece; 8] {
    [start(), opens_text(0), ping(), word("hel"), word("lo"), closes(0), end("end_turn", 5), stop()]
}

const ERROR: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;

#[test]
fn plain_text() {
    stream(two_words()).tells(OK, 1, 1, from_usage(5)).usage(usage(9, 5)).under_every_cut();
}

#[test]
fn crlf_line_ends() {
    let pieces = two_words().map(|piece| written(piece, with_crlf));
    stream(pieces).tells(OK, 1, 1, from_usage(5)).usage(usage(9, 5)).under_every_cut();
}

#[test]
fn no_event_names() {
    let pieces = two_words().map(|piece| written(piece, without_names));
    stream(pieces).tells(OK, 1, 1, from_usage(5)).usage(usage(9, 5)).under_every_cut();
}

#[test]
fn no_types_in_the_data() {
    let untyped = |text: &str| {
        let (name, data) = text.split_once("\ndata: {\"type\":\"").expect("a type");
        let rest = data.split_once('"').expect("its end").1;
        format!("{name}\ndata: {{{}", rest.strip_prefix(',').unwrap_or(rest))
    };
    let pieces = two_words().map(|piece| written(piece, untyped));
    stream(pieces).tells(OK, 1, 1, from_usage(5)).usage(usage(9, 5)).under_every_cut();
}

#[test]
fn a_cut_inside_a_utf8_character() {
    stream([start(), opens_text(0), word("水"), word("é"), closes(0), end("end_turn", 4), stop()])
        .tells(OK, 1, 1, from_usage(4))
        .usage(usage(9, 4))
        .under_every_cut();
}

#[test]
fn thinking_first_then_text() {
    let pieces = [
        start(),
        opens_thinking(0),
        thought("hm"),
        thought("so"),
        signature(0),
        closes(0),
        opens_text(1),
        word("a"),
        closes(1),
        end("end_turn", 7),
        stop(),
    ];
    stream(pieces).tells(OK, 1, 2, from_usage(7)).usage(usage(9, 7)).under_every_cut();
}

#[test]
fn thinking_without_a_text() {
    // A signature seals what was thought; nothing of it is shown.
    let pieces = || [start(), opens_thinking(0), signature(0), closes(0), opens_text(1), word("a"), word("b")];
    stream(pieces().into_iter().chain([end("end_turn", 70), stop()]))
        .tells(OK, 1, 1, from_usage(70))
        .usage(usage(9, 70))
        .partly_hidden()
        .under_every_cut();
    // Usage tells how much that was: what is left are the tokens that were shown.
    stream(pieces().into_iter().chain([end_of_thinking(), stop()]))
        .tells(OK, 1, 1, from_usage(6))
        .usage(thought_through())
        .under_every_cut();
}

#[test]
fn thinking_that_usage_tells_apart() {
    let of = |model: &str, thoughts: Vec<Piece>| {
        let start = start_of(model, r#""input_tokens":9,"output_tokens":1"#);
        let pieces = [start, opens_thinking(0)].into_iter().chain(thoughts).chain([signature(0), closes(0)]);
        let rest = [opens_text(1), word("a"), word("b"), end_of_thinking(), stop()];
        stream(pieces.chain(rest))
    };
    // Shown whole, it stays.
    let whole = of("made-up-model", vec![long(40), long(24)]);
    whole.tells(OK, 1, 3, from_usage(70)).usage(thought_through()).under_every_cut();
    // Of a summary the tokens of the thinking are not those that were shown, whatever its length.
    for model in ["claude-opus-4-20250514", "anthropic/claude-sonnet-4.5"] {
        let summary = of(model, vec![long(40), long(400)]);
        let told = summary.tells(OK, 1, 3, from_usage(6)).usage(thought_through());
        told.partly_hidden().under_every_cut();
    }
    // Under another name it shows where 64 tokens are told and 63 bytes are shown.
    let short = of("an-alias", vec![long(40), long(23)]);
    short.tells(OK, 1, 3, from_usage(6)).usage(thought_through()).partly_hidden().under_every_cut();
}

#[test]
fn thinking_that_is_shown_whole_in_a_blocks_first_event() {
    let first = reasoning(opens(0, r#"{"type":"thinking","thinking":"hm","signature":"EqQBCgIYAhIM"}"#));
    stream([start(), first, signature(0), closes(0), opens_text(1), word("a"), end("end_turn", 4), stop()])
        .tells(OK, 1, 1, from_usage(4))
        .usage(usage(9, 4))
        .under_every_cut();
    // The second block's signature seals another block than the one that was shown.
    let pieces = [
        start(),
        opens_thinking(0),
        thought("hm"),
        signature(0),
        closes(0),
        opens_thinking(1),
        signature(1),
        closes(1),
    ];
    stream(pieces.into_iter().chain([end("end_turn", 4), stop()]))
        .tells(OK, 1, 0, from_usage(4))
        .usage(usage(9, 4))
        .partly_hidden()
        .under_every_cut();
}

#[test]
fn thinking_that_its_vendor_summarises() {
    let thinks = |model: &str| {
        let start = start_of(model, r#""input_tokens":9,"output_tokens":1"#);
        let pieces = [start, opens_thinking(0), thought("hm"), signature(0), closes(0)];
        stream(pieces.into_iter().chain([opens_text(1), word("a"), end("end_turn", 70), stop()]))
    };
    for model in ["claude-opus-4-20250514", "anthropic/claude-sonnet-4.5"] {
        let told = thinks(model).tells(OK, 1, 1, from_usage(70)).usage(usage(9, 70));
        told.partly_hidden().under_every_cut();
    }
    for model in ["claude-3-7-sonnet-20250219", "anthropic/claude-3.7-sonnet", "a-model-of-another"] {
        thinks(model).tells(OK, 1, 1, from_usage(70)).usage(usage(9, 70)).under_every_cut();
    }
}

#[test]
fn redacted_thinking() {
    let redacted = || event(opens(0, r#"{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3"}"#));
    let answer = || [closes(0), opens_text(1), word("a"), word("b")];
    let first = || [start(), redacted()].into_iter().chain(answer());
    stream(first().chain([end("end_turn", 70), stop()]))
        .tells(OK, 1, 1, from_usage(70))
        .usage(usage(9, 70))
        .partly_hidden()
        .under_every_cut();
    let told_apart = stream(first().chain([end_of_thinking(), stop()]));
    told_apart.tells(OK, 1, 1, from_usage(6)).usage(thought_through()).under_every_cut();
    // Between tokens, its time is theirs; beside some that was shown, nobody knows how much it was.
    for shown in [word("x"), long(64)] {
        let pieces = [start(), shown, redacted()].into_iter().chain(answer());
        let told = stream(pieces.chain([end_of_thinking(), stop()])).tells(OK, 1, 2, from_usage(6));
        told.usage(thought_through()).partly_hidden().under_every_cut();
    }
}

#[test]
fn tool_use_only() {
    for kind in ["tool_use", "server_tool_use", "mcp_tool_use"] {
        let call = format!(r#"{{"type":"{kind}","id":"toolu_1","name":"level","input":{{}}}}"#);
        let pieces = [
            start(),
            token(opens(0, &call)),
            event(delta(0, r#"{"type":"input_json_delta","partial_json":""}"#)),
            input(r#"{\"river\":"#),
            input(r#"\"Rhine\"}"#),
            closes(0),
            end("tool_use", 12),
            stop(),
        ];
        stream(pieces).tells(OK, 1, 2, from_usage(12)).usage(usage(9, 12)).under_every_cut();
    }
}

#[test]
fn a_tool_that_ran_at_the_server_gives_no_output() {
    let result = r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","title":"Pegel","url":"https://example.org","encrypted_content":"EqgfCioIARgBIiQ3","text":"9.81 m"}]}"#;
    let cited = r#"{"type":"citations_delta","citation":{"type":"char_location","cited_text":"9.81 m"}}"#;
    let pieces = [
        start(),
        token(opens(0, r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#)),
        input(r#"{\"query\":\"Pegel\"}"#),
        closes(0),
        event(opens(1, result)),
        closes(1),
        opens_text(2),
        event(delta(2, cited)),
        word("9.81 m"),
        closes(2),
        end("end_turn", 20),
        stop(),
    ];
    stream(pieces).tells(OK, 1, 2, from_usage(20)).usage(usage(9, 20)).under_every_cut();
}

#[test]
fn several_blocks_are_one_choice() {
    // A block that opens with text has said it.
    let opening = token(opens(1, r#"{"type":"text","text":"and "}"#));
    let pieces = [start(), opens_text(0), word("a"), closes(0), opening, word("b"), closes(1)];
    stream(pieces.into_iter().chain([end("end_turn", 3), stop()]))
        .tells(OK, 1, 2, from_usage(3))
        .usage(usage(9, 3))
        .under_every_cut();
}

#[test]
fn a_refusal() {
    stream([start(), opens_text(0), word("I"), closes(0), end("refusal", 2), stop()])
        .tells(OK, 1, 0, from_usage(2))
        .usage(usage(9, 2))
        .under_every_cut();
}

#[test]
fn an_empty_reply() {
    stream([start(), opens_text(0), closes(0), end("end_turn", 1), stop()])
        .tells(OK, 0, 0, from_usage(1))
        .usage(usage(9, 1))
        .under_every_cut();
    stream([start(), end("end_turn", 0), stop()]).tells(OK, 0, 0, from_usage(0)).usage(usage(9, 0)).under_every_cut();
}

#[test]
fn the_prompts_three_parts() {
    let start = start_of(
        "made-up-model",
        r#""input_tokens":2,"cache_creation_input_tokens":30,"cache_read_input_tokens":400,"output_tokens":1"#,
    );
    stream([start, opens_text(0), word("a"), word("b"), end("end_turn", 6), stop()])
        .tells(OK, 1, 1, from_usage(6))
        .usage(Usage { cached: Some(400), ..usage(432, 6) })
        .under_every_cut();
}

#[test]
fn a_prompt_of_no_tokens_is_not_known() {
    let zeros = r#""input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0"#;
    let begins = || [start_of("made-up-model", zeros), opens_text(0), word("a"), word("b")];
    let told = Usage { output: Some(6), ..Usage::default() };
    for last in [r#""output_tokens":6"#.to_owned(), zeros.replace(r#""output_tokens":0"#, r#""output_tokens":6"#)] {
        stream(begins().into_iter().chain([ends("end_turn", &last), stop()]))
            .tells(OK, 1, 1, from_usage(6))
            .usage(told)
            .under_every_cut();
    }
    stream(begins()).tells(Outcome::Truncated, 1, 1, from_events(2)).under_every_cut();
    let whole = WHOLE.replace(
        r#""input_tokens":2,"cache_creation_input_tokens":3,"cache_read_input_tokens":4"#,
        r#""input_tokens":0"#,
    );
    document(&whole).tells(OK, 0, 0, from_usage(6)).usage(told).under_every_cut();
}

#[test]
fn usage_that_is_told_again_at_the_end() {
    let corrected = named(
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":12,"cache_creation_input_tokens":null,"cache_read_input_tokens":0,"output_tokens":6}}"#,
    );
    stream([start(), opens_text(0), word("a"), word("b"), event(corrected).finishing(), stop()])
        .tells(OK, 1, 1, from_usage(6))
        .usage(Usage { cached: Some(0), ..usage(12, 6) })
        .under_every_cut();
}

#[test]
fn usage_only_at_the_start() {
    // What stands there for output is no count of it.
    let bare = event(named(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#)).finishing();
    stream([start(), opens_text(0), word("a"), word("b"), bare, stop()])
        .tells(OK, 1, 1, from_events(2))
        .usage(prompt(9))
        .under_every_cut();
}

#[test]
fn max_tokens() {
    stream([start(), opens_text(0), word("a"), word("b"), closes(0), end("max_tokens", 2), stop()])
        .tells(OK, 1, 1, from_usage(2))
        .usage(usage(9, 2))
        .under_every_cut();
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
        stream([start(), opens_text(0), word("a"), word("b")])
            .ending(end)
            .tells(outcome, 1, 1, from_events(2))
            .usage(prompt(9))
            .under_every_cut();
    }
}

#[test]
fn an_error_in_the_stream() {
    // Also without its name, and as other relays write it.
    let bare = r#"{"error":{"message":"overloaded","code":529}}"#;
    for error in [named(ERROR), without_names(&named(ERROR)), format!("data: {bare}\n\n")] {
        stream([start(), opens_text(0), word("a"), word("b"), event(error)])
            .tells(Outcome::InbandError, 1, 1, from_events(2))
            .usage(prompt(9))
            .under_every_cut();
    }
    stream([event("event: error\ndata: overloaded\n\n")])
        .tells(Outcome::InbandError, 0, 0, None)
        .anomaly(Anomaly::MalformedEvent, 1)
        .under_every_cut();
    stream([start(), opens_text(0), word("a"), nothing(ERROR)])
        .tells(Outcome::InbandError, 1, 0, from_events(1))
        .usage(prompt(9))
        .anomaly(Anomaly::StrayJson, 1)
        .under_every_cut();
}

#[test]
fn storms_of_pings() {
    let mut pieces = vec![start()];
    pieces.extend((0..40).map(|_| ping()));
    pieces.extend([event("event: ping\ndata: {}\n\n"), event("event: ping\ndata:\n\n"), nothing(": ping\n\n")]);
    pieces.extend([opens_text(0), ping(), word("a"), ping(), ping(), word("b"), end("end_turn", 2), stop(), ping()]);
    stream(pieces).tells(OK, 1, 1, from_usage(2)).usage(usage(9, 2)).under_every_cut();
}

#[test]
fn the_end_marker_without_a_reason() {
    stream([start(), opens_text(0), word("a"), word("b"), closes(0), stop()])
        .tells(Outcome::Unconfirmed, 1, 1, from_events(2))
        .usage(prompt(9))
        .under_every_cut();
    let null = r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":2}}"#;
    stream([start(), opens_text(0), word("a"), word("b"), event(named(null)), stop()])
        .tells(Outcome::Unconfirmed, 1, 1, from_usage(2))
        .usage(usage(9, 2))
        .under_every_cut();
}

#[test]
fn another_dialects_end_marker_behind_its_own() {
    let done = || event("data: [DONE]\n\n");
    stream(two_words().into_iter().chain([done()])).tells(OK, 1, 1, from_usage(5)).usage(usage(9, 5)).under_every_cut();
    // In its place it ends the stream as well.
    let pieces = two_words().into_iter().take(5).chain([done()]);
    stream(pieces).tells(Outcome::Unconfirmed, 1, 1, from_events(2)).usage(prompt(9)).under_every_cut();
    stream(two_words().into_iter().chain([stop()]))
        .tells(OK, 1, 1, from_usage(5))
        .usage(usage(9, 5))
        .anomaly(Anomaly::RepeatedDone, 1)
        .under_every_cut();
}

#[test]
fn events_of_types_to_come() {
    let pieces = [
        start(),
        event(named(r#"{"type":"content_block_hint","delta":{"type":"text_delta","text":"no"}}"#)),
        event(opens(0, r#"{"type":"hologram","text":"no","name":"no"}"#)),
        event(delta(0, r#"{"type":"hologram_delta","points":"no"}"#)),
        closes(0),
        opens_text(1),
        word("a"),
        word("b"),
        end("pause_turn", 4),
        stop(),
    ];
    stream(pieces).tells(OK, 1, 1, from_usage(4)).usage(usage(9, 4)).under_every_cut();
}

#[test]
fn fields_that_are_null_or_of_the_wrong_type() {
    let pieces = [
        event(named(r#"{"type":"message_start","message":{"model":null,"usage":null}}"#)),
        event(named(r#"{"type":"message_start","message":7}"#)),
        event(named(r#"{"type":"message_start"}"#)),
        event(opens(0, "null")),
        event(opens(0, r#"{"type":7,"text":"no"}"#)),
        event(opens(0, r#"{"type":"text","text":null}"#)),
        event(delta(0, "null")),
        event(delta(0, r#"{"type":"text_delta","text":null}"#)),
        event(delta(0, r#"{"type":"text_delta","text":["no"]}"#)),
        event(delta(0, r#"{"type":"text_delta","text":""}"#)),
        word("a"),
        event("event: content_block_delta\ndata: [1]\n\n"),
        event("event: content_block_delta\ndata: {\"type\":\n\n"),
        word("b"),
        event(named(r#"{"type":"message_delta","delta":{"stop_reason":""},"usage":{"output_tokens":"6"}}"#)),
        event(named(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":7,"error":null}"#))
            .finishing(),
        stop(),
    ];
    stream(pieces).tells(OK, 1, 1, from_events(2)).anomaly(Anomaly::MalformedEvent, 2).under_every_cut();
}

const WHOLE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"made-up-model","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":2,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":6}}"#;

#[test]
fn a_whole_reply() {
    let told = Usage { cached: Some(4), ..usage(9, 6) };
    document(WHOLE).tells(OK, 0, 0, from_usage(6)).usage(told).under_every_cut();
    // In a stream it is one event with all of it.
    let event = token(format!("data: {WHOLE}\n\n")).finishing();
    stream([event, stop()]).tells(OK, 1, 0, from_usage(6)).usage(told).under_every_cut();
}

#[test]
fn whole_replies_of_other_content() {
    let of = |content: &str| WHOLE.replace(r#"{"type":"text","text":"hello"}"#, content);
    let told = Usage { cached: Some(4), ..usage(9, 6) };
    let of_thinking = Usage { reasoning: Some(4), ..told };
    let told_apart = |reply: &str| {
        let details = r#""output_tokens":6,"output_tokens_details":{"thinking_tokens":4}"#;
        document(&reply.replace(r#""output_tokens":6"#, details))
    };
    for shown in [
        "",
        r#"{"type":"tool_use","id":"t","name":"level","input":{"river":"Rhine"}}"#,
        r#"{"type":"thinking","thinking":"hm","signature":"EqQB"},{"type":"text","text":"a"}"#,
    ] {
        document(&of(shown)).tells(OK, 0, 0, from_usage(6)).usage(told).under_every_cut();
    }
    for hidden in
        [r#"{"type":"redacted_thinking","data":"Emw"}"#, r#"{"type":"thinking","thinking":"","signature":"EqQB"}"#]
    {
        document(&of(hidden)).tells(OK, 0, 0, from_usage(6)).usage(told).partly_hidden().under_every_cut();
        let told_apart = told_apart(&of(hidden));
        told_apart.tells(OK, 0, 0, from_usage(2)).usage(of_thinking).under_every_cut();
    }
    // Where usage tells of thinking, what was shown whole stays, and a summary is none.
    let shown = of(r#"{"type":"thinking","thinking":"hmmm","signature":"EqQB"},{"type":"text","text":"a"}"#);
    told_apart(&shown).tells(OK, 0, 0, from_usage(6)).usage(of_thinking).under_every_cut();
    for summary in [shown.replace("made-up-model", "claude-opus-4-1"), shown.replace("hmmm", "hm")] {
        let told = told_apart(&summary).tells(OK, 0, 0, from_usage(2)).usage(of_thinking);
        told.partly_hidden().under_every_cut();
    }
}

#[test]
fn a_whole_error() {
    document(ERROR).tells(Outcome::InbandError, 0, 0, None).under_every_cut();
    document(r#"{"error":{"message":"no"}}"#).tells(Outcome::InbandError, 0, 0, None).under_every_cut();
    let unfinished = WHOLE.replace(r#""end_turn""#, "null");
    document(&unfinished)
        .tells(Outcome::Unconfirmed, 0, 0, from_usage(6))
        .usage(Usage { cached: Some(4), ..usage(9, 6) })
        .under_every_cut();
}
