//! The text of a text completion's choice.

use std::borrow::Cow;

use super::choices::Output;
use super::node::{Members, Room};

/// One text so far, which is empty while none came.
#[derive(Debug, Default)]
pub(super) struct Text(Members);

impl Output for Text {
    const OBJECT: &'static str = "text_completion";
    const MEMBERS: &'static [&'static str] = &["text"];

    fn add(&mut self, parts: &[(Cow<'_, str>, &str)], room: &mut Room) {
        for (_, value) in parts.iter().filter(|(key, _)| key == "text") {
            self.0.join("text", value, room);
        }
    }

    fn write(&self, index: u32, out: &mut String) {
        self.0.write_or(out, "text", r#""""#);
        out.extend([r#""index":"#, &index.to_string(), ","]);
    }
}

#[cfg(test)]
mod tests;
