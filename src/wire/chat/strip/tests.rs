use proptest::prelude::*;

use super::*;

const TOKEN: &str = r#"{"id":"c","choices":[{"index":0,"delta":{"content":"usage \"usage\":null"}}]"#;
const USAGE: &str = r#"{"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;

/// What goes on of frames cut there.
fn through(stream: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut stripper = UsageStripper::new();
    let whole = Bytes::copy_from_slice(stream);
    let mut out = Vec::new();
    let mut at = 0;
    for end in cuts.iter().copied().chain([stream.len()]) {
        out.extend_from_slice(&stripper.feed(&whole.slice(at..end)).bytes);
        at = end;
    }
    out.extend_from_slice(&stripper.finish());
    out
}

/// Checks every cut in two, the cut into single bytes, and for short streams every cut in three.
fn strips(asked: &str, never_asked: &str) {
    let check = |cuts: &[usize]| {
        let out = through(asked.as_bytes(), cuts);
        assert_eq!(
            out.escape_ascii().to_string(),
            never_asked.as_bytes().escape_ascii().to_string(),
            "cut at {cuts:?}"
        );
    };
    check(&[]);
    (1..asked.len()).for_each(|cut| check(&[cut]));
    check(&(1..asked.len()).collect::<Vec<_>>());
    if asked.len() <= 220 {
        (1..asked.len()).for_each(|first| (first..asked.len()).for_each(|second| check(&[first, second])));
    }
}

fn unchanged(stream: &str) {
    strips(stream, stream);
}

#[test]
fn so_is_a_stream_of_a_text_completion() {
    let told = r#""id":"c","object":"text_completion","created":1,"model":"m""#;
    let text = r#""choices":[{"text":"a","index":0,"logprobs":null,"finish_reason":null}]"#;
    let asked = format!(
        "data: {{{told},{text},\"usage\":null}}\n\ndata: {{{told},\"choices\":[],\"usage\":{{\"prompt_tokens\":1}}}}\n\n\
         data: [DONE]\n\n"
    );
    strips(&asked, &format!("data: {{{told},{text}}}\n\ndata: [DONE]\n\n"));
}

#[test]
fn a_stream_is_what_it_would_have_been() {
    let asked = format!(
        "data: {TOKEN},\"usage\":null}}\n\n: ping\n\ndata: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}],\
         \"usage\":null}}\n\ndata: {USAGE}\n\ndata: [DONE]\n\n"
    );
    let never = format!(
        "data: {TOKEN}}}\n\n: ping\n\ndata: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n\
         data: [DONE]\n\n"
    );
    strips(&asked, &never);
    strips(&asked.replace('\n', "\r\n"), &never.replace('\n', "\r\n"));
    strips(&asked.replace('\n', "\r"), &never.replace('\n', "\r"));
    strips(&asked.replace("data: ", "data:"), &never.replace("data: ", "data:"));
    strips(&format!("\u{feff}{asked}"), &format!("\u{feff}{never}"));
}

#[test]
fn an_event_of_usage_alone_goes_whatever_its_spelling() {
    for event in [
        "id: 7\nevent: message\ndata: {\"choices\":[],\"usage\":{\"a\":1}}\n\n",
        "data: {\"choices\":[],\ndata: \"usage\":{\"a\":1}}\n\n",
        "data:{\"usage\":{\"a\":1},\"choices\": [ ] }\r\n\r\n",
        "data: {\"choices\":[],\rdata\rid\rdata: \"usage\":{}}\r\r",
        "data: {\"choices\":[],\"usage\":{}}\r\n\n",
        "data: {\"choices\":[],\"usage\":{},\"timings\":{\"prompt_n\":3}}\n\n",
        "retry: 1\nnothing\ndata: {\"choices\":[],\"usage\":{}}\n\r\n",
        "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"service_tier\":\"default\",\
         \"system_fingerprint\":null,\"obfuscation\":\"x\",\"choices\":[],\"usage\":{\"a\":1},\"vendor\":null}\n\n",
    ] {
        strips(event, "");
        strips(&format!("data: a\n\n{event}data: [DONE]\n\n"), "data: a\n\ndata: [DONE]\n\n");
    }
}

