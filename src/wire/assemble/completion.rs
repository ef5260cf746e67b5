//! The text of a text completion's choice.

use std::borrow::Cow;

use super::choices::Output;
use super::node::{Members, Room};

/// One text so far, which is empty while none came, and the reasoning that some servers tell beside it.
#[derive(Debug, Default)]
pub(super) struct Text(Members);

impl Output for Text {
    const OBJECT: &'static str = "text_completion";
    const MEMBERS: &'static [&'static str] = &["text", "reasoning", "reasoning_content"];

    fn add(&mut self, parts: &[(Cow<'_, str>, &str)], room: &mut Room) {
        for (key, value) in parts.iter().filter(|(key, _)| Self::MEMBERS.contains(&&**key)) {
            if *value == "null" && key != "text" {
                self.0.last(key, value, room);
            }
            self.0.join(key, value, room);
        }
    }

    fn write(&self, index: u32, out: &mut String) {
        self.0.write_or(out, "text", r#""""#);
        out.extend([r#""index":"#, &index.to_string(), ","]);
        self.0.write_some(out, |name| name != "text");
    }
}

#[cfg(test)]
mod tests;
