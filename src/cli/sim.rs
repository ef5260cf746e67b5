//! `streamgauge sim`: the simulated upstream as a program.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::backend::sim::{LogSink, RequestRecord, Schedule, ScriptError, Scripts, Sim, SimConfig};

/// Simulate an upstream: a server for OpenAI's and Anthropic's APIs that streams on an exact schedule.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    /// Where to listen; port 0 picks a free one
    #[arg(long, env = "STREAMGAUGE_SIM_LISTEN", default_value = "127.0.0.1:9100", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// From the request's last byte to the first token event, in milliseconds
    #[arg(long, env = "STREAMGAUGE_SIM_TTFT_MS", default_value = "200", value_name = "MS", value_parser = millis)]
    pub ttft_ms: Duration,
    /// Between token events, in milliseconds
    #[arg(long, env = "STREAMGAUGE_SIM_ITL_MS", default_value = "20", value_name = "MS", value_parser = millis)]
    pub itl_ms: Duration,
    /// What each token of the prompt adds to the first token event's delay, in milliseconds
    #[arg(long, env = "STREAMGAUGE_SIM_PROMPT_MS", default_value = "0", value_name = "MS", value_parser = millis)]
    pub prompt_ms: Duration,
    /// What a stall adds to a gap, in milliseconds
    #[arg(long, env = "STREAMGAUGE_SIM_STALL_MS", default_value = "0", value_name = "MS", value_parser = millis)]
    pub stall_ms: Duration,
    /// A stall precedes every Nth token event after the first; 0 for none
    #[arg(long, env = "STREAMGAUGE_SIM_STALL_EVERY", default_value_t = 0, value_name = "N")]
    pub stall_every: u32,
    /// Output tokens of each choice, unless the request allows fewer
    #[arg(long, env = "STREAMGAUGE_SIM_TOKENS", default_value_t = 64, value_name = "N")]
    pub tokens: u32,
    /// Tokens in each event
    #[arg(long, env = "STREAMGAUGE_SIM_TOKENS_PER_EVENT", default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens_per_event: u32,
    /// Events in each write, due together
    #[arg(long, env = "STREAMGAUGE_SIM_EVENTS_PER_WRITE", default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub events_per_write: u32,
    /// Begin with an event that only names the role, or begins the reply
    #[arg(long, env = "STREAMGAUGE_SIM_ROLE_FIRST")]
    pub role_first: bool,
    /// How many of the tokens, from the first on, are reasoning
    #[arg(long, env = "STREAMGAUGE_SIM_REASONING", default_value_t = 0, value_name = "N")]
    pub reasoning: u32,
    /// A name for /v1/models to list; may be given many times. Requests may name any model
    #[arg(
        long = "model",
        env = "STREAMGAUGE_SIM_MODEL",
        default_value = "sim",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub models: Vec<String>,
    /// Serve TLS with this certificate chain (PEM)
    #[arg(long, env = "STREAMGAUGE_SIM_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, env = "STREAMGAUGE_SIM_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Write when every event really left, one JSON object a line
    #[arg(long, env = "STREAMGAUGE_SIM_LOG", value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Write every request down before its reply begins, one JSON object a line; credentials are left out
    #[arg(long, env = "STREAMGAUGE_SIM_REQUESTS", value_name = "FILE")]
    pub requests: Option<PathBuf>,
    /// Replies given byte by byte: a TOML file, or a folder of them
    #[arg(long, env = "STREAMGAUGE_SIM_SCRIPT", value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Threads that serve
    #[arg(long, env = "STREAMGAUGE_SIM_THREADS", default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
}

