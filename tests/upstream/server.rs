//! An upstream of HTTP/2 that streams as each request asks, and notes when it really did.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

/// How one request wants to be answered; given in its header `x-plan`, as `ttft=100,itl=20,tokens=8`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// From the request's last byte to the first token event, in milliseconds.
    pub(crate) ttft: u64,
    /// Between two token events, in milliseconds.
    pub(crate) itl: u64,
    pub(crate) tokens: u64,
    /// Each token event's length, in bytes, at least.
    pub(crate) size: u64,
    /// From the request's last byte to the reply's head, in milliseconds.
    pub(crate) head: u64,
    /// 0: in order. 1: by a reset. 2: never, in silence. 3: by a reset before the head. 4: in order, but
    /// without finish reason and `[DONE]`.
    pub(crate) end: u64,
}

impl Plan {
    pub(crate) fn header(self) -> String {
        let Self { ttft, itl, tokens, size, head, end } = self;
        format!("ttft={ttft},itl={itl},tokens={tokens},size={size},head={head},end={end}")
    }

    fn parse(text: &str) -> Self {
        let fields: BTreeMap<&str, u64> = text
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, n)| (key, n.parse().expect("a number")))
            .collect();
        let of = |key| fields.get(key).copied().unwrap_or(0);
        Self {
            ttft: of("ttft"),
            itl: of("itl"),
            tokens: of("tokens"),
            size: of("size"),
            head: of("head"),
            end: of("end"),
        }
    }

    pub(crate) fn event(self) -> String {
        let text = "a".repeat(usize::try_from(self.size).expect("a size").max(1));
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
        )
    }

    /// All that is sent when it ends in order.
    pub(crate) fn bytes(self) -> String {
        self.event().repeat(usize::try_from(self.tokens).expect("a count")) + END
    }
}

const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// One request, as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) connection: usize,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Its last byte had been read.
    pub(crate) read: Instant,
    /// Right before each token event was handed over.
    pub(crate) tokens: Vec<Instant>,
    /// Nobody answers it any more.
    pub(crate) over: bool,
}

/// How a server is set up.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) most_streams: Option<u32>,
}

#[derive(Default)]
struct State {
    opened: AtomicUsize,
    closed: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
}

impl State {
    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Serve,
    GoAway,
    Cut,
}

/// A running server. Dropping it closes everything.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    state: Arc<State>,
    orders: watch::Sender<(u32, Order)>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(setup: Setup) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let addr = listener.local_addr().expect("an address");
        let state = Arc::<State>::default();
        let (orders, ordered) = watch::channel((0, Order::Serve));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let shared = state.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, setup, shared, ordered) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { addr, state, orders, stop: Some(stop), thread: Some(thread) }
    }

    /// How many connections it has accepted.
    pub(crate) fn opened(&self) -> usize {
        self.state.opened.load(Relaxed)
    }

    /// How many of them are closed.
    pub(crate) fn closed(&self) -> usize {
        self.state.closed.load(Relaxed)
    }

    /// Every request so far, in the order in which they were read.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen().clone()
    }

    /// The request of this name, once it was read.
    pub(crate) fn named(&self, name: &str) -> Option<Seen> {
        self.state.seen().iter().find(|seen| seen.name == name).cloned()
    }

    /// Tells every connection open now to take no more streams.
    pub(crate) fn go_away(&self) {
        self.orders.send_modify(|order| *order = (order.0 + 1, Order::GoAway));
    }

    /// Closes every connection open now where it stands.
    pub(crate) fn cut(&self) {
        self.orders.send_modify(|order| *order = (order.0 + 1, Order::Cut));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, setup: Setup, state: Arc<State>, orders: watch::Receiver<(u32, Order)>) {
    let acceptor = setup.tls.map(TlsAcceptor::from);
    loop {
        let (tcp, _) = listener.accept().await.expect("accepted");
        tcp.set_nodelay(true).expect("nodelay");
        let tcp = tcp.into_std().expect("a socket");
        let end = tcp.try_clone().expect("the same socket");
        let tcp = TcpStream::from_std(tcp).expect("a socket");
        let number = state.opened.fetch_add(1, Relaxed) + 1;
        let (state, mut orders, acceptor) = (state.clone(), orders.clone(), acceptor.clone());
        orders.mark_unchanged();
        let most = setup.most_streams;
        tokio::spawn(async move {
            match acceptor {
                None => connection(tcp, end, number, most, state.clone(), orders).await,
                Some(acceptor) => {
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        connection(tls, end, number, most, state.clone(), orders).await;
                    }
                }
            }
            state.closed.fetch_add(1, Relaxed);
        });
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    end: std::net::TcpStream,
    number: usize,
    most: Option<u32>,
    state: Arc<State>,
    mut orders: watch::Receiver<(u32, Order)>,
) {
    let service = service_fn(move |request| answer(request, number, state.clone()));
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_streams(most.or(Some(1000)));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            changed = orders.changed() => match changed.map(|()| orders.borrow().1) {
                Ok(Order::GoAway) => connection.as_mut().graceful_shutdown(),
                Ok(Order::Serve) => {}
                Ok(Order::Cut) | Err(_) => {
                    // An end, and no reset, which closing over bytes that were not read would be.
                    let _ = end.shutdown(std::net::Shutdown::Write);
                    return;
                }
            },
        }
    }
}

