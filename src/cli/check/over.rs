//! When a stream has said that it is over, so that nobody waits for its connection's end.

use crate::wire::sse::{DEFAULT_CAP, Item, SseParser};
use crate::wire::{Dialect, EventReader, Meaning};

/// Follows a reply for the last word of its dialect.
pub(super) struct Over {
    dialect: Dialect,
    parser: SseParser,
    events: EventReader,
    /// Nothing more needs to come.
    said: bool,
}

impl Over {
    /// Follows a reply in `dialect`.
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, parser: SseParser::new(DEFAULT_CAP), events: EventReader::new(dialect), said: false }
    }

    /// Reads what came next, its coding undone. Returns whether the last word has been said.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> bool {
        let Self { dialect, parser, events, said } = self;
        parser.feed(bytes, &mut |item| {
            if let Item::Event(event) = item {
                *said |= is_last(*dialect, &events.event(event));
            }
        });
        *said
    }
}

/// Whether an event is its stream's last word. Responses have no end marker; elsewhere usage may follow a finish reason.
fn is_last(dialect: Dialect, meaning: &Meaning<'_>) -> bool {
    let finished = dialect == Dialect::Responses && meaning.choices.iter().any(|choice| choice.finished);
    meaning.done || meaning.error || finished
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_a_last_word_of_its_own() {
        for (dialect, before, last) in [
            (Dialect::Chat, r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#, "data: [DONE]"),
            (
                Dialect::Completion,
                r#"data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}"#,
                "data: [DONE]",
            ),
            (
                Dialect::Responses,
                r#"data: {"type":"response.output_text.done","text":"a"}"#,
                r#"data: {"type":"response.completed","response":{"status":"completed"}}"#,
            ),
            (
                Dialect::Messages,
                r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                r#"data: {"type":"message_stop"}"#,
            ),
            (Dialect::Chat, "data: {}", r#"data: {"error":{"message":"quota"}}"#),
        ] {
            let mut over = Over::new(dialect);
            assert!(!over.feed(format!("{before}\n\n{last}\n").as_bytes()), "{dialect:?}");
            assert!(over.feed(b"\n") && over.feed(b": ping\n\n"), "{dialect:?}");
        }
    }
}
