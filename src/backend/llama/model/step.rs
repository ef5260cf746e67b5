//! One step's work, put in the order in which the forward runs it.
//!
//! Invariant: the tokens of all work, each once; single tokens first, by slot, then runs.

use std::cmp::Reverse;

use super::Work;

/// A step, in the order of its rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Token ids.
    pub(super) tokens: Vec<u32>,
    /// Slot and position of each.
    pub(super) places: Vec<(usize, usize)>,
    /// What attends together, in the order of rows; every row is in one.
    pub(super) spans: Vec<Span>,
    /// The rows whose logits are wanted, in the order of the work.
    pub(super) wanted: Vec<usize>,
}

/// Rows that attend together.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// One row each of neighbouring slots.
    Singles {
        /// The first slot.
        slot: usize,
        /// How many positions each row attends to.
        lengths: Vec<usize>,
    },
    /// Rows of one sequence.
    Run {
        /// Its slot.
        slot: usize,
        /// The position of the first row.
        position: usize,
        /// Rows.
        count: usize,
    },
}

/// How single tokens of neighbouring slots are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Together {
    /// Each alone: nothing is computed in vain.
    Never,
    /// As long as no more than half of what is needed is computed in vain: one call costs more than that.
    WithinHalf,
}

impl Step {
    /// Orders `work`.
    pub(super) fn new(work: &[Work<'_>], together: Together) -> Self {
        let mut order: Vec<usize> = (0..work.len()).collect();
        order.sort_by_key(|&index| (Reverse(work[index].tokens.len() == 1), work[index].slot));
        let mut step = Self { tokens: Vec::new(), places: Vec::new(), spans: Vec::new(), wanted: Vec::new() };
        let mut last = vec![0; work.len()];
        for index in order {
            let Work { slot, position, tokens, .. } = work[index];
            step.tokens.extend_from_slice(tokens);
            step.places.extend((position..position + tokens.len()).map(|position| (slot, position)));
            last[index] = step.tokens.len() - 1;
            if tokens.len() > 1 {
                step.spans.push(Span::Run { slot, position, count: tokens.len() });
                continue;
            }
            let length = position + 1;
            match step.spans.last_mut() {
                Some(Span::Singles { slot: first, lengths })
                    if *first + lengths.len() == slot && together.takes(lengths, length) =>
                {
                    lengths.push(length);
                }
                _ => step.spans.push(Span::Singles { slot, lengths: vec![length] }),
            }
        }
        step.wanted = (0..work.len()).filter(|&index| work[index].wants_logits).map(|index| last[index]).collect();
        step
    }
}

impl Together {
    fn takes(self, lengths: &[usize], next: usize) -> bool {
        let longest = lengths.iter().copied().fold(next, usize::max);
        let needed = lengths.iter().sum::<usize>() + next;
        self == Self::WithinHalf && longest * (lengths.len() + 1) <= needed + needed / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(slot: usize, position: usize, tokens: &[u32]) -> Work<'_> {
        Work { slot, position, tokens, wants_logits: true }
    }

    #[test]
    fn single_tokens_come_first_by_slot_and_logits_in_the_order_of_the_work() {
        let all = [
            work(3, 0, &[30, 31, 32]),
            work(1, 9, &[10]),
            Work { wants_logits: false, ..work(2, 4, &[20, 21]) },
            work(0, 8, &[0]),
        ];
        let step = Step::new(&all, Together::WithinHalf);
        assert_eq!(step.tokens, [0, 10, 20, 21, 30, 31, 32]);
        assert_eq!(step.places, [(0, 8), (1, 9), (2, 4), (2, 5), (3, 0), (3, 1), (3, 2)]);
        assert_eq!(step.wanted, [6, 1, 0]);
        let runs = [
            Span::Singles { slot: 0, lengths: vec![9, 10] },
            Span::Run { slot: 2, position: 4, count: 2 },
            Span::Run { slot: 3, position: 0, count: 3 },
        ];
        assert_eq!(step.spans, runs);
    }

    #[test]
    fn a_long_sequence_does_not_make_short_ones_pay() {
        let lengths = [100, 120, 2000, 110, 100];
        let all: Vec<_> = lengths.iter().enumerate().map(|(slot, length)| work(slot, length - 1, &[7])).collect();
        let spans = |together| -> Vec<(usize, Vec<usize>)> {
            let spans = Step::new(&all, together).spans;
            let single = |span| match span {
                Span::Singles { slot, lengths } => (slot, lengths),
                Span::Run { .. } => panic!("no runs here"),
            };
            spans.into_iter().map(single).collect()
        };
        assert_eq!(spans(Together::WithinHalf), [(0, vec![100, 120]), (2, vec![2000]), (3, vec![110, 100])]);
        assert_eq!(spans(Together::Never).len(), 5);
    }

    #[test]
    fn slots_that_are_no_neighbours_stay_apart() {
        let all = [work(0, 5, &[1]), work(2, 5, &[1])];
        assert_eq!(Step::new(&all, Together::WithinHalf).spans.len(), 2);
    }
}
