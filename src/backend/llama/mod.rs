//! A Llama model in this process: continuous batching on one thread that owns the device.
//!
//! A request is read at the `desk`: parsed (`call`), rendered and tokenized (`prompts`, `text`), and handed to the
//! `engine`, whose steps run the `model` over all sequences at once. What comes back is a `reply` like any other.
//!
//! One model lives on one device: splitting it over several GPUs is out of scope.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thiserror::Error;

mod call;
mod desk;
mod engine;
mod error;
mod events;
mod loaded;
mod loading;
mod model;
mod prompts;
mod reply;
mod text;

pub use call::Kind;
pub use engine::{Step, StepListener};
pub use error::LoadError;
pub use reply::{Reply, ReplyBody};

use crate::config;
use crate::niceness::yield_to_proxy;
use call::BadCall;
use desk::{Accepted, Desk};
use engine::{Rejected, State, said};
use loaded::Parts;
use loading::Loading;
use model::{Forward, Model, ModelFiles};
use text::Text;

/// How many requests wait for a slot where the configuration does not say.
const MAX_QUEUE: usize = 64;

/// What a request is told that is still there when the last handle goes.
const STOPPING: &str = "streamgauge is stopping";

/// Held by the backend that takes its memory.
static LOADING: Mutex<()> = Mutex::new(());

/// A Llama model and its engine. Clones share them; dropping the last one stops the engine.
#[derive(Clone)]
pub struct Llama(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    loading: Arc<Loading>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A request that gets no reply.
#[derive(Debug, Error)]
pub enum Refused {
    /// It asks for something that cannot be done.
    #[error("{message}")]
    Bad {
        /// The field at fault.
        param: Option<String>,
        /// What is wrong and what to do.
        message: String,
    },
    /// Slots and queue are full.
    #[error("{waiting} requests wait already (max_queue)")]
    Full {
        /// Choices that wait.
        waiting: usize,
        /// When to try again.
        retry_after: Duration,
    },
    /// The model is still being loaded.
    #[error("the model is still being loaded")]
    Loading,
    /// Reading the request failed, which is a defect here.
    #[error("the request could not be read: {0}")]
    Broken(String),
    /// The engine has failed, before or during this request.
    #[error("{0}")]
    Down(String),
}

impl From<BadCall> for Refused {
    fn from(bad: BadCall) -> Self {
        Self::Bad { param: bad.param, message: bad.message }
    }
}

impl From<Rejected> for Refused {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Full { waiting, retry_after } => Self::Full { waiting, retry_after },
            Rejected::Loading => Self::Loading,
            Rejected::Down(why) => Self::Down(why),
        }
    }
}

impl Llama {
    /// Starts to load the model, on a thread of its own that becomes the engine's. `on_step` is told every step.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(name: &Arc<str>, config: &config::Llama, on_step: StepListener) -> std::io::Result<Self> {
        let config = config.clone();
        let file = config.model.clone();
        Self::spawn(name, file, move || {
            let files = ModelFiles::open(&config.model)?;
            // What is no Llama at all is not blamed for lacking a tokenizer.
            Model::recognise(&files)?;
            let text = text_of(&files, &config)?;
            let (model, facts) = {
                // One after the other: each looks at the memory that is free.
                let _turn = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
                Model::load(&files, &config)?
            };
            let text = text.unwrap_or_else(|| Text::stand_in(model.vocab_size()));
            let max_queue = config.max_queue.unwrap_or(MAX_QUEUE);
            Ok(Parts { model, text, facts, max_queue, on_step, file: config.model })
        })
    }

    fn spawn<M: Forward>(
        name: &Arc<str>,
        file: PathBuf,
        load: impl FnOnce() -> Result<Parts<M>, LoadError> + Send + 'static,
    ) -> std::io::Result<Self> {
        let loading = Arc::new(Loading::default());
        let tells = loading.clone();
        let backend = name.clone();
        let thread = thread::Builder::new().name(format!("llama-{name}")).spawn(move || {
            yield_to_proxy();
            let loaded = catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(|panic| {
                let problem = format!("loading failed: {}; please report it", said(&*panic));
                Err(LoadError::new("model", file, problem))
            });
            match loaded {
                Err(error) => tells.tell(Err(Arc::new(error))),
                Ok(parts) => parts.serve(&backend, &tells),
            }
        })?;
        Ok(Self(Arc::new(Inner { name: name.clone(), loading, thread: Mutex::new(Some(thread)) })))
    }

    /// The backend's name.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Waits until the model is loaded, and says what it is.
    ///
    /// # Errors
    /// Why it is not.
    pub fn wait_loaded(&self) -> Result<String, Arc<LoadError>> {
        self.0.loading.wait().map(|loaded| loaded.announcement())
    }

    /// What was done to the model that its files do not show. Empty before it is loaded.
    pub fn notes(&self) -> Vec<String> {
        let notes = |desk: &Desk| [&desk.facts.notes[..], desk.text.notes()].concat();
        self.0.loading.loaded().map(|loaded| notes(&loaded.desk)).unwrap_or_default()
    }

    /// Why requests are not served now. `None` when they are.
    pub fn unready(&self) -> Option<String> {
        match self.0.loading.now() {
            None => Some("is being loaded".to_owned()),
            Some(Err(error)) => Some(error.to_string()),
            Some(Ok(loaded)) => match loaded.desk.queue.state() {
                State::Loading => Some("is being loaded".to_owned()),
                State::Ready => None,
                State::Down(why) => Some(why),
            },
        }
    }

    /// Answers a request of this `kind`, given as its JSON. Returns when the reply's head is known.
    ///
    /// Dropping the future or the reply's body cancels the request.
    ///
    /// # Errors
    /// See [`Refused`]; with the instant of the hand-over.
    pub async fn answer(&self, kind: Kind, body: Bytes) -> Result<Reply, (Refused, Instant)> {
        let sent = Instant::now();
        self.accepted(kind, body, sent).await.map_err(|refused| (refused, sent))
    }

    async fn accepted(&self, kind: Kind, body: Bytes, sent: Instant) -> Result<Reply, Refused> {
        let loaded = match self.0.loading.now() {
            None => return Err(Refused::Loading),
            Some(Err(error)) => return Err(Refused::Down(error.to_string())),
            Some(Ok(loaded)) => loaded,
        };
        let Accepted { request, stream, head_at } = loaded.hand_in(kind, body).await?;
        if stream {
            return Ok(Reply { stream, body: ReplyBody::stream(request), sent, head_at });
        }
        let body = ReplyBody::whole(request).await.map_err(Refused::Down)?;
        Ok(Reply { stream, body, sent, head_at: Instant::now() })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.loading.abandon();
        if let Some(loaded) = self.loading.loaded() {
            loaded.desk.queue.close(STOPPING);
            if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = thread.join();
            }
        }
    }
}

/// The text of `files`. `None` where random weights have no tokenizer beside them.
fn text_of(files: &ModelFiles, config: &config::Llama) -> Result<Option<Text>, LoadError> {
    let has_none = match files {
        ModelFiles::Directory(path) => !path.join("tokenizer.json").exists(),
        ModelFiles::Gguf { .. } => false,
    };
    if config.load == config::LoadWeights::Dummy && has_none {
        return Ok(None);
    }
    Text::load(files).map(Some)
}

#[cfg(test)]
mod panicking;
