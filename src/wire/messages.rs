//! Anthropic's messages: one event of a stream, or one whole reply → its [`Meaning`].
//!
//! A reply is one choice, number 0, whatever its content blocks. Events are told apart by their `type`, else by their
//! name; a stream's counts come in parts (`usage`).
//!
//! Thinking is shown whole, as a summary, or not at all. Which of the first two it is, no event says: it is a summary where
//! the served model's name is that of one whose vendor summarises, and where usage has more tokens of thinking than the
//! shown text has bytes, which no text of such tokens can be. A longer summary under an unknown name passes for the whole.
//!
//! Invariant: a field of the wrong type says nothing, and takes nothing from its neighbours. What is no text of the model's
//! (signatures, citations, results of tools that ran at the server) is no output.

use smallvec::smallvec;

use super::raw::{each_item, fields, is_empty, is_text, string};
use super::sse::Event;
use super::{Choice, Meaning, envelope};

mod text;
mod usage;

pub use text::{output_text, prompt_text};

/// Reads the events of one stream.
#[derive(Debug, Default)]
pub struct EventReader {
    usage: usage::Running,
    /// How thinking is shown.
    thinking: Thinking,
    /// The end marker came. Some servers send `[DONE]` as well.
    stopped: bool,
}

impl EventReader {
    /// What an event means. An output event of a common kind costs no allocation.
    pub fn event<'a>(&mut self, event: Event<'a>) -> Meaning<'a> {
        let mut meaning = envelope::read(event.data, |text| self.document(text, event.name));
        meaning.error |= meaning.malformed && event.name == b"error";
        let repeated = meaning.done && self.stopped && event.data.trim_ascii() == b"[DONE]";
        self.stopped |= meaning.done;
        meaning.done &= !repeated;
        meaning
    }

    fn document<'t>(&mut self, text: &'t str, name: &[u8]) -> Meaning<'t> {
        let names = ["type", "delta", "content_block", "message", "usage", "error"];
        let Some([kind, delta, block, message, usage, error]) = fields(text, names) else {
            return envelope::malformed();
        };
        let meaning = match &*envelope::kind(kind, name) {
            "content_block_delta" => delta.map(|delta| self.delta(delta)),
            "content_block_start" => {
                self.thinking.seen = false;
                block.map(|block| of_choice(self.thinking.block(block)))
            }
            "message_start" => message.and_then(|message| self.start(message)),
            "message_delta" => Some(self.end(delta, usage)),
            "message_stop" => Some(Meaning { done: true, ..Meaning::default() }),
            "error" => Some(Meaning { error: true, ..Meaning::default() }),
            "message" | "" => Some(document(text)),
            _ => None,
        };
        let meaning = meaning.unwrap_or_default();
        Meaning { error: meaning.error || envelope::is_error(error), ..meaning }
    }

    /// `message_start`: the model, and the prompt's tokens.
    fn start<'t>(&mut self, message: &'t str) -> Option<Meaning<'t>> {
        let [model, usage] = fields(message, ["model", "usage"])?;
        let model = envelope::model(model);
        self.thinking.summarised = model.as_deref().is_some_and(summarises);
        if let Some(usage) = usage {
            self.usage.prompt(usage);
        }
        Some(Meaning { usage: usage.and_then(|_| self.usage.told()), model, ..Meaning::default() })
    }

    /// `content_block_delta`. What kind it is shows in its fields.
    fn delta(&mut self, delta: &str) -> Meaning<'static> {
        let said = fields(delta, ["text", "thinking", "partial_json", "signature"]).unwrap_or_default();
        let thinking = self.thinking.shows(said[1]);
        let [text, _, json, signature] = said.map(|value| value.is_some_and(is_text));
        let choice = Choice { answer: text || json, reasoning: thinking, ..Choice::default() };
        let summary = thinking && self.thinking.summarised;
        of_choice((choice, summary || (signature && !self.thinking.seen)))
    }

    /// `message_delta`: why the model stopped, and how many tokens there were.
    fn end(&mut self, delta: Option<&str>, usage: Option<&str>) -> Meaning<'static> {
        let reason = delta.and_then(|delta| fields(delta, ["stop_reason"])).and_then(|[reason]| reason);
        let choice = Choice { finished: reason.is_some_and(is_text), ..Choice::default() };
        if let Some(usage) = usage {
            self.usage.add(usage);
        }
        let hidden = usage.is_some() && self.thinking.is_less_than(self.usage.thinking());
        Meaning { usage: usage.and_then(|_| self.usage.told()), ..of_choice((choice, hidden)) }
    }
}

