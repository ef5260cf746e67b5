//! Logs go to standard error, written by a thread of their own so that a slow terminal never holds a stream up.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// The variable that sets levels, in tracing's filter syntax: `info`, `warn,streamgauge::access=off`, …
pub const LEVEL_VARIABLE: &str = "STREAMGAUGE_LOG";
/// Lines that may wait to be written; beyond, new ones are dropped.
const MOST_WAITING: usize = 16_384;

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
/// The level variable does not parse.
pub fn start(format: Format, default_level: &str) -> Result<WorkerGuard, String> {
    let levels = std::env::var(LEVEL_VARIABLE).ok().filter(|levels| !levels.trim().is_empty());
    let levels = levels.as_deref().unwrap_or(default_level);
    let filter = EnvFilter::builder()
        .parse(levels)
        .map_err(|error| format!("{LEVEL_VARIABLE}={levels}: {error}; use a level such as info, warn or debug"))?;
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(MOST_WAITING).lossy(true).finish(std::io::stderr());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // A second call, in tests, keeps the first one's logging.
    let _ = match format {
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        Format::Json => lines.json().flatten_event(true).try_init(),
    };
    Ok(guard)
}
