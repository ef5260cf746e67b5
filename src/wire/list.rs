//! Replies that are one list, of whatever length: an answer without output, of which only the prompt is counted.

use smallvec::smallvec;

use super::raw::whole_number;
use super::{Choice, Meaning, Usage, envelope};

/// What a reply says whose answer is `list`.
pub(super) fn listed<'t>(list: Option<&'t str>, model: Option<&'t str>, error: Option<&'t str>) -> Meaning<'t> {
    let there = list.is_some_and(|list| list.starts_with('['));
    let choice = Choice { finished: true, ..Choice::default() };
    Meaning {
        choices: if there { smallvec![choice] } else { smallvec![] },
        model: envelope::model(model),
        error: envelope::is_error(error),
        ..Meaning::default()
    }
}

/// Usage that knows only a prompt: the first of these that is a count.
pub(super) fn of_input<const N: usize>(counts: [Option<&str>; N]) -> Option<Usage> {
    let input = counts.into_iter().flatten().find_map(whole_number)?;
    Some(Usage { input: Some(input), ..Usage::default() })
}
