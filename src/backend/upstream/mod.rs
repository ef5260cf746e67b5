//! An OpenAI-compatible API over HTTP/1.1, plain or TLS.
//!
//! One [`Upstream`] belongs to one thread, with a pool of its own: a stream never crosses threads.
//!
//! Invariant: a request is written at most once. A second attempt happens only when the first connection, taken from
//! the pool, was found dead before any byte of the request left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{HOST, HeaderValue};
use hyper::{Request, http};

mod body;
mod connector;
mod dial;
mod failure;
mod forwarding;
mod gate;
mod link;
mod pool;
mod probe;
mod stream;
mod tls;
mod tunnel;

pub use body::ReplyBody;
pub use dial::Unreachable;
pub use failure::{Broken, Cause, Failure};
pub use link::RequestBody;
pub use probe::{Probe, TlsSeen};
pub use tls::SetupError;
pub use tunnel::ProxyFault;

use crate::config::OpenAi;
use crate::transport::ConnectPhases;
use connector::Connector;
use forwarding::Forwarding;
use link::{Answered, Link, Lost};
use pool::Pool;

/// A reply whose head has been read.
pub struct Reply {
    /// Status, version and headers as the upstream sent them.
    pub head: http::response::Parts,
    /// The body, still to be read.
    pub body: ReplyBody,
    /// What opening the connection took; empty when it was reused.
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
    host: HeaderValue,
    /// `None` where requests go to the upstream itself, or through a tunnel.
    forwarding: Option<Forwarding>,
    pool: Pool,
    head_timeout: Duration,
    idle_timeout: Duration,
}

impl Upstream {
    /// Prepares an upstream; no connection is opened yet.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(config: &OpenAi) -> Result<Self, SetupError> {
        let authority = config.base_url.authority();
        let unusable = || SetupError::ServerName { host: authority.clone() };
        let connector = Arc::new(Connector::new(config)?);
        let forwarding = connector.forwarder().map(|proxy| Forwarding::new(proxy, &authority)).transpose();
        Ok(Self {
            host: HeaderValue::from_str(&authority).map_err(|_| unusable())?,
            forwarding: forwarding.map_err(|_| unusable())?,
            connector,
            pool: Pool::default(),
            head_timeout: config.head_timeout,
            idle_timeout: config.idle_timeout,
        })
    }

    /// The same upstream for another thread: what was set up is shared, connections are not.
    #[must_use]
    pub fn for_another_thread(&self) -> Self {
        Self {
            connector: self.connector.clone(),
            host: self.host.clone(),
            forwarding: self.forwarding.clone(),
            pool: Pool::default(),
            head_timeout: self.head_timeout,
            idle_timeout: self.idle_timeout,
        }
    }

    /// Sends `request` (an origin-form URI, headers complete but for `Host`) and waits for the reply's head.
    ///
    /// Dropping the future closes the connection.
    pub async fn send(&self, mut request: Request<RequestBody>) -> Result<Reply, Failure> {
        request.headers_mut().insert(HOST, self.host.clone());
        if let Some(forwarding) = &self.forwarding {
            forwarding.address(&mut request);
        }
        let mut phases = ConnectPhases::default();
        if let Some(link) = self.pool.take(Instant::now()) {
            match self.exchange(link, request, phases, true).await {
                Err(Lost { unsent: Some(returned), .. }) => request = *returned,
                answered => return answered.map_err(|lost| Failure { cause: lost.cause, phases, sent: lost.sent }),
            }
        }
        let link = match self.connector.connect(&mut phases).await {
            Ok(stream) => Link::new(stream, Instant::now()).await.map(Box::new),
            Err(cause) => Err(cause),
        };
        let link = link.map_err(|cause| Failure { cause, phases, sent: None })?;
        let answered = self.exchange(link, request, phases, false).await;
        answered.map_err(|lost| Failure { cause: lost.cause, phases, sent: lost.sent })
    }

    /// Closes idle connections that are too old or that the upstream has closed. To be called now and then.
    pub fn sweep(&self) {
        self.pool.sweep(Instant::now());
    }

    /// How many connections wait for a request.
    pub fn idle_connections(&self) -> usize {
        self.pool.idle()
    }

    async fn exchange(
        &self,
        mut link: Box<Link>,
        request: Request<RequestBody>,
        phases: ConnectPhases,
        reused: bool,
    ) -> Result<Reply, Lost> {
        let Answered { response, sent } = link.exchange(request, self.head_timeout).await?;
        let (head, incoming) = response.into_parts();
        if let Some(cause) = self.forwarding.as_ref().and_then(|forwarding| forwarding.refusal(&head)) {
            return Err(Lost { cause, unsent: None, sent });
        }
        let head_at = link.io().last_read().map_or_else(Instant::now, |stamp| stamp.at);
        let body = ReplyBody::new(incoming, link, self.pool.clone(), self.idle_timeout);
        Ok(Reply { head, body, phases, reused, sent, head_at })
    }
}
