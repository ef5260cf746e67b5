//! Which connection a request takes, among one thread's to one upstream.
//!
//! Invariant: a connection is opened once, however many requests want it at the same time; another is opened only when
//! the first may carry no more streams, is too old, or is closing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, MutexGuard};

use super::super::connector::{Connector, Step, Steps};
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
    /// Where whoever opens a connection for all is with it.
    steps: Steps,
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

    /// A connection with room for a request; opened, where there is none. `phases` holds what that took, or the wait for
    /// another's attempt. A request that waits while that fails has failed with it. All together has the time that there
    /// is for connecting.
    pub(in super::super) async fn way(
        &self,
        connector: &Arc<Connector>,
        phases: &mut ConnectPhases,
    ) -> Result<Way, Cause> {
        let (since, deadline) = (Instant::now(), connector.deadline());
        let mut shared = self.turn(connector, deadline, phases).await?;
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
            // Others may have come in the meantime, more of them than there is room for.
            if session.is_open() && session.watch().has_room() {
                return Ok(Way::Shared { session, reused: true });
            }
            shared = self.turn(connector, deadline, phases).await?;
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
            return match self.open(connector, deadline, phases, &Steps::default()).await? {
                Way::Shared { session, reused } => {
                    self.shared.lock().await.open.push(session.clone());
                    Ok(Way::Shared { session, reused })
                }
                own @ Way::Own(_) => Ok(own),
            };
        }
        match self.open(connector, deadline, phases, &self.steps).await {
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

    /// A look at what is open, once nobody opens one for all. Adds the wait to `phases`.
    async fn turn(
        &self,
        connector: &Connector,
        deadline: Instant,
        phases: &mut ConnectPhases,
    ) -> Result<MutexGuard<'_, Shared>, Cause> {
        if let Ok(shared) = self.shared.try_lock() {
            return Ok(shared);
        }
        let since = Instant::now();
        let shared = connector.until(deadline, &self.steps, self.shared.lock()).await;
        add(&mut phases.connect, since.elapsed());
        shared
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

    async fn open(
        &self,
        connector: &Connector,
        deadline: Instant,
        phases: &mut ConnectPhases,
        steps: &Steps,
    ) -> Result<Way, Cause> {
        let waited = phases.connect.take();
        let connected = connector.connect(deadline, phases, steps).await;
        if let Some(waited) = waited {
            add(&mut phases.connect, waited);
        }
        let stream = connected?;
        // Without TLS nobody is asked.
        let http2 = stream.agreed_on_http2().unwrap_or(true);
        self.http1.store(!http2, Relaxed);
        if !http2 {
            return Ok(Way::Own(stream));
        }
        let greeting = Instant::now();
        steps.take(Step::Greeting);
        let session = connector.until(deadline, steps, Session::open(stream, greeting)).await;
        add(&mut phases.connect, greeting.elapsed());
        Ok(Way::Shared { session: session??, reused: false })
    }
}

impl Shared {
    /// A connection that can take a request.
    fn usable(&mut self, now: Instant) -> Option<&Session> {
        self.open.retain(|session| is_young(session, now));
        self.open.iter().find(|session| session.watch().has_room())
    }
}

fn add(phase: &mut Option<Duration>, more: Duration) {
    *phase = Some(phase.unwrap_or_default() + more);
}

fn is_young(session: &Session, now: Instant) -> bool {
    session.is_open() && now.saturating_duration_since(session.opened()) < AGE_LIMIT
}
