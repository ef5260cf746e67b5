//! One connection's requests, one after the other: which endpoint is meant, and the replies that are no streams.
//!
//! Invariant: whatever a client asks, it gets an answer in `OpenAI`'s shape; only the character it asked for breaks that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::character::Character;
use super::chat::Asked;
use super::http::{self, NoRequest, Request};
use super::log::{Entry, Kind, Recorder};
use super::peer::{Left, Peer, Sent};
use super::reply;
use super::state::Place;
use crate::clock::monotonic_ns;

/// What becomes of the connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The next request, if both sides keep the connection.
    Next,
    /// It is closed in order.
    Close,
    /// It is closed inside the reply.
    Cut,
    /// It is reset.
    Reset,
    /// It stays open and silent until the peer leaves.
    Silence,
}

/// Serves a connection until one side ends it.
pub(super) async fn serve(mut peer: Peer, place: &Place) {
    loop {
        let request = match http::read_request(&mut peer).await {
            Ok(request) => request,
            Err(NoRequest::Left(left)) => return place.departed(None, left),
            Err(NoRequest::Malformed(what)) => {
                let body = reply::error_object(what, "invalid_request_error", None).to_string();
                let length = body.len().to_string();
                let headers = [("content-type", JSON), ("content-length", length.as_str()), ("connection", "close")];
                let mut out = http::response_head(400, &headers);
                out.extend_from_slice(body.as_bytes());
                // It may have left already; either way the connection is over.
                let _ = peer.send(&out).await;
                return peer.close().await;
            }
        };
        let mut exchange = Exchange::new(&mut peer, place, &request);
        let name = Arc::clone(&exchange.name);
        let then = exchange.answer().await;
        drop(exchange);
        place.finished();
        match then {
            Ok(Then::Next) if request.keep_alive => {}
            Ok(Then::Next | Then::Close) => return peer.close().await,
            Ok(Then::Cut) => return peer.cut().await,
            Ok(Then::Reset) => return peer.reset(),
            Ok(Then::Silence) => {
                let left = peer.left().await;
                return place.departed(Some(name), left);
            }
            Err(left) => return place.departed(Some(name), left),
        }
    }
}

/// One request and its reply.
pub(super) struct Exchange<'a> {
    pub(super) peer: &'a mut Peer,
    pub(super) place: &'a Place,
    pub(super) request: &'a Request,
    pub(super) name: Arc<str>,
    character: Result<Character, String>,
    recorder: Recorder,
    events: u32,
}

const JSON: &str = "application/json";

impl<'a> Exchange<'a> {
    fn new(peer: &'a mut Peer, place: &'a Place, request: &'a Request) -> Self {
        let mut character = Character::new(place.state.config.schedule);
        let applied = request.header("x-sim").map_or(Ok(()), |header| character.apply(header));
        let number = place.request();
        let name: Arc<str> = character.request.clone().unwrap_or_else(|| format!("req-{number}")).into();
        place.keep(&name, request);
        let character = applied.map(|()| character);
        Self { peer, place, request, name, character, recorder: place.recorder(), events: 0 }
    }

    async fn answer(&mut self) -> Result<Then, Left> {
        let read = Sent { at: self.request.read_at, done: self.request.read_at };
        self.record(Kind::Request, self.request.read_at, read);
        let outcome = self.route().await;
        if let Err(left) = &outcome {
            self.record(Kind::PeerLeft, left.at, Sent { at: left.at, done: left.at });
        }
        outcome
    }

    async fn route(&mut self) -> Result<Then, Left> {
        let request = self.request;
        let path = request.target.split(['?', '#']).next().unwrap_or_default();
        let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let prefix = segments.iter().take_while(|segment| matches!(**segment, "api" | "v1")).count();
        segments.drain(..prefix);
        match (request.method.as_str(), segments.as_slice()) {
            ("OPTIONS", _) => self.json(204, &[("allow", "GET, HEAD, POST, OPTIONS")], None).await,
            ("GET" | "HEAD", [] | ["health" | "healthz"]) => self.json(200, &[], Some(&json!({"status": "ok"}))).await,
            ("GET" | "HEAD", ["models"]) => {
                let models: Vec<Value> = self.models().iter().map(|name| model(name)).collect();
                self.json(200, &[], Some(&json!({"object": "list", "data": models}))).await
            }
            ("GET" | "HEAD", ["models", name @ ..]) => {
                let name = name.join("/");
                if self.models().contains(&name) {
                    return self.json(200, &[], Some(&model(&name))).await;
                }
                self.refuse(404, &format!("the simulation has no model `{name}`"), Some("model_not_found")).await
            }
            ("POST", ["chat", "completions"]) => self.chat().await,
            (method, ["chat", "completions"]) => {
                self.refuse(405, &format!("chat completions take POST, not {method}"), None).await
            }
            (method, _) => self.refuse(404, &format!("the simulation does not serve {method} {path}"), None).await,
        }
    }

