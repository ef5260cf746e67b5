//! Asks one model in each dialect, and has what comes judged.

use hyper::StatusCode;

use super::advice::{Place, unanswered};
use super::ask::{Asking, Heard};
use super::chat::{self, Cap};
use super::dialects::{self, Spoken, Standing, Told};
use super::key::Key;
use super::models::Model;
use super::report::Finding;
use super::stream::{self, Seen};
use super::{options, words};
use crate::backend::upstream::Cause;
use crate::config::{MessagesAuth, OpenAi};

/// Asks a model.
pub(super) struct Asker<'a> {
    pub(super) asking: &'a Asking<'a>,
    pub(super) config: &'a OpenAi,
    pub(super) key: &'a Key<'a>,
    /// The backend's name.
    pub(super) backend: &'a str,
    pub(super) model: &'a Model,
    pub(super) listed: &'a [String],
}

/// What came of asking for a whole chat completion.
pub(super) struct Chat {
    pub(super) finding: Finding,
    /// The cap that the model takes.
    pub(super) cap: Cap,
    /// `None` where no answer came.
    pub(super) status: Option<StatusCode>,
    /// Whether they are answered; `finding` fails where they are not.
    pub(super) standing: Standing,
}

impl Asker<'_> {
    fn place(&self, path: &'static str) -> Place<'_> {
        Place { config: self.config, url: self.asking.url(path), path, key: self.key }
    }

    async fn ask(&self, cap: Cap, stream: bool, usage: bool) -> Result<Heard, Cause> {
        self.asking.post(chat::PATH, &chat::request(&self.model.name, cap, stream, usage)).await
    }

    /// A whole reply.
    pub(super) async fn chat(&self) -> Chat {
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
            let standing = Standing::of(&second, &finding, self.model, self.listed);
            return Chat { finding, cap: Cap::MaxCompletionTokens, status, standing };
        }
        let (finding, standing) = match &answer {
            Ok(heard) => {
                let finding = chat::judge(heard, &place, self.model, self.listed);
                let standing = Standing::of(heard, &finding, self.model, self.listed);
                (finding, standing)
            }
            Err(cause) => (unanswered(cause, place.config), Standing::Refused),
        };
        Chat { finding, cap: Cap::MaxTokens, status, standing }
    }

    /// One token, asked for in another dialect. `chat` says that chat completions are answered.
    pub(super) async fn dialect(&self, spoken: Spoken, chat: bool) -> Told {
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
            // Whatever else it says: another refusal of the key, or a fault, proves nothing.
            if answer.is_ok_and(|heard| !matches!(heard.status.as_u16(), 401 | 403 | 500..)) {
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

    /// A stream, and what it brought.
    pub(super) async fn stream(&self, cap: Cap) -> (Finding, Seen) {
        match self.ask(cap, true, false).await {
            Ok(heard) => {
                let seen = Seen::of(&heard);
                (stream::judge(&heard, &seen, &self.place(chat::PATH), self.model, self.listed), seen)
            }
            Err(cause) => (unanswered(&cause, self.config), Seen::default()),
        }
    }

    /// A stream that is asked for its usage; `before` was not.
    pub(super) async fn options(&self, cap: Cap, before: &Seen) -> Finding {
        let answer = self.ask(cap, true, true).await;
        options::judge(&answer, before, self.backend, &self.place(chat::PATH))
    }
}
