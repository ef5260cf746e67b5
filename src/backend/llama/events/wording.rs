//! In whose words a reply is told.

use super::completion::Continuation;
use crate::backend::llama::call::{Call, Input};
use crate::backend::llama::prompts::Prepared;

/// In whose words a reply is told.
pub(in crate::backend::llama) enum Wording {
    /// A chat completion's.
    Chat,
    /// A legacy completion's: its choices in order.
    Completion(Vec<Continuation>),
}

impl Wording {
    /// That in which `call` is to be answered, after `prompts`.
    pub(in crate::backend::llama) fn of(call: &Call, prompts: &[Prepared]) -> Self {
        let Input::Completion { .. } = call.input else { return Self::Chat };
        let begin = |Prepared { decoder, echo, .. }: &Prepared| Continuation {
            echo: echo.clone(),
            decoder: decoder.clone(),
            offset: 0,
        };
        let of_each = prompts.iter().flat_map(|prompt| (0..call.choices).map(move |_| begin(prompt)));
        Self::Completion(of_each.collect())
    }

    /// What its ids begin with.
    pub(in crate::backend::llama) fn id_prefix(&self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl",
            Self::Completion(_) => "cmpl",
        }
    }

    /// `object` of an event.
    pub(super) fn event_object(&self) -> &'static str {
        match self {
            Self::Chat => "chat.completion.chunk",
            Self::Completion(_) => "text_completion",
        }
    }

    /// `object` of the whole reply.
    pub(super) fn whole_object(&self) -> &'static str {
        match self {
            Self::Chat => "chat.completion",
            Self::Completion(_) => "text_completion",
        }
    }

    /// A completion's choice. `None` in a chat.
    pub(super) fn continuation(&mut self, choice: u32) -> Option<&mut Continuation> {
        match self {
            Self::Chat => None,
            Self::Completion(choices) => choices.get_mut(choice as usize),
        }
    }
}
