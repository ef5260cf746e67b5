//! JSON by its outside: an object's members and a list's items as the raw text they have.
//!
//! Invariant: nothing is taken apart, so whatever a value holds, its text stays as it was written.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
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

/// A key, lent where it holds no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

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
        while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &RawValue>()? {
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
