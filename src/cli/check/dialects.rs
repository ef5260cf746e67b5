//! The dialects beside chat completions: a backend is asked for one token in each, as a stream, which is read as `serve`
//! would read it.
//!
//! Pure. What a walk makes of a dialect that is not answered, or badly, is up to `beside`.

use std::time::Instant;

use clap::ValueEnum;
use hyper::StatusCode;
use serde_json::{Value, json};

use super::advice::{Place, answered, refusal, unanswered};
use super::ask::Heard;
use super::chat::{is_unknown_model, mentions_model};
use super::models::Model;
use super::report::{Finding, Status};
use super::stream::{ms, of_events};
use super::words::{shown, words};
use crate::backend::upstream::Cause;
use crate::wire::sse::Item;
use crate::wire::{Choice, Dialect, EventReader};

/// A dialect that a backend may have to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Spoken {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
}

impl Spoken {
    /// All but chat completions, which are asked for first and more thoroughly.
    pub(super) const BESIDE_CHAT: [Self; 3] = [Self::Completions, Self::Responses, Self::Messages];

    /// The name of its step.
    pub(super) fn step(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// Where it is asked for, below `/v1`.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => super::chat::PATH,
            Self::Completions => "/completions",
            Self::Responses => "/responses",
            Self::Messages => "/messages",
        }
    }

    fn dialect(self) -> Dialect {
        match self {
            Self::Chat => Dialect::Chat,
            Self::Completions => Dialect::Completion,
            Self::Responses => Dialect::Responses,
            Self::Messages => Dialect::Messages,
        }
    }

    /// Who is lost without it.
    fn needed_by(self) -> &'static str {
        match self {
            Self::Chat => "most programs need it",
            Self::Completions => "editors that fill in text, and other programs that complete plain text, need it",
            Self::Responses => "Codex needs it",
            Self::Messages => "Claude Code needs it",
        }
    }

    /// The smallest request there is, for a stream. Responses take no cap below 16 tokens; nothing of them is to be kept.
    pub(super) fn request(self, model: &str) -> Value {
        match self {
            Self::Chat => super::chat::request(model, super::chat::Cap::MaxTokens, true, false),
            Self::Completions => json!({"model": model, "prompt": "Hi", "max_tokens": 1, "stream": true}),
            Self::Responses => {
                json!({"model": model, "input": "Hi", "max_output_tokens": 16, "stream": true, "store": false})
            }
            Self::Messages => {
                let messages = [json!({"role": "user", "content": "Hi"})];
                json!({"model": model, "max_tokens": 1, "messages": messages, "stream": true})
            }
        }
    }
}

/// Whether a dialect is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// With a stream that its clients can read.
    Answered,
    /// With something else, which says that its path is known.
    Refused,
    /// Its path is known, and does not take this model.
    Unfit,
    /// Nothing is at its path.
    Absent,
}

impl Standing {
    /// What an answer says of its dialect; `finding` is what was made of it.
    pub(super) fn of(heard: &Heard, finding: &Finding, model: &Model, listed: &[String]) -> Self {
        if is_absent(heard, model, listed) {
            Self::Absent
        } else if is_not_for_it(heard, model, listed) {
            Self::Unfit
        } else if finding.status == Status::Failed {
            Self::Refused
        } else {
            Self::Answered
        }
    }
}

/// What came of asking in a dialect.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) standing: Standing,
    /// Failed where it is not answered.
    finding: Finding,
}

impl Told {
    /// What its step says; `lenient` where it need not be answered.
    pub(super) fn finding(self, lenient: bool) -> Finding {
        self.finding.noted_if(lenient)
    }

    /// Advises something better.
    pub(super) fn advising(mut self, advice: String) -> Self {
        self.finding.advice = Some(advice);
        self
    }

    fn refused(finding: Finding) -> Self {
        Self { standing: Standing::Refused, finding }
    }
}

/// Whether an answer says that nothing is at this path, rather than that a model is unknown.
fn is_absent(heard: &Heard, model: &Model, listed: &[String]) -> bool {
    matches!(heard.status.as_u16(), 404 | 405 | 501)
        && !mentions_model(heard)
        && !is_unknown_model(heard, &model.name, listed)
}

/// Says that nothing is at a path, and who needs it.
pub(super) fn absent(spoken: Spoken, heard: &Heard, place: &Place<'_>) -> Finding {
    let status = heard.status.as_u16();
    Finding::failed(
        format!("not answered here ({status}): {}", answered(heard, place)),
        format!("{}: route their models to a backend that answers it", spoken.needed_by()),
    )
}

/// What the answer says.
pub(super) fn judge(
    spoken: Spoken,
    answer: &Result<Heard, Cause>,
    place: &Place<'_>,
    model: &Model,
    listed: &[String],
) -> Told {
    let heard = match answer {
        Ok(heard) => heard,
        Err(cause) => return Told::refused(unanswered(cause, place.config)),
    };
    if is_absent(heard, model, listed) {
        return Told { standing: Standing::Absent, finding: absent(spoken, heard, place) };
    }
    if is_not_for_it(heard, model, listed) {
        let name = shown(&model.name, place.key.secret);
        let finding = Finding::failed(
            format!("\"{name}\" is not taken at this path: {}", answered(heard, place)),
            format!("give --model with one that is, if there is any; {}", spoken.needed_by()),
        );
        return Told { standing: Standing::Unfit, finding };
    }
    if let Some(refusal) = refusal(heard, place) {
        return Told::refused(refusal);
    }
    let seen = Seen::of(heard, spoken.dialect());
    match fault(spoken, heard, &seen, place) {
        Some(fault) => Told::refused(fault),
        None => Told { standing: Standing::Answered, finding: read(heard, &seen) },
    }
}

