use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::wire::Choice;
use crate::wire::skim::tests::value;

const ALL: [Dialect; 6] =
    [Dialect::Chat, Dialect::Completion, Dialect::Responses, Dialect::Messages, Dialect::Embeddings, Dialect::Rerank];

/// Types of events, and of what lies in them.
const TYPES: [&str; 20] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "message",
    "response.output_text.delta",
    "response.reasoning_summary_text.delta",
    "response.custom_tool_call_input.delta",
    "response.function_call_arguments.done",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.done",
    "response.completed",
    "text",
    "thinking",
    "tool_use",
    "reasoning",
    "function_call",
    "web_search_call",
    "summary_text",
];

/// Names that some dialect looks for.
const NAMES: [&str; 26] = [
    "delta",
    "content_block",
    "content",
    "message",
    "usage",
    "error",
    "text",
    "thinking",
    "partial_json",
    "signature",
    "name",
    "input",
    "arguments",
    "item",
    "part",
    "response",
    "output",
    "summary",
    "action",
    "queries",
    "index",
    "output_index",
    "logprobs",
    "choices",
    "data",
    "model",
];

/// An object, or a list of such, of members that may mean something and values that mostly do not.
fn document() -> impl Strategy<Value = String> {
    let kind = proptest::option::of(proptest::sample::select(&TYPES[..]));
    let leaf = value().boxed();
    leaf.prop_recursive(4, 32, 5, move |inner| {
        let member = (proptest::sample::select(&NAMES[..]), inner);
        let object = (kind.clone(), vec(member, 0..5)).prop_map(|(kind, members)| {
            let kind = kind.map(|kind| format!(r#""type":"{kind}""#));
            let members = members.into_iter().map(|(name, value)| format!(r#""{name}":{value}"#));
            format!("{{{}}}", kind.into_iter().chain(members).collect::<Vec<_>>().join(","))
        });
        prop_oneof![4 => object.clone(), 1 => object.prop_map(|object| format!("[{object}]"))]
    })
}

/// The texts that are taken out of an event, and whether that is all of its output.
fn texts(dialect: Dialect, data: &[u8]) -> (usize, bool) {
    let mut bytes = 0;
    let all = dialect.output_text(data, &mut |_, text| bytes += text.len());
    (bytes, all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever members an event has, each reader goes on, and text is found where there is output and nowhere else.
    #[test]
    fn events_of_any_members_are_read(documents in vec(document(), 1..4)) {
        for dialect in ALL {
            let mut stream = EventReader::new(dialect);
            for document in &documents {
                let data = document.as_bytes();
                stream.event(Event { name: b"", data });
                let alone = EventReader::new(dialect).event(Event { name: b"", data });
                let is_object = serde_json::from_str::<serde_json::Map<_, _>>(document).is_ok();
                prop_assert_eq!(alone.malformed, !is_object, "{:?} {}", dialect, document);
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

    /// Bytes that are no document are malformed, and nothing else.
    #[test]
    fn bytes_of_any_kind_are_read(data in vec(any::<u8>(), 0..64), name in "[a-z._]{0,12}") {
        for dialect in ALL {
            let meaning = EventReader::new(dialect).event(Event { name: name.as_bytes(), data: &data });
            prop_assert!(meaning.malformed || data.trim_ascii().is_empty());
            prop_assert!(meaning.choices.is_empty() && meaning.usage.is_none());
            prop_assert_eq!(texts(dialect, &data).0, 0);
        }
    }
}
