//! Opens connections to one upstream, through a proxy where there is one, and says how long each step took.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::dial::{Unreachable, dial};
use super::failure::Cause;
use super::stream::Stream;
use super::tls::{self, SetupError};
use super::tunnel::{self, First, ProxyFault};
use crate::config::{BaseUrl, OpenAi, Proxy};
use crate::transport::{ConnectPhases, Transport};

/// Knows one upstream's address and how to reach it.
pub(super) struct Connector {
    /// Where TCP goes: the proxy, where there is one.
    host: String,
    port: u16,
    proxy: Option<Proxy>,
    /// The upstream's `host:port`, for which a proxy is asked to open a tunnel. `None` without a proxy, and where that
    /// is handed each request instead.
    tunnel: Option<String>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(config: &OpenAi) -> Result<Self, SetupError> {
        let BaseUrl { tls, host, port, .. } = &config.base_url;
        let proxy = config.proxy.clone();
        let tunnel = (proxy.is_some() && (*tls || config.http2))
            .then(|| if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") });
        let tls = tls.then(|| tls::client(host, config)).transpose()?;
        let (host, port) = proxy.as_ref().map_or((host, *port), |proxy| (&proxy.host, proxy.port));
        Ok(Self { host: host.clone(), port, proxy, tunnel, tls, timeout: config.connect_timeout })
    }

    /// The proxy that is handed each request, where the upstream is not reached through a tunnel.
    pub(super) fn forwarder(&self) -> Option<&Proxy> {
        self.proxy.as_ref().filter(|_| self.tunnel.is_none())
    }

    /// When a request that wants a connection now must have one.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Opens one connection. `phases` holds what each step took, the failed one included; `steps` is kept up to date.
    pub(super) async fn connect(
        &self,
        deadline: Instant,
        phases: &mut ConnectPhases,
        steps: &Steps,
    ) -> Result<Stream, Cause> {
        let opening = async {
            steps.take(Step::Dns);
            let addresses = timed(&mut phases.dns, self.resolve()).await?;
            if addresses.is_none() {
                phases.dns = None;
            }
            steps.take(Step::Connect);
            let (transport, _) = timed(&mut phases.connect, self.reach(addresses.as_deref())).await?;
            steps.take(Step::Tls);
            match &self.tls {
                None => Ok(Stream::Plain(transport)),
                Some(_) => timed(&mut phases.tls, self.secure(transport)).await,
            }
        };
        self.until(deadline, steps, opening).await?
    }

    /// Waits for `work` until the deadline; then the step taken last was late.
    pub(super) async fn until<T>(
        &self,
        deadline: Instant,
        steps: &Steps,
        work: impl Future<Output = T>,
    ) -> Result<T, Cause> {
        tokio::time::timeout_at(deadline.into(), work).await.map_err(|_| self.late(steps.last()))
    }

    /// Does one step alone, in the time that all of them have.
    pub(super) async fn within<T>(&self, step: Step, work: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
        tokio::time::timeout(self.timeout, work).await.unwrap_or_else(|_| Err(self.late(step)))
    }

    /// Looks the name up. `None` where the host is an address.
    pub(super) async fn resolve(&self) -> Result<Option<Vec<SocketAddr>>, Cause> {
        if self.host.parse::<IpAddr>().is_ok() {
            return Ok(None);
        }
        let found = match tokio::net::lookup_host((self.host.as_str(), self.port)).await {
            Ok(found) => found.collect::<Vec<_>>(),
            Err(error) => return Err(self.blamed(error, ProxyFault::Dns, Cause::Dns)),
        };
        if found.is_empty() {
            let error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            return Err(self.blamed(error, ProxyFault::Dns, Cause::Dns));
        }
        Ok(Some(found))
    }

    /// TCP, to which address, and the tunnel where there is one. `addresses` is what [`Self::resolve`] found.
    pub(super) async fn reach(
        &self,
        addresses: Option<&[SocketAddr]>,
    ) -> Result<(Transport<TcpStream>, SocketAddr), Cause> {
        let own = self.host.parse().map(|host: IpAddr| [SocketAddr::new(host, self.port)]);
        let addresses = addresses.or(own.as_ref().ok().map(<[_; 1]>::as_slice)).unwrap_or_default();
        let (socket, address) = dial(addresses)
            .await
            .map_err(|error: Unreachable| self.blamed(error, ProxyFault::Connect, Cause::Connect))?;
        let mut transport = Transport::tcp(socket);
        if let (Some(proxy), Some(target)) = (&self.proxy, &self.tunnel) {
            let authorization = proxy.authorization.as_ref().map(crate::config::Secret::expose);
            tunnel::open(
                &mut transport,
                target,
                authorization,
                if self.tls.is_some() { First::We } else { First::Either },
            )
            .await
            .map_err(|fault| Cause::Proxy { proxy: Box::new(proxy.clone()), fault })?;
        }
        Ok((transport, address))
    }

    /// TLS over `transport`, where the upstream's URL asks for it.
    pub(super) async fn secure(&self, transport: Transport<TcpStream>) -> Result<Stream, Cause> {
        let Some((connector, name)) = &self.tls else { return Ok(Stream::Plain(transport)) };
        connector.connect(name.clone(), transport).await.map(|tls| Stream::Tls(Box::new(tls))).map_err(Cause::Tls)
    }

    /// An error of the host that TCP goes to: the proxy's, where there is one.
    fn blamed<E>(&self, error: E, proxys: fn(E) -> ProxyFault, own: fn(E) -> Cause) -> Cause {
        match &self.proxy {
            Some(proxy) => Cause::Proxy { proxy: Box::new(proxy.clone()), fault: proxys(error) },
            None => own(error),
        }
    }

    fn late(&self, step: Step) -> Cause {
        let (step, after) = (step, self.timeout);
        match (&self.proxy, step) {
            (Some(proxy), Step::Dns | Step::Connect) => {
                Cause::Proxy { proxy: Box::new(proxy.clone()), fault: ProxyFault::Timeout { step: step.name(), after } }
            }
            _ => Cause::ConnectTimeout { step: step.name(), after },
        }
    }
}

/// The step that an attempt to open a connection is at, for all who wait for it.
#[derive(Default)]
pub(super) struct Steps(Mutex<Step>);

impl Steps {
    pub(super) fn take(&self, step: Step) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    fn last(&self) -> Step {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step of opening a connection.
#[derive(Clone, Copy, Default)]
pub(super) enum Step {
    #[default]
    Dns,
    Connect,
    Tls,
    /// The first words of HTTP/2.
    Greeting,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Dns => "looking up its name",
            Self::Connect => "connecting",
            Self::Tls => "the TLS handshake",
            Self::Greeting => "its first word of HTTP/2",
        }
    }
}

/// Records how long `work` ran, also when it fails or is dropped half-way.
async fn timed<T>(took: &mut Option<Duration>, work: impl Future<Output = T>) -> T {
    struct Stopwatch<'a>(&'a mut Option<Duration>, Instant);
    impl Drop for Stopwatch<'_> {
        fn drop(&mut self) {
            *self.0 = Some(self.1.elapsed());
        }
    }
    let _running = Stopwatch(took, Instant::now());
    work.await
}
