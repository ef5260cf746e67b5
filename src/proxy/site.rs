//! What all threads share: where requests can go, and who counts them.

use std::sync::Arc;
use std::time::Duration;

use hyper::http::header::HeaderValue;

use super::Proxy;
use super::failure::Refusal;
use crate::backend::upstream::{SetupError, Upstream};
use crate::config::{self, BackendKind, BaseUrl, Config, OpenAi};
use crate::measure::{Listener, Meter, Objective, Setup};
use crate::route::Router;

/// A backend as requests need to know it.
pub(super) struct Backend {
    pub(super) name: Arc<str>,
    /// `None` for a backend that is no upstream.
    pub(super) base_url: Option<BaseUrl>,
    /// `Bearer …`, replacing the client's credentials. `None` lets those pass.
    pub(super) key: Option<HeaderValue>,
    /// The longest time between two events of a stream.
    pub(super) event_timeout: Option<Duration>,
    /// The longest time for a reply's head.
    pub(super) head_timeout: Duration,
}

/// One configuration, ready to serve.
pub struct Site {
    pub(super) server: config::Server,
    pub(super) router: Router,
    pub(super) backends: Vec<Backend>,
    pub(super) meter: Arc<Meter>,
    upstreams: Vec<Option<Upstream>>,
}

/// A backend that cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("backend.{name}.{}: {error}", error.key())]
pub struct BackendError {
    /// The backend's name.
    pub name: Arc<str>,
    /// What is wrong with it.
    #[source]
    pub error: SetupError,
}

impl Site {
    /// Sets up every backend. `listeners` are told every finished exchange.
    ///
    /// # Errors
    /// The first backend that cannot be set up.
    pub fn new(config: &Config, listeners: Vec<Listener>) -> Result<Self, BackendError> {
        let router = Router::new(config);
        let mut backends = Vec::new();
        let mut upstreams = Vec::new();
        let mut labels = Vec::new();
        for (index, backend) in config.backends.iter().enumerate() {
            let name = &backend.name;
            let names = router.names(index).map(str::to_owned).collect();
            let (ready, upstream, most) = match &backend.kind {
                BackendKind::OpenAi(openai) => {
                    let upstream = Upstream::new(openai).map_err(|error| BackendError { name: name.clone(), error })?;
                    let key = openai.api_key.as_ref().map(|key| bearer(key.expose()));
                    let base_url = Some(openai.base_url.clone());
                    let &OpenAi { event_timeout, head_timeout, max_models, .. } = openai;
                    let backend = Backend { name: name.clone(), base_url, key, event_timeout, head_timeout };
                    (backend, Some(upstream), max_models)
                }
                BackendKind::Llama(_) => {
                    let (name, head_timeout) = (name.clone(), Duration::MAX);
                    (Backend { name, base_url: None, key: None, event_timeout: None, head_timeout }, None, 0)
                }
            };
            labels.push((name.clone(), most, names));
            backends.push(ready);
            upstreams.push(upstream);
        }
        let objective = |slo: &config::Slo| Objective { name: slo.name.clone(), ttft: slo.ttft, tpot: slo.tpot };
        let setup = Setup { backends: labels, objectives: config.slos.iter().map(objective).collect() };
        let meter = Arc::new(Meter::new(setup, listeners));
        Ok(Self { server: config.server.clone(), router, backends, meter, upstreams })
    }

    /// The metrics.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// A handler for one more thread.
    pub fn proxy(self: &Arc<Self>) -> Proxy {
        let own = |upstream: &Option<Upstream>| upstream.as_ref().map(Upstream::for_another_thread);
        Proxy { site: self.clone(), upstreams: self.upstreams.iter().map(own).collect() }
    }

    pub(super) fn no_route(&self, model: &str) -> Refusal {
        let routes = self.router.routes().map(|route| route.model.clone()).collect();
        Refusal::NoRoute { model: model.to_owned(), routes }
    }
}

fn bearer(key: &str) -> HeaderValue {
    let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
        .unwrap_or_else(|_| unreachable!("the configuration refuses keys that are not header-safe"));
    value.set_sensitive(true);
    value
}