/// How a reply shows its thinking.
#[derive(Debug, Default)]
struct Thinking {
    /// The model's vendor shows summaries of it.
    summarised: bool,
    /// The block at hand has shown some. Its signature seals what was thought, shown or not.
    seen: bool,
    /// How much was shown in all blocks, in bytes as written, which are no fewer than the text's.
    bytes: u64,
}

impl Thinking {
    /// Notes thinking, a raw value. Returns whether it is a text.
    fn shows(&mut self, thinking: Option<&str>) -> bool {
        let Some(text) = thinking.filter(|text| is_text(text)) else { return false };
        self.seen = true;
        self.bytes = self.bytes.saturating_add(text.len() as u64 - 2);
        true
    }

    /// Whether what was shown cannot be all of so many tokens, of which each has a byte or more. Of nothing that was shown
    /// it is not said: then usage alone tells how much is hidden.
    fn is_less_than(&self, tokens: Option<u64>) -> bool {
        self.bytes > 0 && tokens.is_some_and(|tokens| tokens > self.bytes)
    }

    /// What a content block says where it begins, or all of it, and whether it hides some output.
    fn block(&mut self, block: &str) -> (Choice, bool) {
        let mut choice = Choice::default();
        let names = ["type", "text", "thinking", "signature", "name", "input"];
        let Some([kind, text, thinking, signature, name, input]) = fields(block, names) else {
            return (choice, false);
        };
        let is_said = |value: Option<&str>| value.is_some_and(is_text);
        let mut hidden = false;
        match kind.and_then(string).unwrap_or_default().as_ref() {
            "text" => choice.answer = is_said(text),
            "thinking" => {
                choice.reasoning = self.shows(thinking);
                hidden = if choice.reasoning { self.summarised } else { is_said(signature) };
            }
            "redacted_thinking" => hidden = true,
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                choice.answer = is_said(name) || input.is_some_and(|input| !is_empty(input));
            }
            _ => {}
        }
        (choice, hidden)
    }
}

/// Whether the thinking that this model shows is a summary. Anthropic's models think so since Claude 4: tokens are charged
/// for all of it, and what is shown is less. Claude 3.7 shows all.
fn summarises(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    model.contains("claude") && !model.contains("3-7") && !model.contains("3.7")
}

/// What an event says that speaks of the one choice, and whether it hides output.
fn of_choice((choice, partly_hidden): (Choice, bool)) -> Meaning<'static> {
    let speaks = choice.has_output() || choice.finished;
    Meaning { choices: if speaks { smallvec![choice] } else { smallvec![] }, partly_hidden, ..Meaning::default() }
}

/// What a whole JSON reply means, or a bare error object.
pub fn reply(data: &[u8]) -> Meaning<'_> {
    envelope::read(data, document)
}

fn document(text: &str) -> Meaning<'_> {
    let names = ["type", "content", "stop_reason", "usage", "model", "error"];
    let Some([kind, content, reason, usage, model, error]) = fields(text, names) else {
        return envelope::malformed();
    };
    let model = envelope::model(model);
    let mut thinking = Thinking { summarised: model.as_deref().is_some_and(summarises), ..Thinking::default() };
    let mut whole = Choice { finished: reason.is_some_and(is_text), ..Choice::default() };
    let mut partly_hidden = false;
    if let Some(content) = content {
        each_item(content, |block| {
            let (said, hidden) = thinking.block(block);
            whole.answer |= said.answer;
            whole.reasoning |= said.reasoning;
            partly_hidden |= hidden;
        });
    }
    let mut counts = usage::Running::default();
    if let Some(usage) = usage {
        counts.add(usage);
        partly_hidden |= thinking.is_less_than(counts.thinking());
    }
    Meaning {
        usage: counts.told(),
        model,
        error: envelope::is_error(error) || kind == Some(r#""error""#),
        ..of_choice((whole, partly_hidden))
    }
}
