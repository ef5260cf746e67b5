//! JSON documents of any size, skimmed while they come: a few small members of the outermost object are kept as they were
//! written, and of the large ones that they are there.
//!
//! What is left is itself a document, which is then read like any other.
//!
//! Invariants:
//! * What is kept does not depend on how the bytes were cut, and is bounded: `LARGEST` a member, however large the document.
//! * Of valid JSON, a member that is kept says what it said; one that is too large is absent. What is no JSON may pass for
//!   some, as only strings, brackets and the outermost object's commas and colons are looked at.

use memchr::memchr2;

use super::raw::string;

/// A member larger than this, in bytes, is not kept.
const LARGEST: usize = 64 * 1024;
/// A key longer than this, as written, in bytes, is none of those looked for: the longest with every letter escaped.
const LONGEST_KEY: usize = 64;

/// Skims one document, fed in pieces.
#[derive(Debug)]
pub struct Skimmer {
    /// The names of the members kept as they are.
    whole: &'static [&'static str],
    /// The names of those of which only the kind is kept.
    outline: &'static [&'static str],
    /// What was kept of each, in that order. `None` where it did not come, or was too large.
    kept: Vec<Option<Vec<u8>>>,
    /// A document that is a list is one, too.
    takes_list: bool,
    place: Place,
    /// How many brackets are open.
    depth: u64,
    /// Inside a string.
    in_string: bool,
    /// The last byte was a backslash that takes the next one's meaning.
    escaped: bool,
    /// The key or value at hand, as far as it is kept.
    at_hand: Vec<u8>,
    /// It is longer than is kept.
    over: bool,
    /// Which member the value at hand is, if it is one of those looked for.
    member: Option<usize>,
}

/// Where in the outermost object the next byte lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before it.
    Before,
    /// In a member's key, or before it.
    Key,
    /// Behind the colon.
    Value,
    /// Behind its closing bracket.
    Behind,
    /// In an outermost list.
    List,
    /// Behind that.
    BehindList,
    /// What came is neither.
    Lost,
}

impl Skimmer {
    /// Keeps the members named in `whole`, and of those in `outline` only what they are: lists and objects without what is
    /// in them.
    pub fn new(whole: &'static [&'static str], outline: &'static [&'static str]) -> Self {
        Self {
            whole,
            outline,
            kept: vec![None; whole.len() + outline.len()],
            takes_list: false,
            place: Place::Before,
            depth: 0,
            in_string: false,
            escaped: false,
            at_hand: Vec::new(),
            over: false,
            member: None,
        }
    }

    /// Takes a document that is a list as well, of which nothing but that is kept.
    #[must_use]
    pub fn or_list(self) -> Self {
        Self { takes_list: true, ..self }
    }

    /// Reads on.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // Most of a document is long strings, or lists of numbers that are passed over.
            let plain = match self.in_string {
                true if self.escaped => 0,
                true => memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len()),
                false if self.passes_over() => bytes.iter().take_while(|byte| !is_structure(**byte)).count(),
                false => 0,
            };
            if plain > 0 {
                self.keep(&bytes[..plain]);
                bytes = &bytes[plain..];
            }
            if let Some((first, rest)) = bytes.split_first() {
                self.byte(*first);
                bytes = rest;
            }
        }
    }

    /// The document without what was passed over. `None` when what came is not one whole object, or list where that is
    /// taken.
    pub fn finish(self) -> Option<Vec<u8>> {
        match self.place {
            Place::Behind => {}
            Place::BehindList => return Some(b"[]".to_vec()),
            Place::Before | Place::Key | Place::Value | Place::List | Place::Lost => return None,
        }
        let mut left = Vec::new();
        for (name, value) in self.whole.iter().chain(self.outline).zip(self.kept) {
            let Some(value) = value else { continue };
            left.push(if left.is_empty() { b'{' } else { b',' });
            left.push(b'"');
            left.extend_from_slice(name.as_bytes());
            left.extend_from_slice(b"\":");
            left.extend_from_slice(&value);
        }
        if left.is_empty() {
            left.push(b'{');
        }
        left.push(b'}');
        Some(left)
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            match (self.escaped, byte) {
                (false, b'\\') => self.escaped = true,
                (false, b'"') => self.in_string = false,
                _ => self.escaped = false,
            }
            self.keep(&[byte]);
            return;
        }
        match (self.place, byte) {
            (_, b' ' | b'\t' | b'\n' | b'\r') if self.depth <= 1 => {}
            (Place::Before, b'{') => {
                self.depth = 1;
                self.place = Place::Key;
            }
            (Place::Before, b'[') if self.takes_list => {
                self.depth = 1;
                self.place = Place::List;
            }
            (Place::Before | Place::Behind | Place::BehindList, _) => self.place = Place::Lost,
            (Place::List, b']') if self.depth == 1 => {
                self.depth = 0;
                self.place = Place::BehindList;
            }
            (Place::Lost, _) => {}
            (_, b'"') => {
                self.in_string = true;
                self.keep(&[byte]);
            }
            (Place::Key, b':') if self.depth == 1 => self.key_over(),
            (Place::Value, b',') if self.depth == 1 => self.value_over(Place::Key),
            (Place::Key | Place::Value, b'}') if self.depth == 1 => {
                self.depth = 0;
                self.value_over(Place::Behind);
            }
            (_, b'{' | b'[') => {
                self.keep(&[byte]);
                self.depth += 1;
            }
            (_, b'}' | b']') if self.depth == 1 => self.place = Place::Lost,
            (_, b'}' | b']') => {
                self.depth -= 1;
                self.keep(&[byte]);
            }
            _ => self.keep(&[byte]),
        }
    }

    /// Whether nothing is kept of what stands here, within a list or an object: of what is only to be there, the outermost
    /// brackets are.
    fn passes_over(&self) -> bool {
        match self.place {
            Place::Value => self.depth > 1 && self.member.is_none_or(|member| member >= self.whole.len()),
            Place::List => true,
            _ => false,
        }
    }

    /// Keeps what belongs to the key or value at hand.
    fn keep(&mut self, bytes: &[u8]) {
        let most = match (self.place, self.member) {
            (Place::Key, _) => LONGEST_KEY,
            (Place::Value, Some(_)) if !self.passes_over() => LARGEST,
            _ => return,
        };
        self.over |= self.at_hand.len() + bytes.len() > most;
        if self.over {
            self.at_hand.clear();
        } else {
            self.at_hand.extend_from_slice(bytes);
        }
    }

    fn key_over(&mut self) {
        let key = str::from_utf8(&self.at_hand).ok().and_then(string);
        self.member = key.and_then(|key| self.whole.iter().chain(self.outline).position(|name| *name == key));
        self.place = Place::Value;
        self.at_hand.clear();
        self.over = false;
    }

    fn value_over(&mut self, next: Place) {
        let value = std::mem::take(&mut self.at_hand);
        if let Some(member) = self.member.take() {
            // Of a repeated key the last counts.
            self.kept[member] = (!self.over && !value.is_empty()).then_some(value);
        }
        self.place = next;
        self.over = false;
    }
}

/// What opens or closes something.
fn is_structure(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')
}

#[cfg(test)]
pub(super) mod tests;
