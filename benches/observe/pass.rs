//! Events on their way through the proxy without sockets: a body that yields one frame a read, as the upstream's does,
//! and a client's connection that takes each frame at once, in the order in which hyper's server does it.

use std::hint::black_box;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame};
use streamgauge::clock::{ReadStamp, Stamped};
use streamgauge::measure::{
    Answered, Asked, Content, Fault, Framing, IntoFault, Meter, Observation, ObservedBody, Setup,
};
use streamgauge::transport::{ConnectPhases, Transport};
use streamgauge::wire::Dialect;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A body observed between two transports.
pub(crate) struct Observed {
    body: ObservedBody<Source<Transport<Socket>>>,
    client: Transport<Socket>,
    meter: Arc<Meter>,
    passes: u64,
}

impl Observed {
    pub(crate) fn new(dialect: Dialect, frames: Vec<Bytes>) -> Self {
        let backend: Arc<str> = "bench".into();
        let setup = Setup { backends: vec![(backend.clone(), 1, vec!["bench".to_owned()])], objectives: Vec::new() };
        let meter = Arc::new(Meter::new(setup, Vec::new()));
        let now = Instant::now();
        let mut observation = Observation::begin(meter.clone(), "chat", now, Some(dialect));
        let asked = Asked { model: Some("bench".into()), stream: true, choices: 1, echo: false, tag: None };
        observation.body_read(now);
        observation.asked(asked);
        observation.routed(&backend);
        observation.answered(Answered {
            status: 200,
            content: Content::Events,
            framing: Framing::Chunked,
            sent: Some(now),
            head: now,
            connect: ConnectPhases::default(),
            reused: Some(true),
            engine: None,
        });
        let client = Transport::new(Socket);
        let source = Source::new(Transport::new(Socket), frames);
        let body = ObservedBody::new(source, observation, Some(client.io()), false);
        Self { body, client, meter, passes: 0 }
    }

    /// One event: read, passed on, written, thought about.
    pub(crate) fn pass(&mut self) {
        pass(&mut self.body, &mut self.client);
        self.passes += 1;
    }

    /// Ends the exchange: every event that passed was measured.
    pub(crate) fn check(self) {
        let Self { body, client, meter, passes } = self;
        drop((body, client));
        let metrics = meter.render();
        let value = |name: &str| {
            let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok())
        };
        assert_eq!(value("streamgauge_token_events_total{"), Some(passes), "{metrics}");
        assert_eq!(value("streamgauge_dwell_seconds_count{"), Some(passes), "{metrics}");
        assert_eq!(value("streamgauge_inter_token_latency_seconds_count{"), Some(passes - 1), "{metrics}");
    }
}

/// The same without observer and transports: what the bench itself costs.
pub(crate) struct Bare {
    body: Source<Socket>,
    client: Socket,
}

impl Bare {
    pub(crate) fn new(frames: Vec<Bytes>) -> Self {
        Self { body: Source::new(Socket, frames), client: Socket }
    }

    pub(crate) fn pass(&mut self) {
        pass(&mut self.body, &mut self.client);
    }
}

/// What hyper's server does when an upstream's read has woken it: it takes frames until there is none, writes, flushes.
fn pass<B: Body<Data = Bytes> + Unpin>(body: &mut B, client: &mut (impl AsyncWrite + Unpin)) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut taken = Bytes::new();
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut *body).poll_frame(&mut cx) {
        taken = frame.into_data().unwrap_or_default();
    }
    assert!(Pin::new(&mut *client).poll_write(&mut cx, &taken).is_ready());
    assert!(Pin::new(client).poll_flush(&mut cx).is_ready());
}

/// Yields one frame for each read, then has none.
struct Source<S> {
    socket: S,
    frames: Vec<Bytes>,
    next: usize,
    empty: bool,
}

impl<S> Source<S> {
    fn new(socket: S, frames: Vec<Bytes>) -> Self {
        Self { socket, frames, next: 0, empty: false }
    }
}

impl<S: AsyncRead + Unpin> Body for Source<S> {
    type Data = Bytes;
    type Error = Never;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Never>>> {
        let this = self.get_mut();
        this.empty = !this.empty;
        if !this.empty {
            return Poll::Pending;
        }
        let mut byte = [0];
        assert!(Pin::new(&mut this.socket).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_ready());
        let frame = this.frames[this.next].clone();
        this.next = (this.next + 1) % this.frames.len();
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}

impl Stamped for Source<Transport<Socket>> {
    fn stamp(&self) -> Option<ReadStamp> {
        self.socket.io().last_read()
    }
}

#[derive(Debug)]
enum Never {}

impl std::fmt::Display for Never {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl IntoFault for Never {
    fn fault(&self) -> Fault {
        match *self {}
    }
}

/// Always has a byte to read and takes whatever is written.
struct Socket;

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        buf.put_slice(b"x");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(black_box(buf).len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
