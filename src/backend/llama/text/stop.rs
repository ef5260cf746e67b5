//! Stop strings, found across token boundaries.
//!
//! Invariant: how the text is cut into pieces does not matter. The stop string that is complete first wins, and of those
//! that end together the longest; so a decision never waits for more text.

use std::sync::Arc;

/// Looks for stop strings in text that comes in pieces. Clones share the tables, and each looks at a text of its own.
#[derive(Clone)]
pub(in crate::backend::llama) struct StopMatcher {
    stops: Arc<[Pattern]>,
    /// How much of each stop string the text so far ends with, in bytes.
    matched: Vec<usize>,
    /// Text not yet told: its whole length could begin a stop string.
    held: String,
    stopped: bool,
}

/// What a piece of text came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backend::llama) struct Stopped {
    /// Text that can be told: no stop string can begin in it any more.
    pub(in crate::backend::llama) text: String,
    /// A stop string was found; what follows is not looked at.
    pub(in crate::backend::llama) stopped: bool,
}

impl StopMatcher {
    /// Looks for `stop`; the earliest match wins. Empty strings are ignored.
    pub(in crate::backend::llama) fn new(stop: &[String]) -> Self {
        let stops: Arc<[_]> =
            stop.iter().filter(|string| !string.is_empty()).map(|string| Pattern::new(string)).collect();
        Self { matched: vec![0; stops.len()], stops, held: String::new(), stopped: false }
    }

    /// Adds `text`.
    pub(in crate::backend::llama) fn push(&mut self, text: &str) -> Stopped {
        if self.stopped {
            return Stopped { text: String::new(), stopped: true };
        }
        let start = self.held.len();
        self.held.push_str(text);
        for (at, &byte) in text.as_bytes().iter().enumerate() {
            let mut found = 0;
            for (stop, matched) in self.stops.iter().zip(&mut self.matched) {
                *matched = stop.step(*matched, byte);
                if *matched == stop.string.len() {
                    found = found.max(*matched);
                }
            }
            if found > 0 {
                self.held.truncate(start + at + 1 - found);
                self.stopped = true;
                return Stopped { text: std::mem::take(&mut self.held), stopped: true };
            }
        }
        // A stop string begins with the first byte of a character, so what is kept does too.
        let keep = self.matched.iter().copied().max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - keep);
        Stopped { text: std::mem::replace(&mut self.held, kept), stopped: false }
    }

    /// What was held back, at the end.
    pub(in crate::backend::llama) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// One stop string (Knuth, Morris, Pratt: linear whatever the strings).
struct Pattern {
    string: Vec<u8>,
    /// For each prefix, the longest shorter prefix that it ends with.
    fallback: Vec<usize>,
}

impl Pattern {
    fn new(string: &str) -> Self {
        let string = string.as_bytes().to_vec();
        let mut fallback = vec![0; string.len()];
        let mut matched = 0;
        for at in 1..string.len() {
            while matched > 0 && string[at] != string[matched] {
                matched = fallback[matched - 1];
            }
            if string[at] == string[matched] {
                matched += 1;
            }
            fallback[at] = matched;
        }
        Self { string, fallback }
    }

    /// How much of it a text ends with that ended with `matched` bytes of it, fewer than all, and goes on with `byte`.
    fn step(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.string[matched] != byte {
            matched = self.fallback[matched - 1];
        }
        matched + usize::from(self.string[matched] == byte)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is told of `pieces`, piece by piece, and whether a stop string was found.
    fn run<'a>(stop: &[&str], pieces: impl IntoIterator<Item = &'a str>) -> (Vec<String>, bool) {
        let stop: Vec<String> = stop.iter().map(|&string| string.to_owned()).collect();
        let mut matcher = StopMatcher::new(&stop);
        let mut told = Vec::new();
        for piece in pieces {
            let Stopped { text, stopped } = matcher.push(piece);
            told.push(text);
            if stopped {
                assert_eq!(matcher.finish(), "", "nothing is left after a stop");
                assert_eq!(matcher.push("more"), Stopped { text: String::new(), stopped: true });
                return (told, true);
            }
        }
        told.push(matcher.finish());
        (told, false)
    }

    #[test]
    fn a_stop_string_across_pieces_is_cut_off() {
        let (told, stopped) = run(&["\n\nUser:"], ["Yes", ".\n", "\nUs", "er: next"]);
        assert_eq!((told.concat().as_str(), stopped), ("Yes.", true));
    }

    #[test]
    fn only_what_could_begin_a_stop_string_is_held_back() {
        let (told, stopped) = run(&["STOP"], ["a ST", "ep ", "S", "TO", "!"]);
        assert_eq!(told, ["a ", "STep ", "", "", "STO!", ""]);
        assert!(!stopped);
        let (told, _) = run(&["aab"], ["aaa"]);
        assert_eq!(told, ["a", "aa"], "the last two could go on to aab");
    }

    #[test]
    fn the_first_to_be_complete_wins_and_the_longest_of_those() {
        assert_eq!(run(&["abcdef", "cd"], ["xabcdefg"]).0.concat(), "xab");
        assert_eq!(run(&["cd", "bcd"], ["abcd"]).0.concat(), "a");
        assert_eq!(run(&["b", "abc"], ["abc"]).0.concat(), "a");
    }

    #[test]
    fn empty_and_no_stop_strings_hold_nothing() {
        assert_eq!(run(&["", ""], ["a", "b"]), (vec!["a".into(), "b".into(), String::new()], false));
        assert_eq!(run(&[], ["a"]), (vec!["a".into(), String::new()], false));
    }

    #[test]
    fn clones_share_the_tables_and_not_the_text() {
        let mut first = StopMatcher::new(&["abc".to_owned()]);
        let mut second = first.clone();
        assert!(Arc::ptr_eq(&first.stops, &second.stops));
        assert_eq!(first.push("ab").text, "");
        assert_eq!(second.push("c"), Stopped { text: "c".to_owned(), stopped: false });
        assert!(first.push("c").stopped);
    }

    proptest! {
        #[test]
        fn the_cut_does_not_matter(
            text in "[abé😀]{0,40}",
            stop in proptest::collection::vec("[abé😀]{1,4}", 0..4),
            cuts in proptest::collection::vec(any::<bool>(), 40),
        ) {
            let stop: Vec<&str> = stop.iter().map(String::as_str).collect();
            let mut pieces = vec![String::new()];
            for (character, &cut) in text.chars().zip(&cuts) {
                pieces.last_mut().unwrap().push(character);
                if cut {
                    pieces.push(String::new());
                }
            }
            let (told, stopped) = run(&stop, pieces.iter().map(String::as_str));
            let first = stop.iter().filter_map(|stop| text.find(stop).map(|at| (at + stop.len(), at))).min();
            prop_assert_eq!(stopped, first.is_some());
            prop_assert_eq!(told.concat(), &text[..first.map_or(text.len(), |(_, at)| at)]);
        }
    }
}
