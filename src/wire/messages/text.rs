//! The text of an event, a reply or a request.
//!
//! Invariant: what is found here is output by the rules of [`super`], and no other text is.

use crate::wire::raw::{self, each_item, fields, is_empty, is_text, string};
use crate::wire::text::{Part, Place, Taken};

/// Gives `each` the text of an event that has a `type`, or of a whole reply; the place is the block's. Returns whether
/// that is all of its output.
pub fn output_text(data: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
    let text = String::from_utf8_lossy(data);
    let mut taken = Taken::new(each);
    let Some([kind, index, delta, block, content]) =
        fields(&text, ["type", "index", "delta", "content_block", "content"])
    else {
        return true;
    };
    taken.place = index.and_then(raw::index).unwrap_or(0);
    match kind.and_then(string).unwrap_or_default().as_ref() {
        "content_block_delta" => {
            let said = fields(delta.unwrap_or_default(), ["text", "thinking", "partial_json"]).unwrap_or_default();
            let [text, thinking, json] = said;
            taken.known([(text, Part::Content), (thinking, Part::Reasoning), (json, Part::Arguments(0))]);
        }
        "content_block_start" => taken.block(block.unwrap_or_default()),
        "message" | "" => {
            taken.place = 0;
            each_item(content.unwrap_or_default(), |block| {
                taken.block(block);
                taken.place = taken.place.saturating_add(1);
            });
        }
        _ => {}
    }
    !taken.unread
}

/// Gives `each` the text of a request's system prompt and messages. Returns whether its prompt is nothing else: images and
/// documents are tokens, too, and so are the tools and schemas that are written out in the vendor's own way.
pub fn prompt_text(body: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
    let text = String::from_utf8_lossy(body);
    let mut taken = Taken::new(each);
    let names = ["messages", "system", "tools", "mcp_servers", "container", "output_format", "output_config"];
    let Some([Some(messages), system, others @ ..]) = fields(&text, names) else {
        return false;
    };
    taken.foreign = others.into_iter().flatten().any(|given| !is_empty(given));
    if let Some(system) = system {
        taken.message_content(system);
        taken.place = 1;
    }
    each_item(messages, |message| {
        match fields(message, ["content"]) {
            Some([Some(content)]) => taken.message_content(content),
            _ => taken.foreign = true,
        }
        taken.place = taken.place.saturating_add(1);
    });
    !taken.unread && !taken.foreign
}

