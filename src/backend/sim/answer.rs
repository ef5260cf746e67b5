//! Which endpoint a request means, and what it answers.
//!
//! Invariant: whatever a client asks, it gets an answer in the shape of the house its path belongs to; only the
//! character it asked for breaks that.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::character::Character;
use super::dialect::{Dialect, House};
use super::exchange::{Exchange, Then};
use super::peer::Left;
use super::reply::{Reply, padded};
use super::{embeddings, messages, rerank, responses};

impl<'a> Exchange<'a> {
    /// Answers the request.
    pub(super) async fn route(&mut self) -> Result<Then, Left> {
        let request = self.request;
        let path = request.target.split(['?', '#']).next().unwrap_or_default();
        let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let prefix = segments.iter().take_while(|segment| matches!(**segment, "api" | "v1")).count();
        segments.drain(..prefix);
        self.house = House::of(&segments);
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
            ("POST", ["chat", "completions"]) => self.generate(Dialect::Chat).await,
            ("POST", ["completions"]) => self.generate(Dialect::Completions).await,
            ("POST", ["messages"]) => self.generate(Dialect::Messages).await,
            ("POST", ["responses"]) => self.generate(Dialect::Responses).await,
            ("POST", ["messages", "count_tokens"]) => self.whole(messages::count_tokens(&request.body)).await,
            ("POST", ["embeddings"]) => self.whole(embeddings::answer(&request.body)).await,
            ("POST", ["rerank"]) => self.whole(rerank::answer(&self.name, &request.body)).await,
            ("GET" | "HEAD", ["responses", id]) => self.earlier(id, "completed").await,
            ("POST", ["responses", id, "cancel"]) => self.earlier(id, "cancelled").await,
            ("DELETE", ["responses", id]) => {
                self.json(200, &[], Some(&json!({"id": id, "object": "response", "deleted": true}))).await
            }
            (method, known) => match takes_post(known) {
                Some(what) => self.refuse(405, &format!("{what} take POST, not {method}"), None).await,
                None => self.refuse(404, &format!("the simulation does not serve {method} {path}"), None).await,
            },
        }
    }

    fn models(&self) -> &'a [String] {
        &self.place.state.config.models
    }

    /// Answers a request for output tokens.
    async fn generate(&mut self, dialect: Dialect) -> Result<Then, Left> {
        let asked = dialect.read(&self.request.body);
        let mut character = match self.opening(asked.as_ref().ok().map(|asked| asked.model.as_str())).await? {
            Ok(character) => character,
            Err(then) => return Ok(then),
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(problem) => return self.refuse(400, &problem, None).await,
        };
        character.schedule = character.schedule.for_prompt(asked.prompt_tokens);
        if let Some(status) = character.status {
            return self.refuse_on_schedule(&character, status).await;
        }
        let name = Arc::clone(&self.name);
        let reply = Reply { id: &name, asked: &asked, character: &character };
        if asked.stream {
            return self.play_stream(dialect, reply).await;
        }
        let body = padded(dialect.whole(&reply), character.body_bytes);
        let due = character.schedule.last_due(reply.tokens());
        self.body(200, &[], Some(&body), due).await
    }

    /// Answers a request whose reply has no output tokens and so is never a stream: with the reply, to a prompt of so
    /// many tokens, or with what is wrong with the request.
    async fn whole(&mut self, answer: Result<(Value, u64), String>) -> Result<Then, Left> {
        let mut character =
            match self.opening(answer.as_ref().ok().and_then(|(reply, _)| reply["model"].as_str())).await? {
                Ok(character) => character,
                Err(then) => return Ok(then),
            };
        let (reply, tokens) = match answer {
            Ok(answer) => answer,
            Err(problem) => return self.refuse(400, &problem, None).await,
        };
        character.schedule = character.schedule.for_prompt(tokens);
        if let Some(status) = character.status {
            return self.refuse_on_schedule(&character, status).await;
        }
        self.body(200, &[], Some(&padded(reply, character.body_bytes)), character.schedule.ttft).await
    }

    /// The request's character. Where that is nonsense, or has a script played, the request is answered with this, and
    /// what becomes of the connection is returned instead.
    async fn opening(&mut self, model: Option<&str>) -> Result<Result<Character, Then>, Left> {
        let place = self.place;
        let scripts = &place.state.config.scripts;
        let character = match self.character.clone() {
            Ok(character) => character,
            Err(problem) => return self.refuse(400, &problem, None).await.map(Err),
        };
        let of_model = model.and_then(|model| model.strip_prefix("script:"));
        let script = match character.script.as_deref().or(of_model) {
            Some(name) => match scripts.named.get(name) {
                Some(script) => Some(script),
                None => {
                    let problem = format!("the simulation knows no script `{name}`");
                    return self.refuse(400, &problem, None).await.map(Err);
                }
            },
            None => scripts.default.as_ref(),
        };
        match script {
            Some(script) => self.play_script(script).await.map(Err),
            None => Ok(Ok(character)),
        }
    }

    /// Answers for a response that was given before, or never: nothing is kept.
    async fn earlier(&mut self, id: &str, status: &str) -> Result<Then, Left> {
        let model = self.models().first().map_or("sim", String::as_str);
        self.json(200, &[], Some(&responses::earlier(id, model, status))).await
    }

    async fn refuse_on_schedule(&mut self, character: &Character, status: u16) -> Result<Then, Left> {
        let code = (status == 429).then_some("rate_limit_exceeded");
        let message = format!("the simulation answers with {status}, as it was asked to");
        let body = self.house.error(status, &message, code, &self.name).to_string();
        let extra: &[(&str, &str)] = match status {
            300..=399 => &[("location", "/elsewhere")],
            429 | 503 => &[("retry-after", "1")],
            _ => &[],
        };
        self.body(status, extra, Some(body.as_bytes()), character.schedule.ttft).await
    }

    async fn refuse(&mut self, status: u16, message: &str, code: Option<&str>) -> Result<Then, Left> {
        let error = self.house.error(status, message, code, &self.name);
        self.json(status, &[], Some(&error)).await
    }

    async fn json(&mut self, status: u16, extra: &[(&str, &str)], body: Option<&Value>) -> Result<Then, Left> {
        let body = body.map(ToString::to_string);
        self.body(status, extra, body.as_ref().map(String::as_bytes), Duration::ZERO).await
    }
}

/// What an endpoint that takes POST alone is about. `None` for every other path.
fn takes_post(path: &[&str]) -> Option<&'static str> {
    match path {
        ["chat", "completions"] => Some("chat completions"),
        ["completions"] => Some("completions"),
        ["messages"] => Some("messages"),
        ["messages", "count_tokens"] => Some("token counts"),
        ["responses"] => Some("responses"),
        ["responses", _, "cancel"] => Some("cancellations"),
        ["embeddings"] => Some("embeddings"),
        ["rerank"] => Some("rankings"),
        _ => None,
    }
}

fn model(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": "streamgauge"})
}
