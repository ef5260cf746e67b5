//! The log of truth: when every event really left, whatever the schedule wished.
//!
//! Invariant: nothing is dropped. A full queue makes the simulation wait, never the log lie.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde::{Serialize, Serializer};

/// One thing that happened in one exchange. All instants are `CLOCK_MONOTONIC` nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The request's name: `request=` of its `x-sim` header, else the `x-request-id` of its reply.
    #[serde(serialize_with = "as_str")]
    pub request: Arc<str>,
    /// The connection's number, counted from 1.
    pub conn: u64,
    /// The event's position in its reply, counted from 0. `None` for what is not an event: request, head, departure.
    pub event: Option<u32>,
    /// What it is.
    pub kind: Kind,
    /// The choice it belongs to; 0 where it belongs to none.
    pub choice: u32,
    /// How many tokens it carries.
    pub tokens: u32,
    /// When the schedule wanted it sent. Never later than `at_ns`.
    pub due_ns: u64,
    /// Right before the write call that carried it (for a request: when its last byte had been read).
    pub at_ns: u64,
    /// Right after the write call that took its last byte.
    pub done_ns: u64,
}

/// What an [`Entry`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request's last byte was read.
    Request,
    /// The reply's head.
    Head,
    /// An event that begins the reply or names its role, and carries no output.
    Role,
    /// An event that only opens or closes a part of the reply, or keeps the connection alive.
    Part,
    /// An event with answer tokens, perhaps reasoning before them; or with the name of a tool to call, and no tokens.
    Token,
    /// An event with reasoning tokens alone.
    Reasoning,
    /// The event with a choice's finish reason.
    Finish,
    /// The event with the token counts.
    Usage,
    /// The event that ends a stream beyond its finish reason: `[DONE]`, `message_stop`.
    Done,
    /// An error inside the stream.
    Error,
    /// A whole reply that is not a stream, head included.
    Body,
    /// One write of a script.
    Raw,
    /// The peer closed or reset the connection before the reply was over.
    PeerLeft,
}

/// Where entries go. Clones share one destination.
#[derive(Debug, Clone)]
pub struct LogSink(Arc<Destination>);

#[derive(Debug)]
enum Destination {
    Memory(Mutex<Vec<Entry>>),
    File(FileLog),
}

impl LogSink {
    /// Keeps entries in memory, readable at once with [`LogSink::entries`]. Grows until they are taken.
    pub fn memory() -> Self {
        Self(Arc::new(Destination::Memory(Mutex::default())))
    }

    /// Writes one JSON object a line to the file at `path`, which is emptied first. Lines appear at the latest when
    /// their exchange ends; dropping the last clone waits until all are written.
    ///
    /// # Errors
    ///
    /// When the file cannot be created or its thread not started.
    pub fn file(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(Destination::File(FileLog::start(File::create(path)?)?))))
    }

    /// A copy of the entries in memory, in the order of their writes; empty for a file.
    pub fn entries(&self) -> Vec<Entry> {
        self.memory_entries().map(|entries| entries.clone()).unwrap_or_default()
    }

    /// The entries in memory, which are then forgotten; empty for a file.
    pub fn take(&self) -> Vec<Entry> {
        self.memory_entries().map(|mut entries| std::mem::take(&mut *entries)).unwrap_or_default()
    }

    fn memory_entries(&self) -> Option<std::sync::MutexGuard<'_, Vec<Entry>>> {
        match &*self.0 {
            Destination::Memory(entries) => Some(entries.lock().unwrap_or_else(PoisonError::into_inner)),
            Destination::File(_) => None,
        }
    }
}

/// One exchange's way into the log; what it holds back is delivered when it is dropped.
#[derive(Debug)]
pub(super) struct Recorder {
    sink: Option<LogSink>,
    held: Vec<Entry>,
}

impl Recorder {
    pub(super) fn new(sink: Option<LogSink>) -> Self {
        Self { sink, held: Vec::new() }
    }

    /// Whether anyone listens; where not, building an entry is wasted work.
    pub(super) fn is_on(&self) -> bool {
        self.sink.is_some()
    }

    pub(super) fn record(&mut self, entry: Entry) {
        const BATCH: usize = 256;
        let Some(sink) = &self.sink else { return };
        if let Some(mut entries) = sink.memory_entries() {
            entries.push(entry);
            return;
        }
        // Waking the writer for every event would disturb the schedule that is being logged.
        self.held.push(entry);
        if self.held.len() >= BATCH {
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        let Some(sink) = &self.sink else { return };
        if let Destination::File(file) = &*sink.0
            && let Some(queue) = &file.queue
            && !self.held.is_empty()
        {
            // Fails only once the writer has given up, which it has reported.
            let _ = queue.send(std::mem::take(&mut self.held));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.deliver();
    }
}

#[derive(Debug)]
struct FileLog {
    /// `None` only while dropping: the writer stops when its queue has no sender.
    queue: Option<SyncSender<Vec<Entry>>>,
    writer: Option<JoinHandle<()>>,
}

impl FileLog {
    fn start(file: File) -> io::Result<Self> {
        const BATCHES: usize = 1024;
        let (queue, batches) = sync_channel(BATCHES);
        let writer = std::thread::Builder::new().name("sim-log".into()).spawn(move || {
            if let Err(error) = write_batches(file, &batches) {
                tracing::error!(%error, "cannot write the simulation's log; entries from here on are lost");
            }
        })?;
        Ok(Self { queue: Some(queue), writer: Some(writer) })
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn write_batches(file: File, batches: &Receiver<Vec<Entry>>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    loop {
        let batch = match batches.try_recv() {
            Ok(batch) => batch,
            Err(TryRecvError::Empty) => {
                out.flush()?;
                let Ok(batch) = batches.recv() else { break };
                batch
            }
            Err(TryRecvError::Disconnected) => break,
        };
        for entry in batch {
            serde_json::to_writer(&mut out, &entry)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()
}

// serde takes `&Arc<str>` only, the field's own type.
fn as_str<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: u32) -> Entry {
        let kind = Kind::PeerLeft;
        Entry {
            request: "a".into(),
            conn: 1,
            event: Some(event),
            kind,
            choice: 0,
            tokens: 1,
            due_ns: 1,
            at_ns: 2,
            done_ns: 3,
        }
    }

    #[test]
    fn a_file_holds_every_entry_in_order_once_the_sink_is_gone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("sim.log");
        let sink = LogSink::file(&path).expect("log file");
        let mut recorder = Recorder::new(Some(sink.clone()));
        (0..1000).for_each(|event| recorder.record(entry(event)));
        drop(recorder);
        drop(sink);
        let text = std::fs::read_to_string(&path).expect("readable");
        let line = |event| {
            format!(
                r#"{{"request":"a","conn":1,"event":{event},"kind":"peer_left","choice":0,"tokens":1,"due_ns":1,"at_ns":2,"done_ns":3}}"#
            )
        };
        let expected: Vec<String> = (0..1000).map(line).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn memory_is_read_at_once_and_forgotten_when_taken() {
        let sink = LogSink::memory();
        let mut recorder = Recorder::new(Some(sink.clone()));
        recorder.record(entry(7));
        assert_eq!(sink.entries(), [entry(7)]);
        assert_eq!(sink.take(), [entry(7)]);
        assert_eq!(sink.entries(), []);
    }
}
