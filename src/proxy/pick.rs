//! Which backend a request goes to: the one that it names, or one of its route's by chance or by conversation.
//!
//! Invariant: a request goes to one backend, whatever becomes of it there. A backend that fails is not replaced by
//! another: its error is the answer, and what is measured.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use http::header::{HeaderMap, HeaderName};
use hyper::http;
use serde::Deserialize;

use super::failure::Refusal;
use super::headers;
use super::request::ModelRequest;
use super::site::Site;
use crate::config::{Mirror, Route};
use crate::route::{Key, drawn, kept};
use crate::wire::Dialect;
use crate::wire::raw::{each_item, fields, string};

/// Where clients say which conversation a request belongs to; the first that is given counts.
const SESSION: [HeaderName; 5] = [
    HeaderName::from_static("x-session-affinity"),
    HeaderName::from_static("x-session-id"),
    HeaderName::from_static("session_id"),
    HeaderName::from_static("session-id"),
    HeaderName::from_static("x-claude-code-session-id"),
];

/// Where a request to a model goes.
pub(super) struct Picked<'a> {
    /// An index into the site's backends.
    pub(super) backend: usize,
    /// The name the backend knows the model by. `None` sends the client's name on.
    pub(super) alias: Option<&'a str>,
    /// Where it is to be sent a second time, chance having said so. `None` for most, and for what names its backend.
    pub(super) mirror: Option<&'a Mirror>,
}

impl Site {
    /// Where a request to a model goes.
    pub(super) fn pick(&self, headers: &HeaderMap, wanted: &ModelRequest) -> Result<Picked<'_>, Refusal> {
        let model = wanted.model.as_deref().unwrap_or("");
        let route = self.router.route(model);
        if let Some(backend) = self.by_hand(headers)? {
            let listed = route.and_then(|route| route.destination(backend));
            let alias = listed.and_then(|to| to.upstream_model.as_deref());
            return Ok(Picked { backend, alias, mirror: None });
        }
        let route = route.ok_or_else(|| self.no_route(model))?;
        let to = match &route.destinations[..] {
            [only] => only,
            several if route.sticky => {
                kept(several, conversation(headers, wanted), |backend| &self.backends[backend].name)
            }
            several => drawn(several, chance()),
        };
        let mirror = route.mirror.as_ref().filter(|mirror| happens(mirror.share));
        Ok(Picked { backend: to.backend, alias: to.upstream_model.as_deref(), mirror })
    }

    /// The backend that a request names, where it may. `None` leaves it to the routes.
    pub(super) fn by_hand(&self, headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
        if !self.server.backend_header {
            return Ok(None);
        }
        let Some(name) = headers.get(&headers::BACKEND) else { return Ok(None) };
        let known = self.backends.iter().position(|backend| backend.name.as_bytes() == name.as_bytes());
        let unknown = || Refusal::UnknownBackend {
            name: String::from_utf8_lossy(name.as_bytes()).into_owned(),
            backends: self.backends.iter().map(|backend| backend.name.to_string()).collect(),
        };
        known.map(Some).ok_or_else(unknown)
    }

    pub(super) fn no_route(&self, model: &str) -> Refusal {
        let routes = self.router.routes().map(|route: &Route| route.model.clone()).collect();
        Refusal::NoRoute { model: model.to_owned(), routes }
    }
}

