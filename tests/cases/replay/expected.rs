//! What the definitions say of a reply whose reads are known: the reference the observer is held against.

use std::collections::HashMap;

use super::piece::{Kind, Piece};

/// Counts, and for each mark the index of the read that must bear it.
#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) first_event: Option<usize>,
    pub(super) first_token: Option<usize>,
    pub(super) first_answer: Option<usize>,
    pub(super) last_token: Option<usize>,
    pub(super) finish: Option<usize>,
    pub(super) exact: u64,
    pub(super) coalesced: u64,
    pub(super) events: u64,
    pub(super) token_events: u64,
    /// Reads that completed at least one event.
    pub(super) reads: u64,
}

impl Reference {
    /// `ends` holds the offset behind each read's last byte. Only a 2xx reply is looked at.
    pub(super) fn of(pieces: &[Piece], ends: &[usize], status: u16) -> Self {
        let mut this = Self::default();
        if !(200..300).contains(&status) {
            return this;
        }
        let mut start = 0;
        let completed: Vec<(&Piece, usize)> = pieces
            .iter()
            .map(|piece| {
                let at = start + piece.completed_by();
                start += piece.bytes.len();
                (piece, ends.partition_point(|end| *end <= at))
            })
            .collect();

        let mut tokens_in_read: HashMap<usize, u64> = HashMap::new();
        let mut with_events: Vec<usize> = Vec::new();
        for (piece, read) in &completed {
            if matches!(piece.kind, Kind::Tokens { .. }) {
                *tokens_in_read.entry(*read).or_default() += 1;
            }
            if !matches!(piece.kind, Kind::Nothing) {
                this.events += 1;
                with_events.push(*read);
            }
        }
        with_events.dedup();
        this.reads = with_events.len() as u64;
        this.first_event = with_events.first().copied();

        let shared = |read: usize| tokens_in_read[&read] > 1;
        let mut lines: HashMap<u32, usize> = HashMap::new();
        let (mut token_lost, mut answer_lost) = (false, false);
        for (piece, read) in &completed {
            if piece.finishes {
                this.finish = Some(*read);
            }
            match &piece.kind {
                Kind::Nothing | Kind::Event => {}
                Kind::Unreadable => {
                    token_lost |= this.first_token.is_none();
                    answer_lost |= this.first_answer.is_none();
                    this.last_token = None;
                    lines.clear();
                }
                Kind::Tokens { choices, answer, carries } => {
                    this.token_events += 1;
                    this.last_token = Some(*read);
                    if !token_lost {
                        this.first_token.get_or_insert(*read);
                    }
                    if *answer && !answer_lost {
                        this.first_answer.get_or_insert(*read);
                    }
                    for choice in choices {
                        if let Some(before) = lines.insert(*choice, *read) {
                            let timing =
                                if shared(*read) || shared(before) { &mut this.coalesced } else { &mut this.exact };
                            *timing += carries;
                        }
                    }
                }
            }
        }
        this
    }
}
