//! The other dialects: their text is counted, too, and what is no text is not.

use streamgauge::measure::Exchange;

use super::{TokenizerFile, output, prompt};
use crate::support::stage::Proxy;
use crate::support::upstream::Upstream;

/// What is measured of one exchange whose tokens are counted.
fn told(path: &str, request: &str, content_type: &str, body: &str) -> Exchange {
    let (upstream, file) = (Upstream::bind(), TokenizerFile::new());
    let proxy = Proxy::before(upstream.addr(), &file.key());
    let mut client = proxy.client();
    client.send(format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{request}",
        request.len()
    ));
    let mut conn = upstream.accept();
    conn.request();
    conn.send(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(client.reply().body, body.as_bytes());
    proxy.finished(1).remove(0)
}

fn stream(path: &str, request: &str, data: &[&str]) -> Exchange {
    let events: Vec<_> = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    told(path, request, "text/event-stream", &events.concat())
}

#[test]
fn completions() {
    let exchange = stream(
        "/v1/completions",
        r#"{"model":"m","stream":true,"prompt":["one two","three"]}"#,
        &[r#"{"choices":[{"text":"a b"}]}"#, r#"{"choices":[{"text":" c","finish_reason":"stop"}]}"#, "[DONE]"],
    );
    assert_eq!((output(&exchange), prompt(&exchange)), (Some((3, "tokenizer")), Some((3, "tokenizer"))));
}

#[test]
fn the_text_of_a_reply_with_an_echo_is_not_its_output() {
    let of = |echo: &str| {
        stream(
            "/v1/completions",
            &format!(r#"{{"model":"m","stream":true,"prompt":"one two","echo":{echo}}}"#),
            &[
                r#"{"choices":[{"text":"one two a"}]}"#,
                r#"{"choices":[{"text":" b","finish_reason":"stop"}]}"#,
                "[DONE]",
            ],
        )
    };
    for (echo, tokens) in [("true", (2, "events")), ("false", (4, "tokenizer")), ("null", (4, "tokenizer"))] {
        let exchange = of(echo);
        assert_eq!((output(&exchange), prompt(&exchange)), (Some(tokens), Some((2, "tokenizer"))), "{echo}");
    }
    // Of a whole reply there is nothing else to count; its prompt has its tokens all the same.
    let whole = told(
        "/v1/completions",
        r#"{"model":"m","prompt":"one two","echo":true}"#,
        "application/json",
        r#"{"choices":[{"text":"one two a b","finish_reason":"stop"}]}"#,
    );
    assert_eq!((output(&whole), prompt(&whole)), (None, Some((2, "tokenizer"))));
}

#[test]
fn messages() {
    let events = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"let"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" me"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a b"}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","name":"look up","input":{}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{ }"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let request = r#"{"model":"m","stream":true,"system":"be brief","messages":[{"role":"user","content":"one two"}]}"#;
    let exchange = stream("/v1/messages", request, &events);
    // let me; a b; look up; { }
    assert_eq!((output(&exchange), prompt(&exchange)), (Some((8, "tokenizer")), Some((4, "tokenizer"))));
    let whole = r#"{"type":"message","content":[{"type":"text","text":"a b c"}],"stop_reason":"end_turn"}"#;
    let exchange = told("/v1/messages", &request.replace(r#""stream":true,"#, ""), "application/json", whole);
    assert_eq!(output(&exchange), Some((3, "tokenizer")));
    // An image is of other tokens.
    let image = request.replace(r#""one two""#, r#"[{"type":"image","source":{}}]"#);
    let exchange = stream("/v1/messages", &image, &events);
    assert_eq!((output(&exchange), prompt(&exchange)), (Some((8, "tokenizer")), None));
}

#[test]
fn responses() {
    let request = r#"{"model":"m","stream":true,"instructions":"be brief","input":"one two"}"#;
    let events = [
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a b"}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":" c"}"#,
        r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"a b c"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"a b c"}]}}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"a b c"}]}]}}"#,
    ];
    let exchange = stream("/v1/responses", request, &events);
    assert_eq!((output(&exchange), prompt(&exchange)), (Some((3, "tokenizer")), Some((4, "tokenizer"))));
    // Said once, at the end.
    let exchange = stream("/v1/responses", request, &events[3..]);
    assert_eq!(output(&exchange), Some((3, "tokenizer")));
    let spoken = r#"{"type":"response.audio.delta","delta":"AAAA"}"#;
    let exchange = stream("/v1/responses", request, &[spoken, events[0], events[4]]);
    assert_eq!(output(&exchange), Some((2, "events")), "audio is no text");
}
