//! Which connection a request takes, among one thread's to one upstream.
//!
//! Invariant: a connection is opened once, however many requests want it at the same time; another is opened only when
//! the first may carry no more streams, is too old, or is closing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::super::connector::Connector;
use super::super::failure::Cause;
use super::super::stream::Stream;
use super::session::Session;
use crate::transport::ConnectPhases;

/// How long an unused connection is kept. Below the 60 s after which common servers close theirs.
const IDLE_LIMIT: Duration = Duration::from_secs(50);
/// How long a connection takes new streams, so that a moved name is looked up again.
const AGE_LIMIT: Duration = Duration::from_secs(600);

/// One thread's connections to one upstream.
#[derive(Default)]
pub(in super::super) struct Sessions {
    shared: Mutex<Shared>,
    /// The server chose HTTP/1.1 when it was last asked.
    http1: AtomicBool,
}

#[derive(Default)]
struct Shared {
    open: Vec<Session>,
    /// How and when the last attempt to open one failed.
    failed: Option<(Instant, Cause)>,
}

/// What a request can travel on.
pub(in super::super) enum Way {
    /// A connection of HTTP/2, which others may share.
    Shared {
        /// The connection.
        session: Session,
        /// Others were there before.
        reused: bool,
    },
    /// A fresh connection to a server that chose HTTP/1.1.
    Own(Stream),
}

impl Sessions {
    /// Whether the server chose HTTP/1.1 when it was last asked.
    pub(in super::super) fn chose_http1(&self) -> bool {
        self.http1.load(Relaxed)
    }

    /// A connection with room for a request; opened, where there is none. `phases` holds what that took. A request that
    /// waits while another's attempt fails has failed with it.
    pub(in super::super) async fn way(
        &self,
        connector: &Arc<Connector>,
        phases: &mut ConnectPhases,
    ) -> Result<Way, Cause> {
        let since = Instant::now();
        let mut shared = self.shared.lock().await;
        if let Some(session) = shared.usable(since) {
            let session = session.clone();
            if session.watch().active() > 0 {
                return Ok(Way::Shared { session, reused: true });
            }
            // What the server has said meanwhile, an end perhaps, is read by the connection's own task: its turn.
            drop(shared);
            for _ in 0..2 {
                tokio::task::yield_now().await;
            }
            if session.is_open() {
                return Ok(Way::Shared { session, reused: true });
            }
            shared = self.shared.lock().await;
            if let Some(session) = shared.usable(since) {
                return Ok(Way::Shared { session: session.clone(), reused: true });
            }
        }
        let failed = shared.failed.as_ref().filter(|(at, _)| *at >= since);
        if let Some(cause) = failed.and_then(|(_, cause)| cause.for_another()) {
            return Err(cause);
        }
        if self.chose_http1() {
            // Each has a connection of its own anyway.
            drop(shared);
            return match self.open(connector, phases).await? {
                Way::Shared { session, reused } => {
                    self.shared.lock().await.open.push(session.clone());
                    Ok(Way::Shared { session, reused })
                }
                own @ Way::Own(_) => Ok(own),
            };
        }
        match self.open(connector, phases).await {
            Ok(way) => {
                if let Way::Shared { session, .. } = &way {
                    shared.open.push(session.clone());
                }
                Ok(way)
            }
            Err(cause) => {
                shared.failed = cause.for_another().map(|cause| (Instant::now(), cause));
                Err(cause)
            }
        }
    }

    /// Lets go of connections that are too old, unused for too long, or closing.
    pub(in super::super) fn sweep(&self, now: Instant) {
        if let Ok(mut shared) = self.shared.try_lock() {
            shared.open.retain(|session| {
                let idle = session.watch().idle_since().is_some_and(|since| now.duration_since(since) >= IDLE_LIMIT);
                !idle && is_young(session, now)
            });
        }
    }

    /// How many connections carry nothing.
    pub(in super::super) fn idle(&self) -> usize {
        let idle = |session: &&Session| session.watch().active() == 0;
        self.shared.try_lock().map_or(0, |shared| shared.open.iter().filter(idle).count())
    }

    async fn open(&self, connector: &Arc<Connector>, phases: &mut ConnectPhases) -> Result<Way, Cause> {
        let began = Instant::now();
        let stream = connector.connect(phases).await?;
        // Without TLS nobody is asked.
        let http2 = stream.agreed_on_http2().unwrap_or(true);
        self.http1.store(!http2, Relaxed);
        if !http2 {
            return Ok(Way::Own(stream));
        }
        let greeting = Instant::now();
        let session = connector.greet(greeting - began, Session::open(stream, greeting)).await;
        phases.connect = phases.connect.map(|took| took + greeting.elapsed());
        Ok(Way::Shared { session: session?, reused: false })
    }
}

impl Shared {
    /// A connection that can take a request.
    fn usable(&mut self, now: Instant) -> Option<&Session> {
        self.open.retain(|session| is_young(session, now));
        self.open.iter().find(|session| session.watch().has_room())
    }
}

fn is_young(session: &Session, now: Instant) -> bool {
    session.is_open() && now.saturating_duration_since(session.opened()) < AGE_LIMIT
}
