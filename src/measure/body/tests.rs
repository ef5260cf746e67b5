use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Wake;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;
use crate::measure::{Anomaly, Answered, Asked, Content, Exchange, Framing, Meter, Outcome, Setup};
use crate::server::{Client, Handler, Limits, serve};
use crate::transport::{ConnectPhases, Transport};
use crate::wire::Dialect;

const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";

#[derive(Debug, Error)]
#[error("a break")]
struct Break;

impl IntoFault for Break {
    fn fault(&self) -> Fault {
        Fault::Reset
    }
}

/// Frames that are all at hand, then the end or a break.
struct Frames(Vec<Result<&'static str, Break>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Break;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Break>>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        Poll::Ready(next.map(|next| next.map(|text| Frame::data(Bytes::from_static(text.as_bytes())))))
    }
}

impl Stamped for Frames {
    fn stamp(&self) -> Option<ReadStamp> {
        Some(ReadStamp { at: Instant::now(), number: 1 })
    }
}

type Told = Arc<Mutex<Vec<Exchange>>>;

fn observation() -> (Observation, Told) {
    let told = Told::default();
    let tell = told.clone();
    let keep = Box::new(move |exchange: &Exchange| tell.lock().unwrap().push(exchange.clone()));
    let meter = Arc::new(Meter::new(Setup::default(), vec![keep]));
    let now = Instant::now();
    let mut observation = Observation::begin(meter, "chat", now, Some(Dialect::Chat));
    observation.body_read(now);
    observation.asked(Asked { stream: true, choices: 1, ..Asked::default() });
    observation.routed(&"up".into());
    observation.answered(Answered {
        status: 200,
        content: Content::Events,
        framing: Framing::Chunked,
        sent: Some(now),
        head: now,
        connect: ConnectPhases::default(),
        reused: Some(false),
        engine: None,
    });
    (observation, told)
}

fn poll(body: &mut ObservedBody<Frames>, waker: &Waker) -> Poll<Option<Result<Bytes, String>>> {
    let polled = Pin::new(body).poll_frame(&mut Context::from_waker(waker));
    polled.map(|next| next.map(|next| next.map(|frame| frame.into_data().unwrap()).map_err(|cut| cut.to_string())))
}

#[test]
fn an_observer_that_panics_leaves_the_traffic_alone() {
    let (observation, told) = observation();
    let mut body =
        ObservedBody::new(Frames(vec![Ok(TOKEN), Ok(TOKEN), Ok("data: [DONE]\n\n")]), observation, None, false);
    assert_eq!(poll(&mut body, Waker::noop()), Poll::Ready(Some(Ok(TOKEN.into()))));
    body.watch.with::<()>(|_| panic!("the observer's own fault"));
    assert_eq!(poll(&mut body, Waker::noop()), Poll::Ready(Some(Ok(TOKEN.into()))));
    assert_eq!(poll(&mut body, Waker::noop()), Poll::Ready(Some(Ok("data: [DONE]\n\n".into()))));
    assert_eq!(poll(&mut body, Waker::noop()), Poll::Ready(None));
    drop(body);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].outcome, told[0].anomalies.count(Anomaly::Observer)), (Outcome::Internal, 1));
}

#[derive(Default)]
struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[tokio::test]
async fn a_break_waits_until_what_came_before_it_is_written() {
    let (observation, told) = observation();
    let (_far, near) = tokio::io::duplex(64);
    let mut near = Transport::new(near);
    let mut body = ObservedBody::new(Frames(vec![Ok(TOKEN), Err(Break)]), observation, Some(near.io()), false);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    assert_eq!(poll(&mut body, &waker), Poll::Ready(Some(Ok(TOKEN.into()))));
    assert_eq!(poll(&mut body, &waker), Poll::Pending);
    assert_eq!(poll(&mut body, &waker), Poll::Pending);
    assert_eq!(count.0.load(SeqCst), 0, "nobody is woken before the flush");
    near.write_all(b"head and token").await.unwrap();
    near.flush().await.unwrap();
    assert_eq!(count.0.load(SeqCst), 1);
    assert_eq!(poll(&mut body, &waker), Poll::Ready(Some(Err("a break".to_owned()))));
    assert_eq!(told.lock().unwrap()[0].outcome, Outcome::Reset);
}

