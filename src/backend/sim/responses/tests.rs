use super::*;
use crate::backend::sim::dialect::Dialect;
use crate::backend::sim::dialect::testing::{Replied, replied};
use crate::backend::sim::text::text_of;

fn request() -> Value {
    json!({
        "model": "m", "stream": true, "instructions": "be brief", "store": false, "metadata": {"k": "v"},
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a b"}]}],
        "text": {"verbosity": "low"},
        "tools": [{"type": "web_search"}, {"type": "function", "name": "find", "parameters": {}, "strict": false}],
    })
}

fn reply(sim: &str) -> Replied {
    replied(Dialect::Responses, &request(), sim)
}

/// The types of a stream's events, without what all have in common.
fn types(replied: &Replied) -> Vec<String> {
    let events = replied.events();
    let types = events.iter().map(|event| event["type"].as_str().expect("a type").replace("response.", ""));
    types.collect()
}

#[test]
fn a_stream_has_these_bytes() {
    let replied = reply("tokens=3,reasoning=1,tokens_per_event=2");
    let response = r#"{"background":false,"completed_at":^,"created_at":7,"error":null,"id":"resp_7","incomplete_details":null,"instructions":"be brief","max_output_tokens":null,"max_tool_calls":null,"metadata":{"k":"v"},"model":"m","object":"response","output":[~],"parallel_tool_calls":true,"previous_response_id":null,"prompt_cache_key":null,"reasoning":{"effort":null,"summary":null},"safety_identifier":null,"service_tier":"default","status":"%","store":false,"temperature":1.0,"text":{"format":{"type":"text"},"verbosity":"low"},"tool_choice":"auto","tools":[{"type":"web_search"},{"name":"find","parameters":{},"strict":false,"type":"function"}],"top_logprobs":0,"top_p":1.0,"truncation":"disabled","usage":$,"user":null}"#;
    let begun = response.replace('^', "null").replace('~', "").replace('%', "in_progress").replace('$', "null");
    let reasoning = r#"{"content":[{"text":"川","type":"reasoning_text"}],"id":"rs_7","status":"completed","summary":[],"type":"reasoning"}"#;
    let text = r#"{"annotations":[],"logprobs":[],"text":" current strong","type":"output_text"}"#;
    let message =
        format!(r#"{{"content":[{text}],"id":"msg_7","role":"assistant","status":"completed","type":"message"}}"#);
    let usage = r#"{"input_tokens":4,"input_tokens_details":{"cache_write_tokens":0,"cached_tokens":0},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":7}"#;
    let over = response
        .replace('^', "7")
        .replace('~', &format!("{reasoning},{message}"))
        .replace('%', "completed")
        .replace('$', usage);
    let events = [
        ("response.created", format!(r#""response":{begun}"#)),
        ("response.in_progress", format!(r#""response":{begun}"#)),
        (
            "response.output_item.added",
            r#""item":{"content":[],"id":"rs_7","status":"in_progress","summary":[],"type":"reasoning"},"output_index":0"#
                .into(),
        ),
        (
            "response.content_part.added",
            r#""content_index":0,"item_id":"rs_7","output_index":0,"part":{"text":"","type":"reasoning_text"}"#.into(),
        ),
        (
            "response.reasoning_text.delta",
            r#""content_index":0,"item_id":"rs_7","output_index":0,"delta":"川""#.into(),
        ),
        ("response.reasoning_text.done", r#""content_index":0,"item_id":"rs_7","output_index":0,"text":"川""#.into()),
        (
            "response.content_part.done",
            r#""content_index":0,"item_id":"rs_7","output_index":0,"part":{"text":"川","type":"reasoning_text"}"#.into(),
        ),
        ("response.output_item.done", format!(r#""item":{reasoning},"output_index":0"#)),
        (
            "response.output_item.added",
            r#""item":{"content":[],"id":"msg_7","role":"assistant","status":"in_progress","type":"message"},"output_index":1"#
                .into(),
        ),
        (
            "response.content_part.added",
            r#""content_index":0,"item_id":"msg_7","output_index":1,"part":{"annotations":[],"logprobs":[],"text":"","type":"output_text"}"#
                .into(),
        ),
        (
            "response.output_text.delta",
            r#""content_index":0,"item_id":"msg_7","output_index":1,"delta":" current","logprobs":[]"#.into(),
        ),
        (
            "response.output_text.delta",
            r#""content_index":0,"item_id":"msg_7","output_index":1,"delta":" strong","logprobs":[]"#.into(),
        ),
        (
            "response.output_text.done",
            r#""content_index":0,"item_id":"msg_7","logprobs":[],"output_index":1,"text":" current strong""#.into(),
        ),
        (
            "response.content_part.done",
            format!(r#""content_index":0,"item_id":"msg_7","output_index":1,"part":{text}"#),
        ),
        ("response.output_item.done", format!(r#""item":{message},"output_index":1"#)),
        ("response.completed", format!(r#""response":{over}"#)),
    ];
    let expected = events.iter().enumerate().map(|(number, (name, fields))| {
        format!("event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":{number},{fields}}}\n\n")
    });
    assert_eq!(replied.stream, expected.collect::<String>());
    assert_eq!(
        replied.logged(),
        "Role Part Part Part Reasoning(1) Part Part Part Part Part Token(1) Token(1) Part Part Part Finish"
    );
}

#[test]
fn a_whole_reply_is_what_its_stream_ends_with() {
    for sim in [
        "tokens=3",
        "tokens=5,reasoning=2,tokens_per_event=3,role_first=1",
        "tokens=5,reasoning=2,summary=1",
        "tokens=4,reasoning=9",
        "tokens=0",
        "tokens=6,tool=1",
        "tokens=6,reasoning=1,tool=1",
        "tokens=3,refusal=1,hidden=4",
    ] {
        let replied = reply(sim);
        let events = replied.events();
        assert_eq!(events.last().map(|event| &event["response"]), Some(&replied.whole), "{sim}");
        let done: Vec<_> = events.iter().filter(|event| event["type"] == "response.output_item.done").collect();
        let items: Vec<_> = done.iter().map(|event| event["item"].clone()).collect();
        assert_eq!(json!(items), replied.whole["output"], "{sim}");
        // What the deltas of an item say is what its item says.
        for (index, item) in items.iter().enumerate() {
            let ours = events.iter().filter(|event| event["output_index"] == index);
            let said: String = ours.filter_map(|event| event["delta"].as_str()).collect();
            let told = match item["type"].as_str() {
                Some("function_call") => &item["arguments"],
                Some("reasoning") if sim.contains("summary") => &item["summary"][0]["text"],
                _ if sim.contains("refusal") => &item["content"][0]["refusal"],
                _ => &item["content"][0]["text"],
            };
            assert_eq!(told, &json!(said), "{sim}");
        }
        let numbers: Vec<_> =
            events.iter().map(|event| event["sequence_number"].as_u64().unwrap_or(u64::MAX)).collect();
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "{sim}");
    }
}

#[test]
fn a_function_is_called_by_the_name_of_the_first_that_has_one() {
    let replied = reply("tokens=2,tool=1");
    assert_eq!(
        types(&replied)[2..],
        [
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed"
        ]
    );
    assert_eq!(replied.logged(), "Role Part Token Token(1) Token(1) Part Part Finish");
    let call = &replied.whole["output"][0];
    assert_eq!(
        (&call["name"], &call["call_id"], &call["type"]),
        (&json!("find"), &json!("call_7"), &json!("function_call"))
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().expect("text")).expect("JSON");
    assert_eq!(arguments, json!({"text": text_of(0, 0..2)}));
}

#[test]
fn a_summary_has_events_of_its_own() {
    let replied = reply("tokens=2,reasoning=1,summary=1");
    assert_eq!(
        types(&replied)[2..8],
        [
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done"
        ]
    );
    let part = &replied.events()[3];
    assert_eq!((&part["summary_index"], &part["part"]), (&json!(0), &json!({"type": "summary_text", "text": ""})));
}

#[test]
fn a_limit_makes_a_reply_incomplete() {
    let mut body = request();
    body["max_output_tokens"] = 2.into();
    let replied = replied(Dialect::Responses, &body, "tokens=3");
    let last = replied.events().pop().expect("an end");
    assert_eq!((&last["type"], &last["response"]), (&json!("response.incomplete"), &replied.whole));
    assert_eq!(replied.whole["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!((&replied.whole["status"], &replied.whole["max_output_tokens"]), (&json!("incomplete"), &json!(2)));
    assert_eq!(replied.whole["output"][0]["status"], "incomplete");
}

#[test]
fn a_breakdown_is_the_response_s_state_or_an_event() {
    let failed = reply("tokens=3,error_after=1");
    assert_eq!(failed.logged(), "Role Part Part Part Token(1) Error");
    let last = failed.events().pop().expect("an end");
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(last["response"]["error"]["code"], "server_error");
    let error = reply("tokens=3,error_after=1,error_event=1").events().pop().expect("an end");
    assert_eq!(
        (&error["type"], &error["code"], &error["sequence_number"]),
        (&json!("error"), &json!("server_error"), &json!(5))
    );
    // Without its finish a response only closes what is open.
    assert_eq!(reply("tokens=1,no_finish=1").logged(), "Role Part Part Part Token(1) Part Part Part");
    assert!(!reply("tokens=1,usage=never").stream.contains("\"output_tokens\""));
}

#[test]
fn a_format_of_another_type_is_passed_over() {
    for odd in [json!("x"), json!(7), json!([]), Value::Null] {
        let asked = json!({"model": "m", "input": "a", "text": odd});
        let whole = replied(Dialect::Responses, &asked, "tokens=1").whole;
        assert_eq!(whole["text"], json!({"format": {"type": "text"}}), "{odd}");
    }
}

#[test]
fn nonsense_is_refused() {
    for body in ["{", "{}", r#"{"model":"m","max_output_tokens":"many"}"#, r#"{"model":"m","max_output_tokens":-1}"#] {
        assert!(read(body.as_bytes()).is_err(), "{body}");
    }
    let text = read(br#"{"model":"m","input":"a b c","max_output_tokens":null,"tools":null}"#).expect("valid");
    assert_eq!((text.prompt_tokens, text.max_tokens, text.tool), (3, None, None));
}
