//! An upstream's own words, fit to be shown: short, on one line, without control characters, and without a key.
//!
//! Invariant: nothing an upstream sends reaches the terminal but through here.

use serde_json::Value;

use crate::config::Secret;

/// How many characters are shown.
const MOST: usize = 200;

/// What an upstream says went wrong, in quotes. `None` where it says nothing readable.
///
/// The message of an error object in any of the forms in use, else the text as it is; a web page says nothing.
pub(super) fn words(body: &[u8], key: Option<&Secret>) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let said = match serde_json::from_str::<Value>(&text) {
        Ok(document) => message(&document).unwrap_or_else(|| text.into_owned()),
        Err(_) if is_web_page(body) => return None,
        Err(_) => text.into_owned(),
    };
    let shown = shown(&said, key);
    (!shown.is_empty()).then(|| format!("\"{shown}\""))
}

/// Any text of an upstream's, made fit.
pub(super) fn shown(text: &str, key: Option<&Secret>) -> String {
    let plain: String = text.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect();
    let mut line = String::new();
    for token in plain.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(if key.is_some_and(|key| reveals(token, key.expose())) { "(key)" } else { token });
    }
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Whether it begins as HTML does.
pub(super) fn is_web_page(body: &[u8]) -> bool {
    let start = body.trim_ascii_start();
    let begins = |mark: &[u8]| start.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark));
    begins(b"<!doctype html") || begins(b"<html") || begins(b"<head") || begins(b"<!--")
}

fn message(document: &Value) -> Option<String> {
    let error = document.get("error").filter(|error| !error.is_null()).unwrap_or(document);
    if let Value::String(text) = error {
        return Some(text.clone());
    }
    let field = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    ["message", "detail", "msg", "title", "code", "type"].into_iter().find_map(field).map(str::to_owned)
}

/// Neither a control character nor one that turns the direction of text or takes no room.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Whether a word shows some of the key: a stretch of it, or what a mask left of its ends.
fn reveals(token: &str, key: &str) -> bool {
    const STRETCH: usize = 8;
    let masked = token.contains("**") || token.contains("..") || token.contains('…') || token.contains("xxx");
    let ends = |part: &str| part.len() >= 3 && (key.starts_with(part) || key.ends_with(part));
    let parts = || token.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    if token.contains("**") || masked && parts().any(ends) {
        return true;
    }
    if key.len() < STRETCH {
        return !key.is_empty() && parts().any(|part| part == key) || token == key;
    }
    key.as_bytes().windows(STRETCH).any(|part| memchr::memmem::find(token.as_bytes(), part).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> Option<String> {
        words(body.as_bytes(), None)
    }

    #[test]
    fn the_message_is_found_in_every_form_in_use() {
        for body in [
            r#"{"error":{"message":"no such model","type":"x","code":null}}"#,
            r#"{"error":"no such model"}"#,
            r#"{"message":"no such model","code":404}"#,
            r#"{"detail":"no such model"}"#,
            r#"{"error":null,"detail":"no such model"}"#,
            " no such\n\tmodel ",
        ] {
            assert_eq!(said(body).as_deref(), Some("\"no such model\""), "{body}");
        }
        assert_eq!(said(r#"{"detail":[{"loc":["body"]}]}"#).as_deref(), Some(r#""{"detail":[{"loc":["body"]}]}""#));
        for nothing in ["", " \n", "<!DOCTYPE html><html>", "\n<html lang=en>", r#"{"error":{"message":"\u0007"}}"#] {
            assert_eq!(said(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn what_is_shown_is_short_and_steers_no_terminal() {
        assert_eq!(shown("a\u{1b}[31mb\u{202e}c\r\nd\u{9b}e", None), "a [31mb c d e");
        let long = shown(&"é".repeat(300), None);
        assert_eq!(long.chars().count(), MOST + 1);
        assert!(long.ends_with("é…"));
    }

    #[test]
    fn no_part_of_a_key_is_shown_masked_or_not() {
        let key = Secret::new("sk-proj-AbCdEfGh1234wxyz").unwrap();
        for (said, shows) in [
            ("wrong key: sk-proj-AbCdEfGh1234wxyz.", "wrong key: (key)"),
            ("wrong key: sk-pr***************wxyz.", "wrong key: (key)"),
            ("wrong key: sk-...wxyz", "wrong key: (key)"),
            ("wrong key: sk-proj…", "wrong key: (key)"),
            ("wrong key: (wxyz...)", "wrong key: (key)"),
            ("key=CdEfGh1234", "(key)"),
            ("the model sk-2 is not here...", "the model sk-2 is not here..."),
        ] {
            assert_eq!(shown(said, Some(&key)), shows);
        }
        let short = Secret::new("abc").unwrap();
        assert_eq!(
            shown("abc is no key, abcdef neither, 'abc'", Some(&short)),
            "(key) is no key, abcdef neither, (key)"
        );
    }
}