#[tokio::test]
async fn a_break_does_not_wait_for_an_observer_that_panicked() {
    let (observation, told) = observation();
    let (_far, near) = tokio::io::duplex(64);
    let near = Transport::new(near);
    let mut body = ObservedBody::new(Frames(vec![Ok(TOKEN), Err(Break)]), observation, Some(near.io()), false);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    assert_eq!(poll(&mut body, &waker), Poll::Ready(Some(Ok(TOKEN.into()))));
    // It waits for the flush, and then whoever would tell of that is gone.
    assert_eq!(poll(&mut body, &waker), Poll::Pending);
    body.watch.with::<()>(|_| panic!("the observer's own fault"));
    assert_eq!(count.0.load(SeqCst), 1);
    assert_eq!(poll(&mut body, &waker), Poll::Ready(Some(Err("a break".to_owned()))));
    drop((body, near));
    assert_eq!(told.lock().unwrap().len(), 1);
}

/// Serves one token, and then a fault.
#[derive(Default)]
struct Faulty {
    /// The source panics. Otherwise the observer does, and the source breaks.
    source: bool,
    told: Mutex<Told>,
}

struct Fragile {
    token: Option<&'static str>,
    source: bool,
    watch: Arc<Mutex<Option<Arc<Watch>>>>,
}

impl Handler for Faulty {
    type Body = ObservedBody<Fragile>;

    async fn handle(self: Arc<Self>, _: Request<Incoming>, client: Arc<Client>) -> Response<Self::Body> {
        let (observation, told) = observation();
        *self.told.lock().unwrap() = told;
        let watch: Arc<Mutex<Option<Arc<Watch>>>> = Arc::default();
        let fragile = Fragile { token: Some(TOKEN), source: self.source, watch: watch.clone() };
        let body = ObservedBody::new(fragile, observation, Some(&client.io), false);
        *watch.lock().unwrap() = Some(body.watch.clone());
        Response::new(body)
    }
}

impl Body for Fragile {
    type Data = Bytes;
    type Error = Break;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Break>>> {
        if let Some(token) = self.token.take() {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(token.as_bytes())))));
        }
        assert!(!self.source, "the source's own fault");
        let watch = self.watch.lock().unwrap().take().unwrap();
        watch.with::<()>(|_| panic!("the observer's own fault"));
        Poll::Ready(Some(Err(Break)))
    }
}

impl Stamped for Fragile {
    fn stamp(&self) -> Option<ReadStamp> {
        None
    }
}

#[tokio::test]
async fn after_a_panic_the_clients_stream_still_ends_abruptly() {
    for source in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let handler = Arc::new(Faulty { source, ..Faulty::default() });
        let (_stop, stopping) = watch::channel(false);
        let limit = Duration::from_secs(20);
        let limits = Limits { header_timeout: limit, drain_timeout: limit, ..Limits::default() };
        let serving = tokio::spawn(serve(listener, handler.clone(), limits, stopping));
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut reply = Vec::new();
        tokio::time::timeout(limit, client.read_to_end(&mut reply)).await.expect("its end").unwrap();
        assert!(!reply.ends_with(b"0\r\n\r\n"), "an end in order: {:?}", String::from_utf8_lossy(&reply));
        let told = handler.told.lock().unwrap().clone();
        let told = told.lock().unwrap();
        let outcomes: Vec<_> = told.iter().map(|exchange| exchange.outcome).collect();
        assert_eq!(outcomes, [Outcome::Internal]);
        assert_eq!(told[0].anomalies.count(Anomaly::Observer), u32::from(!source));
        serving.abort();
    }
}

#[test]
fn a_reply_that_is_always_at_hand_lets_others_have_a_turn() {
    const COMMENT: &str = ": a comment of a length that is kept short\n\n";
    let (observation, _) = observation();
    let frames = 2 * MOST_AT_ONCE / COMMENT.len() + 2;
    let mut body = ObservedBody::new(Frames((0..frames).map(|_| Ok(COMMENT)).collect()), observation, None, false);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut turns = vec![0];
    loop {
        match poll(&mut body, &waker) {
            Poll::Ready(Some(bytes)) => *turns.last_mut().unwrap() += bytes.unwrap().len(),
            Poll::Ready(None) => break,
            Poll::Pending => turns.push(0),
        }
    }
    assert_eq!(turns.iter().sum::<usize>(), frames * COMMENT.len(), "nothing is lost");
    assert_eq!((turns.len(), count.0.load(SeqCst)), (3, 2), "each turn given away is asked for again");
    assert!(turns.iter().all(|turn| *turn < MOST_AT_ONCE + COMMENT.len()));
}
