//! Token counts, which a stream tells in parts: the prompt's where it begins, the output's where it ends.
//!
//! Invariant: a count once told stands until another is. What a stream's beginning says of output is no count: it is 1 or
//! so before there is any, and must not become one where the stream breaks off. A prompt of no tokens is one that is not
//! known: no request is empty, and some relays write what they do not know so.

use crate::wire::Usage;
use crate::wire::raw::{fields, whole_number};

/// The counts told so far, in tokens.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Running {
    /// Of the prompt, what was neither written to a cache nor read from one. The vendor counts the three apart.
    input: Option<u64>,
    written: Option<u64>,
    read: Option<u64>,
    output: Option<u64>,
    /// The part of `output` that is thinking, shown or not.
    thinking: Option<u64>,
}

impl Running {
    /// What the beginning says: only its counts of the prompt.
    pub(super) fn prompt(&mut self, usage: &str) {
        let before = *self;
        self.add(usage);
        *self = Self { output: before.output, thinking: before.thinking, ..*self };
    }

    /// What `usage`, an object, says. It is cumulative; what it leaves out stands, and so does a prompt of which it says
    /// that it had no tokens.
    pub(super) fn add(&mut self, usage: &str) {
        let names = [
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "output_tokens",
            "output_tokens_details",
        ];
        let [counts @ .., details] = fields(usage, names).unwrap_or_default();
        let [input, written, read, output] = counts.map(|count| count.and_then(whole_number));
        if [input, written, read].into_iter().flatten().any(|count| count > 0) || self.input.is_none() {
            self.input = input.or(self.input);
            self.written = written.or(self.written);
            self.read = read.or(self.read);
        }
        self.output = output.or(self.output);
        // The vendor's own name, else that of relays which speak of another vendor's models.
        let thinking = details.and_then(|details| fields(details, ["thinking_tokens", "reasoning_tokens"]));
        let thinking = thinking.and_then(|names| names.into_iter().flatten().find_map(whole_number));
        self.thinking = thinking.or(self.thinking);
    }

    /// The part of the output that is thinking, in tokens. `None` when it was not told.
    pub(super) fn thinking(&self) -> Option<u64> {
        self.thinking
    }

    /// All of it, the three parts of the prompt as one. `None` when nothing was told.
    pub(super) fn told(&self) -> Option<Usage> {
        let cached = self.written.unwrap_or(0).saturating_add(self.read.unwrap_or(0));
        let input = self.input.map(|input| input.saturating_add(cached)).filter(|input| *input > 0);
        let usage = Usage {
            input,
            output: self.output,
            reasoning: self.thinking,
            cached: self.read.filter(|_| input.is_some()),
        };
        (usage != Usage::default()).then_some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::unnecessary_wraps)] // what is told
    fn told(input: u64, output: Option<u64>, cached: Option<u64>) -> Option<Usage> {
        Some(Usage { input: Some(input), output, reasoning: None, cached })
    }

    #[test]
    fn the_prompt_is_told_where_a_stream_begins_and_the_output_where_it_ends() {
        let mut running = Running::default();
        assert_eq!(running.told(), None);
        running.prompt(
            r#"{"input_tokens":3,"cache_creation_input_tokens":4,"cache_read_input_tokens":5,"output_tokens":1}"#,
        );
        assert_eq!(running.told(), told(12, None, Some(5)));
        running.add(r#"{"output_tokens":7}"#);
        assert_eq!(running.told(), told(12, Some(7), Some(5)));
        running.add(r#"{"output_tokens":9,"input_tokens":null}"#);
        assert_eq!(running.told(), told(12, Some(9), Some(5)));
    }

    #[test]
    fn the_last_word_counts_but_a_prompt_of_no_tokens_is_none() {
        let mut running = Running::default();
        running.prompt(r#"{"input_tokens":10}"#);
        running.add(r#"{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}"#);
        assert_eq!(running.told(), told(10, Some(2), None));
        running.add(r#"{"input_tokens":4,"cache_read_input_tokens":7}"#);
        assert_eq!(running.told(), told(11, Some(2), Some(7)));
        let mut late = Running::default();
        late.prompt(r#"{"input_tokens":0,"output_tokens":0}"#);
        assert_eq!(late.told(), None, "a beginning that knows nothing");
        late.add(r#"{"input_tokens":8,"output_tokens":2}"#);
        assert_eq!(late.told(), told(8, Some(2), None));
    }

    #[test]
    fn thinking_is_told_under_either_name() {
        for (details, thinking) in [
            (r#"{"thinking_tokens":5}"#, Some(5)),
            (r#"{"reasoning_tokens":5}"#, Some(5)),
            (r#"{"thinking_tokens":4,"reasoning_tokens":5}"#, Some(4)),
            (r#"{"thinking_tokens":"4"}"#, None),
            ("7", None),
        ] {
            let usage = format!(r#"{{"output_tokens":7,"output_tokens_details":{details}}}"#);
            let mut running = Running::default();
            running.prompt(&usage);
            assert_eq!(running.thinking(), None, "the beginning says nothing of output: {details}");
            running.add(&usage);
            running.add(r#"{"output_tokens":8}"#);
            assert_eq!(
                running.told(),
                Some(Usage { output: Some(8), reasoning: thinking, ..Usage::default() }),
                "{details}"
            );
        }
    }

    #[test]
    fn counts_of_the_wrong_type_say_nothing() {
        for usage in ["7", "[]", "{}", r#"{"input_tokens":"3","output_tokens":-1}"#, r#"{"output_tokens":1.5}"#] {
            let mut running = Running::default();
            running.add(usage);
            assert_eq!(running.told(), None, "{usage}");
        }
        let mut running = Running::default();
        running.add(r#"{"cache_read_input_tokens":5}"#);
        assert_eq!(running.told(), None, "a part of the prompt is not the prompt");
    }
}
