use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::wire::Choice;
use crate::wire::skim::tests::value;

const ALL: [Dialect; 6] =
    [Dialect::Chat, Dialect::Completion, Dialect::Responses, Dialect::Messages, Dialect::Embeddings, Dialect::Rerank];

/// Types of events.
const EVENTS: [&str; 17] = [
    "content_block_start",
    "content_block_delta",
    "message_start",
    "message_delta",
    "message",
    "response.output_text.delta",
    "response.reasoning_summary_text.delta",
    "response.custom_tool_call_input.delta",
    "response.function_call_arguments.done",
    "response.refusal.done",
    "response.shell_call_command.added",
    "response.shell_call_command.delta",
    "response.apply_patch_call_operation_diff.done",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.done",
    "response.completed",
];

/// Types of what lies in events.
const INNER: [&str; 13] = [
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "message",
    "reasoning",
    "function_call",
    "web_search_call",
    "computer_call",
    "shell_call",
    "apply_patch_call",
    "reasoning_text",
    "summary_text",
];

/// Names of members that hold text, in some dialect.
const TEXTS: [&str; 17] = [
    "text",
    "thinking",
    "partial_json",
    "signature",
    "name",
    "input",
    "arguments",
    "code",
    "refusal",
    "transcript",
    "action",
    "operation",
    "command",
    "diff",
    "queries",
    "reasoning",
    "delta",
];

/// Names of members that hold objects, and of those that hold lists of them.
const OBJECTS: [&str; 6] = ["delta", "content_block", "item", "part", "response", "message"];
const LISTS: [&str; 5] = ["content", "output", "summary", "choices", "data"];

/// Mostly a text, sometimes none, seldom something else.
fn said() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(r#""word""#.to_owned()), 1 => Just("null".to_owned()), 1 => Just(r#""""#.to_owned()), 2 => value()]
}

fn object(kind: Option<&str>, members: Vec<(&str, String)>) -> String {
    let kind = kind.map(|kind| format!(r#""type":"{kind}""#));
    let members = members.into_iter().map(|(name, value)| format!(r#""{name}":{value}"#));
    format!("{{{}}}", kind.into_iter().chain(members).collect::<Vec<_>>().join(","))
}

/// What lies in an event: objects that hold texts and lists of such objects.
fn inner() -> impl Strategy<Value = String> {
    let kind = || proptest::option::weighted(0.9, proptest::sample::select(&INNER[..]));
    let text = || (proptest::sample::select(&TEXTS[..]), said());
    let leaf = (kind(), vec(text(), 0..4)).prop_map(|(kind, members)| object(kind, members));
    leaf.prop_recursive(2, 12, 4, move |inner| {
        let list = (proptest::sample::select(&LISTS[..]), vec(inner, 0..3));
        let list = list.prop_map(|(name, items)| (name, format!("[{}]", items.join(","))));
        (kind(), vec(prop_oneof![text(), list], 0..4)).prop_map(|(kind, members)| object(kind, members))
    })
}

fn event() -> impl Strategy<Value = String> {
    let kind = proptest::option::weighted(0.9, proptest::sample::select(&EVENTS[..]));
    let list = (proptest::sample::select(&LISTS[..]), vec(inner(), 0..3));
    let member = prop_oneof![
        (proptest::sample::select(&TEXTS[..]), said()),
        (proptest::sample::select(&OBJECTS[..]), inner()),
        list.prop_map(|(name, items)| (name, format!("[{}]", items.join(",")))),
        (proptest::sample::select(&["usage", "error", "index", "output_index", "logprobs"][..]), value()),
    ];
    (kind, vec(member, 0..6)).prop_map(|(kind, members)| object(kind, members))
}

/// The texts that are taken out of an event, and whether that is all of its output.
fn texts(dialect: Dialect, data: &[u8]) -> (usize, bool) {
    let mut bytes = 0;
    let all = dialect.output_text(data, &mut |_, text| bytes += text.len());
    (bytes, all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Whatever members an event has, each reader goes on, and text is found where there is output and nowhere else.
    #[test]
    fn events_of_any_members_are_read(documents in vec(event(), 1..4)) {
        for dialect in ALL {
            let mut stream = EventReader::new(dialect);
            for document in &documents {
                let data = document.as_bytes();
                stream.event(Event { name: b"", data });
                let alone = EventReader::new(dialect).event(Event { name: b"", data });
                prop_assert!(!alone.malformed, "{dialect:?}: {document}");
                if matches!(dialect, Dialect::Responses | Dialect::Messages) {
                    prop_assert!(alone.choices.iter().all(|choice| choice.index == 0));
                }
                let has_output = alone.choices.iter().any(Choice::has_output);
                let (bytes, all) = texts(dialect, data);
                prop_assert!(!has_output || bytes > 0 || !all, "{dialect:?}: no text of {document}");
                prop_assert!(has_output || bytes == 0, "{dialect:?}: text without output in {document}");
                dialect.prompt_text(data, &mut |_, _| {});
            }
        }
    }

    /// Bytes that are no document are malformed, and nothing else. (An object or a list of few bytes is one.)
    #[test]
    fn bytes_of_any_kind_are_read(data in vec(any::<u8>(), 0..64), name in "[a-z._]{0,12}") {
        let text = String::from_utf8_lossy(data.trim_ascii());
        let is_document = text.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assume!(!is_document);
        for dialect in ALL {
            let meaning = EventReader::new(dialect).event(Event { name: name.as_bytes(), data: &data });
            prop_assert!(meaning.malformed || data.trim_ascii().is_empty());
            prop_assert!(meaning.choices.is_empty() && meaning.usage.is_none());
            prop_assert_eq!(texts(dialect, &data).0, 0);
        }
    }
}
