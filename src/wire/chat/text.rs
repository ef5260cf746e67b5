//! The text of an event, a reply or a request.
//!
//! Invariant: what is found here is output by [`super::document`]'s rules, and no other text is.

use super::document::NESTING;
use crate::wire::raw::{self, each_item, fields, is_empty, is_text};
use crate::wire::text::{Part, Place, Taken};

/// Gives `each` the text of an event, or of a whole reply. Returns whether that is all of its output: audio is not, nor
/// a string whose escapes are no text.
pub fn output_text(data: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
    let text = String::from_utf8_lossy(data);
    let mut taken = Taken::new(each);
    if let Some([Some(choices)]) = fields(&text, ["choices"]) {
        each_item(choices, |choice| taken.choice(choice));
    }
    !taken.unread
}

/// Gives `each` the text of a request's messages. Returns whether its prompt is nothing else: images and audio are tokens,
/// too, and so are the tools and schemas that a template writes out in its own way.
pub fn prompt_text(body: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
    let text = String::from_utf8_lossy(body);
    let mut taken = Taken::new(each);
    let Some([Some(messages), tools, functions, format]) =
        fields(&text, ["messages", "tools", "functions", "response_format"])
    else {
        return false;
    };
    taken.foreign = [tools, functions, format].into_iter().flatten().any(|given| !is_empty(given));
    each_item(messages, |message| {
        taken.message(message);
        taken.place += 1;
    });
    !taken.unread && !taken.foreign
}