/// What all requests of a conversation have in common: what its client calls it, in a header or in a response's
/// `conversation` or `prompt_cache_key`; else its instructions and its messages up to the first of the user, byte for byte,
/// and its model. What has no messages has its prompt in their place.
fn conversation(headers: &HeaderMap, wanted: &ModelRequest) -> Key {
    let named = SESSION.iter().filter_map(|name| headers.get(name)).find(|session| !session.is_empty());
    if let Some(session) = named {
        return Key::EMPTY.and(session.as_bytes());
    }
    // What cannot be read is the backend's to judge; it is known by its model alone.
    let body = wanted.text();
    let alone = |messages| fields(body, [messages]).map_or([None; 2], |[messages]| [messages, None]);
    let [messages, instructions] = match wanted.dialect {
        Dialect::Chat => alone("messages"),
        Dialect::Messages => fields(body, ["messages", "system"]).unwrap_or_default(),
        Dialect::Responses => {
            let members = ["input", "instructions", "prompt_cache_key", "conversation"];
            let [input, instructions, cache_key, conversation] = fields(body, members).unwrap_or_default();
            if let Some(name) = conversation.and_then(id).and_then(name).or_else(|| name(cache_key?)) {
                return Key::EMPTY.and(name.as_bytes());
            }
            [input, instructions]
        }
        Dialect::Completion => alone("prompt"),
        Dialect::Embeddings => alone("input"),
        Dialect::Rerank => alone("query"),
    };
    let mut key = instructions.map_or(Key::EMPTY, |text| Key::EMPTY.and(text.as_bytes()));
    if let Some(prompt) = messages.filter(|text| text.starts_with('"')) {
        key = key.and(prompt.as_bytes());
    }
    let mut opened = false;
    each_item(messages.unwrap_or(""), |message| {
        if !opened {
            key = key.and(message.as_bytes());
            opened = is_of_user(message);
        }
    });
    key.and(wanted.model.as_deref().unwrap_or("").as_bytes())
}

/// A conversation's name or id, raw: it is written as text, or in an object.
fn id(conversation: &str) -> Option<&str> {
    fields(conversation, ["id"]).map_or(Some(conversation), |[id]| id)
}

/// A name's text. `None` for an empty one, or what is no text.
fn name(raw: &str) -> Option<Cow<'_, str>> {
    string(raw).filter(|name| !name.is_empty())
}

fn is_of_user(message: &str) -> bool {
    #[derive(Deserialize)]
    struct Message {
        role: Role,
    }
    #[derive(Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Role {
        User,
        #[serde(other)]
        Another,
    }
    serde_json::from_str::<Message>(message).is_ok_and(|message| message.role == Role::User)
}

/// Whether what has this probability, from 0 to 1, happens this time.
fn happens(probability: f64) -> bool {
    // 53 bits, as many as an f64 holds.
    ((chance() >> 11) as f64) < probability * (1_u64 << 53) as f64
}

