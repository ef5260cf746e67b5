//! The demo's requests: some at once, several rounds, warmed up first.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request};
use indicatif::ProgressBar;
use serde_json::json;

use super::plain_http;
use crate::backend::upstream::{RequestBody, Upstream};
use crate::cli::Failed;
use crate::config::OpenAi;
use crate::measure::{Exchange, Listener};

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// Words in a prompt.
    pub(super) words: usize,
    /// Requests sent at once.
    pub(super) concurrency: usize,
    /// Requests for each of them, one after the other.
    pub(super) rounds: usize,
    /// The most output tokens of a reply.
    pub(super) max_tokens: u32,
}

impl Level {
    /// How many requests it sends, those of the warm-up included.
    pub(super) fn requests(self) -> usize {
        (self.rounds + 1) * self.concurrency
    }

    /// What its requests are tagged with.
    pub(super) fn tag(self, model: &str) -> String {
        format!("demo {model}, {} words, {} at once", self.words, self.concurrency)
    }
}

/// The demo's exchanges that the proxy has finished since they were last taken; nothing once the demo is through.
#[derive(Clone)]
pub(super) struct Seen(Arc<Mutex<Option<Vec<Exchange>>>>);

impl Seen {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(Vec::new()))))
    }

    /// From now on nothing is kept: whoever goes on using the proxy is not the demo.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    pub(super) fn listener(&self) -> Listener {
        let seen = self.clone();
        Box::new(move |exchange| {
            // Others may use the proxy meanwhile; their requests are theirs.
            let ours = exchange.tag.as_deref().is_some_and(|tag| tag.starts_with("demo "));
            if let Some(seen) = seen.lock().as_mut().filter(|_| ours) {
                seen.push(exchange.clone());
            }
        })
    }

    fn take(&self) -> Vec<Exchange> {
        self.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<Exchange>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one level, warm-up first, and returns what the proxy made of it and how long it took.
pub(super) async fn level(
    proxy: SocketAddr,
    model: &str,
    level: Level,
    seen: &Seen,
    bar: &ProgressBar,
) -> Result<(Vec<Exchange>, Duration), Failed> {
    let client = Arc::new(Upstream::new(&OpenAi::new(plain_http(proxy))).map_err(Failed::running)?);
    wave(&client, model, level, bar).await?;
    collect(seen, level.concurrency).await?;
    let began = Instant::now();
    for _ in 0..level.rounds {
        wave(&client, model, level, bar).await?;
    }
    let took = began.elapsed();
    Ok((collect(seen, level.rounds * level.concurrency).await?, took))
}

/// Sends as many requests at once as the level says, and reads every reply to its end.
async fn wave(client: &Arc<Upstream>, model: &str, level: Level, bar: &ProgressBar) -> Result<(), Failed> {
    let mut streams = tokio::task::JoinSet::new();
    for number in 0..level.concurrency {
        let client = client.clone();
        let request = request(model, level, number);
        streams.spawn(async move {
            let reply = client.send(request).await.map_err(Failed::running)?;
            let status = reply.head.status;
            reply.body.collect().await.map_err(Failed::running)?;
            if status.is_success() { Ok(()) } else { Err(Failed::running(format!("the proxy answered {status}"))) }
        });
    }
    while let Some(stream) = streams.join_next().await {
        stream.map_err(Failed::running)??;
        bar.inc(1);
    }
    Ok(())
}

fn request(model: &str, level: Level, number: usize) -> Request<RequestBody> {
    let body = json!({
        "model": model,
        "stream": true,
        "stream_options": {"include_usage": true},
        "max_tokens": level.max_tokens,
        "temperature": 0,
        "messages": [{"role": "user", "content": prompt(level.words, number)}],
    });
    let mut request = Request::new(Either::Left(Full::new(Bytes::from(body.to_string()))));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = hyper::Uri::from_static("/v1/chat/completions");
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(tag) = HeaderValue::from_bytes(level.tag(model).as_bytes()) {
        headers.insert("x-streamgauge-tag", tag);
    }
    request
}

/// A prompt of so many words.
fn prompt(words: usize, number: usize) -> String {
    const QUESTION: &str =
        "Tell me of rivers, and how their flow is measured, day after day, by a gauge in the stream.";
    let question = QUESTION.split(' ').cycle();
    // The first word differs, so that no two prompts begin alike.
    std::iter::once(format!("{number}:")).chain(question.map(str::to_owned)).take(words).collect::<Vec<_>>().join(" ")
}

/// Waits for the proxy to have finished with `count` exchanges, which it does right after the client has.
async fn collect(seen: &Seen, count: usize) -> Result<Vec<Exchange>, Failed> {
    let mut exchanges = Vec::new();
    for _ in 0..500 {
        exchanges.extend(seen.take());
        if exchanges.len() >= count {
            return Ok(exchanges);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Err(Failed::running(format!("the proxy finished {} of {count} requests", exchanges.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_its_words_and_begins_like_no_other() {
        for words in [1, 16, 512] {
            assert_eq!(prompt(words, 3).split_whitespace().count(), words);
        }
        assert!(prompt(16, 3).starts_with("3: Tell me"));
        assert_ne!(prompt(1, 3), prompt(1, 4));
    }
}
