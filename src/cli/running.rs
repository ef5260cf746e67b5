//! A proxy that runs: its threads, its addresses, and the way to stop it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::admin::{Admin, Live};
use crate::backend::llama::{Llama, LoadError};
use crate::config::{self, Config};
use crate::measure::{Listener, Meter};
use crate::niceness::yield_to_proxy;
use crate::proxy::{BackendError, Mirroring, Proxy, Site};
use crate::server::{self, Limits, Listeners, Places, Tls, TlsError, bind};

/// Connections that the admin listener serves at once: scrapers, and live pages.
const ADMIN_CONNECTIONS: usize = 256;
/// How often idle upstream connections are looked over, and, elsewhere, a certificate's files.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Why a proxy does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A backend cannot be set up.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A model cannot be loaded.
    #[error("backend.{name}.{}: {error}", error.key)]
    Load {
        /// The backend's name.
        name: Arc<str>,
        /// What is wrong with the model.
        error: Arc<LoadError>,
    },
    /// A listener cannot be bound.
    #[error("server.{key}: {}", self.problem())]
    Bind {
        /// The configuration key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The Unix socket cannot be bound.
    #[error("server.unix: {}", self.problem())]
    Unix {
        /// Its path.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The certificate that clients are to be shown cannot be used.
    #[error("server.tls.{0}")]
    Tls(#[from] TlsError),
    /// A thread or runtime cannot be had.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

impl StartError {
    /// The configuration key at fault, from the top. `None` where none is.
    pub fn key(&self) -> Option<Vec<&str>> {
        match self {
            Self::Backend(BackendError::Upstream { name, error }) => Some(vec!["backend", name, error.key()]),
            Self::Backend(BackendError::Tokenizer { name, .. }) => Some(vec!["backend", name, "tokenizer"]),
            Self::Load { name, error } => Some(vec!["backend", name, error.key]),
            Self::Bind { key, .. } => Some(vec!["server", key]),
            Self::Unix { .. } => Some(vec!["server", "unix"]),
            Self::Tls(error) => Some(vec!["server", "tls", error.key]),
            Self::Backend(BackendError::Thread(_)) | Self::Thread(_) => None,
        }
    }

    /// What is wrong, without the key.
    pub fn problem(&self) -> String {
        match self {
            Self::Backend(BackendError::Upstream { error, .. }) => error.to_string(),
            Self::Backend(BackendError::Tokenizer { error, .. }) => error.to_string(),
            Self::Load { error, .. } => error.to_string(),
            Self::Bind { address, error, .. } => format!("cannot listen on {address}: {error}; {}", next_step(error)),
            Self::Unix { path, error } => format!(
                "cannot listen on {}: {error}; {}",
                path.display(),
                match error.kind() {
                    io::ErrorKind::AddrInUse => "stop what serves there, or choose another path",
                    io::ErrorKind::AlreadyExists => "something else than a socket is there; choose another path",
                    _ => "choose a path in a folder that this process may write to",
                }
            ),
            Self::Tls(error) => error.problem.clone(),
            Self::Backend(BackendError::Thread(error)) | Self::Thread(error) => error.to_string(),
        }
    }
}

fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "stop what uses the port, or choose another",
        io::ErrorKind::PermissionDenied => "choose a port above 1023, or run with the right to use this one",
        _ => "choose an address of this machine",
    }
}

/// A running proxy. Dropping it stops it as [`Running::stop`] does.
pub struct Running {
    listen: SocketAddr,
    admin: SocketAddr,
    site: Arc<Site>,
    ready: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    stop_mirror: watch::Sender<bool>,
    stop_admin: watch::Sender<bool>,
    threads: Vec<JoinHandle<usize>>,
    /// `None` where nothing is mirrored.
    mirror_thread: Option<JoinHandle<usize>>,
    admin_thread: Option<JoinHandle<usize>>,
    _unix_file: Option<bind::UnixFile>,
}

impl Running {
    /// Binds both listeners and serves in the background.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub fn start(config: &Config, listeners: Vec<Listener>) -> Result<Self, StartError> {
        Self::serve(&config.server, Arc::new(Site::new(config, listeners)?))
    }

    fn serve(server: &config::Server, site: Arc<Site>) -> Result<Self, StartError> {
        let bound = |key, address| move |error| StartError::Bind { key, address, error };
        let tls = server.tls.as_ref().map(|files| Tls::new(&files.cert, &files.key)).transpose()?.map(Arc::new);
        let proxy_listeners = bind::reuseport(server.listen, server.threads).map_err(bound("listen", server.listen))?;
        let admin_listener = bind::single(server.admin).map_err(bound("admin", server.admin))?;
        let unix = server
            .unix
            .as_deref()
            .map(|path| bind::unix(path).map_err(|error| StartError::Unix { path: path.to_owned(), error }));
        let (unix, unix_file) = unix.transpose()?.unzip();
        let listen = proxy_listeners.first().map_or(Ok(server.listen), TcpListener::local_addr)?;
        let admin = admin_listener.local_addr()?;
        bind::raise_descriptor_limit();

        let limits = Limits {
            header_bytes: server.limits.max_header_bytes,
            header_timeout: server.limits.header_timeout,
            write_timeout: server.limits.write_timeout,
            drain_timeout: server.drain_timeout,
            places: Places::new(server.limits.max_connections),
        };
        let (stop, stopping) = watch::channel(false);
        let (stop_mirror, mirror_stopping) = watch::channel(false);
        let (stop_admin, admin_stopping) = watch::channel(false);
        let ready = Arc::new(AtomicBool::new(true));
        let mut running = Self {
            listen,
            admin,
            site: site.clone(),
            ready: ready.clone(),
            stop,
            stop_mirror,
            stop_admin,
            threads: Vec::new(),
            mirror_thread: None,
            admin_thread: None,
            _unix_file: unix_file,
        };
        for (index, tcp) in proxy_listeners.into_iter().enumerate() {
            let proxy = Arc::new(site.proxy());
            let unix = unix.as_ref().map(UnixListener::try_clone).transpose()?;
            let (stopping, limits, tls) = (stopping.clone(), limits.clone(), tls.clone());
            let thread = spawn(&format!("proxy-{index}"), move |runtime| {
                runtime.block_on(async {
                    let listeners = Listeners {
                        tcp: tokio::net::TcpListener::from_std(tcp)?,
                        unix: unix.map(tokio::net::UnixListener::from_std).transpose()?,
                        tls,
                    };
                    Ok(serve_proxy(listeners, proxy, limits, stopping).await)
                })
            })?;
            running.threads.push(thread);
        }
        // While the last streams are waited for, nobody must queue for a listener that accepts no more.
        drop(unix);
        if let Some(mirroring) = site.mirroring() {
            running.mirror_thread = Some(spawn("mirror", move |runtime| {
                yield_to_proxy();
                runtime.block_on(mirror(mirroring, mirror_stopping));
                Ok(0)
            })?);
        }
        let (recent, meter, kinds) = (site.recent().clone(), site.meter().clone(), site.kinds().collect());
        let live = Live::new(recent, meter.clone(), kinds, listen, admin_stopping.clone());
        let handler = Arc::new(Admin::new(meter, live, Box::new(unready(site, ready)), server.clone()));
        let places = Places::new(ADMIN_CONNECTIONS);
        let limits = Limits { drain_timeout: Duration::from_secs(1), places, ..limits };
        running.admin_thread = Some(spawn("admin", move |runtime| {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(admin_listener)?;
                if let Some(tls) = tls {
                    tokio::spawn(look_after(tls));
                }
                Ok(server::serve(listener, handler, limits, admin_stopping).await)
            })
        })?);
        Ok(running)
    }

    /// Where clients are served.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where `/metrics` is.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The metrics.
    pub fn meter(&self) -> &Arc<Meter> {
        self.site.meter()
    }

    /// What waits, on any thread, until every model in this process is loaded. It tells each one, and returns the
    /// first that cannot be loaded.
    pub fn loading(&self) -> impl FnOnce(&mut dyn FnMut(Announcement)) -> Result<(), StartError> + Send + use<> {
        let llamas: Vec<Llama> = self.site.llamas().cloned().collect();
        move |announce| wait_loaded(&llamas, announce)
    }

    /// Stops accepting, lets open requests finish for up to `drain_timeout_ms`, then cuts off the rest.
    ///
    /// Returns how many connections were cut off. Metrics can be read until all is over.
    pub fn stop(mut self) -> usize {
        self.shut_down()
    }

    fn shut_down(&mut self) -> usize {
        self.ready.store(false, Relaxed);
        let _ = self.stop.send(true);
        let cut = self.threads.drain(..).map(|thread| thread.join().unwrap_or(0)).sum();
        // No client is left: what is still mirrored is cut off, and counts as our doing.
        self.site.meter().cut_off();
        let _ = self.stop_mirror.send(true);
        if let Some(mirror) = self.mirror_thread.take() {
            let _ = mirror.join();
        }
        self.site.finish_counting();
        let _ = self.stop_admin.send(true);
        if let Some(admin) = self.admin_thread.take() {
            let _ = admin.join();
        }
        cut
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// A model in this process has been loaded.
#[derive(Debug, Clone)]
pub struct Announcement {
    /// The backend's name.
    pub backend: Arc<str>,
    /// Where it runs and what it takes.
    pub what: String,
    /// What was done to it that its files do not show.
    pub notes: Vec<String>,
}

fn wait_loaded(llamas: &[Llama], announce: &mut dyn FnMut(Announcement)) -> Result<(), StartError> {
    for llama in llamas {
        let backend = llama.name().clone();
        let what = llama.wait_loaded().map_err(|error| StartError::Load { name: backend.clone(), error })?;
        announce(Announcement { backend, what, notes: llama.notes() });
    }
    Ok(())
}

/// Why `/readyz` says no: stopping, or a model that does not serve.
fn unready(site: Arc<Site>, ready: Arc<AtomicBool>) -> impl Fn() -> Option<String> + Send + Sync {
    move || {
        if !ready.load(Relaxed) {
            return Some("stopping".to_owned());
        }
        site.llamas().find_map(|llama| Some(format!("backend {:?}: {}", llama.name(), llama.unready()?)))
    }
}

async fn serve_proxy(listeners: Listeners, proxy: Arc<Proxy>, limits: Limits, stopping: server::Shutdown) -> usize {
    let sweeping = tokio::spawn(sweep(proxy.clone()));
    let cut = server::serve(listeners, proxy, limits, stopping).await;
    sweeping.abort();
    cut
}

async fn mirror(mirroring: Mirroring, stopping: server::Shutdown) {
    let sweeping = tokio::spawn(sweep(mirroring.proxy().clone()));
    mirroring.run(stopping).await;
    sweeping.abort();
}

async fn sweep(proxy: Arc<Proxy>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        proxy.sweep();
    }
}

/// Has a changed certificate read, where neither clients nor scrapers wait for a disk that does not answer.
async fn look_after(tls: Arc<Tls>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        let tls = tls.clone();
        // One look at a time. It does not panic; if it did, the next look would be as good.
        let _ = tokio::task::spawn_blocking(move || tls.look_again()).await;
    }
}

/// Runs `work` on a named thread with a single-threaded runtime of its own.
fn spawn(
    name: &str,
    work: impl FnOnce(&Runtime) -> io::Result<usize> + Send + 'static,
) -> io::Result<JoinHandle<usize>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let done = work(&runtime);
        // A name look-up that hangs must not hold the end up.
        runtime.shutdown_background();
        done.unwrap_or_else(|error| {
            tracing::error!(%error, "a listener failed");
            0
        })
    })
}

#[cfg(test)]
mod tests;