impl Taken<'_> {
    fn choice(&mut self, text: &str) {
        let Some([index, delta, message]) = fields(text, ["index", "delta", "message"]) else { return };
        self.place = index.and_then(raw::index).unwrap_or(0);
        let _ = delta.is_some_and(|delta| self.message(delta)) || message.is_some_and(|message| self.message(message));
    }

    /// A delta or message. Returns whether it is an object.
    fn message(&mut self, text: &str) -> bool {
        let names = ["content", "reasoning_content", "reasoning", "refusal", "audio", "tool_calls", "function_call"];
        let Some([content, reasoning_content, reasoning, refusal, audio, tool_calls, function_call]) =
            fields(text, names)
        else {
            return false;
        };
        if let Some(content) = content {
            self.parts(content, Part::Content, NESTING);
        }
        // One text under both its names, as some servers send it for old and new clients.
        if let Some(reasoning) = reasoning_content.filter(|text| !is_empty(text)).or(reasoning) {
            self.parts(reasoning, Part::Reasoning, NESTING);
        }
        if let Some(refusal) = refusal {
            self.string(refusal, Part::Refusal);
        }
        if let Some([data, transcript]) = audio.and_then(|audio| fields(audio, ["data", "transcript"])) {
            self.unread |= [data, transcript].into_iter().flatten().any(is_text);
        }
        if let Some(call) = function_call {
            self.call(call, 0);
        }
        if let Some(calls) = tool_calls {
            let mut position = 0;
            each_item(calls, |call| {
                let [index, function, custom] = fields(call, ["index", "function", "custom"]).unwrap_or_default();
                let index = index.and_then(raw::index);
                for kind in [function, custom].into_iter().flatten() {
                    self.call(kind, index.unwrap_or(position));
                }
                position += 1;
            });
        }
        true
    }

    /// A string, one part, or a list of strings and parts.
    fn parts(&mut self, text: &str, part: Part, nesting: u8) {
        match text.as_bytes().first() {
            Some(b'"') => self.string(text, part),
            Some(b'[') if nesting > 0 => each_item(text, |text| self.parts(text, part, nesting - 1)),
            Some(b'{') if nesting > 0 => {
                let [text, content, refusal, thinking, reasoning] =
                    fields(text, ["text", "content", "refusal", "thinking", "reasoning"]).unwrap_or_default();
                let known = [
                    (text, part),
                    (content, part),
                    (refusal, Part::Refusal),
                    (thinking, Part::Reasoning),
                    (reasoning, Part::Reasoning),
                ];
                self.foreign |= known.iter().all(|(text, _)| text.is_none());
                for (text, part) in known {
                    if let Some(text) = text {
                        self.parts(text, part, nesting - 1);
                    }
                }
            }
            _ => self.foreign = true,
        }
    }

    /// A call's name, and its arguments, which some vendors send as an object.
    fn call(&mut self, text: &str, index: u32) {
        let [name, arguments, input] = fields(text, ["name", "arguments", "input"]).unwrap_or_default();
        if let Some(name) = name {
            self.string(name, Part::Name(index));
        }
        for given in [arguments, input].into_iter().flatten() {
            self.given(given, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::text::written;

    /// What an event holds, as `choice part text`, and whether that is all.
    fn output(delta: &str) -> (Vec<String>, bool) {
        written(output_text, &format!(r#"{{"choices":[{{"index":3,"delta":{delta}}}]}}"#))
    }

    #[test]
    fn every_kind_of_output_is_taken_where_it_belongs() {
        let cases: [(&str, &[&str]); 14] = [
            (r#"{"content":"a\n\u00e9"}"#, &["3 Content a\né"]),
            (r#"{"reasoning_content":"r"}"#, &["3 Reasoning r"]),
            (r#"{"reasoning":"r","content":"a"}"#, &["3 Content a", "3 Reasoning r"]),
            (r#"{"reasoning":"r","reasoning_content":"r"}"#, &["3 Reasoning r"]),
            (r#"{"reasoning_content":"","reasoning":"r"}"#, &["3 Reasoning r"]),
            (r#"{"reasoning_content":null,"reasoning":"r"}"#, &["3 Reasoning r"]),
            (r#"{"refusal":"no"}"#, &["3 Refusal no"]),
            (r#"{"function_call":{"name":"f","arguments":"{}"}}"#, &["3 Name(0) f", "3 Arguments(0) {}"]),
            (r#"{"tool_calls":[{"index":2,"function":{"arguments":"{\"a\""}}]}"#, &["3 Arguments(2) {\"a\""]),
            (
                r#"{"tool_calls":[{"function":{"name":"f"}},{"custom":{"name":"g","input":"x"}}]}"#,
                &["3 Name(0) f", "3 Name(1) g", "3 Arguments(1) x"],
            ),
            (r#"{"tool_calls":[{"function":{"arguments":{"a":1}}}]}"#, &[r#"3 Arguments(0) {"a":1}"#]),
            (r#"{"content":["a",{"type":"text","text":"b"}]}"#, &["3 Content a", "3 Content b"]),
            (r#"{"content":[{"type":"thinking","thinking":[{"text":"t"}]}]}"#, &["3 Reasoning t"]),
            (r#"{"role":"assistant","content":"","tool_calls":null}"#, &[]),
        ];
        for (delta, expected) in cases {
            assert_eq!(output(delta), (expected.iter().map(|&text| text.to_owned()).collect(), true), "{delta}");
        }
    }

    #[test]
    fn what_is_output_and_no_text_is_said() {
        for delta in [r#"{"content":"\ud83d"}"#, r#"{"audio":{"data":"AAAA"}}"#, r#"{"audio":{"transcript":"hi"}}"#] {
            assert_eq!(output(delta), (vec![], false), "{delta}");
        }
        for data in ["[DONE]", "", "{}", "[1]", r#"{"choices":[7,{"delta":7}]}"#, r#"{"usage":{"prompt_tokens":1}}"#] {
            assert_eq!(written(output_text, data), (vec![], true), "{data}");
        }
    }

    #[test]
    fn choices_are_kept_apart_and_a_whole_reply_has_messages() {
        let data = r#"{"choices":[{"message":{"content":"a"}},{"index":1,"delta":null,"message":{"content":"b"}}]}"#;
        assert_eq!(written(output_text, data), (vec!["0 Content a".to_owned(), "1 Content b".to_owned()], true));
    }

    #[test]
    fn a_prompt_is_its_messages_and_only_text_can_be_counted() {
        let text = r#"{"model":"m","messages":[{"role":"system","content":"a"},
            {"role":"user","content":[{"type":"text","text":"b"}]},{"role":"assistant","content":null,
            "tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}"#;
        let expected = ["0 Content a", "1 Content b", "2 Name(0) f", "2 Arguments(0) {}"].map(str::to_owned);
        assert_eq!(written(prompt_text, text), (expected.to_vec(), true));
        let image = r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:"}},"b"]}]}"#;
        assert_eq!(written(prompt_text, image), (vec!["0 Content b".to_owned()], false));
        for beside in
            [r#""tools":[{"type":"function"}]"#, r#""functions":[{}]"#, r#""response_format":{"type":"text"}"#]
        {
            let body = format!(r#"{{"messages":[{{"content":"b"}}],{beside}}}"#);
            assert_eq!(written(prompt_text, &body), (vec!["0 Content b".to_owned()], false), "{beside}");
        }
        for nothing in [r#""tools":[]"#, r#""tools":null"#, r#""functions":[]"#] {
            assert!(written(prompt_text, &format!(r#"{{"messages":[{{"content":"b"}}],{nothing}}}"#)).1, "{nothing}");
        }
        for none in ["{}", "{", r#"{"messages":null}"#] {
            assert!(!written(prompt_text, none).1, "{none}");
        }
    }
}