/// Why a simulation could not run. All but [`SimError::Runtime`] are the arguments' fault.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The address is taken, not ours, or not permitted.
    #[error("the simulation cannot listen on {addr}: {source}; give another --listen, or port 0 for any free one")]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The certificate or key is unreadable, not PEM, or they do not belong together.
    #[error("the simulation cannot use {} as its TLS certificate or key: {reason}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The log file cannot be created.
    #[error("the simulation cannot write its log to {}: {source}; give another --log", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file for requests cannot be created.
    #[error("the simulation cannot write requests to {}: {source}; give another --requests", path.display())]
    Requests {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The script is unreadable or wrong.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The system has no thread, descriptor or signal handler to give.
    #[error("the simulation cannot start: {0}")]
    Runtime(#[from] io::Error),
}

/// Listens, prints one line that says where, and serves until SIGINT or SIGTERM.
///
/// # Errors
///
/// See [`SimError`].
pub fn run(args: &SimArgs) -> Result<(), SimError> {
    let config = config(args)?;
    let runtime = runtime()?;
    let listen = |source| SimError::Listen { addr: args.listen, source };
    let sim = runtime.block_on(Sim::bind(args.listen, config)).map_err(listen)?;
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    let addr = sim.local_addr().map_err(listen)?;
    let mut signals = runtime.block_on(async { Signals::new() })?;

    let (stop, stopped) = watch::channel(());
    let mut helpers = Vec::new();
    for number in 1..args.threads {
        let (shared, mut stopped) = (sim.share()?, stopped.clone());
        let runtime = self::runtime()?;
        let serve = move || {
            runtime.block_on(async move {
                match shared.here() {
                    Ok(sim) => sim.run(async { drop(stopped.changed().await) }).await,
                    Err(error) => tracing::error!(%error, "one of the simulation's threads cannot listen"),
                }
            });
        };
        helpers.push(std::thread::Builder::new().name(format!("sim-{number}")).spawn(serve)?);
    }
    // Whoever closed our output does not want to know.
    let _ = writeln!(io::stdout(), "sim listens on {scheme}://{addr}/v1");
    runtime.block_on(sim.run(async { signals.any().await }));
    // What the other threads wait for: a change, or that none can come any more.
    drop(stop);
    for helper in helpers {
        let _ = helper.join();
    }
    Ok(())
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn config(args: &SimArgs) -> Result<SimConfig, SimError> {
    let log = |path: &PathBuf| LogSink::file(path).map_err(|source| SimError::Log { path: path.clone(), source });
    let requests =
        |path: &PathBuf| RequestRecord::file(path).map_err(|source| SimError::Requests { path: path.clone(), source });
    Ok(SimConfig {
        schedule: Schedule {
            ttft: args.ttft_ms,
            per_prompt_token: args.prompt_ms,
            itl: args.itl_ms,
            stall: args.stall_ms,
            stall_every: args.stall_every,
            tokens: args.tokens,
            tokens_per_event: args.tokens_per_event,
            events_per_write: args.events_per_write,
            role_first: args.role_first,
            reasoning: args.reasoning,
            ..Schedule::default()
        },
        models: args.models.clone(),
        tls: match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => Some(tls(cert, key)?),
            _ => None,
        },
        log: args.log.as_ref().map(log).transpose()?,
        scripts: args.script.as_deref().map(Scripts::load).transpose()?.unwrap_or_default(),
        keep_requests: false,
        requests: args.requests.as_ref().map(requests).transpose()?,
    })
}

fn tls(cert: &PathBuf, key: &PathBuf) -> Result<Arc<rustls::ServerConfig>, SimError> {
    let wrong = |path: &PathBuf, reason: String| SimError::Tls { path: path.clone(), reason };
    let chain: Vec<_> = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(cert, error.to_string()))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| wrong(cert, error.to_string()))?;
    Ok(Arc::new(config))
}

fn millis(text: &str) -> Result<Duration, String> {
    let ms: f64 = text.parse().map_err(|_| "not a number of milliseconds".to_owned())?;
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|_| "not a duration in milliseconds".to_owned())
}

/// The signals that end the program.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        sim: SimArgs,
    }

    fn parse(flags: &[&str]) -> Result<SimArgs, clap::Error> {
        Program::try_parse_from([&["sim"], flags].concat()).map(|program| program.sim)
    }

    #[test]
    fn flags_become_a_configuration() {
        let flags = "--ttft-ms 120.5 --itl-ms 0 --tokens 9 --tokens-per-event 2 --events-per-write 8 --role-first \
                     --reasoning 3 --model a --model b";
        let args = parse(&flags.split_whitespace().collect::<Vec<_>>()).expect("valid flags");
        let config = config(&args).expect("valid configuration");
        let expected = Schedule {
            ttft: Duration::from_micros(120_500),
            itl: Duration::ZERO,
            tokens: 9,
            tokens_per_event: 2,
            events_per_write: 8,
            role_first: true,
            reasoning: 3,
            ..Schedule::default()
        };
        assert_eq!(config.schedule, expected);
        assert_eq!(config.models, ["a", "b"]);
        assert_eq!(parse(&[]).map(|args| args.ttft_ms).ok(), Some(Schedule::default().ttft));
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for flags in [&["--events-per-write", "0"][..], &["--tls-cert", "c.pem"], &["--itl-ms", "-1"], &["--wat"]] {
            assert!(parse(flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let missing = |flags: &[&str]| config(&parse(flags).expect("valid flags")).expect_err("missing").to_string();
        let script = missing(&["--script", "no/such.toml"]);
        assert!(script.starts_with("cannot read the script no/such.toml: "), "{script}");
        let cert = missing(&["--tls-cert", "no/cert.pem", "--tls-key", "no/key.pem"]);
        assert!(cert.starts_with("the simulation cannot use no/cert.pem as its TLS certificate or key: "), "{cert}");
        let log = missing(&["--log", "no/such/folder/sim.log"]);
        assert!(log.starts_with("the simulation cannot write its log to no/such/folder/sim.log: "), "{log}");
        let requests = missing(&["--requests", "no/such/folder/requests"]);
        let expected = "the simulation cannot write requests to no/such/folder/requests: ";
        assert!(requests.starts_with(expected), "{requests}");
    }
}
