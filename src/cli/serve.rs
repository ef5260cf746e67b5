//! `streamgauge serve`: read the configuration, start, wait for a signal, drain.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::running::{Announcement, Running, StartError};
use super::{Failed, LogArgs, engine_threads, logging};
use crate::config::{BackendKind, Config};

/// Flags of `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The configuration file.
    #[arg(
        long,
        help = "The configuration file; without one, see TAOTOKEN_API_KEY and TAOTOKEN_BASE_URL",
        value_name = "FILE",
        env = "STREAMGAUGE_CONFIG"
    )]
    config: Option<PathBuf>,
    /// Where clients connect, in place of server.listen.
    #[arg(long, value_name = "ADDR", env = "STREAMGAUGE_LISTEN")]
    listen: Option<SocketAddr>,
    /// Where the live page and /metrics are served, in place of server.admin.
    #[arg(long, value_name = "ADDR", env = "STREAMGAUGE_ADMIN")]
    admin: Option<SocketAddr>,
    #[command(flatten)]
    log: LogArgs,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// The configuration cannot be served, or the system refuses something.
pub fn run(args: &ServeArgs) -> Result<(), Failed> {
    let environment = |name: &str| std::env::var(name).ok();
    let mut config = match &args.config {
        Some(path) => Config::load(path, environment),
        None => Config::default_for_env(environment),
    }
    .map_err(Failed::configuration)?;
    config.server.listen = args.listen.unwrap_or(config.server.listen);
    config.server.admin = args.admin.unwrap_or(config.server.admin);

    // Before the log starts the first thread.
    engine_threads::limit(&config);
    let format = args.log.log_format.unwrap_or(config.log.format.into());
    let log = logging::start(format, "info").map_err(Failed::configuration)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let mut signals = Signals::new().map_err(Failed::running)?;
    let running = Running::start(&config, vec![log.access_log(format)]).map_err(|error| blamed(args, &error))?;
    announce(&config, &running);
    let loading = running.loading();
    let loaded = in_background("loading", move || loading(&mut announce_model)).map_err(Failed::running)?;
    let name = match signals.unless(loaded) {
        Ok(loaded) => {
            loaded.map_err(|error| blamed(args, &error))?;
            signals.wait()
        }
        Err(name) => name,
    };
    tracing::info!(signal = name, "stopping: open requests may finish; a second signal stops at once");
    signals.then_exit().map_err(Failed::running)?;
    let cut = running.stop();
    if cut > 0 {
        tracing::warn!(connections = cut, "drain_timeout_ms is over: connections were cut off");
    }
    Ok(())
}

/// Names what cannot be put to use: the flag, or the file, line and key.
fn blamed(args: &ServeArgs, error: &StartError) -> Failed {
    let Some(key) = error.key() else { return Failed::running(error) };
    let flag = match key[..] {
        ["server", "listen"] => args.listen.map(|_| "--listen"),
        ["server", "admin"] => args.admin.map(|_| "--admin"),
        _ => None,
    };
    match (flag, &args.config) {
        (Some(flag), _) => Failed::configuration(format!("{flag}: {}", error.problem())),
        (None, Some(path)) => Failed::configuration(Config::error_at(path, &key, &error.problem())),
        (None, None) => match key[..] {
            ["server", flag] => {
                Failed::configuration(format!("--{flag}, STREAMGAUGE_{}: {}", flag.to_uppercase(), error.problem()))
            }
            _ => Failed::configuration(error),
        },
    }
}

fn announce(config: &Config, running: &Running) {
    for backend in &config.backends {
        match &backend.kind {
            BackendKind::OpenAi(openai) => {
                let key = if openai.api_key.is_some() { "configured" } else { "the client's own" };
                let proxy = openai.proxy.as_ref().map(|proxy| format!("{proxy} ({})", proxy.variable));
                tracing::info!(backend = %backend.name, base_url = %openai.base_url, key, proxy, "backend");
            }
            BackendKind::Llama(llama) => {
                tracing::info!(backend = %backend.name, model = %llama.model.display(), "loading");
            }
        }
    }
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    tracing::info!(
        base_url = format!("{scheme}://{}/v1", running.listen()),
        live = format!("http://{}/", running.admin()),
        metrics = format!("http://{}/metrics", running.admin()),
        unix = config.server.unix.as_ref().map(|path| path.display().to_string()),
        "listening"
    );
}

fn announce_model(model: Announcement) {
    let Announcement { backend, what, notes } = model;
    for note in notes {
        tracing::info!(%backend, "{note}");
    }
    tracing::info!(%backend, "loaded {what}");
}

/// Does `work` on a named thread; what it returns is received.
fn in_background<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (tell, told) = oneshot::channel();
    let done = move || drop(tell.send(work()));
    thread::Builder::new().name(name.to_owned()).spawn(done).map(|_| told)
}

/// The signals that ask a process to stop, caught from now on.
pub struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Catches SIGTERM and SIGINT.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        drop(inside);
        Ok(Self { runtime, terminate, interrupt })
    }

    /// Waits for one, and names it.
    pub fn wait(&mut self) -> &'static str {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
            }
        })
    }

    /// Waits for `told`, or for one.
    ///
    /// # Errors
    /// The signal's name, when it came first.
    pub fn unless<T>(&mut self, told: oneshot::Receiver<T>) -> Result<T, &'static str> {
        self.runtime.block_on(async {
            tokio::select! {
                told = told => Ok(told.unwrap_or_else(|_| unreachable!("a thread tells what it has done"))),
                _ = self.terminate.recv() => Err("SIGTERM"),
                _ = self.interrupt.recv() => Err("SIGINT"),
            }
        })
    }

    /// From now on the next one ends the process at once, with exit code 1.
    ///
    /// # Errors
    /// The system gives no thread to wait in.
    pub fn then_exit(mut self) -> io::Result<()> {
        let waiting = move || {
            self.wait();
            std::process::exit(1);
        };
        thread::Builder::new().name("signals".to_owned()).spawn(waiting).map(drop)
    }
}
