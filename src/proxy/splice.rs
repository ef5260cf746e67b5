//! Changes to a request's JSON that leave every other byte where it was.
//!
//! Invariant: what is not as the API describes it (a key twice, a value of another type) is left alone: the upstream is
//! to judge it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::wire::raw::{members, offset};

/// A stretch of a JSON text and what is put in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Splice {
    at: Range<usize>,
    text: String,
}

impl Splice {
    /// `text` in the place of these bytes.
    pub(super) fn new(at: Range<usize>, text: String) -> Self {
        Self { at, text }
    }

    /// Asks for usage in a stream. `None` where the request says something about it, or is odd.
    pub(super) fn usage(body: &str) -> Option<Self> {
        match only(body, "stream_options")? {
            None => insert(body, 0, r#""stream_options":{"include_usage":true}"#),
            Some(value) => match &body[value.clone()] {
                "null" => Some(Self::new(value, r#"{"include_usage":true}"#.to_owned())),
                options => match only(options, "include_usage")? {
                    None => insert(options, value.start, r#""include_usage":true"#),
                    Some(_) => None,
                },
            },
        }
    }

    /// Asks for a stream. `None` where the request asks for one, or is odd.
    pub(super) fn stream(body: &str) -> Option<Self> {
        match only(body, "stream")? {
            None => insert(body, 0, r#""stream":true"#),
            Some(value) => match &body[value.clone()] {
                "false" | "null" => Some(Self::new(value, "true".to_owned())),
                _ => None,
            },
        }
    }
}

/// The body with these changes, which do not overlap; those at one place come in their order.
pub(super) fn spliced(body: Bytes, mut splices: Vec<Splice>) -> Bytes {
    if splices.is_empty() {
        return body;
    }
    splices.sort_by_key(|splice| splice.at.start);
    let more: usize = splices.iter().map(|splice| splice.text.len()).sum();
    let mut out = BytesMut::with_capacity(body.len() + more);
    let mut at = 0;
    for splice in splices {
        out.extend_from_slice(&body[at..splice.at.start]);
        out.extend_from_slice(splice.text.as_bytes());
        at = splice.at.end;
    }
    out.extend_from_slice(&body[at..]);
    out.freeze()
}

/// Whether an object has this member, and it is not `null`.
pub(super) fn says(body: &str, name: &str) -> bool {
    only(body, name).is_none_or(|value| value.is_some_and(|value| &body[value] != "null"))
}

/// Where the value of an object's member stands; within, `None` where it has no such member. `None` when it is no object,
/// or has the member twice.
#[allow(clippy::option_option)] // absent, and not to be told, are two things
fn only(text: &str, name: &str) -> Option<Option<Range<usize>>> {
    let mut found = Vec::new();
    let is_object = members(text, |key, value| {
        if key == name {
            let start = offset(text, value);
            found.push(start..start + value.len());
        }
    });
    (is_object && found.len() <= 1).then(|| found.pop())
}

/// A member more, at the start of the object `text`, which itself starts at `base`.
fn insert(text: &str, base: usize, member: &str) -> Option<Splice> {
    let start = text.find('{')? + 1;
    let comma = if text[start..].trim_ascii_start().starts_with('}') { "" } else { "," };
    Some(Splice::new(base + start..base + start, format!("{member}{comma}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(body: &'static str, splice: fn(&str) -> Option<Splice>) -> String {
        let body = Bytes::from_static(body.as_bytes());
        let splices = splice(str::from_utf8(&body).unwrap()).into_iter().collect();
        String::from_utf8(spliced(body, splices).to_vec()).unwrap()
    }

    #[test]
    fn usage_is_asked_for_where_the_request_says_nothing_of_it() {
        for (body, asked) in [
            (r#" { "stream" : true }"#, r#" {"stream_options":{"include_usage":true}, "stream" : true }"#),
            (r#"{"x":1.0e0,"stream_options": null }"#, r#"{"x":1.0e0,"stream_options": {"include_usage":true} }"#),
            (r#"{"stream_options":{ }}"#, r#"{"stream_options":{"include_usage":true }}"#),
            (
                r#"{"messages":[{"stream_options":1}],"stream_options":{"a":[{}]},"z":"é"}"#,
                r#"{"messages":[{"stream_options":1}],"stream_options":{"include_usage":true,"a":[{}]},"z":"é"}"#,
            ),
            (
                r#"{"stream\u005foptions":{"continuous_usage_stats":false}}"#,
                r#"{"stream\u005foptions":{"include_usage":true,"continuous_usage_stats":false}}"#,
            ),
        ] {
            assert_eq!(with(body, Splice::usage), asked);
        }
    }

    #[test]
    fn what_says_something_of_usage_or_is_odd_is_left_alone() {
        for body in [
            r#"{"stream_options":{"include_usage":false}}"#,
            r#"{"stream_options":{"include_usage":true}}"#,
            r#"{"stream_options":{"include_usage":null}}"#,
            r#"{"stream_options":{"include_usage":1,"include_usage":true}}"#,
            r#"{"stream_options":{"include\u005fusage":false}}"#,
            r#"{"stream_options":{},"stream_options":{}}"#,
            r#"{"stream_options":true}"#,
            r#"{"stream_options":[]}"#,
            r#"{"stream_options":"{}"}"#,
            "[]",
        ] {
            assert_eq!(with(body, Splice::usage), body);
        }
    }

    #[test]
    fn a_stream_is_asked_for_where_none_is() {
        for (body, asked) in [
            ("{}", r#"{"stream":true}"#),
            ("\n{\t}", "\n{\"stream\":true\t}"),
            (r#"{"model":"m"}"#, r#"{"stream":true,"model":"m"}"#),
            (r#"{"model":"m", "stream" : false}"#, r#"{"model":"m", "stream" : true}"#),
            (r#"{"stream":null,"n":2}"#, r#"{"stream":true,"n":2}"#),
            (r#"{"stream":true}"#, r#"{"stream":true}"#),
            (r#"{"stream":"false"}"#, r#"{"stream":"false"}"#),
            (r#"{"stream":0}"#, r#"{"stream":0}"#),
        ] {
            assert_eq!(with(body, Splice::stream), asked);
        }
    }

    #[test]
    fn changes_at_one_place_come_in_their_order() {
        let body = r#"{"model":"m"}"#;
        let splices = vec![Splice::stream(body).unwrap(), Splice::usage(body).unwrap()];
        let expected = r#"{"stream":true,"stream_options":{"include_usage":true},"model":"m"}"#;
        assert_eq!(spliced(Bytes::from_static(body.as_bytes()), splices), expected);
    }

    #[test]
    fn a_member_says_something_unless_it_is_null_or_absent() {
        assert!(says(r#"{"audio":{}}"#, "audio") && says(r#"{"audio":null,"audio":null}"#, "audio"));
        assert!(!says(r#"{"audio":null}"#, "audio") && !says(r#"{"a":{"audio":1}}"#, "audio"));
    }
}
