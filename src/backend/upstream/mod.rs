//! An OpenAI-compatible API over HTTP/1.1, or HTTP/2 where that is asked for, plain or TLS, through a proxy or not.
//!
//! One [`Upstream`] belongs to one thread, with connections of its own: a stream never crosses threads. Over HTTP/1.1 a
//! connection carries one request at a time and is polled by its reply's body (`link`, `body`, `pool`); over HTTP/2 all
//! requests share one, which has a task of its own (`http2`).
//!
//! Invariant: no request is acted on twice for our doing. A second attempt happens, once, only when nobody can have acted
//! on the first: a connection used before was found dead before any byte of the request left; or over HTTP/2 its head
//! never left, or the server said that it did not process it (RFC 9113, section 8.7). (What an upstream refuses for what only we asked, `proxy` sends
//! again as its client wrote it: another request.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::{Request, http};

mod body;
mod connector;
mod dial;
mod failure;
mod forwarding;
mod gate;
mod http2;
mod link;
mod pool;
mod probe;
mod reply_body;
mod stream;
mod target;
mod tls;
mod tunnel;

pub use dial::Unreachable;
pub use failure::{Broken, Cause, Failure};
pub use link::RequestBody;
pub use probe::{Probe, TlsSeen};
pub use reply_body::ReplyBody;
pub use tls::SetupError;
pub use tunnel::ProxyFault;

use crate::config::OpenAi;
use crate::transport::ConnectPhases;
use body::LinkBody;
use connector::{Connector, Steps};
use forwarding::Forwarding;
use http2::{Session, Sessions, StreamBody, Way};
use link::{Answered, Link, Lost};
use pool::Pool;
use stream::Stream;
use target::Target;

/// A reply whose head has been read.
pub struct Reply {
    /// Status, version and headers as the upstream sent them.
    pub head: http::response::Parts,
    /// The body, still to be read.
    pub body: ReplyBody,
    /// What opening the connection took, or waiting for another request to open it; empty when it was there.
    pub phases: ConnectPhases,
    /// The request travelled on a connection that had carried others.
    pub reused: bool,
    /// When the last request byte was written. `None` when the upstream answered before that.
    pub sent: Option<Instant>,
    /// When the reply's head was read: the last read by then, which may also have begun the body.
    pub head_at: Instant,
}

/// One upstream, as one thread sees it.
pub struct Upstream {
    connector: Arc<Connector>,
    target: Target,
    /// `None` where requests go to the upstream itself, or through a tunnel.
    forwarding: Option<Forwarding>,
    pool: Pool,
    /// Connections of HTTP/2. `None` where it is not wanted.
    sessions: Option<Sessions>,
    head_timeout: Duration,
    idle_timeout: Duration,
}

