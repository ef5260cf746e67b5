//! Requests without a body and a type, as responses are cancelled, where a key is configured: however their framing says so.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::Request;
use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::http2::within;
use crate::request;
use crate::support::stage::{Proxy, SERVER, TO_UP, backend, sim};

const CANCEL: &str = "/v1/responses/resp_1/cancel";

fn keyed(upstream: std::net::SocketAddr) -> Proxy {
    let up = backend("up", upstream, "api_key = { env = \"UP_KEY\" }");
    Proxy::in_environment(&[("UP_KEY", "sk-of-up")], &format!("{SERVER}{up}{TO_UP}"))
}

#[test]
fn a_request_that_says_nothing_of_a_body_has_none() {
    let sim = sim();
    let proxy = keyed(sim.addr());
    let mut client = proxy.client();
    for (number, headers) in (1..).zip([&[][..], &[("content-length", "0")]]) {
        assert_ne!(client.ask(request("POST", CANCEL, headers)).status, 415, "{headers:?}");
        assert_eq!(sim.counts().requests, number);
    }
    // With a type, or a body that is yet to come, it may be a page's form.
    for headers in [("content-type", "text/plain"), ("transfer-encoding", "chunked"), ("content-length", "1")] {
        let reply = proxy.client().ask(request("POST", CANCEL, &[headers]) + "0\r\n\r\n");
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (415, Some("not_json")), "{headers:?}");
    }
    assert_eq!(sim.counts().requests, 2);
}

/// A body that is over before it began, and says nothing of a length.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_stream_that_ends_with_its_head_has_no_body() {
    let sim = sim();
    let proxy = keyed(sim.addr());
    let socket = TcpStream::connect(proxy.running.listen()).await.expect("connected");
    let (mut send, driver) =
        Builder::new(TokioExecutor::new()).handshake(TokioIo::new(socket)).await.expect("a connection");
    let driver = tokio::spawn(driver);
    let request = Request::post(format!("http://localhost{CANCEL}")).body(Nothing).expect("a request");
    let reply = within("a reply", send.send_request(request)).await.expect("in order");
    assert_ne!(reply.status(), 415);
    let received = sim.received().pop().expect("a request").request;
    assert_eq!((&*received.target, received.header("authorization")), (CANCEL, Some("Bearer sk-of-up")));
    // Dropped with the connection open, the proxy would wait for it.
    driver.abort();
    assert!(driver.await.is_err_and(|error| error.is_cancelled()));
}
