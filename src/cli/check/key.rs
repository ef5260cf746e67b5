//! A backend's key: whether there is one, and what its outside tells. Its length is said; nothing of it is shown.

use super::report::Finding;
use crate::config::{KeySource, OpenAi, Secret};

/// What is known of a key.
pub(super) struct Key<'a> {
    pub(super) secret: Option<&'a Secret>,
    source: Option<&'a KeySource>,
    backend: &'a str,
}

impl<'a> Key<'a> {
    pub(super) fn of(backend: &'a str, config: &'a OpenAi) -> Self {
        Self { secret: config.api_key.as_ref(), source: config.key_source.as_ref(), backend }
    }

    /// What the step `key` finds.
    pub(super) fn finding(&self) -> Finding {
        let (Some(secret), Some(source)) = (self.secret, self.source) else {
            return self.missing();
        };
        let name = &source.name;
        let detail = format!("from {name}, {} characters", secret.expose().chars().count());
        if let Some(shape) = odd_shape(secret.expose()) {
            return Finding::note(format!("{detail}; it {}", shape.looks), shape.instead);
        }
        if source.trimmed {
            let detail = format!("{detail}; white space around it was removed");
            return Finding::note(detail, format!("clean {name}: other programs send the white space along"));
        }
        Finding::ok(detail)
    }

    fn missing(&self) -> Finding {
        const UNTESTED: &str = "each client's own key passes through, which this check cannot test";
        match self.source {
            Some(KeySource { name, .. }) => Finding::note(
                format!("{name} is not set, or empty: {UNTESTED}"),
                format!("set {name} to test with a key"),
            ),
            None => Finding::note(
                format!("none is configured: {UNTESTED}"),
                format!("to test with one, add api_key = {{ env = \"NAME\" }} to [backend.{}]", self.backend),
            ),
        }
    }

    /// What to do about a 401.
    pub(super) fn refused(&self) -> String {
        let (secret, name) = match (self.secret, self.source) {
            (Some(secret), Some(KeySource { name, .. })) => (secret, name),
            (None, Some(KeySource { name, .. })) => {
                return format!("no key was sent: set {name}, or test with a client that brings its own");
            }
            (_, None) => {
                return format!(
                    "no key was sent: add api_key = {{ env = \"NAME\" }} to [backend.{}], or test with a client that \
                     brings its own",
                    self.backend
                );
            }
        };
        let length = secret.expose().chars().count();
        match odd_shape(secret.expose()) {
            Some(shape) => format!("the key from {name} ({length} characters) {}: {}", shape.looks, shape.instead),
            None => format!(
                "the key from {name} ({length} characters) is not accepted: it may be mistyped, cut short, expired, or \
                 another service's; copy it again or make a new one"
            ),
        }
    }
}

/// Why a key is hardly an API key.
struct Shape {
    looks: &'static str,
    instead: &'static str,
}

/// What a key that was copied from the wrong place looks like. `None` where nothing speaks against it.
fn odd_shape(key: &str) -> Option<Shape> {
    const API_KEY: &str = "unless the service's own keys look so, put in an API key from its console";
    let starts = |mark: &str| key.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark));
    let shape = |looks, instead| Some(Shape { looks, instead });
    if starts("bearer ") {
        shape("begins with \"Bearer\", which is added here", "leave the word out")
    } else if key.starts_with(['"', '\'']) || key.ends_with(['"', '\'']) {
        shape("is in quotes, which are sent along", "leave them out")
    } else if key.starts_with('$') || key.starts_with('<') || key.starts_with('%') {
        shape("looks like a placeholder that nothing was put in place of", API_KEY)
    } else if key.starts_with("eyJ") {
        shape("looks like a JSON web token, as signing in yields", API_KEY)
    } else if key.starts_with("sk-ant-oat") {
        shape("looks like an OAuth token of Anthropic's tools", API_KEY)
    } else if key.starts_with("ya29.") {
        shape("looks like an OAuth token of Google's tools", API_KEY)
    } else if key.starts_with("gho_") {
        shape("looks like an OAuth token of GitHub's tools", API_KEY)
    } else if key.contains(' ') {
        shape("holds a space", "copy it again: more than the key may have come along")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::report::Status;

    fn with(key: Option<&str>, trimmed: bool) -> OpenAi {
        let mut config = OpenAi::new("https://up.example".parse().unwrap());
        config.api_key = key.map(|key| Secret::new(key).unwrap());
        config.key_source = Some(KeySource { name: "UP_KEY".to_owned(), trimmed });
        config
    }

    #[test]
    fn what_is_no_api_key_is_noted_by_its_shape_and_never_shown() {
        for (key, looks) in [
            ("eyJhbGciOi.J9.x", "JSON web token"),
            ("sk-ant-oat01-abc", "OAuth token of Anthropic"),
            ("ya29.abcdef", "OAuth token of Google"),
            ("gho_abcdef", "OAuth token of GitHub"),
            ("Bearer sk-abc", "begins with \"Bearer\""),
            ("\"sk-abc\"", "in quotes"),
            ("${UP_KEY}", "placeholder"),
            ("sk-abc def", "holds a space"),
        ] {
            let config = with(Some(key), false);
            let key_of = Key::of("up", &config);
            let finding = key_of.finding();
            assert_eq!(finding.status, Status::Note, "{key}");
            assert!(finding.detail.contains(looks) && key_of.refused().contains(looks), "{finding:?}");
            let all = format!("{finding:?}{}", key_of.refused());
            assert!(!all.contains(key), "{all}");
        }
        let config = with(Some("sk-abcdef"), false);
        assert_eq!(Key::of("up", &config).finding(), Finding::ok("from UP_KEY, 9 characters"));
    }

    #[test]
    fn a_key_that_is_missing_or_was_trimmed_is_noted() {
        let config = with(None, false);
        let finding = Key::of("up", &config).finding();
        assert!(finding.detail.starts_with("UP_KEY is not set, or empty"), "{finding:?}");
        assert!(Key::of("up", &config).refused().starts_with("no key was sent: set UP_KEY"));
        let config = with(Some("sk-1"), true);
        let finding = Key::of("up", &config).finding();
        assert_eq!(
            (finding.status, &*finding.detail),
            (Status::Note, "from UP_KEY, 4 characters; white space around it was removed")
        );
    }
}
