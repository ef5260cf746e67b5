//! Counting tokens by a backend's tokenizer, on one thread beside the traffic and of low priority.
//!
//! Invariants: nobody who serves waits for a count; what the queue has no room for is told uncounted. Texts are dropped
//! when they are counted.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokenizers::Tokenizer;

use super::BackendError;
use crate::config::{Backend, BackendKind};
use crate::measure::{Counter, Uncounted};
use crate::niceness::yield_to_proxy;

/// How long a stop waits for counts, and then for the one at hand.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most exchanges that wait.
const MOST_WAITING: usize = 256;
/// The most bytes that those which wait hold, in text and requests.
const MOST_BYTES: usize = 16 << 20;

/// A tokenizer file that cannot be put to use.
#[derive(Debug, Error)]
#[error("{}: {problem}; give the tokenizer.json of the model that the upstream serves", path.display())]
pub struct TokenizerError {
    path: PathBuf,
    problem: String,
}

/// The tokenizers of all backends, and the thread that counts with them.
pub(super) struct Tokens {
    /// By backend index; `None` for a backend without a tokenizer.
    counters: Vec<Option<Arc<dyn Counter>>>,
    queue: Arc<Queue>,
    /// `None` where there is nothing to count with, and once stopped.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Tokens {
    /// Reads every tokenizer, and starts the thread if there is one.
    pub(super) fn start(backends: &[Backend]) -> Result<Self, BackendError> {
        let (send, receive) = sync_channel(MOST_WAITING);
        let queue = Arc::new(Queue { send: Mutex::new(Some(send)), bytes: Arc::default(), hurry: Arc::default() });
        let mut read: Vec<(&Path, Arc<Tokenizer>)> = Vec::new();
        let mut counters = Vec::new();
        for backend in backends {
            let path = match &backend.kind {
                BackendKind::OpenAi(openai) => openai.tokenizer.as_deref(),
                BackendKind::Llama(_) => None,
            };
            let Some(path) = path else {
                counters.push(None);
                continue;
            };
            let known = read.iter().find(|(known, _)| *known == path).map(|(_, tokenizer)| tokenizer.clone());
            let tokenizer = match known {
                Some(tokenizer) => tokenizer,
                None => {
                    Arc::new(load(path).map_err(|error| BackendError::Tokenizer { name: backend.name.clone(), error })?)
                }
            };
            read.push((path, tokenizer.clone()));
            let counter: Arc<dyn Counter> = Arc::new(ByTokenizer { tokenizer, queue: queue.clone() });
            counters.push(Some(counter));
        }
        let (bytes, hurry) = (queue.bytes.clone(), queue.hurry.clone());
        let work = move || {
            yield_to_proxy();
            count_all(&receive, &bytes, &hurry);
        };
        let thread =
            if read.is_empty() { None } else { Some(thread::Builder::new().name("tokens".to_owned()).spawn(work)?) };
        Ok(Self { counters, queue, thread: Mutex::new(thread) })
    }

    /// Who counts for a backend.
    pub(super) fn of(&self, backend: usize) -> Option<&Arc<dyn Counter>> {
        self.counters[backend].as_ref()
    }

    /// Waits until all that was taken is counted and told; nothing more is taken. What takes longer than [`PATIENCE`] is
    /// told uncounted.
    pub(super) fn stop(&self) {
        drop(lock(&self.queue.send).take());
        let Some(thread) = lock(&self.thread).take() else { return };
        let ends_within_patience = || {
            let began = Instant::now();
            while !thread.is_finished() && began.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(2));
            }
            thread.is_finished()
        };
        let ended = ends_within_patience() || {
            self.queue.hurry.store(true, Relaxed);
            ends_within_patience()
        };
        if !ended {
            tracing::warn!("a tokenizer does not come to an end; its request stays in flight");
        } else if thread.join().is_err() {
            tracing::error!("the thread that counts tokens panicked");
        }
    }
}

/// Whether a tokenizer can be put to use.
///
/// # Errors
/// What `serve` would say at its start.
pub fn check_tokenizer(path: &Path) -> Result<(), TokenizerError> {
    load(path).map(drop)
}

fn load(path: &Path) -> Result<Tokenizer, TokenizerError> {
    let failed = |problem: String| TokenizerError { path: path.to_owned(), problem };
    let bytes = std::fs::read(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| failed(format!("not a tokenizer: {error}")))?;
    // Some files are made for embeddings, and cut or fill every text to one length.
    tokenizer.with_truncation(None).map_err(|error| failed(format!("cannot be used: {error}")))?;
    tokenizer.with_padding(None);
    // In a text, what is spelt like a control token is text.
    tokenizer.set_encode_special_tokens(true);
    Ok(tokenizer)
}

/// What waits to be counted.
struct Queue {
    /// `None` once stopped.
    send: Mutex<Option<SyncSender<Job>>>,
    /// The bytes that those which wait hold, and the one at hand.
    bytes: Arc<AtomicUsize>,
    /// What still waits is to be told uncounted.
    hurry: Arc<AtomicBool>,
}

struct Job {
    uncounted: Box<Uncounted>,
    tokenizer: Arc<Tokenizer>,
    bytes: usize,
}

/// One backend's way into the queue.
struct ByTokenizer {
    tokenizer: Arc<Tokenizer>,
    queue: Arc<Queue>,
}

impl Counter for ByTokenizer {
    fn take(&self, uncounted: Box<Uncounted>) -> Result<(), Box<Uncounted>> {
        let bytes = uncounted.size();
        // Under the lock, so that two do not both take the last room.
        let send = lock(&self.queue.send);
        let Some(send) = send.as_ref().filter(|_| self.queue.bytes.load(Relaxed) + bytes <= MOST_BYTES) else {
            return Err(uncounted);
        };
        self.queue.bytes.fetch_add(bytes, Relaxed);
        let job = Job { uncounted, tokenizer: self.tokenizer.clone(), bytes };
        send.try_send(job).map_err(|refused| {
            let (TrySendError::Full(job) | TrySendError::Disconnected(job)) = refused;
            self.queue.bytes.fetch_sub(bytes, Relaxed);
            job.uncounted
        })
    }
}

fn count_all(receive: &Receiver<Job>, waiting: &AtomicUsize, hurry: &AtomicBool) {
    for Job { uncounted, tokenizer, bytes } in receive {
        let tokens = |text: &str| {
            let in_time = !hurry.load(Relaxed);
            in_time.then(|| tokenizer.encode_fast(text, false).ok().map(|encoding| encoding.len() as u64)).flatten()
        };
        uncounted.counted(tokens);
        waiting.fetch_sub(bytes, Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
