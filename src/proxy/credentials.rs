//! A backend's key, in the headers where each dialect looks for one.
//!
//! Invariant: the key stands in requests to its own backend and nowhere else; the values are marked as sensitive.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::http;

use super::shape::Shape;
use crate::config::{MessagesAuth, OpenAi, Secret};
use crate::route::Target;

/// Where Anthropic's API looks for a key.
pub(super) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A backend's own key.
pub struct Credentials {
    /// `Bearer KEY`
    bearer: HeaderValue,
    /// `KEY`
    bare: HeaderValue,
    messages: MessagesAuth,
}

impl Credentials {
    /// The key of an API. `None` where none is configured.
    pub fn of(api: &OpenAi) -> Option<Self> {
        api.api_key.as_ref().map(|key| Self::new(key, api.messages_auth))
    }

    /// A key, and how it is sent where Anthropic's messages are spoken.
    pub fn new(key: &Secret, messages: MessagesAuth) -> Self {
        Self { bearer: sensitive(&format!("Bearer {}", key.expose())), bare: sensitive(key.expose()), messages }
    }

    /// Adds the key to the headers of a request for `target`, whose own say whether Anthropic's dialect is spoken.
    pub fn add_to(&self, headers: &mut HeaderMap, target: &Target<'_>) {
        let way = match Shape::of(target, headers) {
            Shape::OpenAi => MessagesAuth::Bearer,
            Shape::Anthropic => self.messages,
        };
        if way != MessagesAuth::XApiKey {
            headers.insert(AUTHORIZATION, self.bearer.clone());
        }
        if way != MessagesAuth::Bearer {
            headers.insert(X_API_KEY, self.bare.clone());
        }
    }
}

fn sensitive(text: &str) -> HeaderValue {
    let mut value = HeaderValue::from_str(text)
        .unwrap_or_else(|_| unreachable!("the configuration refuses keys that are not header-safe"));
    value.set_sensitive(true);
    value
}
