//! What all threads share: where requests can go, and who counts them.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::http::header::HeaderValue;

use super::Proxy;
use super::asking::Asking;
use super::credentials::Credentials;
use super::encoded::Decoding;
use super::mirror::{self, Mirrors};
use super::room::Room;
use super::tokens::{TokenizerError, Tokens};
use crate::backend::llama::{Llama, Step};
use crate::backend::upstream::{SetupError, Upstream};
use crate::config::{self, BackendKind, BaseUrl, Config, OpenAi};
use crate::measure::{Listener, Meter, Objective, Recent, Setup};
use crate::route::Router;

/// A backend as requests need to know it.
pub(super) struct Backend {
    pub(super) name: Arc<str>,
    /// `None` for a backend that is no upstream.
    pub(super) base_url: Option<BaseUrl>,
    /// The name of a model in this process: that of its directory or file. `None` for an upstream.
    pub(super) local_model: Option<String>,
    /// Replaces the client's credentials. `None` lets those pass.
    pub(super) key: Option<Credentials>,
    /// The longest time between two events of a stream.
    pub(super) event_timeout: Option<Duration>,
    /// The longest time for a reply's head.
    pub(super) head_timeout: Duration,
    /// What requests are asked for beyond their clients' words.
    pub(super) asking: Asking,
}

/// How many names a model in this process may be asked for by until they are no labels any more: as many as an
/// upstream by default.
const LOCAL_MODELS: usize = 64;

/// One configuration, ready to serve.
pub struct Site {
    pub(super) server: config::Server,
    pub(super) router: Router,
    pub(super) backends: Vec<Backend>,
    pub(super) meter: Arc<Meter>,
    recent: Arc<Recent>,
    /// Names this process to those behind it, so that a request that comes back is known (RFC 9110, section 7.6.3).
    pub(super) via: HeaderValue,
    upstreams: Vec<Option<Upstream>>,
    /// By backend index; `None` for an upstream.
    pub(super) llamas: Vec<Option<Llama>>,
    /// Who counts tokens for which backend.
    pub(super) tokens: Tokens,
    pub(super) mirrors: Mirrors,
    /// For whole replies that are made of streams.
    pub(super) room: Room,
    /// For request bodies that came encoded.
    pub(super) decoding: Decoding,
}

/// A backend that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// An upstream.
    #[error("backend.{name}.{}: {error}", error.key())]
    Upstream {
        /// The backend's name.
        name: Arc<str>,
        /// What is wrong with it.
        #[source]
        error: SetupError,
    },
    /// An upstream's tokenizer.
    #[error("backend.{name}.tokenizer: {error}")]
    Tokenizer {
        /// The backend's name.
        name: Arc<str>,
        /// What is wrong with the file.
        #[source]
        error: TokenizerError,
    },
    /// A model's engine, or the counting of tokens, got no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

