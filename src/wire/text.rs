//! Text taken out of events, replies and requests, for whoever counts its tokens.
//!
//! Invariant: every text has its place, and what is no text is noted, so that who counts knows whether that was all.

use super::raw::{is_empty, is_text, string};

/// Where a piece of text belongs. Pieces of one place, joined in order, are one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The choice's `index`, or the position of the block or item that it lies in; in a request, the message's position.
    pub choice: u32,
    /// What part of it.
    pub part: Part,
}

/// A part of a choice or message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The answer.
    Content,
    /// Reasoning, under any of its names.
    Reasoning,
    /// A refusal.
    Refusal,
    /// The name of the function or tool in a call of this `index`.
    Name(u32),
    /// Its arguments or input.
    Arguments(u32),
}

/// Gives texts to `each` and notes what was none. Each dialect adds how it is read.
pub(super) struct Taken<'a> {
    each: &'a mut dyn FnMut(Place, &str),
    /// The choice or message at hand.
    pub(super) place: u32,
    /// Some output could not be taken as text.
    pub(super) unread: bool,
    /// There was something that is no text.
    pub(super) foreign: bool,
}

impl<'a> Taken<'a> {
    pub(super) fn new(each: &'a mut dyn FnMut(Place, &str)) -> Self {
        Self { each, place: 0, unread: false, foreign: false }
    }

    /// A string, given on as `part`. One whose escapes are no text is unread; anything else says nothing.
    pub(super) fn string(&mut self, text: &str, part: Part) {
        if !is_text(text) {
            return;
        }
        match string(text) {
            Some(text) => (self.each)(Place { choice: self.place, part }, &text),
            None => self.unread = true,
        }
    }

    /// What a call is given: a string, or an object or list, whose JSON is the text.
    pub(super) fn given(&mut self, text: &str, index: u32) {
        if text.starts_with(['{', '[']) && !is_empty(text) {
            (self.each)(Place { choice: self.place, part: Part::Arguments(index) }, text);
        } else {
            self.string(text, Part::Arguments(index));
        }
    }
}

/// How texts are taken out of a document.
#[cfg(test)]
pub(super) type Take = fn(&[u8], &mut dyn FnMut(Place, &str)) -> bool;

/// What `take` finds in `data`, each as `place part text`, and whether that is all.
#[cfg(test)]
pub(super) fn written(take: Take, data: &str) -> (Vec<String>, bool) {
    let mut found = Vec::new();
    let mut each = |place: Place, text: &str| found.push(format!("{} {:?} {text}", place.choice, place.part));
    let all = take(data.as_bytes(), &mut each);
    (found, all)
}