    fn models(&self) -> &'a [String] {
        &self.place.state.config.models
    }

    async fn chat(&mut self) -> Result<Then, Left> {
        let place = self.place;
        let scripts = &place.state.config.scripts;
        let mut character = match self.character.clone() {
            Ok(character) => character,
            Err(problem) => return self.refuse(400, &problem, None).await,
        };
        let asked = Asked::read(&self.request.body);
        let of_model = asked.as_ref().ok().and_then(|asked| asked.model.strip_prefix("script:"));
        let script = match character.script.as_deref().or(of_model) {
            Some(name) => match scripts.named.get(name) {
                Some(script) => Some(script),
                None => return self.refuse(400, &format!("the simulation knows no script `{name}`"), None).await,
            },
            None => scripts.default.as_ref(),
        };
        if let Some(script) = script {
            return self.play_script(script).await;
        }
        let asked = match asked {
            Ok(asked) => asked,
            Err(problem) => return self.refuse(400, &problem, None).await,
        };
        character.schedule = character.schedule.for_prompt(asked.prompt_tokens);
        if let Some(status) = character.status {
            return self.refuse_on_schedule(&character, status).await;
        }
        if asked.stream {
            return self.play_stream(&character, &asked).await;
        }
        let body = reply::whole(&self.name, &asked, &character.schedule, character.body_bytes);
        let due = character.schedule.last_due(asked.tokens(&character.schedule));
        self.body(200, &[], Some(&body), due).await
    }

    async fn refuse_on_schedule(&mut self, character: &Character, status: u16) -> Result<Then, Left> {
        let (kind, code) = match status {
            429 => ("rate_limit_error", Some("rate_limit_exceeded")),
            400..=499 => ("invalid_request_error", None),
            _ => ("server_error", None),
        };
        let message = format!("the simulation answers with {status}, as it was asked to");
        let body = reply::error_object(&message, kind, code).to_string();
        let extra: &[(&str, &str)] = match status {
            300..=399 => &[("location", "/elsewhere")],
            429 | 503 => &[("retry-after", "1")],
            _ => &[],
        };
        self.body(status, extra, Some(body.as_bytes()), character.schedule.ttft).await
    }

    async fn refuse(&mut self, status: u16, message: &str, code: Option<&str>) -> Result<Then, Left> {
        self.json(status, &[], Some(&reply::error_object(message, "invalid_request_error", code))).await
    }

    async fn json(&mut self, status: u16, extra: &[(&str, &str)], body: Option<&Value>) -> Result<Then, Left> {
        let body = body.map(ToString::to_string);
        self.body(status, extra, body.as_ref().map(String::as_bytes), Duration::ZERO).await
    }

    /// Sends a whole reply in one write, `after` the request was read.
    async fn body(
        &mut self,
        status: u16,
        extra: &[(&str, &str)],
        body: Option<&[u8]>,
        after: Duration,
    ) -> Result<Then, Left> {
        let length = body.unwrap_or_default().len().to_string();
        let name = Arc::clone(&self.name);
        let mut headers = vec![("x-request-id", &*name)];
        if body.is_some() {
            headers.extend([("content-type", JSON), ("content-length", length.as_str())]);
        }
        if !self.request.keep_alive {
            headers.push(("connection", "close"));
        }
        headers.extend(extra);
        let mut out = http::response_head(status, &headers);
        if self.request.method != "HEAD" {
            out.extend_from_slice(body.unwrap_or_default());
        }
        let due = self.due(after);
        self.peer.until(due).await?;
        let sent = self.peer.send(&out).await?;
        self.record(Kind::Body, due, sent);
        Ok(Then::Next)
    }

    /// The deadline that lies `after` the arrival of the request; a year after it where the clock cannot tell.
    pub(super) fn due(&self, after: Duration) -> Instant {
        const YEAR: Duration = Duration::from_hours(365 * 24);
        let arrived = self.request.read_at;
        arrived.checked_add(after).unwrap_or(arrived + YEAR)
    }

    /// Whether what happens is logged.
    pub(super) fn logs(&self) -> bool {
        self.recorder.is_on()
    }

    /// Logs what is not an event.
    pub(super) fn record(&mut self, kind: Kind, due: Instant, sent: Sent) {
        if self.logs() {
            let entry = self.entry(kind, due, sent);
            self.recorder.record(entry);
        }
    }

    /// Logs the next event of the reply.
    pub(super) fn record_event(&mut self, kind: Kind, choice: u32, tokens: u32, due: Instant, sent: Sent) {
        if self.logs() {
            let event = Some(self.events);
            self.events += 1;
            let entry = Entry { event, choice, tokens, ..self.entry(kind, due, sent) };
            self.recorder.record(entry);
        }
    }

    fn entry(&self, kind: Kind, due: Instant, sent: Sent) -> Entry {
        Entry {
            request: Arc::clone(&self.name),
            conn: self.place.conn,
            event: None,
            kind,
            choice: 0,
            tokens: 0,
            due_ns: monotonic_ns(due),
            at_ns: monotonic_ns(sent.at),
            done_ns: monotonic_ns(sent.done),
        }
    }
}

fn model(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": "streamgauge"})
}
