use super::*;
use crate::backend::llama::call::{Call, Kind, Limits, Sampling};

const VOCAB: usize = 100;

fn read(body: &str) -> Result<Call, BadCall> {
    Call::read(Kind::Completion, body.as_bytes(), &Sampling::default(), VOCAB)
}

/// A request with one prompt and `fields`.
fn ask(fields: &str) -> Result<Call, BadCall> {
    read(&format!(r#"{{"prompt":"Hi"{fields}}}"#))
}

fn text(text: &str) -> Prompt {
    Prompt::Text(text.to_owned())
}

#[test]
fn the_shortest_request_gets_the_documented_defaults() {
    let expected = Call {
        model: None,
        input: Input::Completion { prompts: vec![text("Hi")], echo: false },
        stream: false,
        include_usage: false,
        continuous_usage: false,
        choices: 1,
        sampling: Sampling::default(),
        limits: Limits { max_tokens: Some(16), ..Limits::default() },
    };
    assert_eq!(ask("").expect("valid"), expected);
    let nulls = r#","max_tokens":null,"echo":null,"suffix":null,"best_of":null,"logprobs":null,"n":null,"stop":null"#;
    assert_eq!(ask(nulls).expect("valid"), expected);
}

#[test]
fn prompts_come_in_all_four_forms() {
    let tokens = |ids: &[u32]| Prompt::Tokens(ids.to_vec());
    for (prompt, expected) in [
        (r#""a b""#, vec![text("a b")]),
        (r#""""#, vec![text("")]),
        (r#"["a","b",""]"#, vec![text("a"), text("b"), text("")]),
        ("[1,2,99]", vec![tokens(&[1, 2, 99])]),
        ("[[1],[2,3]]", vec![tokens(&[1]), tokens(&[2, 3])]),
    ] {
        let call = read(&format!(r#"{{"prompt":{prompt},"echo":true}}"#)).expect(prompt);
        assert_eq!(call.input, Input::Completion { prompts: expected, echo: true });
    }
}

#[test]
fn what_is_shared_with_chats_is_read_as_there() {
    let call =
        ask(r#","model":"m","stream":true,"stream_options":{"include_usage":true},"n":2,"best_of":2,"temperature":0,
        "logit_bias":{"5":-100},"logprobs":3,"max_tokens":30,"min_tokens":20,"ignore_eos":true,"stop":"a","seed":4,
        "suffix":"","top_logprobs":0,"add_special_tokens":true,"user":"u""#)
        .expect("valid");
    assert_eq!((call.model.as_deref(), call.stream, call.include_usage, call.choices), (Some("m"), true, true, 2));
    assert_eq!((call.sampling.top_logprobs, call.sampling.seed, call.sampling.temperature), (Some(3), Some(4), 0.0));
    assert_eq!((call.limits.max_tokens, call.limits.min_tokens, call.limits.ignore_eos), (Some(30), 20, true));
    assert_eq!(ask(r#","logprobs":0"#).expect("valid").sampling.top_logprobs, Some(0));
}

#[test]
fn what_cannot_be_served_is_named() {
    for (fields, param) in [
        (r#""n":129"#, "n"),
        (r#""n":0"#, "n"),
        (r#""best_of":2"#, "best_of"),
        (r#""n":3,"best_of":2"#, "best_of"),
        (r#""n":2,"best_of":3"#, "best_of"),
        (r#""suffix":"end""#, "suffix"),
        (r#""echo":1"#, "echo"),
        (r#""echo":true,"logprobs":0"#, "echo"),
        (r#""logprobs":6"#, "logprobs"),
        (r#""logprobs":-1"#, "logprobs"),
        (r#""logprobs":true"#, "logprobs"),
        (r#""top_logprobs":2"#, "top_logprobs"),
        (r#""max_tokens":0"#, "max_tokens"),
        (r#""min_tokens":17"#, "min_tokens"),
        (r#""messages":[]"#, "messages"),
        (r#""prompt_embeds":"AA""#, "prompt_embeds"),
        (r#""add_special_tokens":false"#, "add_special_tokens"),
        (r#""truncate_prompt_tokens":5"#, "truncate_prompt_tokens"),
        (r#""tools":[{"type":"function"}]"#, "tools"),
        (r#""response_format":{"type":"json_object"}"#, "response_format"),
        (r#""guided_regex":"a""#, "guided_regex"),
        (r#""prompt_logprobs":1"#, "prompt_logprobs"),
        (r#""stream_options":{"include_usage":true}"#, "stream_options"),
    ] {
        let bad = ask(&format!(",{fields}")).expect_err(fields);
        assert_eq!(bad.param.as_deref(), Some(param), "{fields}: {}", bad.message);
        assert!(bad.message.starts_with(&format!("`{param}` ")), "{fields}: {}", bad.message);
    }
}

#[test]
fn prompts_that_cannot_be_read_are_named() {
    for (prompt, param) in [
        ("null", "prompt"),
        ("1", "prompt"),
        ("{}", "prompt"),
        ("[]", "prompt"),
        ("[[]]", "prompt[0]"),
        (r#"["a",1]"#, "prompt[1]"),
        (r#"["a",null]"#, "prompt[1]"),
        (r#"[1,"a"]"#, "prompt[1]"),
        ("[1.5]", "prompt[0]"),
        ("[1,-1]", "prompt[1]"),
        ("[5,100]", "prompt[1]"),
        ("[[5],[6,100]]", "prompt[1][1]"),
    ] {
        let bad = read(&format!(r#"{{"prompt":{prompt}}}"#)).expect_err(prompt);
        assert_eq!(bad.param.as_deref(), Some(param), "{prompt}: {}", bad.message);
    }
    assert_eq!(read("{}").expect_err("no prompt").param.as_deref(), Some("prompt"));
}

#[test]
fn all_choices_of_all_prompts_count_together() {
    let many = |prompts: usize, n: u32| {
        let prompts = vec!["x"; prompts];
        read(&format!(r#"{{"prompt":{},"n":{n}}}"#, serde_json::to_string(&prompts).unwrap()))
    };
    assert!(many(128, 1).is_ok() && many(2, 64).is_ok());
    assert_eq!(many(129, 1).expect_err("too many").param.as_deref(), Some("prompt"));
    let bad = many(3, 43).expect_err("too many together");
    assert_eq!(bad.param.as_deref(), Some("n"));
    assert_eq!(
        bad.message,
        "`n` is 43 for each of 3 prompts, which makes 129 choices: ask for at most 128 in a request"
    );
}
