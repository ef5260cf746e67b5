use super::*;

const VOCAB: usize = 100;

fn read(body: &str) -> Result<Call, BadCall> {
    Call::read(Kind::Chat, body.as_bytes(), &Sampling::default(), VOCAB)
}

fn messages(call: Call) -> Vec<Message> {
    match call.input {
        Input::Chat(messages) => messages,
        Input::Completion { .. } => panic!("no chat"),
    }
}

/// A request with one question and `fields`.
fn ask(fields: &str) -> Result<Call, BadCall> {
    read(&format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}]{fields}}}"#))
}

#[test]
fn the_shortest_request_gets_the_defaults() {
    let call = ask("").expect("valid");
    let expected = Call {
        model: None,
        input: Input::Chat(vec![Message { role: "user".into(), content: "Hi".into() }]),
        stream: false,
        include_usage: false,
        continuous_usage: false,
        choices: 1,
        sampling: Sampling::default(),
        limits: Limits::default(),
    };
    assert_eq!(call, expected);
}

#[test]
fn every_field_is_read() {
    let call =
        ask(r#","model":"m","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"n":3,
        "temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"seed":-1,"frequency_penalty":-2,"presence_penalty":2,
        "logit_bias":{"5":-100,"99":1.5},"logprobs":true,"top_logprobs":20,"max_tokens":9,"max_completion_tokens":8,
        "min_tokens":8,"ignore_eos":true,"stop":["a","b"],"stop_token_ids":[99,0,99],"user":"u","metadata":{},
        "response_format":{"type":"text"},"tools":[],"tool_choice":"auto","parallel_tool_calls":true,"unheard_of":[1]"#)
        .expect("valid");
    assert_eq!(call.model.as_deref(), Some("m"));
    assert_eq!((call.stream, call.include_usage, call.continuous_usage, call.choices), (true, true, true, 3));
    let sampling = Sampling {
        temperature: 0.5,
        top_p: 0.25,
        top_k: Some(7),
        min_p: 0.125,
        seed: Some(u64::MAX),
        frequency_penalty: -2.0,
        presence_penalty: 2.0,
        logit_bias: vec![(5, -100.0), (99, 1.5)],
        top_logprobs: Some(20),
    };
    assert_eq!(call.sampling, sampling);
    let limits = Limits {
        max_tokens: Some(8),
        min_tokens: 8,
        ignore_eos: true,
        stop: vec!["a".into(), "b".into()],
        stop_ids: vec![0, 99],
    };
    assert_eq!(call.limits, limits);
}

#[test]
fn the_models_defaults_hold_until_the_request_says_otherwise() {
    let defaults = Sampling { temperature: 0.6, top_p: 0.9, top_k: Some(50), min_p: 0.1, ..Sampling::default() };
    let read = |fields: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":""}}]{fields}}}"#);
        Call::read(Kind::Chat, body.as_bytes(), &defaults, VOCAB).expect("valid").sampling
    };
    assert_eq!(read(r#","temperature":null,"top_k":null"#), defaults);
    let openai = read(r#","temperature":1,"top_p":1,"top_k":-1,"min_p":0"#);
    assert_eq!(openai, Sampling::default());
}

#[test]
fn content_is_text_in_all_its_forms() {
    let call = read(
        r#"{"messages":[{"role":"developer","content":"a"},
            {"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c\n"}],"name":"n"},
            {"role":"assistant","content":null,"tool_calls":[]},{"role":"assistant"},{"role":"critic","content":""}]}"#,
    );
    let messages: Vec<_> = messages(call.expect("valid")).into_iter().map(|m| (m.role, m.content)).collect();
    let expected = [("system", "a"), ("user", "b\nc\n"), ("assistant", ""), ("assistant", ""), ("critic", "")];
    assert_eq!(messages, expected.map(|(role, content)| (role.to_owned(), content.to_owned())));
}

