//! Which stretches of a response's output were said already.
//!
//! Invariant: at most [`MOST`] are remembered. Beyond, what may be a repetition is taken for one.

use smallvec::SmallVec;

use super::item::Part;

/// More parts than this in one response are not told apart.
const MOST: usize = 256;

/// Where a stretch of output belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The item's position. `None` where an event does not say, which stands for any.
    pub(super) item: Option<u32>,
    pub(super) part: Part,
}

/// The stretches that were said.
#[derive(Debug, Default)]
pub(super) struct Said(SmallVec<[Stretch; 4]>);

impl Said {
    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// It is said now. Returns whether nothing of it was said before.
    pub(super) fn say(&mut self, stretch: Stretch) -> bool {
        let fits = |known: &Stretch| {
            let same_item = known.item == stretch.item || known.item.is_none() || stretch.item.is_none();
            known.part == stretch.part && same_item
        };
        // Mostly the one at hand goes on.
        let new = !self.0.iter().rev().any(fits) && self.0.len() < MOST;
        if new {
            self.0.push(stretch);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(item: Option<u32>, part: u32) -> Stretch {
        Stretch { item, part: Part::Body(part) }
    }

    #[test]
    fn each_stretch_is_new_once() {
        let mut said = Said::default();
        assert!(said.is_nothing());
        for stretch in [body(Some(0), 0), body(Some(0), 1), body(Some(1), 0)] {
            assert!(said.say(stretch) && !said.say(stretch), "{stretch:?}");
        }
        assert!(said.say(Stretch { item: Some(0), part: Part::Name }));
        assert!(said.say(Stretch { item: Some(0), part: Part::Summary(0) }));
        assert!(!said.is_nothing());
    }

    #[test]
    fn an_item_that_is_not_named_may_be_any() {
        let mut said = Said::default();
        assert!(said.say(body(None, 0)) && !said.say(body(Some(3), 0)), "said without an item");
        let mut said = Said::default();
        assert!(said.say(body(Some(3), 0)) && !said.say(body(None, 0)), "repeated without an item");
        assert!(said.say(body(None, 1)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut said = Said::default();
        let new = (0..10_000).filter(|item| said.say(body(Some(*item), 0))).count();
        assert_eq!((new, said.0.len()), (MOST, MOST));
    }
}
