//! A script: a reply given byte by byte, with its delays, its cuts and its end.
//!
//! Written as TOML. Everything may be left out:
//!
//! ```toml
//! status = 200                                   # of the reply's head
//! headers = [["x-request-id", "abc"]]            # verbatim, in order; content-type is text/event-stream if not given
//! framing = "chunked"                            # chunked | length | close | raw
//! end = "complete"                               # complete | fin | rst | silence
//! head_ms = 5                                    # when the head is sent, after the request was read
//!
//! [[step]]
//! send = "data: {\"a\":1}\n\n"                   # one write (and, if chunked, one chunk)
//!
//! [[step]]
//! wait_ms = 20                                   # before sending; counted from the step before, so nothing drifts
//! send = ": ping\n\n"
//! repeat = 3                                     # wait and send, three times
//!
//! [[step]]
//! send_hex = "ef bb bf"                          # bytes that are not text
//! times = 1000                                   # this many times over, in one send
//! cut = 16                                       # in writes of 16 bytes each
//! cut_wait_us = 500                              # with a wait before each write but the first
//! ```
//!
//! `chunked` makes each write a chunk; `length` states a `content-length` of all that the steps send; `close` ends the
//! body with the connection; `raw` sends nothing by itself, so that the steps write the head as well. A `headers` pair
//! that frames the body (`content-length`, `transfer-encoding`) replaces the header the framing would add, lies included.
//!
//! `complete` ends the body as the framing says and keeps the connection where it can; `fin` closes it there and then,
//! `rst` resets it, `silence` leaves it open until the peer leaves.
//!
//! One file can hold many scripts, as tables `[script.NAME]` with steps `[[script.NAME.step]]`; a folder of files is as
//! many scripts, each named by its file. A request plays one with `x-sim: script=NAME` or the model `script:NAME`;
//! a file with one script alone is what every request for a reply gets, whatever its dialect.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

/// A reply, byte by byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The status of the head.
    pub status: u16,
    /// Headers, verbatim and in order.
    pub headers: Vec<(String, String)>,
    /// How the end of the body shows.
    pub framing: Framing,
    /// When the head is sent, after the request was read.
    pub head: Duration,
    /// The body.
    pub steps: Vec<Step>,
    /// What happens after the last step.
    pub end: End,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            framing: Framing::Chunked,
            head: Duration::ZERO,
            steps: Vec::new(),
            end: End::Complete,
        }
    }
}

impl Script {
    /// A complete event stream that sends `bytes` in one write.
    pub fn sending(bytes: impl Into<Bytes>) -> Self {
        Self { steps: vec![Step::send(bytes)], ..Self::default() }
    }

    /// How many bytes the steps send in all.
    pub fn length(&self) -> usize {
        self.steps.iter().map(|step| step.bytes.len() * step.repeat as usize).sum()
    }

    /// All bytes the steps send, in order: the body as a client must see it.
    pub fn bytes(&self) -> Vec<u8> {
        self.steps.iter().flat_map(|step| step.bytes.repeat(step.repeat as usize)).collect()
    }
}

/// A wait, then bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Before the bytes, counted from the deadline of the step before.
    pub wait: Duration,
    /// What is sent. Empty for a wait alone.
    pub bytes: Bytes,
    /// The most bytes of one write. `None` for all at once.
    pub cut: Option<usize>,
    /// Before every write but the first.
    pub cut_wait: Duration,
    /// How many times all this happens.
    pub repeat: u32,
}

impl Step {
    /// Sends `bytes` at once.
    pub fn send(bytes: impl Into<Bytes>) -> Self {
        Self { wait: Duration::ZERO, bytes: bytes.into(), cut: None, cut_wait: Duration::ZERO, repeat: 1 }
    }

    /// Only waits.
    pub fn wait(wait: Duration) -> Self {
        Self { wait, ..Self::send(Bytes::new()) }
    }

    /// The same step, sent in pieces of at most `size` bytes, `wait` apart.
    #[must_use]
    pub fn cut_every(self, size: usize, wait: Duration) -> Self {
        Self { cut: Some(size), cut_wait: wait, ..self }
    }

    /// The pieces of one round, each with the wait before it.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Duration, Bytes)> + '_ {
        let size = self.cut.unwrap_or(usize::MAX).max(1);
        let count = self.bytes.len().div_ceil(size).max(1);
        (0..count).map(move |index| {
            let start = index * size;
            let piece = self.bytes.slice(start..start.saturating_add(size).min(self.bytes.len()));
            (if index == 0 { self.wait } else { self.cut_wait }, piece)
        })
    }
}

/// How the end of a body shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// `transfer-encoding: chunked`, each write a chunk.
    Chunked,
    /// `content-length`.
    Length,
    /// The connection closes.
    Close,
    /// Not at all: the steps write the head as well, and the framing if they want any.
    Raw,
}

/// What happens after the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The body ends as its framing says.
    Complete,
    /// The connection is closed there and then (TCP FIN).
    Fin,
    /// The connection is reset (TCP RST).
    Rst,
    /// Nothing, until the peer leaves.
    Silence,
}