impl Upstream {
    /// Prepares an upstream; no connection is opened yet.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(config: &OpenAi) -> Result<Self, SetupError> {
        let connector = Arc::new(Connector::new(config)?);
        Ok(Self {
            target: Target::new(&config.base_url)?,
            forwarding: connector.forwarder().map(Forwarding::new),
            connector,
            pool: Pool::default(),
            sessions: config.http2.then(Sessions::default),
            head_timeout: config.head_timeout,
            idle_timeout: config.idle_timeout,
        })
    }

    /// The same upstream for another thread: what was set up is shared, connections are not.
    #[must_use]
    pub fn for_another_thread(&self) -> Self {
        Self {
            connector: self.connector.clone(),
            target: self.target.clone(),
            forwarding: self.forwarding.clone(),
            pool: Pool::default(),
            sessions: self.sessions.as_ref().map(|_| Sessions::default()),
            head_timeout: self.head_timeout,
            idle_timeout: self.idle_timeout,
        }
    }

    /// Sends `request` (an origin-form URI, headers complete but for `Host`) and waits for the reply's head.
    ///
    /// Dropping the future closes the connection, or resets the stream where others share it.
    pub async fn send(&self, request: Request<RequestBody>) -> Result<Reply, Failure> {
        let mut phases = ConnectPhases::default();
        let answered = match &self.sessions {
            // Every request holds room for what it may have to do; the rare and the large is kept elsewhere.
            Some(sessions) => Box::pin(self.send_shared(sessions, request, &mut phases)).await,
            None => self.send_alone(request, &mut phases).await,
        };
        answered.map_err(|lost| Failure { cause: lost.cause, phases, sent: lost.sent })
    }

    /// Closes idle connections that are too old or that the upstream has closed. To be called now and then.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.pool.sweep(now);
        if let Some(sessions) = &self.sessions {
            sessions.sweep(now);
        }
    }

    /// How many connections wait for a request.
    pub fn idle_connections(&self) -> usize {
        self.pool.idle() + self.sessions.as_ref().map_or(0, Sessions::idle)
    }

    /// On a connection of its own: one from the pool, or a new one.
    async fn send_alone(&self, mut request: Request<RequestBody>, phases: &mut ConnectPhases) -> Result<Reply, Lost> {
        if let Some(link) = self.pool.take(Instant::now()) {
            match self.exchange(link, request, *phases, true).await {
                Err(Lost { unsent: Some(returned), .. }) => request = *returned,
                answered => return answered,
            }
        }
        let (deadline, step) = (self.connector.deadline(), Steps::default());
        let stream = Box::pin(self.connector.connect(deadline, phases, &step)).await.map_err(Lost::before)?;
        self.exchange_first(stream, request, *phases).await
    }

    /// On a connection that others share, where the upstream speaks HTTP/2; else as [`Self::send_alone`] does.
    async fn send_shared(
        &self,
        sessions: &Sessions,
        mut request: Request<RequestBody>,
        phases: &mut ConnectPhases,
    ) -> Result<Reply, Lost> {
        for again in [true, false] {
            // One from the pool may be dead again.
            if again
                && sessions.chose_http1()
                && let Some(link) = self.pool.take(Instant::now())
            {
                match self.exchange(link, request, *phases, true).await {
                    Err(Lost { unsent: Some(returned), .. }) => request = *returned,
                    answered => return answered,
                }
                continue;
            }
            match sessions.way(&self.connector, phases).await.map_err(Lost::before)? {
                Way::Shared { session, reused } => {
                    match self.exchange_shared(&session, request, *phases, reused).await {
                        Err(Lost { unsent: Some(returned), .. }) if again => request = *returned,
                        answered => return answered,
                    }
                }
                Way::Own(stream) => return self.exchange_first(stream, request, *phases).await,
            }
        }
        unreachable!("the second attempt returns")
    }

    /// The first exchange of a fresh connection.
    async fn exchange_first(
        &self,
        stream: Stream,
        request: Request<RequestBody>,
        phases: ConnectPhases,
    ) -> Result<Reply, Lost> {
        let link = Box::pin(Link::new(stream, Instant::now())).await.map_err(Lost::before)?;
        self.exchange(Box::new(link), request, phases, false).await
    }

    async fn exchange(
        &self,
        mut link: Box<Link>,
        mut request: Request<RequestBody>,
        phases: ConnectPhases,
        reused: bool,
    ) -> Result<Reply, Lost> {
        match &self.forwarding {
            None => self.target.origin_form(&mut request),
            Some(forwarding) => {
                self.target.absolute_form(&mut request);
                forwarding.authorize(&mut request);
            }
        }
        let Answered { response, sent } = link.exchange(request, self.head_timeout).await?;
        let (head, incoming) = response.into_parts();
        if let Some(cause) = self.forwarding.as_ref().and_then(|forwarding| forwarding.refusal(&head)) {
            return Err(Lost { cause, unsent: None, sent });
        }
        let head_at = link.io().last_read().map_or_else(Instant::now, |stamp| stamp.at);
        let body = LinkBody::new(incoming, link, self.pool.clone(), self.idle_timeout).into();
        Ok(Reply { head, body, phases, reused, sent, head_at })
    }

    async fn exchange_shared(
        &self,
        session: &Session,
        mut request: Request<RequestBody>,
        phases: ConnectPhases,
        reused: bool,
    ) -> Result<Reply, Lost> {
        self.target.http2(&mut request);
        let http2::Answered { response, sent, head_at, place } = session.exchange(request, self.head_timeout).await?;
        let (head, incoming) = response.into_parts();
        let body = StreamBody::new(incoming, place, head_at, self.idle_timeout).into();
        Ok(Reply { head, body, phases, reused, sent, head_at })
    }
}
