//! Tokens counted by a backend's tokenizer, through the whole proxy: where usage does not say how many there were.

#![allow(clippy::float_cmp)] // what is compared are counts: whole numbers in Prometheus' f64

#[path = "../support/codings.rs"]
mod codings;
#[path = "../support/mod.rs"]
mod support;

mod dialects;
mod prompts;
mod queue;
mod replies;

use std::path::PathBuf;

use serde_json::{Value, json};
use streamgauge::measure::Exchange;
use tempfile::TempDir;

use support::client::Client;
use support::stage::Proxy;
use support::upstream::{Conn, Upstream};

/// A tokenizer file: every word is one token.
///
/// Nor would it count so by itself: as a file may, it cuts texts to three tokens, fills them to sixty-four, begins each
/// with a token of its own and knows that token's name in a text.
fn tokenizer() -> Value {
    let (begin, text) =
        (json!({"SpecialToken": {"id": "[BOS]", "type_id": 0}}), |id| json!({"Sequence": {"id": id, "type_id": 0}}));
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "[UNK]"},
        "added_tokens": [{"id": 1, "content": "[BOS]", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {"type": "TemplateProcessing", "single": [begin, text("A")], "pair": [text("A"), text("B")],
                           "special_tokens": {"[BOS]": {"id": "[BOS]", "ids": [1], "tokens": ["[BOS]"]}}},
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "[BOS]": 1}, "unk_token": "[UNK]"},
    })
}

/// A tokenizer file, and the folder it is in.
struct TokenizerFile {
    path: PathBuf,
    _folder: TempDir,
}

impl TokenizerFile {
    /// A file that holds `text`.
    fn holding(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, text).expect("written");
        Self { path, _folder: folder }
    }

    fn new() -> Self {
        Self::holding(&tokenizer().to_string())
    }

    /// What `[backend.up]` says to use it.
    fn key(&self) -> String {
        format!("tokenizer = {:?}", self.path.display().to_string())
    }
}

/// A proxy that counts with [`tokenizer`], between one client and an upstream.
struct Stage {
    proxy: Proxy,
    upstream: Upstream,
    client: Client,
    conn: Option<Conn>,
    asked: usize,
}

impl Stage {
    fn new() -> Self {
        let (upstream, file) = (Upstream::bind(), TokenizerFile::new());
        // It is read at the start and not needed again.
        let proxy = Proxy::before(upstream.addr(), &file.key());
        let client = proxy.client();
        Self { proxy, upstream, client, conn: None, asked: 0 }
    }

    /// Sends a request, and lends the connection it arrives on.
    fn ask(&mut self, body: &str) -> &mut Conn {
        self.client.send(post(body));
        self.asked += 1;
        let conn = self.conn.get_or_insert_with(|| self.upstream.accept());
        conn.request();
        conn
    }

    /// What was measured of the last request.
    fn told(&mut self) -> Exchange {
        self.proxy.finished(self.asked)[self.asked - 1].clone()
    }

    /// Answers with a stream of these events, each sent when the client has the one before.
    fn stream(&mut self, request: &str, events: &[Value]) -> Exchange {
        self.ask(request).begin_stream();
        self.client.head();
        for event in events.iter().map(Value::to_string).chain(["[DONE]".to_owned()]) {
            self.conn.as_mut().expect("asked").event(&event);
            let (length, mut got) = ("data: \n\n".len() + event.len(), Vec::new());
            while got.len() < length {
                assert!(self.client.chunk(&mut got).expect("a chunk"));
            }
        }
        self.conn.as_mut().expect("asked").end_stream();
        assert!(!self.client.chunk(&mut Vec::new()).expect("the last chunk"));
        self.told()
    }

    /// Answers with one document.
    fn whole(&mut self, request: &str, document: &Value) -> Exchange {
        self.ask(request).answer(&document.to_string());
        self.client.reply();
        self.told()
    }
}

fn post(body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A chat request that streams, with a prompt of three words.
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}"#;

/// An event with a delta of choice `index`.
fn delta(index: u32, delta: &Value) -> Value {
    json!({"choices": [{"index": index, "delta": delta, "finish_reason": null}]})
}

fn content(text: &str) -> Value {
    delta(0, &json!({"content": text}))
}

fn finish(index: u32) -> Value {
    json!({"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]})
}

/// N with its source.
fn output(exchange: &Exchange) -> Option<(u64, &'static str)> {
    exchange.output.map(|output| (output.count, output.source.label()))
}

/// Tokens in the prompt with their source.
fn prompt(exchange: &Exchange) -> Option<(u64, &'static str)> {
    exchange.prompt().map(|(count, source)| (count, source.label()))
}
