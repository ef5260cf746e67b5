//! OpenAI's responses: one event of a stream, or one whole reply → its [`Meaning`].
//!
//! A reply is one choice, number 0, whatever its items. Events are told apart by their `type`, else by their name. Output
//! comes in deltas, and is then repeated: whole, in its part, in its item, in the response. Only what was not said before
//! is output, so a server that sends no deltas is understood as well (`said`).
//!
//! Invariant: a field of the wrong type says nothing, and takes nothing from its neighbours. A summary of reasoning is
//! output, but not the reasoning itself; reasoning that is encrypted is no output.

use smallvec::smallvec;

use super::raw::{self, count, each_item, fields, is_text, string};
use super::sse::Event;
use super::{Choice, Meaning, envelope, usage};

mod item;
mod said;
mod text;

use item::{Item, Kind, Part, says};
use said::{Said, Whose};

pub use text::{output_text, prompt_text};

/// Reads the events of one stream.
#[derive(Debug, Default)]
pub struct EventReader {
    said: Said,
}

/// What an event says of the one choice.
#[derive(Default)]
struct Output {
    choice: Choice,
    partly_hidden: bool,
}

/// The members of an event that matter, raw.
struct Members<'t> {
    delta: Option<&'t str>,
    output_index: Option<&'t str>,
    item_id: Option<&'t str>,
    /// The part's position: `content_index`, or of a list of commands `command_index`.
    part_index: Option<&'t str>,
    summary_index: Option<&'t str>,
    logprobs: Option<&'t str>,
}

/// Under which names the events that repeat what deltas have said give it whole.
const WHOLE: [&str; 8] = ["text", "refusal", "arguments", "input", "code", "transcript", "command", "diff"];

impl EventReader {
    /// What an event means. An output event of a common kind costs no allocation.
    pub fn event<'a>(&mut self, event: Event<'a>) -> Meaning<'a> {
        let mut meaning = envelope::read(event.data, |text| self.document(text, event.name));
        meaning.error |= meaning.malformed && event.name == b"error";
        meaning
    }

    fn document<'t>(&mut self, text: &'t str, name: &[u8]) -> Meaning<'t> {
        let names = [
            "type",
            "delta",
            "output_index",
            "item_id",
            "content_index",
            "command_index",
            "summary_index",
            "logprobs",
            "part",
            "item",
            "response",
            "error",
        ];
        let Some([kind, delta, output_index, item_id, content_index, command_index, summary_index, rest @ ..]) =
            fields(text, names)
        else {
            return envelope::malformed();
        };
        let [logprobs, part, item, response, error] = rest;
        let part_index = content_index.or(command_index);
        let members = Members { delta, output_index, item_id, part_index, summary_index, logprobs };
        let kind = envelope::kind(kind, name);
        let kind = kind.strip_prefix("response.").unwrap_or(&kind);
        let meaning = match kind.rsplit_once('.') {
            Some((subject, "delta")) => self.delta(subject, &members).meaning(),
            Some(("output_item", verb @ ("added" | "done"))) => self.item(item, verb == "done", &members).meaning(),
            Some(("content_part" | "reasoning_part" | "reasoning_summary_part", "added" | "done")) => {
                self.part(part, &members).meaning()
            }
            Some((subject, "added" | "done")) => self.repeated(subject, text, &members).meaning(),
            None => self.standing(kind, text, response),
            Some(_) => Meaning::default(),
        };
        Meaning { error: meaning.error || envelope::is_error(error), ..meaning }
    }

    /// `….delta`: a stretch of output.
    fn delta(&mut self, subject: &str, members: &Members<'_>) -> Output {
        let mut output = Output::default();
        if let Some(kind) = kind_of(subject).filter(|_| members.delta.is_some_and(says)) {
            self.said.say(members.item(), members.part(kind));
            output.add(kind);
            output.choice.tokens = members.logprobs.and_then(count);
        }
        output
    }

    /// `….done`: all that the deltas have said, under a name of its own. `….added`: what they begin with, mostly nothing.
    fn repeated(&mut self, subject: &str, text: &str, members: &Members<'_>) -> Output {
        let mut output = Output::default();
        let whole = fields(text, WHOLE).unwrap_or_default();
        if let Some(kind) = kind_of(subject).filter(|_| whole.into_iter().flatten().any(says))
            && self.said.say(members.item(), members.part(kind))
        {
            output.add(kind);
        }
        output
    }

    /// `…_part.added`, `…_part.done`: a part of an item.
    fn part(&mut self, part: Option<&str>, members: &Members<'_>) -> Output {
        let mut output = Output::default();
        if let Some(kind) = part.and_then(item::content)
            && self.said.say(members.item(), members.part(kind))
        {
            output.add(kind);
        }
        output
    }

    /// `output_item.added`, `output_item.done`: an item.
    fn item(&mut self, item: Option<&str>, done: bool, members: &Members<'_>) -> Output {
        let mut output = Output::default();
        let Some(item) = item.and_then(Item::read) else { return output };
        let whose = Whose { id: item.id.filter(|id| is_text(id)), ..members.item() };
        item.parts(done, |part, kind| {
            if self.said.say(whose, part) {
                output.add(kind);
            }
        });
        // Some servers end an item without saying again what its deltas have said.
        output.partly_hidden |= done && item.is_kept_back() && !self.said.anything_of(whose);
        output
    }

    /// What an event of this name means whose data was too large to be kept: the last one says all output again, which the
    /// deltas have said, so it may be large. `None` where it may be anything.
    pub fn oversized(&self, name: &[u8]) -> Option<Meaning<'static>> {
        let choice = match name {
            b"response.completed" | b"response.incomplete" => Choice { finished: true, ..Choice::default() },
            _ => return None,
        };
        (!self.said.is_nothing()).then(|| Output { choice, partly_hidden: false }.meaning())
    }

    /// Events that tell where the response stands.
    fn standing<'t>(&mut self, kind: &str, text: &'t str, response: Option<&'t str>) -> Meaning<'t> {
        let whole = response.map(document).unwrap_or_default();
        let told = Meaning { usage: whole.usage, model: whole.model, ..Meaning::default() };
        match kind {
            "created" | "in_progress" | "queued" => told,
            "completed" | "incomplete" | "done" => {
                // What was said before is not said again.
                let nothing = self.said.is_nothing();
                let choice = whole.choices.first().copied().filter(|_| nothing).unwrap_or_default();
                // One that failed has not finished, whatever the event is called.
                let choice = Choice { finished: !whole.error, ..choice };
                let output = Output { choice, partly_hidden: whole.partly_hidden && nothing };
                Meaning { usage: told.usage, model: told.model, error: whole.error, ..output.meaning() }
            }
            "failed" | "cancelled" | "error" => Meaning { error: true, ..told },
            // An event that is a whole reply.
            "" | "message" => document(text),
            _ => Meaning::default(),
        }
    }
}

