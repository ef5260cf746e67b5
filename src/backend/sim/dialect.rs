//! The dialects of what a simulation speaks: who reads a request, who writes its reply, and what an error looks like.

use serde_json::{Value, json};

use super::asked::Asked;
use super::reply::{Reply, Writer};
use super::{chat, completions, messages, responses};

/// A dialect with streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Chat,
    Completions,
    Messages,
    Responses,
}

impl Dialect {
    /// Reads a request body. The error is a sentence for the client.
    pub(super) fn read(self, body: &[u8]) -> Result<Asked, String> {
        match self {
            Self::Chat => chat::read(body),
            Self::Completions => completions::read(body),
            Self::Messages => messages::read(body),
            Self::Responses => responses::read(body),
        }
    }

    /// Who writes a reply as a stream.
    pub(super) fn writer(self, reply: Reply<'_>) -> Box<dyn Writer + '_> {
        match self {
            Self::Chat => Box::new(chat::Stream::new(reply)),
            Self::Completions => Box::new(completions::Stream::new(reply)),
            Self::Messages => Box::new(messages::Stream::new(reply)),
            Self::Responses => Box::new(responses::Stream::new(reply)),
        }
    }

    /// A whole reply.
    pub(super) fn whole(self, reply: &Reply<'_>) -> Value {
        match self {
            Self::Chat => chat::whole(reply),
            Self::Completions => completions::whole(reply),
            Self::Messages => messages::whole(reply),
            Self::Responses => responses::whole(reply),
        }
    }
}

/// Whose errors and headers a path's replies have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum House {
    OpenAi,
    Anthropic,
}

impl House {
    /// The house that a path belongs to, by its segments after any `api` and `v1`.
    pub(super) fn of(path: &[&str]) -> Self {
        match path {
            ["messages", ..] => Self::Anthropic,
            _ => Self::OpenAi,
        }
    }

    /// An error reply of this status. `code` is `OpenAI`'s alone.
    pub(super) fn error(self, status: u16, message: &str, code: Option<&str>, request_id: &str) -> Value {
        match self {
            Self::Anthropic => messages::error(status, message, request_id),
            Self::OpenAi => {
                let kind = match status {
                    429 => "rate_limit_error",
                    400..=499 => "invalid_request_error",
                    _ => "server_error",
                };
                openai_error(message, kind, code)
            }
        }
    }

    /// The header that names the request beside `x-request-id`. `None` where there is no other.
    pub(super) fn request_id(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("request-id"),
            Self::OpenAi => None,
        }
    }
}

/// An error in `OpenAI`'s shape.
pub(super) fn openai_error(message: &str, kind: &str, code: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

/// Replies without sockets and clocks, for the dialects' tests.
#[cfg(test)]
pub(super) mod testing {
    use std::time::Duration;

    use super::*;
    use crate::backend::sim::character::Character;
    use crate::backend::sim::events::{Events, Mark};
    use crate::backend::sim::play::endings;
    use crate::backend::sim::schedule::{Planned, Schedule, body_of};

    /// The reply to a request body with this `x-sim` header: as a stream, by its bytes and marks, and whole. Its id is
    /// made of `7`, and it was created 7 seconds after 1970.
    pub(in super::super) struct Replied {
        pub(in super::super) stream: String,
        pub(in super::super) marks: Vec<Mark>,
        pub(in super::super) whole: Value,
    }

    pub(in super::super) fn replied(dialect: Dialect, body: &Value, sim: &str) -> Replied {
        let asked = Asked { created: 7, ..dialect.read(body.to_string().as_bytes()).expect("a request") };
        let mut character = Character::new(Schedule::default());
        character.apply(sim).expect("a character");
        let reply = Reply { id: "7", asked: &asked, character: &character };
        let whole = reply.tokens();
        let tokens = character.error_after.map_or(whole, |most| most.min(whole));
        let mut writer = dialect.writer(reply);
        let mut events = Events::new(false);
        for planned in body_of(character.schedule, tokens, asked.choices) {
            writer.write(&planned, &mut events);
        }
        for (kind, choice) in endings(&reply) {
            writer.write(&Planned { kind, choice, tokens: tokens..tokens, due: Duration::ZERO }, &mut events);
        }
        let stream = String::from_utf8(events.bytes).expect("UTF-8");
        Replied { stream, marks: events.marks, whole: dialect.whole(&reply) }
    }

    impl Replied {
        /// The data of every event that is JSON.
        pub(in super::super) fn events(&self) -> Vec<Value> {
            let data = self.stream.lines().filter_map(|line| line.strip_prefix("data: "));
            data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).expect("JSON")).collect()
        }

        /// Kinds and tokens of the events, as the log has them.
        pub(in super::super) fn logged(&self) -> String {
            let marks = self.marks.iter().map(|mark| match mark.tokens {
                0 => format!("{:?}", mark.kind),
                tokens => format!("{:?}({tokens})", mark.kind),
            });
            marks.collect::<Vec<_>>().join(" ")
        }
    }
}
