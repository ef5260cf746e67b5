//! JSON by its outside: an object's members and a list's items as the raw text they have, and what a raw value says.
//!
//! Invariant: nothing is taken apart that was not asked for, so whatever a value holds, its text stays as it was written. A
//! value of another type than the one looked for says nothing.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Tells `each` of every member, key and raw value, in their order; repeated keys are told each time. Returns whether
/// `text` is one JSON object and nothing else; told of before that is known, a broken one is told in part.
pub(crate) fn members<'a>(text: &'a str, each: impl FnMut(Cow<'a, str>, &'a str)) -> bool {
    let mut json = serde_json::Deserializer::from_str(text);
    Members { each }.deserialize(&mut json).is_ok() && json.end().is_ok()
}

/// Tells `each` of every item's raw text. Returns whether `text` is one JSON list and nothing else.
pub(crate) fn items<'a>(text: &'a str, each: impl FnMut(&'a str)) -> bool {
    let mut json = serde_json::Deserializer::from_str(text);
    Items { each }.deserialize(&mut json).is_ok() && json.end().is_ok()
}

/// Where `part`, lent from `text`, begins in it, in bytes.
pub(crate) fn offset(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize)
}

/// A string or a key, lent where it holds no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct Members<F> {
    each: F,
}

impl<'de, F: FnMut(Cow<'de, str>, &'de str)> DeserializeSeed<'de> for Members<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, F: FnMut(Cow<'de, str>, &'de str)> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some((Text(key), value)) = map.next_entry::<Text<'de>, &RawValue>()? {
            (self.each)(key, value.get());
        }
        Ok(())
    }
}

struct Items<F> {
    each: F,
}

impl<'de, F: FnMut(&'de str)> DeserializeSeed<'de> for Items<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(&'de str)> Visitor<'de> for Items<F> {
    type Value = ();

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(mut self, mut list: S) -> Result<(), S::Error> {
        while let Some(item) = list.next_element::<&RawValue>()? {
            (self.each)(item.get());
        }
        Ok(())
    }
}

/// A count, however it is written (`7`, `7.0`, `7e0`). `None` when negative, fractional, too large or no number.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    /// Above this, a float no longer holds every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Ok(count) = text.parse() {
        return Some(count);
    }
    let count: f64 = serde_json::from_str(text).ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and between 0 and 2^53")]
    let whole = (count.fract() == 0.0 && (0.0..=EXACT).contains(&count)).then_some(count as u64);
    whole
}

/// A position, such as a choice's `index`. `None` when it is no count, or above 32 bits.
pub(crate) fn index(text: &str) -> Option<u32> {
    whole_number(text).and_then(|index| u32::try_from(index).ok())
}

/// How many items a list has. `None` when it has none, or is no list.
pub(crate) fn count(list: &str) -> Option<u32> {
    let mut count = 0;
    each_item(list, |_| count += 1);
    (count > 0).then_some(count)
}

/// A string's text, lent where it holds no escapes. `None` when it is no string.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str(text).ok().map(|Text(text)| text)
}

/// Whether this is a non-empty string.
pub(crate) fn is_text(text: &str) -> bool {
    text.starts_with('"') && text.len() > 2
}

/// Whether a value says nothing: `false`, `0`, an empty string, list or object. (`null` is absent already.)
pub(crate) fn is_empty(text: &str) -> bool {
    let inner = text.strip_prefix(['[', '{']).and_then(|text| text.strip_suffix([']', '}']));
    matches!(text, "false" | "0" | r#""""#) || inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

/// The raw text of an object's fields of these names, each `None` when absent or `null`. `None` when it is no object,
/// or no JSON.
pub(crate) fn fields<'a, const N: usize>(text: &'a str, names: [&'static str; N]) -> Option<[Option<&'a str>; N]> {
    let mut json = serde_json::Deserializer::from_str(text);
    let values = Fields { names }.deserialize(&mut json).ok()?;
    json.end().ok()?;
    Some(values.map(|value| value.filter(|text| *text != "null")))
}

/// The raw text of each item of a list. Nothing when it is no list.
pub(crate) fn each_item<'a>(text: &'a str, each: impl FnMut(&'a str)) {
    // What is read here was cut out of a document known to be valid, so that the only error is another type.
    let _ = items(text, each);
}

struct Fields<const N: usize> {
    names: [&'static str; N],
}

impl<'de, const N: usize> DeserializeSeed<'de> for Fields<N> {
    type Value = [Option<&'de str>; N];

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Fields<N> {
    type Value = [Option<&'de str>; N];

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut values = [None; N];
        while let Some(Text(key)) = map.next_key()? {
            match self.names.iter().position(|name| *name == key) {
                Some(at) => values[at] = Some(map.next_value::<&RawValue>()?.get()),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(values)
    }
}
