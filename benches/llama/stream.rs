//! One streamed request, read on a thread of its own, each event with the instant of its read.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::client::Client;
use crate::support::eventually;

/// A running stream.
pub(crate) struct Stream {
    tokens: Arc<Mutex<Vec<Instant>>>,
    began: Instant,
    thread: Option<JoinHandle<()>>,
}

/// A prompt of about `tokens` tokens.
pub(crate) fn prompt(tokens: usize) -> String {
    // The template takes some thirty; each word is a token.
    "river ".repeat(tokens.saturating_sub(30).max(1))
}

impl Stream {
    /// Asks for exactly `max_tokens` tokens after about `prompt_tokens`.
    pub(crate) fn begin(listen: std::net::SocketAddr, prompt_tokens: usize, max_tokens: usize) -> Self {
        let body = json!({
            "model": "local", "stream": true, "max_tokens": max_tokens, "ignore_eos": true, "temperature": 0,
            "messages": [{"role": "user", "content": prompt(prompt_tokens)}],
        });
        let body = body.to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let tokens: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let seen = tokens.clone();
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut client = Client::connect(listen);
            client.socket().set_read_timeout(Some(Duration::from_secs(600))).expect("a time-out");
            client.send(request);
            loop {
                let Ok(read) = client.some() else { return };
                let at = Instant::now();
                let text = String::from_utf8_lossy(&read);
                let events = text.matches(r#""content":""#).count() - text.matches(r#""content":"""#).count();
                seen.lock().unwrap_or_else(PoisonError::into_inner).extend(std::iter::repeat_n(at, events));
                if text.contains("[DONE]") {
                    return;
                }
            }
        });
        Self { tokens, began, thread: Some(thread) }
    }

    /// Token events so far.
    pub(crate) fn count(&self) -> usize {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits for the `count`th token event.
    pub(crate) fn wait_for(&self, count: usize) {
        for _ in 0..20 {
            if self.count() >= count {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        for _ in 0..30 {
            if self.count() >= count {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        eventually("tokens come", || (self.count() >= count).then_some(()));
    }

    /// Waits for the end. Returns when each token event was read, from the request on, in seconds.
    pub(crate) fn end(mut self) -> Vec<f64> {
        self.thread.take().expect("it runs").join().expect("it was read");
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.iter().map(|at| (*at - self.began).as_secs_f64()).collect()
    }
}
