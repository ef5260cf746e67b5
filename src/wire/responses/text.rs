//! The text of an event, a reply or a request.
//!
//! Invariant: what is found here is output by the rules of [`super`], and no other text is.

use super::item::{Item, Kind, says};
use super::{WHOLE, kind_of};
use crate::wire::raw::{self, each_item, fields, is_empty, is_text, string};
use crate::wire::text::{Part, Place, Taken};

/// Gives `each` the text of an output event that has a `type`, or of a whole reply; the place is the item's. Returns
/// whether that is all of its output: audio is not, nor an item of which a part may have been given before.
pub fn output_text(data: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
    let text = String::from_utf8_lossy(data);
    let mut taken = Taken::new(each);
    let Some([kind, at, item, part, response, output]) =
        fields(&text, ["type", "output_index", "item", "part", "response", "output"])
    else {
        return true;
    };
    taken.place = at.and_then(raw::index).unwrap_or(0);
    let kind = kind.and_then(string).unwrap_or_default();
    let kind = kind.strip_prefix("response.").unwrap_or(&kind);
    match kind.rsplit_once('.') {
        Some((subject, "delta")) => {
            let delta = fields(&text, ["delta"]).and_then(|[delta]| delta);
            taken.subject(subject, delta.into_iter());
        }
        Some(("output_item", verb)) => taken.item(item.unwrap_or_default(), verb == "added"),
        Some(("content_part" | "reasoning_part" | "reasoning_summary_part", _)) => {
            taken.item_part(part.unwrap_or_default());
        }
        Some((subject, "added" | "done")) => {
            taken.subject(subject, fields(&text, WHOLE).unwrap_or_default().into_iter().flatten());
        }
        Some(_) => {}
        None => {
            taken.place = 0;
            let items = match kind {
                "completed" | "incomplete" | "done" => {
                    response.and_then(|response| fields(response, ["output"])).and_then(|[output]| output)
                }
                "message" | "" => output,
                _ => None,
            };
            each_item(items.unwrap_or_default(), |item| {
                taken.item(item, true);
                taken.place = taken.place.saturating_add(1);
            });
        }
    }
    !taken.unread
}

