//! What stands around the output in every dialect: how bytes become a document, and how its type, its model and an error
//! are said.
//!
//! Invariant: what is read here never fails; of a field that is not what it should be, nothing is known.

use std::borrow::Cow;

use super::raw::{each_item, fields, is_empty, string};
use super::{Choice, Meaning, usage};

/// What `data` means, by `document`, which reads its text. Nothing for no data, `done` for `[DONE]`.
///
/// Bytes that are no UTF-8 become U+FFFD, as the SSE standard decodes them, and cost a copy.
pub(super) fn read(data: &[u8], document: impl for<'t> FnOnce(&'t str) -> Meaning<'t>) -> Meaning<'_> {
    match data.trim_ascii() {
        b"" => Meaning::default(),
        b"[DONE]" => Meaning { done: true, ..Meaning::default() },
        data => match str::from_utf8(data) {
            Ok(text) => document(text),
            Err(_) => {
                let lossy = String::from_utf8_lossy(data);
                let meaning = document(&lossy);
                let model = meaning.model.map(|model| Cow::Owned(model.into_owned()));
                Meaning { model, ..meaning }
            }
        },
    }
}

/// What a document of choices means, chat's or text completions', each of which `choice` reads. `None` of it for one that is
/// no object.
pub(super) fn of_choices(text: &str, choice: impl Fn(&str) -> Option<Choice>) -> Meaning<'_> {
    let Some([choices, counts, model_name, error, kind]) = fields(text, ["choices", "usage", "model", "error", "type"])
    else {
        return malformed();
    };
    let mut meaning = Meaning {
        usage: counts.and_then(usage::of_completion),
        model: model(model_name),
        error: is_error(error) || kind == Some(r#""error""#),
        ..Meaning::default()
    };
    if let Some(choices) = choices {
        each_item(choices, |text| meaning.choices.extend(choice(text)));
    }
    meaning
}

/// What a document says that is none.
pub(super) fn malformed() -> Meaning<'static> {
    Meaning { malformed: true, ..Meaning::default() }
}

/// A document's `type`, else the name of the event that it came in.
pub(super) fn kind<'a>(kind: Option<&'a str>, name: &'a [u8]) -> Cow<'a, str> {
    kind.and_then(string).unwrap_or_else(|| String::from_utf8_lossy(name))
}

/// The model's name, from its raw text. `None` when absent or empty.
pub(super) fn model(raw: Option<&str>) -> Option<Cow<'_, str>> {
    raw.and_then(string).filter(|model| !model.is_empty())
}

/// Whether `error`, a raw value, is there and says something.
pub(super) fn is_error(error: Option<&str>) -> bool {
    error.is_some_and(|error| !is_empty(error))
}
