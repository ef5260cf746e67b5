//! The shape in which a client's dialect writes errors.

use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde_json::{Value, json};

use crate::route::Target;
use crate::wire::Dialect;

/// The header by which clients of Anthropic's API say which version of it they speak.
pub(super) const VERSION: &str = "anthropic-version";

/// Whose errors a client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `{"error": {message, type, param, code}}`
    OpenAi,
    /// `{"type": "error", "error": {type, message}}`
    Anthropic,
}

impl Shape {
    /// The shape for what a request asks for: Anthropic's for messages and what lies below them, and for models where its
    /// headers name a version of Anthropic's API; OpenAI's for all else.
    pub(super) fn of(target: &Target<'_>, headers: &HeaderMap) -> Self {
        let models = || target.is_below("models") && headers.contains_key(VERSION);
        if target.is_messages() || models() { Self::Anthropic } else { Self::OpenAi }
    }

    /// The shape of a dialect's errors.
    pub(super) fn of_dialect(dialect: Dialect) -> Self {
        if dialect == Dialect::Messages { Self::Anthropic } else { Self::OpenAi }
    }

    /// An error's JSON. Anthropic has types for statuses where OpenAI has `kind`, and neither `param` nor `code`.
    pub(super) fn error(self, status: StatusCode, message: &str, kind: &str, param: &Value, code: &Value) -> String {
        match self {
            Self::OpenAi => self.write(message, kind, param, code),
            Self::Anthropic => self.write(message, anthropic_type(status), param, code),
        }
        .to_string()
    }

    /// An upstream's error as JSON; `kind` is the type it gave. `None` where it gave none.
    pub(super) fn upstream_error(
        self,
        status: StatusCode,
        message: &str,
        kind: Option<&str>,
        param: &Value,
        code: &Value,
    ) -> Value {
        let kind = kind.unwrap_or(match self {
            Self::OpenAi => "upstream_error",
            Self::Anthropic => anthropic_type(status),
        });
        self.write(message, kind, param, code)
    }

    /// The status with which a whole reply tells this error. `None` where its type does not say, as in OpenAI's shape, and
    /// for `api_error`: with a 500 we would say that it was ours.
    pub(super) fn status_of(self, error: &Value) -> Option<StatusCode> {
        if self == Self::OpenAi || error["type"] != "error" {
            return None;
        }
        let status = match error["error"]["type"].as_str()? {
            "invalid_request_error" => 400,
            "authentication_error" => 401,
            "billing_error" => 402,
            "permission_error" => 403,
            "not_found_error" => 404,
            "request_too_large" => 413,
            "rate_limit_error" => 429,
            "timeout_error" => 504,
            "overloaded_error" => 529,
            _ => return None,
        };
        StatusCode::from_u16(status).ok()
    }

    fn write(self, message: &str, kind: &str, param: &Value, code: &Value) -> Value {
        match self {
            Self::OpenAi => json!({"error": {"message": message, "type": kind, "param": param, "code": code}}),
            Self::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
        }
    }
}

/// What Anthropic calls errors of this status.
fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::classify;

    #[test]
    fn a_paths_own_dialect_says_how_errors_look() {
        let plain = HeaderMap::new();
        let versioned = HeaderMap::from_iter([(VERSION.parse().unwrap(), "2023-06-01".parse().unwrap())]);
        for path in ["/v1/messages", "/api/messages", "/v1/messages/count_tokens", "/messages/batches/1"] {
            assert_eq!(Shape::of(&classify(path), &plain), Shape::Anthropic, "{path}");
        }
        for path in ["/v1/chat/completions", "/v1/responses", "/", "*", "/v1/message", "/v2/messages"] {
            for headers in [&plain, &versioned] {
                assert_eq!(Shape::of(&classify(path), headers), Shape::OpenAi, "{path}");
            }
        }
        for path in ["/v1/models", "/v1/models/claude"] {
            assert_eq!(Shape::of(&classify(path), &plain), Shape::OpenAi, "{path}");
            assert_eq!(Shape::of(&classify(path), &versioned), Shape::Anthropic, "{path}");
        }
    }

    #[test]
    fn an_error_says_the_same_in_every_shape() {
        let told = |shape: Shape, status: u16| -> Value {
            let status = StatusCode::from_u16(status).unwrap();
            let text = shape.error(status, "say \"please\"", "server_error", &Value::Null, &"busy".into());
            serde_json::from_str(&text).unwrap()
        };
        let openai =
            json!({"error": {"message": "say \"please\"", "type": "server_error", "param": null, "code": "busy"}});
        assert_eq!(told(Shape::OpenAi, 503), openai);
        for (status, kind) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (413, "request_too_large"),
            (415, "invalid_request_error"),
            (429, "rate_limit_error"),
            (501, "api_error"),
            (502, "api_error"),
            (503, "overloaded_error"),
            (504, "timeout_error"),
        ] {
            let expected = json!({"type": "error", "error": {"type": kind, "message": "say \"please\""}});
            assert_eq!(told(Shape::Anthropic, status), expected);
        }
    }
}
