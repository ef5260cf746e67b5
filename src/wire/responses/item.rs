//! An output item: a message, reasoning, or a call of a tool, and which of its parts say something.
//!
//! Invariant: what a tool gave back, and what is encrypted, is nothing that the model said; nor is what stands for what is
//! still to come.

use std::borrow::Cow;

use crate::wire::raw::{each_item, fields, is_empty, is_text, string};

/// A part of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The name of the tool that is called.
    Name,
    /// A part of its content, by position; what a tool is called with is its part 0, of several commands each its own.
    Body(u32),
    /// A part of a summary, by position.
    Summary(u32),
}

/// What a part holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text, a refusal, audio, or what a tool is called with.
    Answer,
    /// Reasoning as the model wrote it.
    Reasoning,
    /// A summary of it, by another's hand.
    Summary,
}

/// The members of an output item that matter, raw.
pub(super) struct Item<'t> {
    /// Its type. Empty when it has none.
    pub(super) kind: Cow<'t, str>,
    pub(super) id: Option<&'t str>,
    /// Parts of a message or of reasoning, and of a summary of that.
    pub(super) content: Option<&'t str>,
    pub(super) summary: Option<&'t str>,
    /// What tool is called.
    pub(super) name: Option<&'t str>,
    /// What it is called with, where that grows from nothing: `arguments`, `input`, `code`.
    pub(super) text: [Option<&'t str>; 3],
    /// And where it does not: `queries`, `action`, `operation`. The last two begin with a kind and with nothing in it.
    pub(super) other: [Option<&'t str>; 3],
}

impl<'t> Item<'t> {
    /// `None` when it is no object.
    pub(super) fn read(item: &'t str) -> Option<Self> {
        let names = [
            "type",
            "id",
            "content",
            "summary",
            "name",
            "arguments",
            "input",
            "code",
            "queries",
            "action",
            "operation",
        ];
        let [kind, id, content, summary, name, arguments, input, code, other @ ..] = fields(item, names)?;
        let kind = kind.and_then(string).unwrap_or_default();
        Some(Self { kind, id, content, summary, name, text: [arguments, input, code], other })
    }

    /// Whether it calls a tool in words. (An image is made of other tokens.)
    pub(super) fn is_call(&self) -> bool {
        let kind = &*self.kind;
        kind == "mcp_approval_request" || (kind.ends_with("_call") && kind != "image_generation_call")
    }

    /// Whether it is reasoning of which it tells nothing, not even a summary: kept back, or encrypted.
    pub(super) fn is_kept_back(&self) -> bool {
        let mut told = false;
        self.parts(true, |_, _| told = true);
        self.kind == "reasoning" && !told
    }

    /// Tells `each` of every part that says something; `done` says that nothing of it is still to come.
    pub(super) fn parts(&self, done: bool, mut each: impl FnMut(Part, Kind)) {
        if self.is_call() {
            let [queries, settled @ ..] = self.other;
            if self.name.is_some_and(is_text) {
                each(Part::Name, Kind::Answer);
            }
            let grown = self.text.into_iter().chain([queries]);
            if grown.chain(settled.into_iter().filter(|_| done)).flatten().any(says) {
                each(Part::Body(0), Kind::Answer);
            }
            return;
        }
        let lists = match &*self.kind {
            "message" => [self.content, None],
            "reasoning" => [self.content, self.summary],
            _ => return,
        };
        for (list, part) in lists.into_iter().zip([Part::Body as fn(u32) -> Part, Part::Summary]) {
            let mut position = 0;
            each_item(list.unwrap_or_default(), |text| {
                if let Some(kind) = content(text) {
                    each(part(position), kind);
                }
                position += 1;
            });
        }
    }
}

/// What a part of a message, of reasoning or of a summary holds. `None` when nothing.
pub(super) fn content(part: &str) -> Option<Kind> {
    let [kind, texts @ ..] = fields(part, ["type", "text", "refusal", "transcript", "data"])?;
    let kind = match kind {
        Some(r#""reasoning_text""#) => Kind::Reasoning,
        Some(r#""summary_text""#) => Kind::Summary,
        _ => Kind::Answer,
    };
    texts.into_iter().flatten().any(is_text).then_some(kind)
}

/// Whether this is a text, or an object or list that holds something.
pub(super) fn says(value: &str) -> bool {
    is_text(value) || (value.starts_with(['{', '[']) && !is_empty(value))
}
