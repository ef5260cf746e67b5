//! Which stretches of a response's output were said already.
//!
//! Items are told apart by position, else by id. An event that gives neither may mean any, and so may one that gives only
//! the one where only the other is known.
//!
//! Invariant: at most [`MOST`] are remembered, in few bytes each. Beyond, what may be a repetition is taken for one.

use std::cell::LazyCell;
use std::hash::{DefaultHasher, Hash, Hasher};

use smallvec::SmallVec;

use super::item::Part;

/// More parts than this in one response are not told apart.
const MOST: usize = 256;

/// Which item an event means, as far as it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whose<'t> {
    /// The item's position.
    pub(super) at: Option<u32>,
    /// Its id, as it is written. Some vendors give one item another in each event, so that the position goes first.
    pub(super) id: Option<&'t str>,
}

/// A stretch that was said.
#[derive(Debug)]
struct Known {
    at: Option<u32>,
    /// A digest of the item's id.
    id: Option<u64>,
    part: Part,
}

impl Known {
    /// Whether it may be of this item, whose id has this digest.
    fn is_of(&self, item: Whose<'_>, id: impl FnOnce() -> Option<u64>) -> bool {
        match (self.at, item.at) {
            (Some(known), Some(at)) => known == at,
            _ => self.id.zip(id()).is_none_or(|(known, id)| known == id),
        }
    }
}

/// The stretches that were said.
#[derive(Debug, Default)]
pub(super) struct Said(SmallVec<[Known; 4]>);

impl Said {
    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether anything of an item was said.
    pub(super) fn anything_of(&self, item: Whose<'_>) -> bool {
        let id = LazyCell::new(|| item.id.map(digest));
        self.0.iter().any(|known| known.is_of(item, || *id))
    }

    /// This part of an item is said now. Returns whether nothing of it was said before.
    pub(super) fn say(&mut self, item: Whose<'_>, part: Part) -> bool {
        let id = LazyCell::new(|| item.id.map(digest));
        // Mostly the one at hand goes on.
        let new =
            !self.0.iter().rev().any(|known| known.part == part && known.is_of(item, || *id)) && self.0.len() < MOST;
        if new {
            self.0.push(Known { at: item.at, id: *id, part });
        }
        new
    }
}

fn digest(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Whose<'_> = Whose { at: None, id: None };

    fn at(position: u32) -> Whose<'static> {
        Whose { at: Some(position), ..NONE }
    }

    fn named(id: &str) -> Whose<'_> {
        Whose { id: Some(id), ..NONE }
    }

    #[test]
    fn each_stretch_is_new_once() {
        let mut said = Said::default();
        assert!(said.is_nothing());
        for (item, part) in [(at(0), Part::Body(0)), (at(0), Part::Body(1)), (at(1), Part::Body(0))] {
            assert!(said.say(item, part) && !said.say(item, part), "{item:?} {part:?}");
        }
        assert!(said.say(at(0), Part::Name));
        assert!(said.say(at(0), Part::Summary(0)));
        assert!(!said.is_nothing());
    }

    #[test]
    fn an_item_that_is_not_named_may_be_any() {
        for item in [at(3), named("a")] {
            let mut said = Said::default();
            assert!(said.say(NONE, Part::Body(0)) && !said.say(item, Part::Body(0)), "said without an item");
            let mut said = Said::default();
            assert!(said.say(item, Part::Body(0)) && !said.say(NONE, Part::Body(0)), "repeated without an item");
            assert!(said.say(NONE, Part::Body(1)));
        }
        let mut said = Said::default();
        assert!(said.say(at(3), Part::Body(0)) && !said.say(named("a"), Part::Body(0)), "nothing in common");
    }

    #[test]
    fn items_without_a_position_are_told_apart_by_their_ids() {
        let mut said = Said::default();
        for id in ["a", "b"] {
            assert!(said.say(named(id), Part::Body(0)) && !said.say(named(id), Part::Body(0)), "{id}");
        }
        assert!(!said.say(Whose { at: Some(7), ..named("b") }, Part::Body(0)), "known by its id");
        let mut said = Said::default();
        assert!(said.say(Whose { at: Some(0), ..named("a") }, Part::Body(0)));
        assert!(!said.say(Whose { at: Some(0), ..named("b") }, Part::Body(0)), "the position goes first");
        assert!(said.say(Whose { at: Some(1), ..named("a") }, Part::Body(0)), "the position goes first");
        assert!(!said.say(named("a"), Part::Body(0)) && said.say(named("c"), Part::Body(0)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut said = Said::default();
        let new = (0..10_000).filter(|item| said.say(at(*item), Part::Body(0))).count();
        assert_eq!((new, said.0.len()), (MOST, MOST));
    }
}