impl Taken<'_> {
    fn known<const N: usize>(&mut self, texts: [(Option<&str>, Part); N]) {
        for (text, part) in texts {
            if let Some(text) = text {
                self.string(text, part);
            }
        }
    }

    /// An output block, where it begins or whole.
    fn block(&mut self, block: &str) {
        let names = ["type", "text", "thinking", "name", "input"];
        let Some([kind, text, thinking, name, input]) = fields(block, names) else { return };
        match kind.and_then(string).unwrap_or_default().as_ref() {
            "text" => self.known([(text, Part::Content)]),
            "thinking" => self.known([(thinking, Part::Reasoning)]),
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                self.known([(name, Part::Name(0))]);
                if let Some(input) = input {
                    self.given(input, 0);
                }
            }
            _ => {}
        }
    }

    /// What a message of the prompt holds: a string, or blocks.
    fn message_content(&mut self, content: &str) {
        match content.as_bytes().first() {
            Some(b'"') => self.string(content, Part::Content),
            Some(b'[') => {
                let mut call = 0;
                each_item(content, |block| self.message_block(block, &mut call));
            }
            _ => self.foreign = true,
        }
    }

    fn message_block(&mut self, block: &str, call: &mut u32) {
        let names = ["type", "text", "name", "input", "content"];
        let [kind, text, name, input, content] = fields(block, names).unwrap_or_default();
        match kind.and_then(string).unwrap_or_default().as_ref() {
            "text" => self.known([(text, Part::Content)]),
            "tool_use" => {
                self.known([(name, Part::Name(*call))]);
                if let Some(input) = input {
                    self.given(input, *call);
                }
                *call += 1;
            }
            // A result is a string or blocks of text; an image among them is none.
            "tool_result" => match content {
                Some(list) if list.starts_with('[') => each_item(list, |block| match fields(block, ["type", "text"]) {
                    Some([Some(r#""text""#), Some(text)]) => self.string(text, Part::Content),
                    _ => self.foreign = true,
                }),
                Some(text) if is_text(text) => self.string(text, Part::Content),
                Some(text) => self.foreign |= !is_empty(text),
                None => {}
            },
            // Images, documents, searches; and thinking of earlier turns, of which some is left out.
            _ => self.foreign = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::text::written;

    #[test]
    fn every_kind_of_output_is_taken_where_it_belongs() {
        let start = |block: &str| format!(r#"{{"type":"content_block_start","index":2,"content_block":{block}}}"#);
        let delta = |delta: &str| format!(r#"{{"type":"content_block_delta","index":2,"delta":{delta}}}"#);
        let cases: [(String, &[&str]); 9] = [
            (start(r#"{"type":"text","text":"a"}"#), &["2 Content a"]),
            (start(r#"{"type":"tool_use","name":"f","input":{}}"#), &["2 Name(0) f"]),
            (start(r#"{"type":"tool_use","name":"f","input":{"a":1}}"#), &["2 Name(0) f", r#"2 Arguments(0) {"a":1}"#]),
            (start(r#"{"type":"web_search_tool_result","text":"no","content":[{"type":"text","text":"no"}]}"#), &[]),
            (delta(r#"{"type":"text_delta","text":"a\n\u00e9"}"#), &["2 Content a\né"]),
            (delta(r#"{"type":"thinking_delta","thinking":"t"}"#), &["2 Reasoning t"]),
            (delta(r#"{"type":"input_json_delta","partial_json":"{\"a\""}"#), &["2 Arguments(0) {\"a\""]),
            (delta(r#"{"type":"signature_delta","signature":"no"}"#), &[]),
            (
                r#"{"type":"message","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"a"}]}"#
                    .into(),
                &["0 Reasoning t", "1 Content a"],
            ),
        ];
        for (data, expected) in cases {
            assert_eq!(
                written(output_text, &data),
                (expected.iter().map(|&text| text.into()).collect(), true),
                "{data}"
            );
        }
        assert_eq!(written(output_text, &delta(r#"{"text":"\ud83d"}"#)), (vec![], false), "no text");
        assert_eq!(written(output_text, "[DONE]"), (vec![], true));
    }

    #[test]
    fn a_prompt_is_its_system_and_messages_and_only_text_can_be_counted() {
        let text = r#"{"model":"m","system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"tools":[],
            "messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"},
            {"type":"tool_use","id":"t","name":"f","input":{"a":1}}]},{"role":"user","content":
            [{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"9"}]}]}]}"#;
        let expected = ["0 Content s", "1 Content a", "2 Content b", "2 Name(0) f", r#"2 Arguments(0) {"a":1}"#];
        let expected = expected.into_iter().chain(["3 Content 9"]).map(str::to_owned).collect();
        assert_eq!(written(prompt_text, text), (expected, true));
        let plain = r#"{"system":"s","messages":[{"content":"a"}]}"#;
        assert_eq!(written(prompt_text, plain), (vec!["0 Content s".into(), "1 Content a".into()], true));
        for more in [
            r#"{"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AA"}}]}]}"#,
            r#"{"messages":[{"content":[{"type":"tool_result","content":[{"type":"image"}]}]}]}"#,
            r#"{"messages":[{"content":[{"type":"thinking","thinking":"t","signature":"s"}]}]}"#,
            r#"{"messages":[{"content":"a"}],"tools":[{"name":"f"}]}"#,
            r#"{"messages":[{"content":7}]}"#,
            r#"{"messages":[{"role":"user"}]}"#,
            r#"{"system":"s"}"#,
            "{",
        ] {
            assert!(!written(prompt_text, more).1, "{more}");
        }
    }
}
