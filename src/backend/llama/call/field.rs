//! One field of a request, read as what it must be.
//!
//! `null` is the same as leaving a field out, as with OpenAI.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::BadCall;

/// A field and what the client wrote there.
#[derive(Debug)]
pub(super) struct Field<'a> {
    /// The way to it: `messages[0].content`.
    path: String,
    value: Option<&'a Value>,
}

impl<'a> Field<'a> {
    pub(super) fn new(path: impl Into<String>, value: Option<&'a Value>) -> Self {
        Self { path: path.into(), value: value.filter(|value| !value.is_null()) }
    }

    /// The field `name` in this one.
    pub(super) fn inner<'b>(&self, name: &str, value: Option<&'b Value>) -> Field<'b> {
        Field::new(format!("{}.{name}", self.path), value)
    }

    /// The item `at` of this one.
    pub(super) fn inner_at(&self, at: usize) -> Field<'a> {
        let value = self.value.and_then(|value| value.get(at));
        Field::new(format!("{}[{at}]", self.path), value)
    }

    pub(super) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// What is wrong with it: `problem` follows its name.
    pub(super) fn bad(&self, problem: impl AsRef<str>) -> BadCall {
        BadCall::new(self.path.clone(), format!("`{}` {}", self.path, problem.as_ref()))
    }

    pub(super) fn text(&self) -> Result<Option<&'a str>, BadCall> {
        self.read(Value::as_str, "a string")
    }

    pub(super) fn switch(&self) -> Result<Option<bool>, BadCall> {
        self.read(Value::as_bool, "true or false")
    }

    pub(super) fn object(&self) -> Result<Option<&'a Map<String, Value>>, BadCall> {
        self.read(Value::as_object, "an object")
    }

    pub(super) fn array(&self) -> Result<Option<&'a [Value]>, BadCall> {
        self.read(|value| value.as_array().map(Vec::as_slice), "an array")
    }

    pub(super) fn signed(&self) -> Result<Option<i64>, BadCall> {
        self.read(Value::as_i64, "a whole number")
    }

    pub(super) fn whole(&self, range: RangeInclusive<u64>) -> Result<Option<u64>, BadCall> {
        let kind = match (*range.start(), *range.end()) {
            (least, u64::MAX) => format!("a whole number, at least {least}"),
            (least, most) => format!("a whole number between {least} and {most}"),
        };
        self.read(|value| value.as_u64().filter(|number| range.contains(number)), &kind)
    }

    #[expect(clippy::cast_possible_truncation, reason = "sampling is done in f32")]
    pub(super) fn number(&self, range: RangeInclusive<f64>) -> Result<Option<f32>, BadCall> {
        let kind = format!("a number between {} and {}", range.start(), range.end());
        let number = self.read(|value| value.as_f64().filter(|number| range.contains(number)), &kind)?;
        Ok(number.map(|number| number as f32))
    }

    fn read<T>(&self, read: impl Fn(&'a Value) -> Option<T>, kind: &str) -> Result<Option<T>, BadCall> {
        let bad = |value: &Value| {
            // What is long is not repeated: it could be the conversation.
            let found = match value {
                Value::Array(_) => "an array".to_owned(),
                Value::Object(_) => "an object".to_owned(),
                Value::String(_) => "a string".to_owned(),
                short => short.to_string(),
            };
            self.bad(format!("must be {kind}, not {found}"))
        };
        self.value.map(|value| read(value).ok_or_else(|| bad(value))).transpose()
    }
}

/// `text` as far as an error repeats it: at most `most` bytes, then `…`.
pub(in crate::backend::llama) fn crop(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(most)]))
}
