//! An output item: a message, reasoning, or a call of a tool, and which of its parts say something.
//!
//! Invariant: what a tool gave back, and what is encrypted, is nothing that the model said.

use crate::wire::raw::{each_item, fields, is_empty, is_text, string};

/// A part of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The name of the tool that is called.
    Name,
    /// A part of its content, by position; what a tool is called with is its part 0.
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

/// Tells `each` of every part of an output item that says something.
pub(super) fn parts(item: &str, mut each: impl FnMut(Part, Kind)) {
    let names = ["type", "content", "summary", "name", "arguments", "input", "code", "action", "operation", "queries"];
    let Some([kind, content_parts, summary, name, given @ ..]) = fields(item, names) else { return };
    let kind = kind.and_then(string).unwrap_or_default();
    if calls(&kind) {
        if name.is_some_and(is_text) {
            each(Part::Name, Kind::Answer);
        }
        if given.into_iter().flatten().any(says) {
            each(Part::Body(0), Kind::Answer);
        }
        return;
    }
    let lists = match &*kind {
        "message" => [content_parts, None],
        "reasoning" => [content_parts, summary],
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

/// Whether an item of this type calls a tool in words. (An image is made of other tokens.)
pub(super) fn calls(kind: &str) -> bool {
    kind == "mcp_approval_request" || (kind.ends_with("_call") && kind != "image_generation_call")
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
