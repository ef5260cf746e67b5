//! What a request to a model asks for, without taking it apart: its bytes are forwarded as they are.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, HeaderMap};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::room::Share;
use super::splice::{Splice, spliced};
use crate::wire::Dialect;
use crate::wire::raw::{fields, items};

/// A request body with what had to be known of it.
///
/// A clone shares the body's bytes.
#[derive(Debug, Clone)]
pub(super) struct ModelRequest {
    body: Bytes,
    /// What `body` was decoded from. `None` where it came as it is: few requests carry this.
    encoded: Option<Box<Encoded>>,
    /// How it is written.
    pub(super) dialect: Dialect,
    /// The model's name. `None` when the body names none.
    pub(super) model: Option<String>,
    /// Where the `model` value, quotes included, stands in `body`.
    model_at: Option<std::ops::Range<usize>>,
    /// `stream: true`.
    pub(super) stream: bool,
    /// How many choices it asks for: `n`, of a text completion for each of its prompts; 1 where nothing is said, or nothing
    /// that can be read.
    pub(super) choices: u32,
    /// Of a text completion: `echo: true`.
    pub(super) echo: bool,
}

/// An encoded body.
#[derive(Debug, Clone)]
struct Encoded {
    /// The bytes as they came.
    bytes: Bytes,
    /// What the decoded copy has of its room.
    share: Arc<Share>,
}

/// Why a body cannot be understood.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum BadRequest {
    #[error("the request body cannot be read as a JSON object: {0}")]
    NotJson(String),
    #[error("the request's model must be a string")]
    ModelNotText,
}

#[derive(Deserialize)]
#[serde(expecting = "a JSON object")]
struct Peeked<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    n: Option<&'a RawValue>,
}

impl ModelRequest {
    pub(super) fn read(dialect: Dialect, body: Bytes) -> Result<Self, BadRequest> {
        // A list would be read by position.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(BadRequest::NotJson("expected a JSON object".to_owned()));
        }
        let peeked: Peeked<'_> =
            serde_json::from_slice(&body).map_err(|error| BadRequest::NotJson(error.to_string()))?;
        let model = peeked.model.filter(|model| model.get() != "null");
        let name = model.map(|model| serde_json::from_str::<String>(model.get()));
        let name = name.transpose().map_err(|_| BadRequest::ModelNotText)?;
        let model_at = model.map(|model| {
            let start = model.get().as_ptr() as usize - body.as_ptr() as usize;
            start..start + model.get().len()
        });
        let stream = peeked.stream.is_some_and(|stream| stream.get() == "true");
        let n = || peeked.n.and_then(|n| n.get().parse().ok()).unwrap_or(1_u32);
        let (choices, echo) = match dialect {
            Dialect::Chat => (n(), false),
            Dialect::Completion => {
                let text = str::from_utf8(&body).unwrap_or("");
                let [prompt, echo] = fields(text, ["prompt", "echo"]).unwrap_or_default();
                (n().saturating_mul(prompt.map_or(1, prompts)), echo == Some("true"))
            }
            Dialect::Responses | Dialect::Messages | Dialect::Embeddings | Dialect::Rerank => (1, false),
        };
        Ok(Self { model: name, model_at, stream, choices, echo, body, encoded: None, dialect })
    }

    /// The same, read from a copy that has this share, of a body that came as these encoded bytes.
    pub(super) fn that_came_as(self, encoded: Bytes, share: Share) -> Self {
        Self { encoded: Some(Box::new(Encoded { bytes: encoded, share: Arc::new(share) })), ..self }
    }

    /// The same, for one who is told nothing of the coding in which it came, and counts what it holds by itself.
    pub(super) fn plain(&self) -> Self {
        Self { encoded: None, ..self.clone() }
    }

    /// Whether it came encoded.
    pub(super) fn is_encoded(&self) -> bool {
        self.encoded.is_some()
    }

    /// The encoded bytes as they came. `None` where they were not encoded, or `upstream_model` is to be spliced in.
    fn as_encoded(&self, upstream_model: Option<&str>) -> Option<&Bytes> {
        let encoded = self.encoded.as_deref().filter(|_| upstream_model.is_none() || self.model_at.is_none());
        encoded.map(|encoded| &encoded.bytes)
    }

    /// The body that goes on, with `headers`, to an upstream of which nothing more is asked: as it came, encoded, unless the
    /// name is spliced in; then the headers no longer name its coding. Of what was only decoded to be read nothing is left.
    pub(super) fn into_onward(self, headers: &mut HeaderMap, upstream_model: Option<&str>) -> Bytes {
        if let Some(encoded) = self.as_encoded(upstream_model) {
            return encoded.clone();
        }
        if self.is_encoded() {
            headers.remove(CONTENT_ENCODING);
        }
        self.spliced(upstream_model, &[])
    }

    /// The body as it came, decoded.
    pub(super) fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body as text. Empty where it is not UTF-8, as JSON must be.
    pub(super) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap_or("")
    }

    /// The body for the upstream. With an alias, `upstream_model` is spliced in for the model's name and every other byte
    /// stays.
    pub(super) fn into_body(self, upstream_model: Option<&str>) -> Bytes {
        self.spliced(upstream_model, &[])
    }

    /// [`ModelRequest::into_body`], with these changes too. What was decoded counts as long as anyone has it.
    pub(super) fn spliced(&self, upstream_model: Option<&str>, more: &[Splice]) -> Bytes {
        let alias = upstream_model.zip(self.model_at.clone());
        let alias = alias.map(|(name, at)| Splice::new(at, serde_json::Value::from(name).to_string()));
        let body = spliced(self.body.clone(), alias.into_iter().chain(more.iter().cloned()).collect());
        match &self.encoded {
            Some(encoded) => encoded.share.kept_for(body),
            None => body,
        }
    }
}