#[test]
fn comments_within_what_goes_stay() {
    strips(": a\n:b\r\ndata: {\"choices\":[],\"usage\":{}}\n: c\n\ndata: x\n\n", ": a\n:b\r\n: c\ndata: x\n\n");
}

#[test]
fn a_null_goes_with_one_comma_and_every_other_byte_stays() {
    for (asked, never) in [
        (r#"{"choices":[1], "usage": null, "x":1}"#, r#"{"choices":[1], "x":1}"#),
        (r#"{ "usage" : null , "choices":[1]}"#, r#"{ "choices":[1]}"#),
        (r#"{"choices":[] ,"usage":null }"#, r#"{"choices":[]  }"#),
        (r#"{"choices":[{"usage":null,"délta":"水"}],"usage":null}"#, r#"{"choices":[{"usage":null,"délta":"水"}]}"#),
        (
            r#"{"x":1.0e0,"choices":[],"prompt_filter_results":[],"usage":null}"#,
            r#"{"x":1.0e0,"choices":[],"prompt_filter_results":[]}"#,
        ),
    ] {
        strips(&format!("data: {asked}\n\n"), &format!("data: {never}\n\n"));
        strips(&format!("id: 1\ndata:{asked}\r\n\r\n"), &format!("id: 1\ndata:{never}\r\n\r\n"));
    }
    strips("data: {\"choices\":[1]\ndata: ,\"usage\":null\ndata: }\n\n", "data: {\"choices\":[1]\ndata: \ndata: }\n\n");
}

#[test]
fn what_is_not_for_certain_ours_stays() {
    for data in [
        // It says more than asking brings.
        r#"{"choices":[],"usage":{},"citations":["a"]}"#,
        r#"{"id":"c","choices":[],"usage":{},"x_vendor":{"queue_time":0.1}}"#,
        // A relay that always sends it so.
        r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}"#,
        r#"{"usage":{"prompt_tokens":1}}"#,
        r#"{"usage":null}"#,
        r#"{"choices":null,"usage":{}}"#,
        r#"{"choices":[],"usage":7}"#,
        r#"{"choices":[],"usage":{},"usage":{}}"#,
        r#"{"choices":[],"usage":null,"usage":{}}"#,
        r#"{"choices":[],"choices":[1],"usage":{}}"#,
        r#"{"choices":[],"usage":{},"error":{"message":"busy"}}"#,
        r#"{"choices":[{"usage":null}]}"#,
        r#"{"choices":[],"us\u0061ge":null}"#,
        r#"{"choices":[],"usage":{}"#,
        r#"{"choices":[],"usage":{}} x"#,
        r#"[{"choices":[],"usage":{}}]"#,
        "[DONE]",
        "",
    ] {
        unchanged(&format!("data: {data}\n\n"));
    }
    unchanged(&format!("{USAGE}\n\n"));
    unchanged(&format!(": {USAGE}\n\n"));
    unchanged(&format!("database: {USAGE}\n\n"));
    // The member is cut in two by a line end.
    unchanged("data: {\"choices\":[1],\"usage\":\ndata: null}\n\n");
    // No mark, and so a line with another name.
    unchanged("\u{feff}\u{feff}data: {\"choices\":[],\"usage\":{}}\n\n");
    let mut stream = b"\xef\xbbdata: ".to_vec();
    stream.extend_from_slice(USAGE.as_bytes());
    stream.extend_from_slice(b"\n\n");
    for cut in 1..stream.len() {
        assert_eq!(through(&stream, &[cut]), stream);
    }
    let broken = [&b"data: {\"choices\":[],\"usage\":{\"\xff\":1}}\n\n"[..]].concat();
    assert_eq!(through(&broken, &[]), broken);
}

#[test]
fn an_end_without_a_blank_line() {
    strips(&format!("data: a\n\ndata: {USAGE}"), "data: a\n\n");
    strips(&format!("data: a\n\ndata: {USAGE}\r"), "data: a\n\n");
    strips("data: {\"choices\":[1],\"usage\":null}\n", "data: {\"choices\":[1]}\n");
    unchanged("data: {\"choices\":[],\"usage\":{\"prompt_tok");
    unchanged("data: {\"choices\":[],\"usage\":nul");
    unchanged(": pin");
}

#[test]
fn only_what_is_incomplete_waits() {
    let mut stripper = UsageStripper::new();
    let mut on = |bytes: &'static str| stripper.feed(&Bytes::from_static(bytes.as_bytes())).bytes;
    assert_eq!(on("data: a\n\n: pi"), "data: a\n\n: pi");
    assert_eq!(on("ng\n"), "ng\n");
    assert_eq!(on("\ndata: b"), "\n");
    assert_eq!(on("c\r"), "");
    assert_eq!(on("\n\r"), "data: bc\r\n\r");
    assert_eq!(on("\ndata: d\n\ndata: e"), "\ndata: d\n\n");
    assert_eq!(on("\n\n"), "data: e\n\n");
}

#[test]
fn a_frame_in_which_nothing_changes_is_not_copied() {
    let frame = Bytes::from(format!("data: {TOKEN}}}\n\n: x\n\ndata: [DONE]\n\ndata: hal"));
    let out = UsageStripper::new().feed(&frame).bytes;
    assert_eq!((out.as_ptr(), out.len()), (frame.as_ptr(), frame.len() - "data: hal".len()));
    let frame = frame.slice(..out.len());
    let out = UsageStripper::new().feed(&frame).bytes;
    assert_eq!((out.as_ptr(), out.len()), (frame.as_ptr(), frame.len()));
}

#[test]
fn what_was_dropped_is_counted() {
    let frame = Bytes::from(format!("data: {TOKEN},\"usage\":null}}\n\ndata: {USAGE}\n\ndata: {USAGE}\n\n"));
    assert_eq!(UsageStripper::new().feed(&frame).dropped, 2);
}

#[test]
fn an_event_that_is_too_long_passes_as_it_is_and_the_next_does_not() {
    let long = format!("data: {{\"choices\":[],\"x\":\"{}\",\"usage\":null}}\n\n", "x".repeat(CAP));
    let stream = format!("{long}data: {USAGE}\n\ndata: [DONE]\n\n");
    let never = format!("{long}data: [DONE]\n\n");
    for cuts in [&[][..], &[7], &[CAP / 2, CAP + 10], &[CAP + 10, long.len() - 1], &[CAP / 2, long.len() + 9]] {
        assert!(through(stream.as_bytes(), cuts) == never.as_bytes(), "{cuts:?}");
    }
    let mut stripper = UsageStripper::new();
    stripper.feed(&Bytes::from(long.into_bytes()).slice(..CAP + 30));
    assert!(!stripper.holds());
}

#[test]
fn a_reply_that_is_no_stream_passes() {
    let through = |frames: &[&'static str]| {
        let mut stripper = UsageStripper::unlabelled();
        let mut out = Vec::new();
        for frame in frames {
            out.extend_from_slice(&stripper.feed(&Bytes::from_static(frame.as_bytes())).bytes);
        }
        assert!(!stripper.holds());
        String::from_utf8(out).unwrap()
    };
    let document = "{\"choices\":[],\ndata: {\"choices\":[],\"usage\":{}}\n\n";
    assert_eq!(through(&[" \n", document]), format!(" \n{document}"));
    assert_eq!(through(&["\n", "\ndata: {\"choices\":[],", "\"usage\":{}}\n\ndata: x\n\n"]), "\n\ndata: x\n\n");
}

proptest! {
    #[test]
    fn cuts_change_nothing(pieces in prop::collection::vec(piece(), 0..8), cuts in prop::collection::vec(0_usize..600, 0..6)) {
        let stream = pieces.concat();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.sort_unstable();
        prop_assert_eq!(through(stream.as_bytes(), &cuts), through(stream.as_bytes(), &[]));
    }

    #[test]
    fn what_says_nothing_of_usage_passes(stream in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
        let cut = cut.min(stream.len());
        prop_assert_eq!(through(&stream, &[cut]), stream);
    }
}

fn piece() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("data: "),
        Just("data:"),
        Just("id: 1"),
        Just(": c"),
        Just("\u{feff}"),
        Just(USAGE),
        Just("[DONE]"),
        Just(r#"{"choices":[1],"usage":null}"#),
        Just(r#"{"choices":[],"#),
        Just(r#""usage":{}}"#),
        Just("x"),
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r"), Just("\n\n"), Just("\r\n\r\n"), Just("")];
    (line, end).prop_map(|(line, end)| format!("{line}{end}"))
}
