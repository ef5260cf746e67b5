//! The simulated upstream: it speaks the dialects of model APIs, emits on an exact schedule and logs when every event
//! left.
//!
//! It is the reference against which the instruments are checked, so it writes its sockets itself: an HTTP library
//! would hide when bytes leave.
//!
//! | endpoint | answers |
//! |---|---|
//! | `POST /v1/chat/completions` | a stream or a whole reply, on schedule |
//! | `POST /v1/completions` | the same, as text; for a list of prompts, `n` choices of each |
//! | `POST /v1/responses` | the same, as items |
//! | `POST /v1/messages` | the same, as Anthropic's blocks |
//! | `POST /v1/messages/count_tokens` | how many tokens the prompt has, at `ttft` |
//! | `POST /v1/embeddings` | a vector for each input, at `ttft` |
//! | `POST /v1/rerank` | the documents by relevance, at `ttft` |
//! | `GET`, `DELETE /v1/responses/ID`, `POST /v1/responses/ID/cancel` | that it is there, deleted, cancelled; nothing is kept |
//! | `GET /v1/models`, `/v1/models/NAME` | the configured names |
//! | `GET /`, `/health` | 200 |
//!
//! Any leading mix of `api` and `v1` segments is accepted, also none, and any query. `HEAD` is answered wherever `GET`
//! is. Other paths and methods get an error in the shape of the API that the path belongs to. A token of a prompt is a
//! word of it.
//!
//! A request can ask for a character of its own with the header `x-sim: ttft_ms=120,itl_ms=15,end=rst`. Durations are
//! in milliseconds and may have fractions; switches take 1 or 0; a key that is none of these is refused with 400:
//!
//! | key | meaning |
//! |---|---|
//! | `head_ms` `ttft_ms` `itl_ms` `tail_ms` `tokens` `tokens_per_event` `events_per_write` `role_first` `reasoning` | as in [`Schedule`] |
//! | `prompt_ms` `stall_ms` `stall_every` | what a prompt's token adds to TTFT, and a stall to a gap, as in [`Schedule`] |
//! | `hidden` | reasoning tokens that only `usage` shows |
//! | `tool` | answer with the call of the request's first tool, else of `lookup`: its arguments are cut into the answer's tokens |
//! | `refusal` | answer with a refusal |
//! | `summary` | tell reasoning as a summary (responses) |
//! | `usage` | `asked`, `always`, `each` or `never` |
//! | `request` | the name under which the log knows this request |
//! | `status` | answer at `ttft` with this status and an error object instead |
//! | `end` | after the last token: `rst`, `fin` (inside the body), `truncate` (a clean end without finish reason and `[DONE]`) or `silence` |
//! | `error_after` | an error inside the stream after this many tokens, which ends it |
//! | `error_event` | make that an `error` event instead of `response.failed` (responses) |
//! | `body_bytes` | pad a reply that is not a stream to about this size |
//! | `no_head` | send not even the head of a stream; use it with `end` |
//! | `no_finish` `no_done` | leave out the finish reason (responses: the last event), or `[DONE]` (messages: `message_stop`) |
//! | `script` | play the [`Script`] of this name |
//!
//! In every dialect a stream's token events are due at the same instants. Events that open or close a part of the reply
//! leave in the same write as the token event, or the end, that needs them; those that begin it leave with the first
//! token event, or with `role_first` right after the head.
//!
//! Architecture invariant: deadlines are absolute. Event k is due at `arrival + ttft + k × itl` (and what the prompt and
//! stalls add) whatever happened to the events before it, it is never sent earlier, and the log tells how much later.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

mod answer;
mod asked;
mod character;
mod chat;
mod completions;
mod dialect;
mod embeddings;
mod events;
mod exchange;
mod http;
mod log;
mod messages;
mod pace;
mod peer;
mod play;
mod reply;
mod requests;
mod rerank;
mod responses;
mod schedule;
mod script;
mod state;
mod text;

pub use http::Request;
pub use log::{Entry, Kind, LogSink};
pub use peer::Departure;
pub use requests::RequestRecord;
pub use schedule::{Schedule, UsagePolicy};
pub use script::{End, Framing, Script, ScriptError, Scripts, Step};
pub use state::{Counts, Departed, Received};
pub use text::{text, text_of};

use peer::{Peer, Socket};
use state::State;

/// How a simulation behaves when a request does not say otherwise.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// When the events of a reply are due.
    pub schedule: Schedule,
    /// The names `/v1/models` lists. Requests may name any model.
    pub models: Vec<String>,
    /// Serve TLS with this. `None` for plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Where the true instants go. `None` for no log and no cost.
    pub log: Option<LogSink>,
    /// Replies given byte by byte.
    pub scripts: Scripts,
    /// Keep every request as it arrived, for [`SimHandle::received`].
    pub keep_requests: bool,
    /// Where every request is written down before its reply begins. `None` for nowhere.
    pub requests: Option<RequestRecord>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            models: vec!["sim".into()],
            tls: None,
            log: None,
            scripts: Scripts::default(),
            keep_requests: false,
            requests: None,
        }
    }
}

