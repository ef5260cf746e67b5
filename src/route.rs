//! Which operation a path asks for, which route a model takes, and the path it has upstream. Pure: no I/O.
//!
//! Invariant: a path never loses a byte that could matter. Only leading `api` and `v1` segments, and the slashes
//! around an operation's own segments, are forgiven; every other path passes as it was written.

use globset::{GlobBuilder, GlobMatcher};

use crate::config::{BaseUrl, Config, Destination, Route};
use crate::wire::Dialect;

mod spread;

pub use spread::{Key, drawn, kept};

/// What a request asks for, by its path alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/rerank`
    Rerank,
    /// `/v1/models`
    Models,
    /// `/v1/messages/count_tokens`, `/v1/responses/input_tokens`: how many tokens a request of this dialect would have. It
    /// names a model as that one does, and is not measured.
    Count(Dialect),
    /// Anything else: it passes through.
    Other,
}

impl Operation {
    /// How its requests and replies are written. `None` for what is not measured.
    pub fn dialect(self) -> Option<Dialect> {
        match self {
            Self::Chat => Some(Dialect::Chat),
            Self::Completion => Some(Dialect::Completion),
            Self::Responses => Some(Dialect::Responses),
            Self::Messages => Some(Dialect::Messages),
            Self::Embeddings => Some(Dialect::Embeddings),
            Self::Rerank => Some(Dialect::Rerank),
            Self::Models | Self::Count(_) | Self::Other => None,
        }
    }

    /// Its value of the metric label `operation`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completion => "completion",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Embeddings => "embeddings",
            Self::Rerank => "rerank",
            Self::Models | Self::Count(_) | Self::Other => "other",
        }
    }
}

/// Every operation's path below `/v1`.
const PATHS: &[(Operation, &str)] = &[
    (Operation::Chat, "/chat/completions"),
    (Operation::Completion, "/completions"),
    (Operation::Responses, "/responses"),
    (Operation::Messages, "/messages"),
    (Operation::Embeddings, "/embeddings"),
    (Operation::Rerank, "/rerank"),
    (Operation::Models, "/models"),
    (Operation::Count(Dialect::Messages), "/messages/count_tokens"),
    (Operation::Count(Dialect::Responses), "/responses/input_tokens"),
];

/// A request's path, understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// What it asks for.
    pub operation: Operation,
    /// What follows the leading `api` and `v1` segments, with its leading slash: an operation's own path, or the
    /// client's bytes where it is [`Operation::Other`]. Empty where nothing follows; `*` for `OPTIONS *`.
    pub rest: &'a str,
    /// A leading `v1` segment was written.
    pub versioned: bool,
    /// A leading `api` segment was written.
    pub api: bool,
}

impl Target<'_> {
    /// Whether it asks for Anthropic's messages, or for what lies below them: `/v1/messages/count_tokens`.
    pub fn is_messages(&self) -> bool {
        self.operation == Operation::Messages || self.is_below("messages")
    }

    /// Whether `segment` is the first of what follows `api` and `v1`.
    pub(crate) fn is_below(&self, segment: &str) -> bool {
        self.rest.trim_start_matches('/').split('/').next() == Some(segment)
    }
}

/// Understands a request's path, given without its query.
///
/// Any leading mix of `api` and `v1` segments is skipped, then the segments left are compared with each operation's,
/// empty ones (doubled slashes, a slash at the end) left out: `//api/v1/v1/chat//completions/` is a chat completion.
/// Segments must match exactly: `/v1beta/…` is no `v1`, `/chat/completions/abc` no chat completion.
pub fn classify(path: &str) -> Target<'_> {
    let mut target = Target { operation: Operation::Other, rest: path, versioned: false, api: false };
    while let Some(start) = path_start(target.rest) {
        let (segment, after) = split_segment(start);
        match segment {
            "api" => target.api = true,
            "v1" => target.versioned = true,
            _ => {
                target.rest = &target.rest[target.rest.len() - start.len() - 1..];
                break;
            }
        }
        target.rest = after;
    }
    let segments = || target.rest.split('/').filter(|segment| !segment.is_empty());
    if let Some(&(operation, path)) = PATHS.iter().find(|(_, path)| segments().eq(path[1..].split('/'))) {
        target.operation = operation;
        target.rest = path;
    }
    target
}

/// What follows the leading slashes. `None` where there is no slash.
fn path_start(rest: &str) -> Option<&str> {
    let start = rest.trim_start_matches('/');
    (start.len() < rest.len()).then_some(start)
}

fn split_segment(start: &str) -> (&str, &str) {
    start.split_at(start.find('/').unwrap_or(start.len()))
}

