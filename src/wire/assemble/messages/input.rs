//! A tool's input, which comes as text that is JSON once all of it is there.

use serde_json::value::RawValue;

use crate::wire::assemble::node::{Room, inside};

/// One input so far: its text as strings write it, escapes included.
#[derive(Debug, Default)]
pub(super) struct Input(String);

impl Input {
    /// Adds the text of one raw string.
    pub(super) fn add(&mut self, part: &str, room: &mut Room) {
        let Some(more) = inside(part) else { return };
        if room.take(more.len()) {
            self.0.push_str(more);
        }
    }

    /// Whether none of its text came.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The JSON. Of what broke off, as answers do that are as long as they may be, the part that is whole; an empty
    /// object where there is none.
    pub(super) fn json(&self) -> String {
        let is_json = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok();
        let text: String = serde_json::from_str(&format!("\"{}\"", self.0)).unwrap_or_default();
        if is_json(&text) {
            return text;
        }
        let whole = closed(&text);
        if is_json(&whole) { whole } else { "{}".to_owned() }
    }
}

/// JSON that broke off, closed behind its last member that is whole.
fn closed(text: &str) -> String {
    let mut open = Vec::new();
    // Where the last whole member ends; what is open there is open at the end, too.
    let mut whole = 0;
    let (mut in_string, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                open.push(if byte == b'{' { '}' } else { ']' });
                whole = at + 1;
            }
            b'}' | b']' => {
                open.pop();
                whole = at + 1;
            }
            b',' => whole = at,
            _ => {}
        }
    }
    text[..whole].chars().chain(open.into_iter().rev()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_broke_off_the_whole_part_is_kept() {
        for (text, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"a":1,"b":"half"#, r#"{"a":1}"#),
            (r#"{"a":"x,{","b":[1,{"c":2},{"d""#, r#"{"a":"x,{","b":[1,{"c":2},{}]}"#),
            (r#"{"a":"\"}"#, "{}"),
            (r#"{"a":[{"b":1}"#, r#"{"a":[{"b":1}]}"#),
            (r#"{"a":tr"#, "{}"),
            (r#"{"a":1}}"#, "{}"),
            ("{", "{}"),
            ("}{", "{}"),
            ("", "{}"),
            ("nonsense", "{}"),
            ("é,", "{}"),
        ] {
            let mut input = Input::default();
            input.add(&serde_json::Value::from(text).to_string(), &mut Room::default());
            assert_eq!(input.json(), expected, "{text}");
        }
    }

    #[test]
    fn the_halves_of_an_escape_are_joined() {
        let mut input = Input::default();
        for part in [r#""{\"a\":\"\ud83c""#, r#""\udf0a\"}""#, "7", "null"] {
            input.add(part, &mut Room::default());
        }
        assert_eq!(input.json(), r#"{"a":"🌊"}"#);
    }
}
