//! How requests may be sent: with an expectation, in chunks, large.

use std::fmt::Write as _;

use streamgauge::backend::sim::Script;
use streamgauge::measure::Outcome;

use super::net::{Ended, Proxy, sim};

const REPLY: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn large() -> String {
    let prompt = "水 water ".repeat(111_000);
    format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"stream":true,"model":"m"}}"#)
}

#[test]
fn expect_100_continue_with_a_large_body() {
    let sim = sim(Script::sending(REPLY));
    let proxy = Proxy::before(sim.addr());
    let body = large();
    assert!(body.len() > 1_100_000);
    let mut client = proxy.client();
    client.send(format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: proxy\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    // Nothing of the body is sent before this.
    let interim = client.head();
    assert!(interim.starts_with("HTTP/1.1 100 "), "{interim}");
    client.send(&body);
    let reply = client.reply();
    assert_eq!((reply.status, reply.body.as_slice(), reply.ended), (200, REPLY.as_bytes(), Ended::Clean));
    let received = sim.received().remove(0).request;
    assert!(received.body == body.as_bytes(), "the upstream got another body");
    assert_eq!(received.header("expect"), None, "the expectation was met here");
    let exchange = proxy.exchange();
    assert_eq!((exchange.outcome, proxy.counted()), (Outcome::Ok, (1, 0)));
    assert!(exchange.marks.body >= Some(exchange.marks.accepted));
}

#[test]
fn a_chunked_request_body() {
    let sim = sim(Script::sending(REPLY));
    let proxy = Proxy::before(sim.addr());
    let body = large();
    for size in [1_000, 70_001] {
        let mut chunked = String::from(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: proxy\r\ncontent-type: application/json\r\n\
             transfer-encoding: chunked\r\n\r\n",
        );
        let mut rest = body.as_str();
        while !rest.is_empty() {
            let at = (size.min(rest.len())..=rest.len()).find(|at| rest.is_char_boundary(*at)).expect("a boundary");
            let (piece, after) = rest.split_at(at);
            let _ = write!(chunked, "{:x}\r\n{piece}\r\n", piece.len());
            rest = after;
        }
        chunked.push_str("0\r\n\r\n");
        let mut client = proxy.client();
        client.send(chunked);
        let reply = client.reply();
        assert_eq!((reply.status, reply.body.as_slice()), (200, REPLY.as_bytes()));
        let received = sim.received().pop().expect("a request").request;
        assert!(received.body == body.as_bytes(), "the upstream got another body");
        assert_eq!(received.header("transfer-encoding"), None, "its length is known by now");
        assert_eq!(proxy.exchange().outcome, Outcome::Ok);
    }
}