/// Gives `each` the text of a request's instructions and input. Returns whether its prompt is nothing else: images and
/// files are tokens, too, so are tools and schemas, and what the server keeps of earlier turns is not in the request.
pub fn prompt_text(body: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
    let text = String::from_utf8_lossy(body);
    let mut taken = Taken::new(each);
    let names = ["input", "instructions", "text", "tools", "previous_response_id", "conversation", "prompt"];
    let Some([Some(input), instructions, format, others @ ..]) = fields(&text, names) else {
        return false;
    };
    taken.foreign = others.into_iter().flatten().any(|given| !is_empty(given));
    if let Some([Some(format)]) = format.and_then(|format| fields(format, ["format"])) {
        taken.foreign |= fields(format, ["type"]) != Some([Some(r#""text""#)]);
    }
    if let Some(instructions) = instructions {
        taken.string(instructions, Part::Content);
        taken.place = 1;
    }
    if input.starts_with('[') {
        each_item(input, |item| {
            taken.input_item(item);
            taken.place = taken.place.saturating_add(1);
        });
    } else {
        taken.foreign |= !is_text(input);
        taken.string(input, Part::Content);
    }
    !taken.unread && !taken.foreign
}

impl Taken<'_> {
    /// What an event about `subject` carries.
    fn subject<'t>(&mut self, subject: &str, texts: impl Iterator<Item = &'t str>) {
        for text in texts {
            match (subject, kind_of(subject)) {
                // The rest of such a call, a path or a limit, is in no event that is output.
                ("shell_call_command" | "apply_patch_call_operation_diff", _) => self.unread |= says(text),
                (call, Some(_)) if call.contains("_call_") => self.given(text, 0),
                (_, Some(_)) if !text.starts_with('"') => self.unread |= says(text),
                (_, Some(Kind::Reasoning | Kind::Summary)) => self.string(text, Part::Reasoning),
                ("output_text" | "text", _) => self.string(text, Part::Content),
                ("refusal", _) => self.string(text, Part::Refusal),
                (_, kind) => self.unread |= kind.is_some(),
            }
        }
    }

    /// A part of a message, of reasoning or of a summary.
    fn item_part(&mut self, part: &str) {
        let [kind, text, refusal, audio @ ..] =
            fields(part, ["type", "text", "refusal", "transcript", "data"]).unwrap_or_default();
        self.unread |= audio.into_iter().flatten().any(is_text);
        if let Some(text) = text {
            let thought = matches!(kind, Some(r#""reasoning_text""# | r#""summary_text""#));
            self.string(text, if thought { Part::Reasoning } else { Part::Content });
        }
        if let Some(refusal) = refusal {
            self.string(refusal, Part::Refusal);
        }
    }

    /// An output item; `new` says that nothing of it was given before.
    fn item(&mut self, item: &str, new: bool) {
        let Some(item) = Item::read(item) else { return };
        if item.is_call() {
            self.unread |= !new || item.other.into_iter().flatten().any(|given| !is_empty(given));
            self.item_call(item.name, item.text);
        }
        let lists = match &*item.kind {
            "message" => [None, item.content],
            "reasoning" => [item.summary, item.content],
            _ => return,
        };
        for list in lists.into_iter().flatten() {
            each_item(list, |part| self.item_part(part));
        }
    }

    fn item_call(&mut self, name: Option<&str>, given: [Option<&str>; 3]) {
        if let Some(name) = name {
            self.string(name, Part::Name(0));
        }
        for given in given.into_iter().flatten() {
            self.given(given, 0);
        }
    }

    /// An item of the prompt.
    fn input_item(&mut self, item: &str) {
        let names = ["type", "content", "name", "arguments", "input", "output"];
        let [kind, content, name, arguments, input, output] = fields(item, names).unwrap_or_default();
        match kind.and_then(string).unwrap_or_default().as_ref() {
            "message" | "" => self.input_content(content),
            "function_call" | "custom_tool_call" => self.item_call(name, [arguments, input, None]),
            "function_call_output" | "custom_tool_call_output" => self.input_content(output),
            // Reasoning, references to what the server keeps, images.
            _ => self.foreign = true,
        }
    }

    /// A string, or parts of which all are text.
    fn input_content(&mut self, content: Option<&str>) {
        match content {
            Some(list) if list.starts_with('[') => each_item(list, |part| match fields(part, ["type", "text"]) {
                Some([Some(r#""input_text""# | r#""output_text""# | r#""text""#), Some(text)]) => {
                    self.string(text, Part::Content);
                }
                _ => self.foreign = true,
            }),
            Some(text) if text.starts_with('"') => self.string(text, Part::Content),
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
        let cases: [(&str, &[&str]); 12] = [
            (r#"{"type":"response.output_text.delta","output_index":1,"delta":"a\n\u00e9"}"#, &["1 Content a\né"]),
            (r#"{"type":"response.refusal.delta","output_index":1,"delta":"no"}"#, &["1 Refusal no"]),
            (r#"{"type":"response.reasoning_text.delta","delta":"t"}"#, &["0 Reasoning t"]),
            (r#"{"type":"response.reasoning_summary_text.done","text":"t"}"#, &["0 Reasoning t"]),
            (r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#, &["0 Arguments(0) {"]),
            (r#"{"type":"response.code_interpreter_call_code.done","code":"1+1"}"#, &["0 Arguments(0) 1+1"]),
            (
                r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","name":"f","arguments":""}}"#,
                &["2 Name(0) f"],
            ),
            (
                r#"{"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"a"}]}}"#,
                &["0 Content a"],
            ),
            (r#"{"type":"response.content_part.added","part":{"type":"output_text","text":"a"}}"#, &["0 Content a"]),
            (
                r#"{"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}]}}"#,
                &["0 Content a"],
            ),
            (
                r#"{"object":"response","output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"no"},{"type":"custom_tool_call","name":"f","input":"x"}]}"#,
                &["0 Reasoning t", "1 Name(0) f", "1 Arguments(0) x"],
            ),
            (r#"{"type":"response.in_progress","response":{"output":[]}}"#, &[]),
        ];
        for (data, expected) in cases {
            assert_eq!(
                written(output_text, data),
                (expected.iter().map(|&text| text.into()).collect(), true),
                "{data}"
            );
        }
    }

    #[test]
    fn what_is_output_and_no_text_is_said() {
        for data in [
            r#"{"type":"response.audio.delta","delta":"AAAA"}"#,
            r#"{"type":"response.output_text.delta","delta":"\ud83d"}"#,
            r#"{"type":"response.shell_call_command.delta","command_index":0,"delta":"ls"}"#,
            r#"{"type":"response.apply_patch_call_operation_diff.done","diff":"+a"}"#,
            r#"{"output":[{"type":"apply_patch_call","operation":{"type":"delete_file","path":"a"}}]}"#,
            r#"{"output":[{"type":"computer_call","action":{"type":"click"}}]}"#,
            // Its name may have been given when it was added.
            r#"{"type":"response.output_item.done","item":{"type":"function_call","name":"f","arguments":"{}"}}"#,
        ] {
            assert!(!written(output_text, data).1, "{data}");
        }
    }

    #[test]
    fn a_prompt_is_its_instructions_and_input_and_only_text_can_be_counted() {
        let plain = r#"{"input":"a","instructions":"s","text":{"format":{"type":"text"}},"tools":[]}"#;
        assert_eq!(written(prompt_text, plain), (vec!["0 Content s".into(), "1 Content a".into()], true));
        let items = r#"{"input":[{"role":"user","content":"a"},{"type":"message","role":"assistant","content":
            [{"type":"output_text","text":"b"}]},{"type":"function_call","name":"f","arguments":"{}"},
            {"type":"function_call_output","output":"9"}]}"#;
        let expected = ["0 Content a", "1 Content b", "2 Name(0) f", "2 Arguments(0) {}", "3 Content 9"];
        assert_eq!(written(prompt_text, items), (expected.map(str::to_owned).to_vec(), true));
        for more in [
            r#"{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:"}]}]}"#,
            r#"{"input":[{"type":"reasoning","encrypted_content":"x"}]}"#,
            r#"{"input":[{"type":"item_reference","id":"x"}]}"#,
            r#"{"input":"a","previous_response_id":"resp_1"}"#,
            r#"{"input":"a","tools":[{"type":"web_search"}]}"#,
            r#"{"input":"a","text":{"format":{"type":"json_schema"}}}"#,
            r#"{"input":7}"#,
            r#"{"instructions":"s"}"#,
            "{",
        ] {
            assert!(!written(prompt_text, more).1, "{more}");
        }
    }
}
