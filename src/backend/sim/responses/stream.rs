//! A response as a stream: named events, numbered from 0, that open items, fill them and close them.
//!
//! Invariant: what an item's closing events repeat is what its deltas said.

use std::ops::Range;

use serde_json::{Value, json};

use super::super::events::{Events, Mark, put};
use super::super::log::Kind;
use super::super::reply::{BREAKDOWN, Reply, Stop, Writer};
use super::super::schedule::Planned;
use super::super::text;
use super::{Part, State, content, item, item_id, response, usage};

/// Writes a stream.
pub(in super::super) struct Stream<'a> {
    reply: Reply<'a>,
    begun: bool,
    /// The next event's number.
    sequence: u32,
    /// How many items have been added.
    items: u32,
    open: Option<Open>,
}

/// The item that is being filled.
struct Open {
    part: Part,
    tokens: Range<u32>,
    /// A delta's bytes before its number, between that and what it carries, and after it.
    before: Vec<u8>,
    between: Vec<u8>,
    after: &'static [u8],
}

impl<'a> Stream<'a> {
    pub(in super::super) fn new(reply: Reply<'a>) -> Self {
        Self { reply, begun: false, sequence: 0, items: 0, open: None }
    }

    fn begin(&mut self, out: &mut Events) {
        if !std::mem::replace(&mut self.begun, true) {
            let response = json!({"response": response(&self.reply, State::InProgress)});
            self.push(Kind::Role, "response.created", &response, out);
            self.push(Kind::Part, "response.in_progress", &response, out);
        }
    }

    /// Appends tokens to the part they belong to, which is opened first if it is not open.
    fn fill(&mut self, part: Part, tokens: Range<u32>, out: &mut Events) {
        if tokens.is_empty() {
            return;
        }
        if self.open.as_ref().is_none_or(|open| open.part != part) {
            self.close(out);
            self.open(part, tokens.start, out);
        }
        let sequence = self.next();
        let Some(open) = &mut self.open else { return };
        open.tokens.end = tokens.end;
        let kind = if part == Part::Reasoning { Kind::Reasoning } else { Kind::Token };
        out.push(Mark { kind, choice: 0, tokens: tokens.end - tokens.start }, |out| {
            out.extend_from_slice(&open.before);
            put(out, format_args!("{sequence}"));
            out.extend_from_slice(&open.between);
            match part {
                Part::Reasoning => text::write_escaped(0, tokens, out),
                Part::Message | Part::Call => self.reply.write_answer(0, tokens, out),
            }
            out.extend_from_slice(open.after);
        });
    }

    fn open(&mut self, part: Part, first: u32, out: &mut Events) {
        let added = json!({"output_index": self.items, "item": item(&self.reply, part, None)});
        self.items += 1;
        // The name of a function is output.
        let kind = if part == Part::Call { Kind::Token } else { Kind::Part };
        self.push(kind, "response.output_item.added", &added, out);
        if let Some((name, _)) = self.brackets(part) {
            let fields = self.located(part, json!({"part": content(&self.reply, part, "")}));
            self.push(Kind::Part, name, &fields, out);
        }
        let name = format!("{}.delta", self.stem(part));
        let located = self.located(part, json!({})).to_string();
        self.open = Some(Open {
            part,
            tokens: first..first,
            before: format!("event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":").into_bytes(),
            between: format!(",{},\"delta\":\"", &located[1..located.len() - 1]).into_bytes(),
            after: match part {
                Part::Message if !self.reply.refuses() => br#"","logprobs":[]}"#,
                _ => br#""}"#,
            },
        });
    }

    fn close(&mut self, out: &mut Events) {
        let Some(Open { part, tokens, .. }) = self.open.take() else { return };
        let said = match part {
            Part::Reasoning => text::text_of(0, tokens),
            Part::Message | Part::Call => self.reply.answer(0, tokens),
        };
        let fields = match part {
            Part::Call => json!({"arguments": said, "name": self.reply.tool()}),
            Part::Message if self.reply.refuses() => json!({ "refusal": said }),
            Part::Message => json!({"text": said, "logprobs": []}),
            Part::Reasoning => json!({ "text": said }),
        };
        let name = format!("{}.done", self.stem(part));
        self.push(Kind::Part, &name, &self.located(part, fields), out);
        if let Some((_, name)) = self.brackets(part) {
            let fields = self.located(part, json!({"part": content(&self.reply, part, &said)}));
            self.push(Kind::Part, name, &fields, out);
        }
        let done = json!({"output_index": self.items - 1, "item": item(&self.reply, part, Some(said))});
        self.push(Kind::Part, "response.output_item.done", &done, out);
    }

    /// What the names of a part's events have in common.
    fn stem(&self, part: Part) -> &'static str {
        match part {
            Part::Reasoning if self.reply.character.summary => "response.reasoning_summary_text",
            Part::Reasoning => "response.reasoning_text",
            Part::Message if self.reply.refuses() => "response.refusal",
            Part::Message => "response.output_text",
            Part::Call => "response.function_call_arguments",
        }
    }