#[test]
fn what_cannot_be_served_is_named() {
    for (fields, param) in [
        (r#""n":0"#, "n"),
        (r#""n":129"#, "n"),
        (r#""n":1.5"#, "n"),
        (r#""model":1"#, "model"),
        (r#""stream":"yes""#, "stream"),
        (r#""stream_options":{"include_usage":true}"#, "stream_options"),
        (r#""stream":true,"stream_options":{"include_usage":1}"#, "stream_options.include_usage"),
        (r#""temperature":-0.1"#, "temperature"),
        (r#""temperature":2.1"#, "temperature"),
        (r#""temperature":"hot""#, "temperature"),
        (r#""top_p":1.1"#, "top_p"),
        (r#""top_k":-2"#, "top_k"),
        (r#""top_k":1.5"#, "top_k"),
        (r#""min_p":-1"#, "min_p"),
        (r#""seed":"x""#, "seed"),
        (r#""frequency_penalty":3"#, "frequency_penalty"),
        (r#""presence_penalty":-3"#, "presence_penalty"),
        (r#""logit_bias":[1]"#, "logit_bias"),
        (r#""logit_bias":{"100":1}"#, "logit_bias"),
        (r#""logit_bias":{"x":1}"#, "logit_bias"),
        (r#""logit_bias":{"+1":1}"#, "logit_bias"),
        (r#""logit_bias":{"01":1}"#, "logit_bias"),
        (r#""logit_bias":{"":1}"#, "logit_bias"),
        (r#""logit_bias":{"5":101}"#, "logit_bias.5"),
        (r#""logit_bias":{"5":null}"#, "logit_bias.5"),
        (r#""logprobs":5"#, "logprobs"),
        (r#""top_logprobs":5"#, "top_logprobs"),
        (r#""logprobs":true,"top_logprobs":21"#, "top_logprobs"),
        (r#""max_tokens":0"#, "max_tokens"),
        (r#""max_completion_tokens":-1"#, "max_completion_tokens"),
        (r#""max_tokens":3,"min_tokens":4"#, "min_tokens"),
        (r#""ignore_eos":1"#, "ignore_eos"),
        (r#""stop":1"#, "stop"),
        (r#""stop":[1]"#, "stop"),
        (r#""stop":"""#, "stop"),
        (r#""stop":["a",""]"#, "stop"),
        (r#""stop":["1","2","3","4","5","6","7","8","9","0","a","b","c","d","e","f","g"]"#, "stop"),
        (r#""stop_token_ids":[1,100]"#, "stop_token_ids[1]"),
        (r#""stop_token_ids":5"#, "stop_token_ids"),
        (r#""response_format":{"type":"json_object"}"#, "response_format"),
        (r#""response_format":{"type":"json_schema","json_schema":{}}"#, "response_format"),
        (r#""response_format":{}"#, "response_format"),
        (r#""response_format":"json""#, "response_format"),
        (r#""tools":[{"type":"function"}]"#, "tools"),
        (r#""functions":[{}]"#, "functions"),
        (r#""tool_choice":"required""#, "tool_choice"),
        (r#""tool_choice":{"type":"function"}"#, "tool_choice"),
        (r#""modalities":["text","audio"]"#, "modalities"),
        (r#""audio":{"voice":"x"}"#, "audio"),
        (r#""web_search_options":{}"#, "web_search_options"),
        (r#""repetition_penalty":1.1"#, "repetition_penalty"),
        (r#""guided_json":{}"#, "guided_json"),
        (r#""use_beam_search":true"#, "use_beam_search"),
        (r#""include_stop_str_in_output":true"#, "include_stop_str_in_output"),
        (r#""skip_special_tokens":false"#, "skip_special_tokens"),
        (r#""return_tokens_as_token_ids":true"#, "return_tokens_as_token_ids"),
        (r#""allowed_token_ids":[]"#, "allowed_token_ids"),
        (r#""guided_decoding":{"regex":"a"}"#, "guided_decoding"),
        (r#""structured_outputs":{"regex":"a"}"#, "structured_outputs"),
        (r#""dynatemp_range":0.5"#, "dynatemp_range"),
        (r#""top_n_sigma":1"#, "top_n_sigma"),
        (r#""tfs_z":0.9"#, "tfs_z"),
        (r#""typ_p":"1""#, "typ_p"),
        (r#""best_of":2"#, "best_of"),
        (r#""echo":true"#, "echo"),
        (r#""suffix":"x""#, "suffix"),
        (r#""n_predict":5"#, "n_predict"),
        (r#""continue_final_message":true"#, "continue_final_message"),
        (r#""add_generation_prompt":false"#, "add_generation_prompt"),
    ] {
        let bad = ask(&format!(",{fields}")).expect_err(fields);
        assert_eq!(bad.param.as_deref(), Some(param), "{fields}: {}", bad.message);
        assert!(bad.message.starts_with(&format!("`{param}` ")), "{fields}: {}", bad.message);
    }
}

/// What chat programs send along when their settings are left alone.
#[test]
fn fields_that_ask_for_nothing_are_let_by() {
    ask(r#","reasoning_effort":"high","include_stop_str_in_output":false,"skip_special_tokens":true,"best_of":1,
        "return_tokens_as_token_ids":false,"allowed_token_ids":null,"guided_json":null,"structured_outputs":{},
        "guided_choice":[],"dynatemp_range":0,"dynatemp_exponent":1,"top_n_sigma":-1,"tfs_z":1.0,"typ_p":1,"mirostat":0,
        "mirostat_tau":5,"dry_multiplier":0.0,"dry_base":1.75,"xtc_probability":0,"xtc_threshold":0.1,"echo":false,
        "suffix":"","n_predict":-1,"samplers":"","cache_prompt":true,"use_beam_search":false,"min_keep":0"#)
    .expect("harmless");
}

#[test]
fn lists_and_strings_have_an_end() {
    let strings = |lengths: &[usize]| {
        let strings: Vec<String> = lengths.iter().map(|&length| "x".repeat(length)).collect();
        ask(&format!(r#","stop":{}"#, serde_json::to_string(&strings).unwrap()))
    };
    assert_eq!(strings(&[1024; 4]).expect("just short enough").limits.stop.len(), 4);
    for (lengths, problem) in [
        (&[1, 1025][..], "`stop` has a string of 1025 bytes; shorten it to at most 1024"),
        (
            &[1024, 1024, 1024, 1024, 1],
            "`stop` has 4097 bytes in all its strings; shorten them to at most 4096 together",
        ),
    ] {
        let bad = strings(lengths).expect_err(problem);
        assert_eq!((bad.param.as_deref(), bad.message.as_str()), (Some("stop"), problem));
    }

    // A vocabulary with room for them.
    let large = |fields: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":""}}],{fields}}}"#);
        Call::read(Kind::Chat, body.as_bytes(), &Sampling::default(), 5000)
    };
    let ids = |ids: &[u32]| large(&format!(r#""stop_token_ids":{}"#, serde_json::to_string(ids).unwrap()));
    let most: Vec<u32> = (0..256).collect();
    let twice: Vec<u32> = most.iter().rev().chain(&most).copied().collect();
    assert_eq!(ids(&twice).expect("256 different ones").limits.stop_ids, most);
    let bad = ids(&(0..257).collect::<Vec<_>>()).expect_err("one too many");
    assert_eq!(bad.message, "`stop_token_ids` has 257 different tokens; leave all but 256 out");

    let biases = |count: usize| {
        let biases: Vec<String> = (0..count).map(|id| format!(r#""{id}":1"#)).collect();
        large(&format!(r#""logit_bias":{{{}}}"#, biases.join(",")))
    };
    assert_eq!(biases(1024).expect("just few enough").sampling.logit_bias.len(), 1024);
    let bad = biases(1025).expect_err("one too many");
    assert_eq!(bad.message, "`logit_bias` has 1025 tokens; leave all but 1024 out");
}

#[test]
fn errors_repeat_little_of_what_was_written() {
    let long = "é".repeat(5000);
    let bad = ask(&format!(r#","logit_bias":{{"{long}":1}}"#)).expect_err("no token");
    assert_eq!(
        bad.message,
        format!("`logit_bias` has the key `{}…`: keys are token ids, from 0 to 99", "é".repeat(32))
    );
    let part = format!(r#"{{"messages":[{{"role":"user","content":[{{"type":"a{long}"}}]}}]}}"#);
    let bad = read(&part).expect_err("not text");
    assert!(bad.message.contains("…") && bad.message.len() < 200, "{}", bad.message);
}

#[test]
fn messages_that_cannot_be_read_are_named() {
    let image = r#"[{"role":"user","content":[{"type":"text","text":""},{"type":"image_url","image_url":{}}]}]"#;
    for (messages, param) in [
        ("null", "messages"),
        ("[]", "messages"),
        ("\"hi\"", "messages"),
        ("[1]", "messages[0]"),
        (r#"[{"content":"a"}]"#, "messages[0].role"),
        (r#"[{"role":1,"content":"a"}]"#, "messages[0].role"),
        (r#"[{"role":"user","content":"a"},{"role":"tool","content":"a"}]"#, "messages[1].role"),
        (r#"[{"role":"user"}]"#, "messages[0].content"),
        (r#"[{"role":"user","content":1}]"#, "messages[0].content"),
        (r#"[{"role":"user","content":["a"]}]"#, "messages[0].content[0]"),
        (r#"[{"role":"user","content":[{}]}]"#, "messages[0].content[0].type"),
        (r#"[{"role":"user","content":[{"type":"text"}]}]"#, "messages[0].content[0].text"),
        (image, "messages[0].content[1].type"),
        (r#"[{"role":"assistant","tool_calls":[{}]}]"#, "messages[0].tool_calls"),
    ] {
        let bad = read(&format!(r#"{{"messages":{messages}}}"#)).expect_err(messages);
        assert_eq!(bad.param.as_deref(), Some(param), "{messages}: {}", bad.message);
    }
    assert_eq!(read("{}").expect_err("no messages").param.as_deref(), Some("messages"));
}

#[test]
fn what_is_no_json_object_has_no_field_to_name() {
    for body in ["", "{", "[]", "\"x\"", "{\"a\":\u{7}}"] {
        let bad = read(body).expect_err(body);
        assert_eq!(bad.param, None, "{body}: {}", bad.message);
    }
}

#[test]
fn messages_of_errors_say_what_must_be() {
    let message = |fields: &str| ask(fields).expect_err(fields).message;
    assert_eq!(message(r#","temperature":3"#), "`temperature` must be a number between 0 and 2, not 3");
    assert_eq!(message(r#","max_tokens":0"#), "`max_tokens` must be a whole number, at least 1, not 0");
    assert_eq!(message(r#","stream":"secret""#), "`stream` must be true or false, not a string");
}
