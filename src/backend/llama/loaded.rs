//! A loaded model: what its engine is made of, and where requests are handed in.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::call::Kind;
use super::desk::{self, Accepted, Desk, Unread};
use super::engine::{Engine, Queue, StepListener};
use super::loading::Loading;
use super::model::{Facts, Forward};
use super::text::Text;
use super::{LoadError, Refused, STOPPING};

/// A model that has been loaded: where requests are handed in.
pub(super) struct Loaded {
    pub(super) desk: Arc<Desk>,
    reader: SyncSender<Unread>,
}

/// Everything an engine is made of.
pub(super) struct Parts<M> {
    pub(super) model: M,
    pub(super) text: Text,
    pub(super) facts: Facts,
    pub(super) max_queue: usize,
    pub(super) on_step: StepListener,
    /// The model's file or directory, for errors.
    pub(super) file: PathBuf,
}

impl<M: Forward> Parts<M> {
    /// Warms up, becomes the engine and serves until it is stopped.
    pub(super) fn serve(self, backend: &str, tells: &Loading) {
        let Self { model, text, facts, max_queue, on_step, file } = self;
        let vocab_size = model.vocab_size();
        let queue = Arc::new(Queue::new(facts.max_sequences, max_queue));
        let compact = facts.device != "cpu";
        let mut engine = Engine::new(model, queue.clone(), facts.max_sequences, facts.max_context, compact, on_step);
        let fingerprint = fingerprint(&facts);
        let unsayable = text.unsayable(vocab_size);
        let text = Arc::new(text);
        let desk = Arc::new(Desk { text, queue: queue.clone(), facts, vocab_size, unsayable, fingerprint });
        let ready = engine
            .warm_up()
            .and_then(|()| desk::start(backend, &desk, queue.room()).map_err(|error| error.to_string()));
        match ready {
            Ok(reader) => tells.tell(Ok(Arc::new(Loaded { desk, reader }))),
            Err(problem) => {
                let problem = format!("it does not run: {problem}");
                return tells.tell(Err(Arc::new(LoadError::new("model", file, problem))));
            }
        }
        if tells.is_abandoned() {
            queue.close(STOPPING);
        }
        if let Some(problem) = engine.run() {
            tracing::error!(
                backend,
                problem,
                "the engine has failed; its requests get 503 until streamgauge is restarted"
            );
        }
    }
}

impl Loaded {
    /// Hands a request's JSON in. It is read elsewhere; when it was accepted, its reply can begin.
    pub(super) async fn hand_in(&self, kind: Kind, body: Bytes) -> Result<Accepted, Refused> {
        // Refused before work is put into it; asked again when it is submitted.
        self.desk.queue.check(1)?;
        let (reply, accepted) = oneshot::channel();
        self.reader.try_send(Unread { kind, body, reply }).map_err(|error| match error {
            TrySendError::Full(_) => {
                let waiting = self.desk.queue.waiting();
                Refused::Full { waiting, retry_after: Duration::from_secs(1) }
            }
            TrySendError::Disconnected(_) => Refused::Down("requests are read no more".to_owned()),
        })?;
        accepted.await.unwrap_or_else(|_| Err(Refused::Broken("reading the request failed".to_owned())))
    }

    /// Where the model runs, and what it takes.
    pub(super) fn announcement(&self) -> String {
        let Facts { device, weights, weight_bytes, kv_bytes, max_sequences, max_context, .. } = &self.desk.facts;
        format!(
            "on {device}, weights {weights} {}, K/V {} for {max_sequences} sequences of {max_context} tokens",
            mebibytes(*weight_bytes),
            mebibytes(*kv_bytes)
        )
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

/// What changes with what may change the output.
fn fingerprint(facts: &Facts) -> String {
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), &facts.device, &facts.weights, facts.weight_bytes).hash(&mut hasher);
    format!("fp_{:010x}", hasher.finish() & 0xff_ffff_ffff)
}