impl Site {
    /// Sets up every backend. `listeners` are told every finished exchange.
    ///
    /// # Errors
    /// The first backend that cannot be set up.
    pub fn new(config: &Config, mut listeners: Vec<Listener>) -> Result<Self, BackendError> {
        let router = Router::new(config);
        let mut backends = Vec::new();
        let mut upstreams = Vec::new();
        let mut labels = Vec::new();
        for (index, backend) in config.backends.iter().enumerate() {
            let name = &backend.name;
            let names = router.names(index).map(str::to_owned).collect();
            let (ready, upstream, most) = match &backend.kind {
                BackendKind::OpenAi(openai) => {
                    let upstream =
                        Upstream::new(openai).map_err(|error| BackendError::Upstream { name: name.clone(), error })?;
                    let key = Credentials::of(openai);
                    let base_url = Some(openai.base_url.clone());
                    let &OpenAi { event_timeout, head_timeout, max_models, .. } = openai;
                    let (name, asking) = (name.clone(), Asking::new(openai));
                    let backend =
                        Backend { name, base_url, local_model: None, key, event_timeout, head_timeout, asking };
                    (backend, Some(upstream), max_models)
                }
                BackendKind::Llama(llama) => {
                    let (name, head_timeout) = (name.clone(), Duration::MAX);
                    let local_model = llama.model.as_path().file_name().map(|name| {
                        let name = name.to_string_lossy();
                        name.strip_suffix(".gguf").unwrap_or(&name).to_owned()
                    });
                    let asking = Asking::default();
                    let (base_url, key, event_timeout) = (None, None, None);
                    let backend = Backend { name, base_url, local_model, key, event_timeout, head_timeout, asking };
                    (backend, None, LOCAL_MODELS)
                }
            };
            labels.push((name.clone(), most, names));
            backends.push(ready);
            upstreams.push(upstream);
        }
        let mirrored: Vec<Option<Arc<str>>> = backends
            .iter()
            .enumerate()
            .map(|(index, backend)| router.is_mirrored_to(index).then(|| mirror::label(&backend.name)))
            .collect();
        for (index, label) in mirrored.iter().enumerate() {
            if let Some(label) = label {
                let names = router.mirrored_names(index).map(str::to_owned).collect();
                labels.push((label.clone(), labels[index].1, names));
            }
        }
        let objective = |slo: &config::Slo| Objective { name: slo.name.clone(), ttft: slo.ttft, tpot: slo.tpot };
        let recent = Arc::new(Recent::new(labels.iter().map(|(label, ..)| label.clone()), Instant::now()));
        let setup = Setup { backends: labels, objectives: config.slos.iter().map(objective).collect() };
        listeners.push(recent.listener());
        let meter = Arc::new(Meter::new(setup, listeners));
        let mirrors = Mirrors::new(mirrored, &meter);
        let llama = |backend: &config::Backend| match &backend.kind {
            BackendKind::OpenAi(_) => Ok(None),
            BackendKind::Llama(llama) => start(&backend.name, llama, &meter).map(Some),
        };
        let tokens = Tokens::start(&config.backends)?;
        let llamas = config.backends.iter().map(llama).collect::<Result<_, _>>()?;
        Ok(Self {
            server: config.server.clone(),
            router,
            backends,
            meter,
            recent,
            via: via(),
            upstreams,
            llamas,
            tokens,
            mirrors,
            room: Room::new(),
            decoding: Decoding::new(),
        })
    }

    /// Waits until the tokens of every exchange that is over are counted and all of them are told. What ends from now on
    /// is told without being counted.
    pub fn finish_counting(&self) {
        self.tokens.stop();
    }

    /// The models in this process, loading or loaded.
    pub fn llamas(&self) -> impl Iterator<Item = &Llama> {
        self.llamas.iter().flatten()
    }

    /// Puts `llama` in the place of the one of its name.
    #[cfg(test)]
    pub(crate) fn replace_llama(&mut self, llama: Llama) {
        let place = self.llamas.iter_mut().flatten().find(|known| known.name() == llama.name());
        *place.expect("a backend of this name") = llama;
    }

    /// The metrics.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The last exchanges, and the last minutes of each backend.
    pub fn recent(&self) -> &Arc<Recent> {
        &self.recent
    }

    /// The kind of each backend, in the order of the configuration, then of each that requests are mirrored to.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let indices = (0..self.llamas.len()).chain(self.mirrors.backends());
        indices.map(|index| if self.llamas[index].is_some() { "llama" } else { "openai" })
    }

    /// A handler for one more thread.
    pub fn proxy(self: &Arc<Self>) -> Proxy {
        let own = |upstream: &Option<Upstream>| upstream.as_ref().map(Upstream::for_another_thread);
        Proxy { site: self.clone(), upstreams: self.upstreams.iter().map(own).collect() }
    }
}

/// Starts to load a model; its steps go to the metrics.
fn start(name: &Arc<str>, config: &config::Llama, meter: &Meter) -> io::Result<Llama> {
    let mut engine = meter.engine(name);
    let on_step = Box::new(move |step: Step| {
        if step.sequences > 0 {
            engine.step(step.sequences, step.prefill_tokens, step.took);
        }
        engine.occupied(step.slots, step.waiting);
    });
    Llama::start(name, config, on_step)
}

fn via() -> HeaderValue {
    // Random enough to tell two processes apart: the standard library's hash keys are drawn anew for each.
    let name = RandomState::new().hash_one(std::process::id());
    HeaderValue::from_str(&format!("1.1 streamgauge-{name:016x}"))
        .unwrap_or_else(|_| unreachable!("hexadecimal digits are header-safe"))
}