/// Whether a refusal is about a model that this path does not take.
fn is_not_for_it(heard: &Heard, model: &Model, listed: &[String]) -> bool {
    const SAYS: [&str; 3] = ["not support", "endpoint", "不支持"];
    let says = || {
        let text = String::from_utf8_lossy(&heard.body).to_lowercase();
        SAYS.iter().any(|words| text.contains(words))
    };
    let status = heard.status;
    let path = matches!(status.as_u16(), 404 | 405 | 501) && mentions_model(heard);
    let request = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) && mentions_model(heard);
    path || (request && says()) || is_unknown_model(heard, &model.name, listed)
}

/// Why a status of success is no answer in this dialect. `None` where it is one.
fn fault(spoken: Spoken, heard: &Heard, seen: &Seen, place: &Place<'_>) -> Option<Finding> {
    let said = |body: &[u8]| words(body, place.key.secret).unwrap_or_default();
    if seen.events == 0 {
        let meaning = spoken.dialect().reply(&heard.body);
        return Some(if meaning.error {
            Finding::failed(
                format!("it answered 200 with an error: {}", said(&heard.body)),
                "its words say why; a client that does not look for an error fails here",
            )
        } else if meaning.choices.iter().any(is_reply) {
            Finding::failed(
                "it answered with one JSON document, not with a stream",
                "it ignores stream = true, so there is no TTFT and no ITL to measure: ask its operator for streaming",
            )
        } else {
            Finding::failed(
                format!("it answered with something else than a stream of events: {}", said(&heard.body)),
                format!("{}: ask its operator whether it is answered here", spoken.needed_by()),
            )
        });
    }
    if let Some(error) = &seen.error {
        return Some(Finding::failed(
            format!("the stream holds an error under status 200: {}", said(error)),
            "its words say why; such a request counts as inband_error",
        ));
    }
    if seen.first_token.is_none()
        && let Some(other) = in_the_shape_of(heard, spoken)
    {
        return Some(Finding::failed(
            format!("its stream is written as one of {}", other.step()),
            format!("{}, and clients of {} cannot read this", spoken.needed_by(), spoken.step()),
        ));
    }
    (!seen.ended).then(|| {
        Finding::failed(
            "the stream ended without saying that it is over",
            "it was cut off, by the upstream or by something between: such a request counts as truncated",
        )
    })
}

/// The other dialect whose clients would see output in a reply.
fn in_the_shape_of(heard: &Heard, spoken: Spoken) -> Option<Spoken> {
    let all = [Spoken::Chat, Spoken::Messages, Spoken::Responses, Spoken::Completions];
    let others = all.into_iter().filter(|other| *other != spoken);
    others.into_iter().find(|other| Seen::of(heard, other.dialect()).first_token.is_some())
}

/// What an answer in order says.
fn read(heard: &Heard, seen: &Seen) -> Finding {
    let (Some(first), Some(sent)) = (seen.first_token, heard.sent) else {
        return match seen.first_token {
            Some(_) => Finding::ok("TTFT unknown: it answered before the request was sent whole"),
            None => Finding::note(
                "TTFT absent: no event carried output",
                "a model that reasons in secret spends its few tokens on that; longer replies do have a TTFT",
            ),
        };
    };
    let ttft = format!("TTFT {}", ms(first.saturating_duration_since(sent)));
    if heard.media == "text/event-stream" {
        return Finding::ok(ttft);
    }
    Finding::note(format!("{ttft}; it is not labelled text/event-stream"), "some clients then read it as one document")
}

fn is_reply(choice: &Choice) -> bool {
    choice.has_output() || choice.finished
}

/// What a stream brought, read in one dialect.
#[derive(Debug, Default)]
struct Seen {
    events: u64,
    /// When the first token event was read. `None` where none came.
    first_token: Option<Instant>,
    /// A finish reason or an end marker came.
    ended: bool,
    /// The event that is an error. `None` where none is.
    error: Option<Vec<u8>>,
}

impl Seen {
    fn of(heard: &Heard, dialect: Dialect) -> Self {
        let mut seen = Self::default();
        let mut events = EventReader::new(dialect);
        of_events(heard, &mut |item, at| {
            let (meaning, data, whole) = match item {
                Item::Event(event) => (events.event(event), event.data, true),
                Item::Unterminated(event) => (events.event(event), event.data, false),
                Item::Stray(data) => (dialect.reply(data), data, false),
                Item::Oversized { .. } => return,
            };
            seen.events += u64::from(whole);
            seen.ended |= meaning.done || meaning.choices.iter().any(|choice| choice.finished);
            if meaning.error {
                seen.error.get_or_insert_with(|| data.to_vec());
            }
            if whole && meaning.choices.iter().any(Choice::has_output) {
                seen.first_token.get_or_insert(at);
            }
        });
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_the_smallest_there_are() {
        for spoken in Spoken::BESIDE_CHAT {
            let request = spoken.request("m");
            assert_eq!((&request["model"], &request["stream"]), (&json!("m"), &json!(true)));
        }
        let caps = Spoken::BESIDE_CHAT.map(|spoken| {
            let request = spoken.request("m");
            ["max_tokens", "max_output_tokens"].iter().find_map(|name| request.get(name)?.as_u64())
        });
        assert_eq!(caps, [Some(1), Some(16), Some(1)]);
        assert_eq!(Spoken::Responses.request("m")["store"], json!(false));
    }
}