    /// The events around a part's text within its item. `None` for a call, which has none.
    fn brackets(&self, part: Part) -> Option<(&'static str, &'static str)> {
        match part {
            Part::Call => None,
            Part::Reasoning if self.reply.character.summary => {
                Some(("response.reasoning_summary_part.added", "response.reasoning_summary_part.done"))
            }
            Part::Reasoning | Part::Message => Some(("response.content_part.added", "response.content_part.done")),
        }
    }

    /// `fields`, and where in the output they belong: to the item added last.
    fn located(&self, part: Part, mut fields: Value) -> Value {
        fields["item_id"] = item_id(&self.reply, part).into();
        fields["output_index"] = (self.items - 1).into();
        match part {
            Part::Call => {}
            Part::Reasoning if self.reply.character.summary => fields["summary_index"] = 0.into(),
            Part::Reasoning | Part::Message => fields["content_index"] = 0.into(),
        }
        fields
    }

    fn next(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence - 1
    }

    /// Appends an event that carries no tokens: its name, its number and its fields.
    fn push(&mut self, kind: Kind, name: &str, fields: &Value, out: &mut Events) {
        let (sequence, fields) = (self.next(), fields.to_string());
        out.push(Mark { kind, choice: 0, tokens: 0 }, |out| {
            let fields = &fields[1..];
            put(
                out,
                format_args!("event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":{sequence},{fields}"),
            );
        });
    }

    fn finish(&mut self, tokens: u32, out: &mut Events) {
        let mut response = response(&self.reply, State::Over(tokens));
        if self.reply.asked.wants_usage(self.reply.schedule()) {
            response["usage"] = usage(&self.reply, tokens);
        }
        let name = match self.reply.stop() {
            Stop::Length => "response.incomplete",
            Stop::End | Stop::Tool | Stop::Refusal => "response.completed",
        };
        self.push(Kind::Finish, name, &json!({ "response": response }), out);
    }
}

impl Writer for Stream<'_> {
    fn write(&mut self, planned: &Planned, out: &mut Events) {
        self.begin(out);
        match planned.kind {
            Kind::Token | Kind::Reasoning => {
                let (reasoning, answer) = self.reply.split(&planned.tokens);
                self.fill(Part::Reasoning, reasoning, out);
                self.fill(if self.reply.calls() { Part::Call } else { Part::Message }, answer, out);
            }
            Kind::Part => self.close(out),
            Kind::Finish => self.finish(planned.tokens.end, out),
            Kind::Error if self.reply.character.error_event => {
                let error = json!({"code": "server_error", "message": BREAKDOWN, "param": null});
                self.push(Kind::Error, "error", &error, out);
            }
            Kind::Error => {
                let response = json!({"response": response(&self.reply, State::Failed)});
                self.push(Kind::Error, "response.failed", &response, out);
            }
            // The finish carries the counts and is the end.
            _ => {}
        }
    }
}
