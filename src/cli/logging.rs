//! Logs go to standard error, in batches, from a thread of their own: a slow terminal never holds a stream up, and a
//! busy proxy does not pay a system call per line.
//!
//! Invariant: lines keep their order; what does not fit while standard error is stuck is dropped, counted and said.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::access_log;
use crate::config::LogFormat;
use crate::measure::Listener;

/// The variable that sets levels, in tracing's filter syntax: `info`, `warn,streamgauge::access=off`, …
pub const LEVEL_VARIABLE: &str = "STREAMGAUGE_LOG";
/// Bytes that may wait to be written; beyond, new lines are dropped.
const MOST_WAITING: usize = 8 << 20;
/// How long lines are gathered before they are written together.
const GATHER: Duration = Duration::from_millis(50);

/// How long the last lines may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For reading.
    Text,
    /// One JSON object per line.
    Json,
}

impl From<LogFormat> for Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// Starts logging. Lines still waiting are written when the guard is dropped.
///
/// # Errors
/// The level variable does not parse, or no thread can be had.
pub fn start(format: Format, default_level: &str) -> Result<LogGuard, String> {
    let levels = std::env::var(LEVEL_VARIABLE).ok().filter(|levels| !levels.trim().is_empty());
    let levels = levels.as_deref().unwrap_or(default_level);
    let is_word = |levels: &str| !levels.contains(['=', ',', '[', ':']);
    if is_word(levels) && levels.parse::<LevelFilter>().is_err() {
        return Err(format!("{LEVEL_VARIABLE}={levels}: no such level; use error, warn, info, debug, trace or off"));
    }
    let filter = EnvFilter::builder()
        .parse(levels)
        .map_err(|error| format!("{LEVEL_VARIABLE}={levels}: {error}; use a level such as info, warn or debug"))?;
    let lines = Lines::default();
    let guard = LogGuard::start(lines.clone(), io::stderr()).map_err(|error| error.to_string())?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    // A second call, in tests, keeps the first one's logging.
    let _ = match format {
        Format::Text => logs.with_ansi(io::stderr().is_terminal()).try_init(),
        Format::Json => logs.json().flatten_event(true).try_init(),
    };
    Ok(guard)
}

/// Lines on their way to the writing thread.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Rung when the first line of a batch comes, and at the end.
    bell: Condvar,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    dropped: u64,
    stop: bool,
}

impl Lines {
    /// Adds one whole line, its end included.
    pub(super) fn push(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes.len() + line.len() > MOST_WAITING {
            waiting.dropped += 1;
            return;
        }
        if waiting.bytes.is_empty() {
            self.0.bell.notify_one();
        }
        waiting.bytes.extend_from_slice(line);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a batch and takes it into `batch`, which is empty. Returns whether it is the last one.
    fn take(&self, batch: &mut Vec<u8>) -> bool {
        let empty = |waiting: &mut Waiting| waiting.bytes.is_empty() && !waiting.stop;
        let waiting = self.0.bell.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner);
        let running = |waiting: &mut Waiting| !waiting.stop;
        let gathered = self.0.bell.wait_timeout_while(waiting, GATHER, running);
        let (mut waiting, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(batch, &mut waiting.bytes);
        let dropped = std::mem::take(&mut waiting.dropped);
        if dropped > 0 {
            batch.extend_from_slice(
                format!("{dropped} log lines were dropped: standard error is too slow\n").as_bytes(),
            );
        }
        waiting.stop
    }
}

/// One line: tracing formats it whole and writes it once.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Keeps the writing thread; dropping it writes what still waits.
pub struct LogGuard {
    lines: Lines,
    thread: Option<JoinHandle<()>>,
}

impl LogGuard {
    /// Writes a line to this log for every finished exchange.
    pub fn access_log(&self, format: Format) -> Listener {
        access_log::listener(self.lines.clone(), format)
    }

    fn start(lines: Lines, mut to: impl Write + Send + 'static) -> io::Result<Self> {
        let theirs = lines.clone();
        let write = move || {
            let mut batch = Vec::new();
            loop {
                let last = theirs.take(&mut batch);
                // Nobody is left to be told when standard error is gone.
                let _ = to.write_all(&batch);
                batch.clear();
                if last {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("log".into()).spawn(write)?;
        Ok(Self { lines, thread: Some(thread) })
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.lines.lock().stop = true;
        self.lines.0.bell.notify_one();
        // A standard error that nobody reads must not hold the end up.
        let Some(thread) = self.thread.take() else { return };
        for _ in 0..100 {
            if thread.is_finished() {
                break;
            }
            std::thread::sleep(LAST_WORDS / 100);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers what was written, and how often.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.0.lock().unwrap();
            written.0.extend_from_slice(bytes);
            written.1 += 1;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_is_written_in_order_and_few_writes_do_it() {
        let lines = Lines::default();
        let written = Written::default();
        let guard = LogGuard::start(lines.clone(), written.clone()).unwrap();
        let mut expected = Vec::new();
        for number in 0..1_000 {
            writeln!(expected, "line {number}").unwrap();
            (&lines).write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        drop(guard);
        let (bytes, writes) = written.0.lock().unwrap().clone();
        assert_eq!(bytes, expected);
        assert!(writes < 500, "{writes} writes for 1000 lines");
    }

    #[test]
    fn what_does_not_fit_is_counted_and_said() {
        let lines = Lines::default();
        (&lines).write_all(&vec![b'x'; MOST_WAITING]).unwrap();
        (&lines).write_all(b"one too many\n").unwrap();
        let mut batch = Vec::new();
        lines.lock().stop = true;
        assert!(lines.take(&mut batch));
        assert!(batch.ends_with(b"1 log lines were dropped: standard error is too slow\n"));
        assert_eq!(batch.split(|byte| *byte == b'\n').count(), 2);
    }
}
