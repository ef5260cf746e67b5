//! The record of requests: there before the reply is, whatever the reply.

use streamgauge::backend::sim::RequestRecord;

use super::*;

#[test]
fn a_request_is_on_record_before_its_reply_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("requests.jsonl");
    let requests = Some(RequestRecord::file(&path).expect("a file"));
    let sim = start(SimConfig { requests, ..SimConfig::default() });
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&path).expect("readable");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let mut client = Client::connect(sim.addr());
    // No reply can be over here: the first token is an hour away.
    let asking = chat("request=first,ttft_ms=3600000", STREAM);
    client.send(asking.replace("host: 127.0.0.1", "Host: 127.0.0.1\r\nAuthorization: Bearer sk-secret"));
    client.until(b"\r\n\r\n").expect("a head");
    assert_eq!(
        lines(),
        [json!({
            "request": "first",
            "method": "POST",
            "target": "/v1/chat/completions",
            "headers": [
                ["Host", "127.0.0.1"],
                ["Authorization", "(redacted, 16 bytes)"],
                ["content-type", "application/json"],
                ["x-sim", "request=first,ttft_ms=3600000"],
                ["content-length", STREAM.len().to_string()],
            ],
            "body": STREAM,
        })]
    );
    let mut client = Client::connect(sim.addr());
    for (number, path) in ["/v1/models", "/nothing?key=1"].into_iter().enumerate() {
        client.get(path);
        let line = &lines()[number + 1];
        assert_eq!((&line["method"], &line["target"], &line["body"]), (&json!("GET"), &json!(path), &json!("")));
    }
}
