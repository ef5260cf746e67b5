//! One upstream's walk, in the order in which a request meets its troubles.
//!
//! Invariant: the walk ends at the first step that failed; what comes after would fail for the same reason. The dialects
//! at its end stand beside each other: each is told, whatever became of the others.

use std::time::Duration;

use hyper::StatusCode;

use super::advice::{Place, unanswered};
use super::ask::{Asking, Heard};
use super::chat::{self, Cap};
use super::dialects::{self, Spoken, Standing, Told, is_absent};
use super::key::Key;
use super::models::{self, Model, Origin};
use super::reach::{self, Way};
use super::report::{Finding, Steps, timed};
use super::stream::{self, Seen};
use super::{options, words};
use crate::backend::upstream::Cause;
use crate::config::{MessagesAuth, OpenAi};
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
        return asker.without_chat(chat, took, &must, steps).await;
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

/// Asks a model.
struct Asker<'a> {
    asking: &'a Asking<'a>,
    config: &'a OpenAi,
    key: &'a Key<'a>,
    /// The backend's name.
    backend: &'a str,
    model: &'a Model,
    listed: &'a [String],
}

/// What came of asking for a whole chat completion.
struct Chat {
    finding: Finding,
    /// The cap that the model takes.
    cap: Cap,
    /// `None` where no answer came.
    status: Option<StatusCode>,
    /// Nothing is at the path; `finding` fails.
    absent: bool,
}

impl Asker<'_> {
    fn place(&self, path: &'static str) -> Place<'_> {
        Place { config: self.config, url: self.asking.url(path), path, key: self.key }
    }

    async fn ask(&self, cap: Cap, stream: bool, usage: bool) -> Result<Heard, Cause> {
        self.asking.post(chat::PATH, &chat::request(&self.model.name, cap, stream, usage)).await
    }

    /// A whole reply.
    async fn chat(&self) -> Chat {
        let chat = self.asked_for_one_token().await;
        Chat { finding: self.model.unless_unrouted(chat.finding), ..chat }
    }

    async fn asked_for_one_token(&self) -> Chat {
        let place = self.place(chat::PATH);
        let answer = self.ask(Cap::MaxTokens, false, false).await;
        let status = answer.as_ref().map(|heard| heard.status).ok();
        if let Ok(first) = &answer
            && chat::wants_other_cap(first)
            && let Ok(second) = self.ask(Cap::MaxCompletionTokens, false, false).await
            && second.status.is_success()
        {
            let finding = chat::judge(&second, &place, self.model, self.listed);
            let said = words::words(&first.body, place.key.secret).unwrap_or_default();
            let finding = chat::with_other_cap(finding, &said);
            return Chat { finding, cap: Cap::MaxCompletionTokens, status, absent: false };
        }
        let finding = match &answer {
            Ok(heard) => chat::judge(heard, &place, self.model, self.listed),
            Err(cause) => unanswered(cause, place.config),
        };
        let absent = answer.is_ok_and(|heard| is_absent(&heard, self.model, self.listed));
        Chat { finding, cap: Cap::MaxTokens, status, absent }
    }

    /// The rest of the walk where chat completions are not answered: it fails only if no dialect is, or one that must be.
    async fn without_chat(
        &self,
        chat: Chat,
        took: Duration,
        must: &impl Fn(Spoken) -> bool,
        steps: &mut Steps<'_>,
    ) -> Option<()> {
        let mut told = Vec::new();
        for spoken in Spoken::BESIDE_CHAT {
            told.push((spoken, timed(self.dialect(spoken, false)).await));
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
        let lenient = !answered.is_empty();
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
            well = steps.end(spoken.step(), told.finding(lenient && !must(spoken)), Some(took)).and(well);
        }
        well
    }

    /// One token, asked for in another dialect. `chat` says that chat completions are answered.
    async fn dialect(&self, spoken: Spoken, chat: bool) -> Told {
        let (path, request) = (spoken.path(), spoken.request(&self.model.name));
        let answer = self.asking.post(path, &request).await;
        let told = dialects::judge(spoken, &answer, &self.place(path), self.model, self.listed);
        let refused = answer.is_ok_and(|heard| heard.status == StatusCode::UNAUTHORIZED);
        if !refused || spoken != Spoken::Messages || self.key.secret.is_none() {
            return told;
        }
        let (now, backend) = (self.config.messages_auth, self.backend);
        for (word, way) in MessagesAuth::WORDS.into_iter().filter(|(_, way)| *way != now) {
            let answer = self.asking.post_with(way, path, &request).await;
            if answer.is_ok_and(|heard| heard.status != StatusCode::UNAUTHORIZED) {
                return told.advising(format!(
                    "the key is taken if it is sent in another way: set messages_auth = \"{word}\" in [backend.{backend}]"
                ));
            }
        }
        if chat {
            let advice = "the key that chat completions take is refused here however it is sent (messages_auth): ask for \
                          one that may do this";
            return told.advising(advice.to_owned());
        }
        told
    }

    async fn stream(&self, cap: Cap) -> (Finding, Seen) {
        match self.ask(cap, true, false).await {
            Ok(heard) => {
                let seen = Seen::of(&heard);
                (stream::judge(&heard, &seen, &self.place(chat::PATH), self.model, self.listed), seen)
            }
            Err(cause) => (unanswered(&cause, self.config), Seen::default()),
        }
    }

    async fn options(&self, cap: Cap, before: &Seen) -> Finding {
        let answer = self.ask(cap, true, true).await;
        options::judge(&answer, before, self.backend, &self.place(chat::PATH))
    }
}