/// How many prompts a text completion has: a text or a list of tokens is one, a list of those as many as it has.
fn prompts(prompt: &str) -> u32 {
    let mut several = 0_u32;
    items(prompt, |item| several += u32::from(item.starts_with(['"', '['])));
    several.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &'static str) -> Result<ModelRequest, BadRequest> {
        ModelRequest::read(Dialect::Chat, Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn choices_are_counted_as_each_dialect_counts_them() {
        let choices = |dialect, body: &'static str| {
            ModelRequest::read(dialect, Bytes::from_static(body.as_bytes())).unwrap().choices
        };
        for (body, expected) in [
            (r#"{"prompt":"a"}"#, 1),
            (r#"{"prompt":"a","n":3}"#, 3),
            (r#"{"prompt":["a","b"],"n":3}"#, 6),
            (r#"{"prompt":[1,2,3]}"#, 1),
            (r#"{"prompt":[[1,2],[3]]}"#, 2),
            (r#"{"prompt":[],"n":2}"#, 2),
            (r#"{"n":"x"}"#, 1),
            (r#"{"prompt":null}"#, 1),
            (r#"{"prompt":"a","prompt":["a","b"]}"#, 2),
            (r#"{"prompt":["a","b"],"n":4294967295}"#, u32::MAX),
        ] {
            assert_eq!(choices(Dialect::Completion, body), expected, "{body}");
        }
        let body = r#"{"prompt":["a","b"],"n":3}"#;
        assert_eq!(choices(Dialect::Chat, body), 3);
        for dialect in [Dialect::Responses, Dialect::Messages, Dialect::Embeddings, Dialect::Rerank] {
            assert_eq!(choices(dialect, body), 1);
        }
    }

    #[test]
    fn only_a_text_completion_has_an_echo() {
        for (dialect, body, expected) in [
            (Dialect::Completion, r#"{"prompt":"a","echo":true}"#, true),
            (Dialect::Completion, r#"{"prompt":"a","echo":"true"}"#, false),
            (Dialect::Completion, r#"{"prompt":"a"}"#, false),
            (Dialect::Chat, r#"{"echo":true}"#, false),
        ] {
            let request = ModelRequest::read(dialect, Bytes::from_static(body.as_bytes())).unwrap();
            assert_eq!(request.echo, expected, "{dialect:?} {body}");
        }
    }

    #[test]
    fn an_alias_is_spliced_in_and_nothing_else_moves() {
        let body = r#"{ "messages":[{"model":"not me"}],  "mod\u0065l"  : "cl\u0061ude" , "n":2,"x":1.0e0 }"#;
        let request = read(body).unwrap();
        assert_eq!((request.model.as_deref(), request.choices, request.stream), (Some("claude"), 2, false));
        let spliced = request.into_body(Some("o\"ther"));
        let expected = r#"{ "messages":[{"model":"not me"}],  "mod\u0065l"  : "o\"ther" , "n":2,"x":1.0e0 }"#;
        assert_eq!(spliced, expected);
        assert_eq!(read(body).unwrap().into_body(None), body);
    }

    #[test]
    fn only_a_literal_true_is_a_stream() {
        assert!(read(r#"{"stream":true}"#).unwrap().stream);
        for body in [r#"{"stream":false}"#, r#"{"stream":null}"#, r#"{"stream":"true"}"#, "{}"] {
            assert!(!read(body).unwrap().stream, "{body}");
        }
    }

    #[test]
    fn of_keys_given_twice_only_those_looked_at_are_refused() {
        let twice = |dialect, key: &str| {
            let body = format!(r#"{{"model":"m","{key}":1,"{key}":1}}"#);
            ModelRequest::read(dialect, body.into()).map(|_| ())
        };
        for dialect in [Dialect::Chat, Dialect::Completion, Dialect::Responses] {
            for key in ["prompt", "echo", "messages"] {
                assert_eq!(twice(dialect, key), Ok(()), "{key}");
            }
            for key in ["model", "stream", "n"] {
                assert!(matches!(twice(dialect, key), Err(BadRequest::NotJson(_))), "{key}");
            }
        }
    }

    #[test]
    fn what_is_not_json_or_names_no_text_is_refused() {
        for body in ["", "hello", "[1]", r#"["m",true,1]"#, r#"{"model":"a""#, "{} {}"] {
            assert!(matches!(read(body), Err(BadRequest::NotJson(_))), "{body}");
        }
        assert_eq!(read(r#"{"model":7}"#).unwrap_err(), BadRequest::ModelNotText);
        assert_eq!(read(r#"{"model":null}"#).unwrap().model, None);
    }
}
