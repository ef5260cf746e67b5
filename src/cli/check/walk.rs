//! One upstream's walk, in the order in which a request meets its troubles.
//!
//! Invariant: the walk ends at the first step that failed; what comes after would fail for the same reason. The dialects
//! at its end stand beside each other: each is told, whatever became of the others.

use std::time::Duration;

use hyper::StatusCode;

use super::advice::{Place, unanswered};
use super::ask::Asking;
use super::asker::{Asker, Chat};
use super::dialects::{Spoken, Standing, Told};
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
    let must = |spoken: Spoken| required.contains(&spoken);
    steps.begin("chat");
    let (chat, took) = timed(asker.chat()).await;
    let went_astray = chat.absent || (anthropic && chat.status == Some(StatusCode::UNAUTHORIZED));
    if went_astray && !must(Spoken::Chat) {
        return without_chat(&asker, chat, took, &must, steps).await;
    }
    let cap = chat.cap;
    steps.end("chat", chat.finding, Some(took))?;
    let seen = steps.take("stream", asker.stream(cap)).await?;
    steps.take("stream_options", async { (asker.options(cap, &seen).await, ()) }).await?;
    let mut well = Some(());
    for spoken in Spoken::BESIDE_CHAT {
        let step = async { (asker.dialect(spoken, true).await.finding(!must(spoken)), ()) };
        well = steps.take(spoken.step(), step).await.and(well);
    }
    well
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

/// The rest of the walk where chat completions are not answered: it fails only if no dialect is, or one that must be.
async fn without_chat(
    asker: &Asker<'_>,
    chat: Chat,
    took: Duration,
    must: &impl Fn(Spoken) -> bool,
    steps: &mut Steps<'_>,
) -> Option<()> {
    let mut told = Vec::new();
    for spoken in Spoken::BESIDE_CHAT {
        told.push((spoken, timed(asker.dialect(spoken, false)).await));
    }
    let are = |standing| told.iter().filter(move |(_, (told, _))| told.standing == standing);
    if are(Standing::Absent).count() == told.len() {
        return steps.end("chat", chat.finding, Some(took));
    }
    let answered: Vec<&str> = are(Standing::Answered).map(|(spoken, _)| spoken.step()).collect();
    let advice = match answered.as_slice() {
        [] => "see what the other dialects say below".to_owned(),
        some => format!("{} can be had here; most programs need chat completions", some.join(", ")),
    };
    // With nothing answered, those whose path is known say what is wrong.
    let lenient = |told: &Told| !answered.is_empty() || told.standing == Standing::Absent;
    let status = chat.status.map_or(0, |status| status.as_u16());
    steps.end(
        "chat",
        Finding::note(format!("not answered here ({status}): {}", chat.finding.detail), advice),
        Some(took),
    )?;
    for step in ["stream", "stream_options"] {
        steps.tell(step, Finding::skipped("there are no chat completions here"))?;
    }
    let mut well = Some(());
    for (spoken, (told, took)) in told {
        steps.begin(spoken.step());
        let lenient = lenient(&told) && !must(spoken);
        well = steps.end(spoken.step(), told.finding(lenient), Some(took)).and(well);
    }
    well
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
