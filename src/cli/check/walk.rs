//! One upstream's walk, in the order in which a request meets its troubles.
//!
//! Invariant: the walk ends at the first step that failed; what comes after would fail for the same reason.

use super::advice::{Place, unanswered};
use super::ask::{Asking, Heard};
use super::chat::{self, Cap};
use super::key::Key;
use super::models::{self, Model, Origin};
use super::reach::{self, Way};
use super::report::{Finding, Steps};
use super::stream::{self, Seen};
use super::{options, words};
use crate::backend::upstream::Cause;
use crate::config::OpenAi;
use crate::proxy::check_tokenizer;

const MODELS: &str = "/models";

/// Every step, in order.
pub(super) const STEPS: [&str; 10] =
    ["config", "key", "proxy", "dns", "tcp", "tls", "models", "chat", "stream", "stream_options"];

/// What a walk needs to know beforehand.
pub(super) struct Start<'a> {
    /// The backend's name.
    pub(super) backend: &'a str,
    pub(super) config: &'a OpenAi,
    /// Where the configuration comes from.
    pub(super) file: &'a str,
    /// Whether any route leads to the backend.
    pub(super) routed: bool,
    /// The model to ask for, where that is known before the upstream lists any.
    pub(super) model: Option<Model>,
    /// Looks an environment variable up; `None` means unset.
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

/// Walks as far as it goes. `None` where a step failed.
pub(super) async fn walk(start: Start<'_>, steps: &mut Steps<'_>) -> Option<()> {
    let Start { backend, config, file, routed, model, env } = start;
    let key = Key::of(backend, config);
    let prepared = Way::new(config).and_then(|way| Ok((way, Asking::new(config)?)));
    let tokenizer = config.tokenizer.as_deref().map_or(Ok(()), check_tokenizer);
    let (mut way, asking) = match (prepared, tokenizer) {
        (Ok(ready), Ok(())) => {
            steps.tell("config", read(file, backend, routed))?;
            ready
        }
        (Err(error), _) => return steps.tell("config", unprepared(error.key(), &error)),
        (_, Err(error)) => return steps.tell("config", unprepared("tokenizer", &error)),
    };
    steps.tell("key", key.finding())?;
    steps.tell("proxy", reach::proxy(config, env))?;
    steps.take("dns", async { (way.dns().await, ()) }).await?;
    steps.take("tcp", async { (way.tcp().await, ()) }).await?;
    steps.take("tls", async { (way.tls().await, ()) }).await?;
    drop(way);

    let place = |path| Place { config, url: asking.url(path), path, key: &key };
    let known = model.is_some();
    let judge = |answer: Result<Heard, Cause>| match answer {
        Ok(heard) => models::judge(&heard, &place(MODELS), known),
        Err(cause) => (unanswered(&cause, config), Vec::new()),
    };
    let listed = steps.take("models", async { judge(asking.get(MODELS).await) }).await?;
    let first = || Some(Model { name: listed.first()?.clone(), origin: Origin::List });
    let Some(model) = model.or_else(first) else {
        return steps.tell("chat", nothing_to_ask_for());
    };

    let asker = Asker { asking: &asking, place: place(chat::PATH), model: &model, listed: &listed };
    let cap = steps.take("chat", asker.chat()).await?;
    let seen = steps.take("stream", asker.stream(cap)).await?;
    steps.take("stream_options", async { (asker.options(cap, &seen, backend).await, ()) }).await
}

/// What the step `config` says of a configuration that could be read.
pub(super) fn read(file: &str, backend: &str, routed: bool) -> Finding {
    if routed {
        return Finding::ok(file);
    }
    let advice = format!("add [[route]] with a model and backend = \"{backend}\", or nothing is ever sent there");
    Finding::note(format!("{file}; no route leads to this backend"), advice)
}

fn unprepared(key: &str, error: &dyn std::fmt::Display) -> Finding {
    Finding::failed(format!("{key}: {error}"), "correct the configuration; streamgauge serve would not start")
}

fn nothing_to_ask_for() -> Finding {
    Finding::failed(
        "there is no model to ask for: no route names one, and the upstream lists none",
        "give --model with a name from the service's documentation; if there should be a list, correct base_url's path",
    )
}

/// Asks for chat completions.
struct Asker<'a> {
    asking: &'a Asking<'a>,
    place: Place<'a>,
    model: &'a Model,
    listed: &'a [String],
}

impl Asker<'_> {
    async fn ask(&self, cap: Cap, stream: bool, usage: bool) -> Result<Heard, Cause> {
        self.asking.post(chat::PATH, &chat::request(&self.model.name, cap, stream, usage)).await
    }

    /// A whole reply; and the cap that the model takes.
    async fn chat(&self) -> (Finding, Cap) {
        let (finding, cap) = self.asked_for_one_token().await;
        (self.model.unless_unrouted(finding), cap)
    }

    async fn asked_for_one_token(&self) -> (Finding, Cap) {
        let answer = self.ask(Cap::MaxTokens, false, false).await;
        if let Ok(first) = &answer
            && chat::wants_other_cap(first)
            && let Ok(second) = self.ask(Cap::MaxCompletionTokens, false, false).await
            && second.status.is_success()
        {
            let finding = chat::judge(&second, &self.place, self.model, self.listed);
            let said = words::words(&first.body, self.place.key.secret).unwrap_or_default();
            return (chat::with_other_cap(finding, &said), Cap::MaxCompletionTokens);
        }
        let finding = match &answer {
            Ok(heard) => chat::judge(heard, &self.place, self.model, self.listed),
            Err(cause) => unanswered(cause, self.place.config),
        };
        (finding, Cap::MaxTokens)
    }

    async fn stream(&self, cap: Cap) -> (Finding, Seen) {
        match self.ask(cap, true, false).await {
            Ok(heard) => {
                let seen = Seen::of(&heard);
                (stream::judge(&heard, &seen, &self.place, self.model, self.listed), seen)
            }
            Err(cause) => (unanswered(&cause, self.place.config), Seen::default()),
        }
    }

    async fn options(&self, cap: Cap, before: &Seen, backend: &str) -> Finding {
        let answer = self.ask(cap, true, true).await;
        options::judge(&answer, before, backend, &self.place)
    }
}