/// A simulation that listens.
#[derive(Debug)]
pub struct Sim {
    listener: TcpListener,
    state: Arc<State>,
}

impl Sim {
    /// Listens on `addr`; port 0 picks a free one.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound.
    pub async fn bind(addr: impl ToSocketAddrs, config: SimConfig) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(addr).await?, state: Arc::new(State::new(config)) })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// When the system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A listener on the same socket with the same log and counters, to be taken into the runtime of another thread.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn share(&self) -> io::Result<SharedSim> {
        let listener = socket2::SockRef::from(&self.listener).try_clone()?.into();
        Ok(SharedSim { listener, state: Arc::clone(&self.state) })
    }

    /// Serves until `shutdown` is ready, then drops every connection where it stands.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = &mut shutdown => return,
            };
            match accepted {
                Ok((tcp, _)) => {
                    connections.spawn(connection(tcp, Arc::clone(&self.state)));
                }
                Err(error) => {
                    // Out of descriptors, most likely: those in use will come back.
                    tracing::warn!(%error, "the simulation cannot accept a connection; trying again");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// Runs a simulation on a loopback port, in a thread and runtime of its own, so that it shares no turn with what
    /// it is measured by.
    ///
    /// # Errors
    ///
    /// When no port, thread or runtime can be had.
    pub fn spawn(config: SimConfig) -> io::Result<SimHandle> {
        Self::spawn_at((Ipv4Addr::LOCALHOST, 0).into(), config)
    }

    /// [`Sim::spawn`] on a given address.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound, or no thread or runtime can be had.
    pub fn spawn_at(addr: SocketAddr, config: SimConfig) -> io::Result<SimHandle> {
        let (ready, bound) = sync_channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = async move {
            let sim = Self::bind(addr, config).await;
            let told =
                sim.as_ref().map_err(clone_error).and_then(|sim| Ok((sim.local_addr()?, Arc::clone(&sim.state))));
            let _ = ready.send(told);
            if let Ok(sim) = sim {
                // The handle's end and the handle's loss mean the same.
                sim.run(async { drop(stopped.await) }).await;
            }
        };
        let thread = std::thread::Builder::new().name("sim".into()).spawn(move || runtime.block_on(serve))?;
        let (addr, state) = bound.recv().map_err(io::Error::other)??;
        Ok(SimHandle { addr, state, stop: Some(stop), thread: Some(thread) })
    }
}

/// A simulation's listener on its way into another thread.
#[derive(Debug)]
pub struct SharedSim {
    listener: std::net::TcpListener,
    state: Arc<State>,
}

impl SharedSim {
    /// Takes it into the current runtime.
    ///
    /// # Errors
    ///
    /// When the runtime cannot watch the socket.
    pub fn here(self) -> io::Result<Sim> {
        Ok(Sim { listener: TcpListener::from_std(self.listener)?, state: self.state })
    }
}

/// A running simulation. Dropping it closes its port and every connection.
#[derive(Debug)]
pub struct SimHandle {
    addr: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SimHandle {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A copy of the log so far; empty without a [`LogSink::memory`] in the configuration.
    pub fn entries(&self) -> Vec<Entry> {
        self.state.config.log.as_ref().map(LogSink::entries).unwrap_or_default()
    }

    /// The log so far, which is then forgotten.
    pub fn take_entries(&self) -> Vec<Entry> {
        self.state.config.log.as_ref().map(LogSink::take).unwrap_or_default()
    }

    /// How many connections and requests there were and are.
    pub fn counts(&self) -> Counts {
        self.state.counts()
    }

    /// The connections their peers closed or reset, in the order in which it was noticed.
    pub fn departures(&self) -> Vec<Departed> {
        self.state.departures()
    }

    /// Every request as it arrived; empty unless the configuration keeps them.
    pub fn received(&self) -> Vec<Received> {
        self.state.received()
    }
}

impl Drop for SimHandle {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn connection(tcp: TcpStream, state: Arc<State>) {
    let place = state.enter();
    let _ = tcp.set_nodelay(true);
    let socket = match &state.config.tls {
        None => Socket::Plain(tcp),
        Some(tls) => match TlsAcceptor::from(Arc::clone(tls)).accept(tcp).await {
            Ok(tls) => Socket::Tls(Box::new(tls)),
            Err(error) => return tracing::debug!(%error, "a client failed the TLS handshake with the simulation"),
        },
    };
    exchange::serve(Peer::new(socket), &place).await;
}

fn clone_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
