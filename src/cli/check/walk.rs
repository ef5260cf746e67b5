//! One upstream's walk, in the order in which a request meets its troubles.
//!
//! Invariant: the walk ends at the first step that failed; what comes after would fail for the same reason. The dialects
//! at its end stand beside each other (`beside`).

use super::advice::{Place, unanswered};
use super::ask::Asking;
use super::asker::Asker;
use super::beside::Beside;
use super::dialects::Spoken;
use super::key::Key;
use super::models::{self, Model, Origin};
use super::reach::{self, Way};
use super::report::{Finding, Steps, timed};
use crate::config::OpenAi;
use crate::proxy::check_tokenizer;

const MODELS: &str = "/models";

/// Every step, in order.
pub(super) const STEPS: [&str; 13] = [
    "config",
    "key",
    "proxy",
    "dns",
    "tcp",
    "tls",
    "models",
    "chat",
    "stream",
    "stream_options",
    "completions",
    "responses",
    "messages",
];

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
    /// The dialects that must be answered.
    pub(super) required: &'a [Spoken],
    /// Looks an environment variable up; `None` means unset.
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

/// Walks as far as it goes. `None` where a step failed.
pub(super) async fn walk(start: Start<'_>, steps: &mut Steps<'_>) -> Option<()> {
    let Start { backend, config, file, routed, model, required, env } = start;
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
    let (listed, anthropic) = steps.take("models", list(&asking, &place(MODELS), known)).await?;
    let first = || Some(Model { name: listed.first()?.clone(), origin: Origin::List });
    let Some(model) = model.or_else(first) else {
        return steps.tell("chat", nothing_to_ask_for());
    };

    let asker = Asker { asking: &asking, config, key: &key, backend, model: &model, listed: &listed };
    let beside = Beside { asker: &asker, required, anthropic };
    steps.begin("chat");
    let (chat, took) = timed(asker.chat()).await;
    if beside.goes_on_without(&chat) {
        return beside.without_chat(chat, took, steps).await;
    }
    let (cap, spared) = (chat.cap, beside.spares_chat());
    steps.end("chat", chat.finding, Some(took))?;
    let stream = async {
        let (finding, seen) = asker.stream(cap).await;
        (finding.noted_if(spared), seen)
    };
    let seen = steps.take("stream", stream).await?;
    let options = async { (asker.options(cap, &seen).await.noted_if(spared), ()) };
    steps.take("stream_options", options).await?;
    beside.after_chat(steps).await
}

/// The models an upstream lists; and whether it lists them only to clients of Anthropic's API.
async fn list(asking: &Asking<'_>, place: &Place<'_>, known: bool) -> (Finding, (Vec<String>, bool)) {
    let heard = match asking.get(MODELS).await {
        Ok(heard) => heard,
        Err(cause) => return (unanswered(&cause, place.config), (Vec::new(), false)),
    };
    if matches!(heard.status.as_u16(), 400 | 401 | 403)
        && let Ok(second) = asking.get_as_anthropic(MODELS).await
        && second.status.is_success()
    {
        let (mut finding, listed) = models::judge(&second, place, known);
        finding.detail.push_str("; only clients of Anthropic's API are told");
        return (finding, (listed, true));
    }
    let (finding, listed) = models::judge(&heard, place, known);
    (finding, (listed, false))
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
