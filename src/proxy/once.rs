//! Requests that are asked once: what they ask for acts beyond their reply, or rests on what only one backend has.
//!
//! Invariant: what is not known to be harmless is asked once.

use super::request::ModelRequest;
use crate::wire::Dialect;
use crate::wire::raw::{each_item, fields, is_empty, string};

/// Tools of Anthropic's making that the client runs, by what their types begin with; a date follows.
const RUN_BY_CLIENTS: [&str; 4] = ["bash_", "computer_", "memory_", "text_editor_"];

/// Whether a request may be asked a second time, of another backend.
///
/// Not one that names what one account has (`previous_response_id`, `conversation`, a stored `prompt`, an
/// `item_reference`, a `container`), that runs in the background, where nobody would read its answer, or that brings tools
/// which the server runs. Files named by an id and encrypted reasoning are not looked for: a mirror may refuse them.
pub(super) fn may_be_repeated(wanted: &ModelRequest) -> bool {
    match wanted.dialect {
        Dialect::Responses => is_response_repeatable(wanted.text()),
        Dialect::Messages => is_message_repeatable(wanted.text()),
        Dialect::Chat => is_chat_repeatable(wanted.text()),
        Dialect::Completion | Dialect::Embeddings | Dialect::Rerank => true,
    }
}

fn is_chat_repeatable(body: &str) -> bool {
    let Some([search, tools]) = fields(body, ["web_search_options", "tools"]) else { return false };
    search.is_none() && all(tools, is_function)
}

fn is_response_repeatable(body: &str) -> bool {
    let names = ["previous_response_id", "conversation", "prompt", "background", "tools", "input"];
    let Some([previous, conversation, prompt, background, tools, input]) = fields(body, names) else { return false };
    // An item without a type is a message, or the id of one that the server has.
    let is_said = |item: &str| match kind(item).as_deref() {
        None => fields(item, ["role"]).is_none_or(|[role]| role.is_some()),
        Some(kind) => kind != "item_reference",
    };
    previous.is_none()
        && conversation.is_none()
        && prompt.is_none()
        && background.is_none_or(|background| background == "false")
        && all(tools, is_function)
        && all(input, is_said)
}

/// Whether a tool of `OpenAI`'s dialects is one that the client runs.
fn is_function(tool: &str) -> bool {
    matches!(kind(tool).as_deref(), Some("function" | "custom"))
}

fn is_message_repeatable(body: &str) -> bool {
    let Some([servers, container, tools]) = fields(body, ["mcp_servers", "container", "tools"]) else { return false };
    let runs_here = |tool: &str| {
        kind(tool).is_none_or(|kind| kind == "custom" || RUN_BY_CLIENTS.iter().any(|known| kind.starts_with(known)))
    };
    servers.is_none_or(is_empty) && container.is_none() && all(tools, runs_here)
}

/// Whether every item of a list is so. What is absent, or no list, has none that is not.
fn all(list: Option<&str>, is_so: impl Fn(&str) -> bool) -> bool {
    let mut every = true;
    each_item(list.unwrap_or(""), |item| every = every && is_so(item));
    every
}

/// What an object calls its `type`. `None` where it names none.
fn kind(object: &str) -> Option<String> {
    let [kind] = fields(object, ["type"])?;
    kind.and_then(string).map(Into::into)
}