impl<'t> Members<'t> {
    fn part(&self, kind: Kind) -> Part {
        match kind {
            Kind::Summary => Part::Summary(self.summary_index.and_then(raw::index).unwrap_or(0)),
            Kind::Answer | Kind::Reasoning => Part::Body(self.part_index.and_then(raw::index).unwrap_or(0)),
        }
    }

    fn item(&self) -> Whose<'t> {
        Whose { at: self.output_index.and_then(raw::index), id: self.item_id.filter(|id| is_text(id)) }
    }
}

impl Output {
    fn add(&mut self, kind: Kind) {
        match kind {
            Kind::Answer => self.choice.answer = true,
            Kind::Reasoning => self.choice.reasoning = true,
            Kind::Summary => {
                self.choice.reasoning = true;
                self.partly_hidden = true;
            }
        }
    }

    fn meaning(self) -> Meaning<'static> {
        let speaks = self.choice.has_output() || self.choice.finished;
        let choices = if speaks { smallvec![self.choice] } else { smallvec![] };
        Meaning { choices, partly_hidden: self.partly_hidden, ..Meaning::default() }
    }
}

/// What events of this subject carry. `None` when no output.
fn kind_of(subject: &str) -> Option<Kind> {
    Some(match subject {
        "output_text"
        | "text"
        | "refusal"
        | "function_call_arguments"
        | "mcp_call_arguments"
        | "custom_tool_call_input"
        | "code_interpreter_call_code"
        | "shell_call_command"
        | "apply_patch_call_operation_diff"
        | "audio"
        | "audio.transcript"
        | "output_audio"
        | "output_audio_transcript" => Kind::Answer,
        "reasoning_text" | "reasoning" => Kind::Reasoning,
        "reasoning_summary_text" | "reasoning_summary" => Kind::Summary,
        _ => return None,
    })
}

/// What a whole JSON reply means, or a bare error object.
pub fn reply(data: &[u8]) -> Meaning<'_> {
    envelope::read(data, document)
}

fn document(text: &str) -> Meaning<'_> {
    let names = ["status", "output", "usage", "model", "error", "type"];
    let Some([status, items, counts, model, error, kind]) = fields(text, names) else {
        return envelope::malformed();
    };
    let mut output = Output::default();
    if let Some(items) = items {
        each_item(items, |item| {
            if let Some(item) = Item::read(item) {
                item.parts(true, |_, kind| output.add(kind));
                output.partly_hidden |= item.is_kept_back();
            }
        });
    }
    let status = status.filter(|status| is_text(status)).and_then(string);
    let failed = matches!(status.as_deref(), Some("failed" | "cancelled"));
    // Who asked for a response in the background has got the answer to that.
    output.choice.finished = match status.as_deref() {
        Some("completed" | "incomplete" | "queued" | "in_progress") => true,
        Some(_) => false,
        None => items.is_some(),
    };
    Meaning {
        usage: counts.and_then(usage::of_response),
        model: envelope::model(model),
        error: failed || envelope::is_error(error) || kind == Some(r#""error""#),
        ..output.meaning()
    }
}
