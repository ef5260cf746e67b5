//! Configuration: a TOML file → typed, ready values ([`Config`]).
//!
//! Invariant: what leaves this module needs no further checking. Every key is known, every value in range, every
//! name resolved, every key file read; a file that fails any of this yields one [`ConfigError`] with the file, the
//! line and the key. The environment is an argument, never read here.

mod backend;
mod base_url;
mod client_side;
mod error;
mod proxy;
mod read;
mod read_backend;
mod read_route;
mod route;
mod secret;
mod section;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use backend::{Backend, BackendKind, Device, Dtype, Llama, LoadWeights, MessagesAuth, OpenAi, Quantize};
pub use base_url::{BadUrl, BaseUrl};
pub use client_side::{ClientLimits, TlsFiles};
pub use error::ConfigError;
pub use proxy::Proxy;
pub use route::{Destination, MIRROR_SUFFIX, Mirror, Route};
pub use secret::{KeySource, NotHeaderSafe, Secret};

use section::Source;

/// Everything a configuration says, with defaults filled in.
///
/// Relative paths in it are relative to the working directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The two listeners and the limits on what they accept.
    pub server: Server,
    /// How the log is written.
    pub log: Log,
    /// Where exchanges are recorded.
    pub records: Records,
    /// Where requests can go, in the file's order. Never empty; names are unique.
    pub backends: Vec<Backend>,
    /// Which model goes where; the first match wins. Never empty; globs are valid and unique.
    pub routes: Vec<Route>,
    /// Latency targets counted per request. May be empty; names are unique.
    pub slos: Vec<Slo>,
    /// What is allowed but probably not meant: one sentence each, to be logged at start. Never holds a secret.
    pub warnings: Vec<String>,
}

/// `[server]`: the two listeners and the limits on what they accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where the live page, `/metrics`, `/healthz` and `/readyz` are served.
    pub admin: SocketAddr,
    /// How many single-threaded runtimes serve clients. At least 1; by default the number of cores.
    pub threads: usize,
    /// How long running streams may go on after a stop signal; zero stops at once.
    pub drain_timeout: Duration,
    /// The largest request body accepted, in bytes.
    pub max_body_bytes: usize,
    /// What else is bounded of clients' connections.
    pub limits: ClientLimits,
    /// The certificate clients are shown at `listen`. `None` serves in the clear.
    pub tls: Option<TlsFiles>,
    /// A socket in the file system where clients may connect as well, in the clear.
    pub unix: Option<PathBuf>,
    /// Origins whose pages may read replies and spend a configured key, in lower case: `https://chat.example.org`.
    pub cors: Vec<String>,
    /// Clients may name a backend with the header `x-streamgauge-backend`.
    pub backend_header: bool,
    /// Host names we answer to besides loopback, in lower case and without a port.
    pub hosts: Vec<String>,
}

impl Server {
    /// Whether a request's `Host` is one this process answers to: `localhost`, a configured name, or an address that
    /// `trusted` accepts. A name that somebody else rebound to this machine is none of these.
    pub fn answers_to(&self, host: &str, trusted: impl Fn(IpAddr) -> bool) -> bool {
        let name = without_port(host);
        name.eq_ignore_ascii_case("localhost")
            || name.parse().is_ok_and(trusted)
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host))
    }
}

/// The host alone, an IPv6 address without its brackets.
fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(v6),
        None => host.split(':').next().unwrap_or(host),
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8484)),
            admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 9464)),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            drain_timeout: Duration::from_secs(30),
            max_body_bytes: 64 << 20,
            limits: ClientLimits::default(),
            tls: None,
            unix: None,
            cors: Vec::new(),
            backend_header: false,
            hosts: Vec::new(),
        }
    }
}

/// `[log]`: how the log is written. Its level comes from `STREAMGAUGE_LOG`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Log {
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// `[records]`: where exchanges are recorded, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    /// Whether exchanges are recorded at all.
    pub enabled: bool,
    /// The database file. By default `streamgauge/records.db` in the user's data directory (`$XDG_DATA_HOME`, else
    /// `$HOME/.local/share`), or `streamgauge.db` where neither is set.
    pub path: PathBuf,
    /// Records older than this many days are removed. `None` keeps them.
    pub keep_days: Option<u64>,
    /// The oldest records are removed beyond this many megabytes. `None` sets no bound.
    pub max_mb: Option<u64>,
}

/// `[[slo]]`: latency targets, counted per request. At least one of the two is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slo {
    /// The label `slo` of its metrics.
    pub name: String,
    /// The longest TTFT that meets it. `None` sets no target.
    pub ttft: Option<Duration>,
    /// The longest TPOT that meets it. `None` sets no target.
    pub tpot: Option<Duration>,
}

impl Config {
    /// Reads a configuration file, and the key files it names.
    ///
    /// `env` looks an environment variable up; `None` means unset.
    pub fn load(path: &Path, env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            ConfigError::new(&name, None, "", format!("the configuration file cannot be read: {error}"))
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = memchr::memchr_iter(b'\n', before).count() + 1;
            ConfigError::new(&name, Some(line), "", "the file is not UTF-8 here; save it as UTF-8")
        })?;
        Self::parse(&name, &text, env)
    }

    /// Reads a configuration from text; `name` stands for the file in errors.
    pub fn parse(name: &str, text: &str, env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        read::config(name, text, &env)
    }

    /// The configuration without a file, as `config/streamgauge.toml` spells it out: one backend, which
    /// `TAOTOKEN_API_KEY` and `TAOTOKEN_BASE_URL` adjust. An empty variable counts as unset.
    ///
    /// `env` looks an environment variable up; `None` means unset.
    pub fn default_for_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut config = read::config("built-in configuration", "", &env)?;
        let target = |name: &str, ttft, tpot| Slo {
            name: name.to_owned(),
            ttft: Some(Duration::from_millis(ttft)),
            tpot: Some(Duration::from_millis(tpot)),
        };
        // MLPerf Inference's limits for Llama-2-70B.
        config.slos = vec![target("interactive", 450, 40), target("server", 2000, 200)];
        Ok(config)
    }

    /// An error about a key, given from the top, that shows only when the configuration is put to use: a port in use,
    /// a certificate that cannot be read. The file is read once more for the line.
    pub fn error_at(path: &Path, key: &[&str], problem: &str) -> ConfigError {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = read::line_of(Source { name: &name, text: &text }, key);
        ConfigError::new(&name, line, &key.join("."), problem)
    }

    /// The backend a route leads to; of several, that of [`Route::first`].
    pub fn backend_of(&self, route: &Route) -> &Backend {
        &self.backends[route.first().backend]
    }

    /// The names of the backends, in the file's order.
    pub fn backend_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.backends.iter().map(|backend| &backend.name)
    }
}