/// The path and query to ask an upstream for.
///
/// An operation stands below `/v1`, unless the base URL's path brings a version of its own: as its last segment
/// (`/api/paas/v4`) or before (`/v1beta/openai`, where Gemini's compatible API is). Any other path gets the `api` and
/// `v1` segments its client wrote, unless the base has them. Percent-encoding is left as it is.
pub fn upstream_path(base: &BaseUrl, target: &Target<'_>, query: Option<&str>) -> String {
    if target.rest == "*" {
        return "*".to_owned();
    }
    let operation = target.operation != Operation::Other;
    let mut segments = base.path.split('/');
    let mut path = base.path.clone();
    if target.api && !operation && !segments.clone().any(|segment| segment == "api") {
        path.push_str("/api");
    }
    if (target.versioned || operation) && !segments.any(is_version) {
        path.push_str("/v1");
    }
    path.push_str(target.rest);
    if path.is_empty() {
        path.push('/');
    }
    if let Some(query) = query {
        path.push('?');
        path.push_str(query);
    }
    path
}

/// Whether a segment is a version: `v1`, `v4`, `v1beta`, `v1alpha2`, `v1.1`.
fn is_version(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix('v') else { return false };
    let stage = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let stage_number = ["beta", "alpha", "."].iter().find_map(|stage_name| stage.strip_prefix(stage_name));
    stage.len() < rest.len() && stage_number.unwrap_or(stage).bytes().all(|byte| byte.is_ascii_digit())
}

/// Which model takes which route.
#[derive(Debug, Clone)]
pub struct Router {
    routes: Vec<(GlobMatcher, Route)>,
}

impl Router {
    /// Takes the routes of a configuration, which has checked their globs.
    pub fn new(config: &Config) -> Self {
        let matcher = |route: &Route| {
            let glob = GlobBuilder::new(&route.model).case_insensitive(true).build();
            glob.expect("the configuration checked this glob").compile_matcher()
        };
        Self { routes: config.routes.iter().map(|route| (matcher(route), route.clone())).collect() }
    }

    /// The first route whose glob matches the model's name, or what follows its last slash, in any case.
    ///
    /// `None` where no route does.
    pub fn route(&self, model: &str) -> Option<&Route> {
        let last = model.rsplit('/').next().unwrap_or(model);
        let first = self.routes.iter().find(|(glob, _)| glob.is_match(model) || glob.is_match(last));
        first.map(|(_, route)| route)
    }

    /// The `*` route, which also takes what names no model. `None` where there is none.
    pub fn default_route(&self) -> Option<&Route> {
        self.routes().find(|route| route.model == "*")
    }

    /// Every route, in the order they are tried.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().map(|(_, route)| route)
    }

    /// The routes whose `model` is one name rather than a glob: models a client can be told of.
    pub fn named(&self) -> impl Iterator<Item = &Route> {
        self.routes().filter(|route| !route.model.contains(['*', '?', '[', ']', '{', '}', '\\']))
    }

    /// The backend that takes what names no model: the first of the `*` route with a weight above 0, an index into
    /// [`Config::backends`]. `None` where there is no such route.
    pub fn default_backend(&self) -> Option<usize> {
        self.default_route().map(|route| route.first().backend)
    }

    /// Every model name the configuration gives for a backend, as asked for and as sent on: safe as metric labels.
    ///
    /// `backend` is an index into [`Config::backends`]. A name may come twice.
    pub fn names(&self, backend: usize) -> impl Iterator<Item = &str> {
        let asked = self.named().filter(move |route| route.destination(backend).is_some()).map(|route| &*route.model);
        let sent = self.routes().filter_map(move |route| route.destination(backend));
        asked.chain(sent.filter_map(|to: &Destination| to.upstream_model.as_deref()))
    }

    /// Whether any route mirrors its requests to this backend, an index into [`Config::backends`].
    pub fn is_mirrored_to(&self, backend: usize) -> bool {
        self.routes().any(|route| route.mirror.as_ref().is_some_and(|mirror| mirror.backend == backend))
    }

    /// [`Router::names`] of what is mirrored to a backend.
    pub fn mirrored_names(&self, backend: usize) -> impl Iterator<Item = &str> {
        let here = move |route: &&Route| route.mirror.as_ref().is_some_and(|mirror| mirror.backend == backend);
        let asked = self.named().filter(here).map(|route| &*route.model);
        let sent = self.routes().filter(here).filter_map(|route| route.mirror.as_ref());
        asked.chain(sent.filter_map(|mirror| mirror.upstream_model.as_deref()))
    }
}

#[cfg(test)]
mod tests;