/// The scripts a simulation knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scripts {
    /// What every request for a reply gets that names no other. `None` for the schedule.
    pub default: Option<Script>,
    /// Scripts that a request can ask for by name.
    pub named: BTreeMap<String, Script>,
}

impl From<Script> for Scripts {
    fn from(script: Script) -> Self {
        Self { default: Some(script), named: BTreeMap::new() }
    }
}

impl Scripts {
    /// Reads a file, or every `*.toml` of a folder.
    ///
    /// # Errors
    ///
    /// See [`ScriptError`].
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let unreadable = |source| ScriptError::Unreadable { path: path.to_owned(), source };
        let invalid = |path: &Path, reason| ScriptError::Invalid { path: path.to_owned(), reason };
        if !path.is_dir() {
            let text = std::fs::read_to_string(path).map_err(unreadable)?;
            return Self::parse(&text).map_err(|reason| invalid(path, reason));
        }
        let mut all = Self::default();
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?.path();
            if file.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let one = Self::load(&file)?;
            let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
            for (name, script) in one.default.map(|script| (stem, script)).into_iter().chain(one.named) {
                if all.named.contains_key(&name) {
                    return Err(invalid(&file, format!("a script `{name}` exists already; rename one")));
                }
                all.named.insert(name, script);
            }
        }
        if all.named.is_empty() {
            return Err(invalid(path, "the folder holds no script, no *.toml".into()));
        }
        Ok(all)
    }

    /// Reads the text of one file. The error is a sentence, with line and key where TOML knows them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        if table.contains_key("script") {
            let many: Many = toml::from_str(text).map_err(|error| error.to_string())?;
            let ready = |(name, script): (String, RawScript)| match script.ready() {
                Ok(script) => Ok((name, script)),
                Err(problem) => Err(format!("script `{name}`: {problem}")),
            };
            return Ok(Self { default: None, named: many.script.into_iter().map(ready).collect::<Result<_, _>>()? });
        }
        let one: RawScript = toml::from_str(text).map_err(|error| error.to_string())?;
        one.ready().map(Self::from)
    }
}

/// Why scripts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file or folder is not there, not readable, or not UTF-8.
    #[error("cannot read the script {}: {source}; give --script a TOML file or a folder of them", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is not TOML, or not a script.
    #[error("{} is not a script: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Many {
    script: BTreeMap<String, RawScript>,
}

/// A script as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScript {
    status: Option<u16>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    framing: Option<Framing>,
    end: Option<End>,
    #[serde(default)]
    head_ms: u64,
    #[serde(default)]
    step: Vec<RawStep>,
}

/// A step as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    send: Option<String>,
    send_hex: Option<String>,
    wait_ms: Option<u64>,
    wait_us: Option<u64>,
    times: Option<usize>,
    cut: Option<usize>,
    cut_wait_us: Option<u64>,
    repeat: Option<u32>,
}

impl RawScript {
    fn ready(self) -> Result<Script, String> {
        let steps = self.step.into_iter().enumerate();
        let ready =
            |(index, step): (usize, RawStep)| step.ready().map_err(|problem| format!("step {}: {problem}", index + 1));
        Ok(Script {
            status: self.status.unwrap_or(200),
            headers: self.headers,
            framing: self.framing.unwrap_or(Framing::Chunked),
            head: Duration::from_millis(self.head_ms),
            steps: steps.map(ready).collect::<Result<_, _>>()?,
            end: self.end.unwrap_or(End::Complete),
        })
    }
}

impl RawStep {
    fn ready(self) -> Result<Step, String> {
        let bytes = match (self.send, self.send_hex) {
            (Some(_), Some(_)) => return Err("give send or send_hex, not both".into()),
            (Some(text), None) => text.into_bytes(),
            (None, Some(hex)) => from_hex(&hex)?,
            (None, None) if self.wait_ms.is_none() && self.wait_us.is_none() => {
                return Err("it neither sends nor waits; give send, send_hex, wait_ms or wait_us".into());
            }
            (None, None) => Vec::new(),
        };
        if self.cut == Some(0) {
            return Err("cut must be at least 1".into());
        }
        let micros = self.wait_ms.unwrap_or(0).saturating_mul(1_000).saturating_add(self.wait_us.unwrap_or(0));
        Ok(Step {
            wait: Duration::from_micros(micros),
            bytes: bytes.repeat(self.times.unwrap_or(1)).into(),
            cut: self.cut,
            cut_wait: Duration::from_micros(self.cut_wait_us.unwrap_or(0)),
            repeat: self.repeat.unwrap_or(1),
        })
    }
}

/// Bytes from pairs of hexadecimal digits; white space between pairs is ignored.
fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let value = |digit: char| {
        let value = digit.to_digit(16).and_then(|value| u8::try_from(value).ok());
        value.ok_or_else(|| format!("send_hex: `{digit}` is not a hexadecimal digit"))
    };
    digits
        .chunks(2)
        .map(|pair| match *pair {
            [high, low] => Ok(value(high)? << 4 | value(low)?),
            _ => Err("send_hex: the last byte has one digit".into()),
        })
        .collect()
}

#[cfg(test)]
mod tests;
