//! The walk's end: the dialects beside chat completions.
//!
//! Invariant: they stand beside each other, so each is told, whatever became of the others. What need not be answered is a
//! note: with `--dialect` all that it does not name, without it whatever is not answered where another dialect is. Where
//! nothing is at any path, chat fails for all of them, since its advice is about the base URL.

use std::time::Duration;

use hyper::StatusCode;

use super::asker::{Asker, Chat};
use super::dialects::{Spoken, Standing, Told};
use super::report::{Finding, Steps, timed};

/// Asks in the dialects beside chat completions.
pub(super) struct Beside<'a> {
    pub(super) asker: &'a Asker<'a>,
    /// The dialects that must be answered.
    pub(super) required: &'a [Spoken],
    /// The upstream lists its models only to clients of Anthropic's API.
    pub(super) anthropic: bool,
}

impl Beside<'_> {
    /// Whether chat completions need not be answered, since others must be.
    pub(super) fn spares_chat(&self) -> bool {
        !self.required.is_empty() && !self.must(Spoken::Chat)
    }

    /// Whether other dialects may be answered, or must be told, where this is what came of chat completions.
    pub(super) fn goes_on_without(&self, chat: &Chat) -> bool {
        match chat.standing {
            Standing::Answered => false,
            Standing::Refused => self.spares_chat() || self.went_astray(chat),
            Standing::Unfit | Standing::Absent => !self.must(Spoken::Chat),
        }
    }

    /// The walk's end where chat completions are answered.
    pub(super) async fn after_chat(&self, steps: &mut Steps<'_>) -> Option<()> {
        let mut well = Some(());
        for spoken in Spoken::BESIDE_CHAT {
            let step = async { (self.asker.dialect(spoken, true).await.finding(!self.must(spoken)), ()) };
            well = steps.take(spoken.step(), step).await.and(well);
        }
        well
    }

    /// The walk's end where they are not: it fails only if no dialect is answered, or not one that must be.
    pub(super) async fn without_chat(&self, chat: Chat, took: Duration, steps: &mut Steps<'_>) -> Option<()> {
        let mut told = Vec::new();
        for spoken in Spoken::BESIDE_CHAT {
            told.push((spoken, timed(self.asker.dialect(spoken, false)).await));
        }
        let are = |standing| told.iter().filter(move |(_, (told, _))| told.standing == standing);
        let answered: Vec<&str> = are(Standing::Answered).map(|(spoken, _)| spoken.step()).collect();
        let nowhere = are(Standing::Absent).count() == told.len();
        let fails = match chat.standing {
            Standing::Absent => nowhere,
            _ if self.spares_chat() => false,
            // The model is to blame, as long as no dialect takes it.
            Standing::Unfit => answered.is_empty(),
            Standing::Refused | Standing::Answered => nowhere,
        };
        if fails {
            return steps.end("chat", chat.finding, Some(took));
        }
        steps.end("chat", self.noted(chat, &answered), Some(took))?;
        for step in ["stream", "stream_options"] {
            steps.tell(step, Finding::skipped("chat completions are not answered here"))?;
        }
        // With nothing answered, those whose path is known say what is wrong.
        let spared = self.spares_chat() || !answered.is_empty();
        let lenient = |told: &Told| spared || told.standing == Standing::Absent;
        let mut well = Some(());
        for (spoken, (told, took)) in told {
            steps.begin(spoken.step());
            let lenient = lenient(&told) && !self.must(spoken);
            well = steps.end(spoken.step(), told.finding(lenient), Some(took)).and(well);
        }
        well
    }

    /// What is said of chat completions that need not be answered.
    fn noted(&self, chat: Chat, answered: &[&str]) -> Finding {
        if chat.standing == Standing::Refused && !self.went_astray(&chat) {
            return chat.finding.noted_if(true);
        }
        let advice = match answered {
            [] => "see what the other dialects say below".to_owned(),
            some => format!("{} can be had here; most programs need chat completions", some.join(", ")),
        };
        let status = chat.status.map_or(0, |status| status.as_u16());
        Finding::note(format!("not answered here ({status}): {}", chat.finding.detail), advice)
    }

    /// Whether a key was refused by what may be no path: an API of Anthropic's own looks at the key first.
    fn went_astray(&self, chat: &Chat) -> bool {
        self.anthropic && chat.status == Some(StatusCode::UNAUTHORIZED)
    }

    fn must(&self, spoken: Spoken) -> bool {
        self.required.contains(&spoken)
    }
}
