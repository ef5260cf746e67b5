//! `[[route]]`: which models go where, and what is sent a second time elsewhere.

/// What the name of a backend is followed by in the label of its mirrored traffic: `llama2+mirror`.
///
/// No backend's own name ends so.
pub const MIRROR_SUFFIX: &str = "+mirror";

/// `[[route]]`: a model name, or a glob over names, and where it goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// A glob over model names, matched case-insensitively; `*` also matches `/`.
    pub model: String,
    /// Where requests go, each to one of them. Never empty; backends are unique, and not every weight is 0.
    pub destinations: Vec<Destination>,
    /// A conversation stays with the destination it has, instead of each request's being drawn anew.
    pub sticky: bool,
    /// Where some chat requests are sent a second time. `None` for a route without a mirror.
    pub mirror: Option<Mirror>,
}

/// One backend that a route leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Which backend: an index into [`super::Config::backends`].
    pub backend: usize,
    /// Its share of the requests, relative to the route's other weights; 0 takes none but those that name it.
    pub weight: u32,
    /// The name the backend knows the model by. `None` sends the client's name on.
    pub upstream_model: Option<String>,
}

/// Where a route's requests are sent a second time, to be measured and thrown away.
#[derive(Debug, Clone, PartialEq)]
pub struct Mirror {
    /// Which backend: an index into [`super::Config::backends`].
    pub backend: usize,
    /// The part of the requests that are mirrored: above 0, at most 1.
    pub share: f64,
    /// The name the backend knows the model by. `None` sends the client's name on.
    pub upstream_model: Option<String>,
}

impl Route {
    /// All of `model` to one backend, under the client's name.
    pub fn to(model: impl Into<String>, backend: usize) -> Self {
        let only = Destination { backend, weight: 1, upstream_model: None };
        Self { model: model.into(), destinations: vec![only], sticky: false, mirror: None }
    }

    /// The first destination of a weight above 0: where requests go that are not spread, as they name no model.
    pub fn first(&self) -> &Destination {
        let weighty = self.destinations.iter().find(|destination| destination.weight > 0);
        weighty.unwrap_or(&self.destinations[0])
    }

    /// The destination that is this backend. `None` where the route does not lead to it.
    pub fn destination(&self, backend: usize) -> Option<&Destination> {
        self.destinations.iter().find(|destination| destination.backend == backend)
    }
}