async fn answer(request: Request<Incoming>, connection: usize, state: Arc<State>) -> io::Result<Response<Emit>> {
    let (head, body) = request.into_parts();
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let (plan, name) = (Plan::parse(&text("x-plan")), text("x-name"));
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let read = Instant::now();
    let place = {
        let mut seen = state.seen();
        let (uri, headers) = (head.uri, head.headers);
        seen.push(Seen { name, connection, uri, headers, body, read, tokens: Vec::new(), over: false });
        seen.len() - 1
    };
    let known = Known { state, place };
    tokio::time::sleep_until((read + Duration::from_millis(plan.head)).into()).await;
    if plan.end == 3 {
        return Err(io::Error::other("as planned"));
    }
    let due = read + Duration::from_millis(plan.ttft);
    let alarm = Box::pin(tokio::time::sleep_until(due.into()));
    let mut response = Response::new(Emit { plan, sent: 0, due, alarm, known });
    response.headers_mut().insert("content-type", "text/event-stream".parse().expect("a value"));
    Ok(response)
}

/// A reply's body.
struct Emit {
    plan: Plan,
    sent: u64,
    due: Instant,
    alarm: Pin<Box<Sleep>>,
    known: Known,
}

impl Body for Emit {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.sent > self.plan.tokens {
            return Poll::Ready(None);
        }
        ready!(self.alarm.as_mut().poll(cx));
        self.sent += 1;
        if self.sent > self.plan.tokens {
            return match self.plan.end {
                0 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(END.as_bytes()))))),
                4 => Poll::Ready(None),
                1 => Poll::Ready(Some(Err(io::Error::other("as planned")))),
                _ => {
                    self.sent -= 1;
                    self.alarm.as_mut().reset(tokio::time::Instant::now() + Duration::from_secs(3600));
                    ready!(self.alarm.as_mut().poll(cx));
                    Poll::Pending
                }
            };
        }
        let gap = Duration::from_millis(self.plan.itl);
        let mut due = self.due + gap;
        if self.sent == self.plan.tokens {
            // A reset throws away what has not left by then, also when all is late.
            due = due.max(Instant::now() + gap);
        }
        self.due = due;
        self.alarm.as_mut().reset(due.into());
        self.known.state.seen()[self.known.place].tokens.push(Instant::now());
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(self.plan.event())))))
    }
}

/// A request's place among those seen. Dropped with what answers it, the request is over.
struct Known {
    state: Arc<State>,
    place: usize,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.state.seen()[self.place].over = true;
    }
}