/// A number uniform over 64 bits: `SplitMix64`, one sequence for each thread, begun anew in each.
fn chance() -> u64 {
    thread_local! {
        // Random enough to begin with: the standard library's hash keys are drawn anew for each thread.
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(std::thread::current().id()));
    }
    let state = STATE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn key(headers: &[(&'static str, &'static str)], body: &'static str) -> Key {
        key_of(Dialect::Chat, headers, body)
    }

    fn key_of(dialect: Dialect, headers: &[(&'static str, &'static str)], body: &'static str) -> Key {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        conversation(&headers, &ModelRequest::read(dialect, Bytes::from_static(body.as_bytes())).unwrap())
    }

    #[test]
    fn every_dialect_has_its_conversations() {
        let same = |dialect, first, second| key_of(dialect, &[], first) == key_of(dialect, &[], second);
        let turn = r#"{"model":"m","system":"s","messages":[{"role":"user","content":"b"}]}"#;
        let later = r#"{"model":"m","messages":[{"role":"user","content":"b"},{"role":"assistant"},{"role":"user"}],"system":"s"}"#;
        assert!(same(Dialect::Messages, turn, later));
        let other = r#"{"model":"m","system":"t","messages":[{"role":"user","content":"b"}]}"#;
        assert!(!same(Dialect::Messages, turn, other));

        let turn = r#"{"model":"m","instructions":"i","input":[{"role":"developer"},{"role":"user","content":"b"}]}"#;
        let later = r#"{"model":"m","instructions":"i","input":[{"role":"developer"},{"role":"user","content":"b"},
            {"type":"function_call"},{"role":"user","content":"c"}]}"#;
        assert!(same(Dialect::Responses, turn, later));
        assert!(!same(Dialect::Responses, r#"{"model":"m","input":"a"}"#, r#"{"model":"m","input":"b"}"#));
        assert!(!same(Dialect::Completion, r#"{"model":"m","prompt":"a"}"#, r#"{"model":"m","prompt":"b"}"#));
    }

    #[test]
    fn all_turns_of_a_conversation_have_one_key() {
        let first = r#"{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}]}"#;
        let second = r#"{"stream":true,"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"},
            {"role":"assistant","content":"c"},{"role":"user","content":"d"}],"model":"m"}"#;
        assert_eq!(key(&[], first), key(&[], second));
        for other in [
            r#"{"model":"n","messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}]}"#,
            r#"{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":"x"}]}"#,
            r#"{"model":"m","messages":[{"role":"system","content":"x"},{"role":"user","content":"b"}]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":"b"}]}"#,
            r#"{"model":"m","messages":[]}"#,
            r#"{"model":"m"}"#,
        ] {
            assert_ne!(key(&[], first), key(&[], other), "{other}");
        }
    }

    #[test]
    fn what_the_client_calls_a_conversation_counts_before_its_messages() {
        let [a, b] = [r#"{"model":"m","messages":[]}"#, r#"{"messages":[{"role":"user"}]}"#];
        let named = key(&[("x-session-affinity", "s1")], a);
        assert_eq!(named, key(&[("x-session-affinity", "s1"), ("x-session-id", "s2")], b));
        assert_eq!(named, key(&[("x-session-id", "s1")], b));
        assert_ne!(named, key(&[("x-session-affinity", "s2")], a));
        assert_eq!(key(&[("x-session-id", "")], a), key(&[], a));
        for header in ["session_id", "session-id", "x-claude-code-session-id"] {
            assert_eq!(named, key(&[(header, "s1")], b), "{header}");
        }
    }

    #[test]
    fn a_response_may_say_which_conversation_it_belongs_to() {
        let key = |body| key_of(Dialect::Responses, &[], body);
        let named = Key::EMPTY.and(b"s1");
        for body in [
            r#"{"model":"m","input":"a","prompt_cache_key":"s1"}"#,
            r#"{"model":"n","input":"b","prompt_cache_key":"s2","conversation":"s\u0031"}"#,
            r#"{"model":"m","input":"a","conversation":"s1"}"#,
            r#"{"model":"m","input":"b","conversation":{"id":""},"prompt_cache_key":"s1"}"#,
        ] {
            assert_eq!(key(body), named, "{body}");
        }
        let unnamed = key(r#"{"model":"m","input":"a"}"#);
        for more in
            [r#""prompt_cache_key":7"#, r#""conversation":{}"#, r#""conversation":{"id":""}"#, r#""conversation":[]"#]
        {
            let body = format!(r#"{{"model":"m","input":"a",{more}}}"#);
            assert_eq!(key(Box::leak(body.into_boxed_str())), unnamed, "{more}");
        }
        assert_eq!(
            key_of(Dialect::Responses, &[("session-id", "s2")], r#"{"prompt_cache_key":"s1"}"#),
            Key::EMPTY.and(b"s2")
        );
        // Only where the dialect has it.
        let chat = |body| key_of(Dialect::Chat, &[], body);
        assert_eq!(chat(r#"{"model":"m","conversation":"s1"}"#), chat(r#"{"model":"m"}"#));
    }

    #[test]
    fn a_member_without_a_name_is_no_instructions() {
        for dialect in [Dialect::Chat, Dialect::Completion, Dialect::Embeddings, Dialect::Rerank] {
            let key = |body| key_of(dialect, &[], body);
            assert_eq!(key(r#"{"model":"m","":"x"}"#), key(r#"{"model":"m"}"#));
        }
    }

    #[test]
    fn what_is_no_message_is_passed_over() {
        for body in [r#"{"model":"m","messages":7}"#, r#"{"model":"m","messages":null}"#, r#"{"model":"m"}"#] {
            assert_eq!(key(&[], body), Key::EMPTY.and(b"m"), "{body}");
        }
        let body = r#"{"model":"m","messages":[7,"x",{"role":["user"]},{"role":"user"},{"role":"user","n":1}]}"#;
        let parts: [&[u8]; 5] = [b"7", b"\"x\"", br#"{"role":["user"]}"#, br#"{"role":"user"}"#, b"m"];
        assert_eq!(key(&[], body), parts.iter().fold(Key::EMPTY, |key, part| key.and(part)));
    }

    #[test]
    fn what_is_certain_happens_and_half_happens_half_the_time() {
        assert!((0..10_000).all(|_| happens(1.0)));
        assert!((0..10_000).all(|_| !happens(0.0)));
        // Eight standard deviations: of all runs one in 10^15 fails.
        let heads = (0..10_000).filter(|_| happens(0.5)).count();
        assert!((4_600..=5_400).contains(&heads), "{heads}");
    }
}
