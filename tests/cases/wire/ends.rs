//! How streams end between real sockets: what the client sees, what is told, what becomes of the upstream's side.

use std::time::Duration;

use streamgauge::backend::sim::{End, Framing, Script, Step};
use streamgauge::measure::{Anomaly, Outcome};

use super::hand::{Hand, STREAM_HEAD};
use super::net::{Ended, Proxy, asking, chat, eventually, sim};

const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn script(text: &str, end: End) -> Script {
    Script { end, ..Script::sending(text.to_owned()) }
}

#[test]
fn upstream_rst_mid_event() {
    let hand = Hand::new();
    let proxy = Proxy::before(hand.address());
    let mut client = proxy.client();
    client.send(chat("", &asking("m", true)));
    let mut answering = hand.request();
    answering.send(STREAM_HEAD);
    answering.chunk(TOKEN.as_bytes());
    answering.chunk(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"cont");
    client.head();
    client.body_until(&[TOKEN, "data: {\"choices\":[{\"index\":0,\"delta\":{\"cont"].concat());
    answering.reset();

    let rest = client.rest();
    assert_eq!((rest.0.as_slice(), rest.1), (&b""[..], Ended::Abrupt));
    let exchange = proxy.exchange();
    assert_eq!(exchange.outcome, Outcome::Reset);
    assert_eq!((proxy.counted(), exchange.token_events), ((1, 0), 1));
    assert_eq!(exchange.anomalies.count(Anomaly::UnterminatedEvent), 1);
}

#[test]
fn upstream_eof_before_the_end() {
    let half = [TOKEN, TOKEN].concat();
    let cut_in_chunks = script(&half, End::Fin);
    let only_closed = Script { framing: Framing::Close, ..script(&half, End::Complete) };
    for script in [cut_in_chunks, only_closed] {
        let sim = sim(script);
        let proxy = Proxy::before(sim.addr());
        let reply = proxy.client().stream("m");
        assert_eq!((reply.body.as_slice(), reply.ended), (half.as_bytes(), Ended::Abrupt));
        assert_eq!((proxy.exchange().outcome, proxy.counted()), (Outcome::Truncated, (1, 1)));
    }
}

#[test]
fn upstream_eof_right_behind_its_head() {
    // What came is passed on, be it the head alone, also where the reply is not looked at.
    for (status, outcome) in [(200, Outcome::Truncated), (503, Outcome::Upstream5xx)] {
        let sim = sim(Script { status, end: End::Fin, ..Script::default() });
        let proxy = Proxy::before(sim.addr());
        let reply = proxy.client().stream("m");
        assert_eq!((reply.status, reply.body.len(), reply.ended), (status, 0, Ended::Abrupt));
        assert_eq!((proxy.exchange().outcome, proxy.counted()), (outcome, (0, 0)));
    }
}

#[test]
fn upstream_eof_behind_a_slow_client() {
    // The error waits until the client has taken what came before it, however long that takes.
    let many = TOKEN.repeat(200_000);
    let sim = sim(script(&many, End::Fin));
    let proxy = Proxy::before(sim.addr());
    let mut client = proxy.client();
    client.send(chat("", &asking("m", true)));
    eventually("the upstream is blocked or done", || (sim.counts().requests == 1).then_some(()));
    client.head();
    let (body, ended) = client.rest();
    assert!(body == many.as_bytes(), "the client got {} of {} bytes", body.len(), many.len());
    assert_eq!((ended, proxy.exchange().outcome), (Ended::Abrupt, Outcome::Truncated));
}

#[test]
fn upstream_eof_that_ends_a_whole_answer() {
    let whole = [TOKEN, TOKEN, STOP].concat();
    let sim = sim(Script { framing: Framing::Close, ..script(&whole, End::Complete) });
    let proxy = Proxy::before(sim.addr());
    let reply = proxy.client().stream("m");
    assert_eq!((reply.body.as_slice(), reply.ended), (whole.as_bytes(), Ended::Clean));
    assert_eq!((proxy.exchange().outcome, proxy.counted()), (Outcome::Ok, (1, 1)));
}

/// The client hangs up once it has read `mark`; the upstream would have stayed open for ever.
fn hang_up_after(text: &str, mark: &str) -> (Proxy, streamgauge::measure::Exchange) {
    let sim = sim(script(text, End::Silence));
    let proxy = Proxy::before(sim.addr());
    let mut client = proxy.client();
    client.send(chat("", &asking("m", true)));
    client.head();
    assert_eq!(client.body_until(mark), text.as_bytes());
    drop(client);
    let exchange = proxy.exchange();
    eventually("the upstream is left alone", || (sim.departures().len() == 1).then_some(()));
    (proxy, exchange)
}

#[test]
fn done_then_a_long_idle_and_the_client_hangs_up() {
    let (proxy, exchange) = hang_up_after(&[TOKEN, TOKEN, STOP, DONE].concat(), "[DONE]\n\n");
    assert_eq!((exchange.outcome, proxy.counted()), (Outcome::Ok, (1, 1)));
}

#[test]
fn finish_reason_then_an_open_socket_and_the_client_hangs_up() {
    let (proxy, exchange) = hang_up_after(&[TOKEN, TOKEN, STOP].concat(), "\"stop\"}]}\n\n");
    assert_eq!((exchange.outcome, proxy.counted()), (Outcome::Ok, (1, 1)));
    assert!(exchange.marks.finish >= exchange.marks.last_token && exchange.marks.finish.is_some());
}

#[test]
fn the_client_hangs_up_between_tokens() {
    let (proxy, exchange) = hang_up_after(&[TOKEN, TOKEN].concat(), &[TOKEN, TOKEN].concat());
    assert_eq!((exchange.outcome, proxy.counted()), (Outcome::ClientCancel, (1, 1)));
}

#[test]
fn an_upstream_that_falls_silent() {
    let sim = sim(script(&[TOKEN, TOKEN].concat(), End::Silence));
    let proxy = Proxy::with(&[("up", "*", sim.addr())], |openai| openai.idle_timeout = Duration::from_millis(150));
    let reply = proxy.client().stream("m");
    assert_eq!((reply.body.as_slice(), reply.ended), ([TOKEN, TOKEN].concat().as_bytes(), Ended::Abrupt));
    assert_eq!((proxy.exchange().outcome, proxy.counted()), (Outcome::Timeout, (1, 1)));
    eventually("the upstream is left alone", || (sim.departures().len() == 1).then_some(()));
}

#[test]
fn comments_are_no_silence() {
    // Three times the limit in all, but never longer than a part of it without a byte.
    let ping = Step { repeat: 12, ..Step { wait: Duration::from_millis(100), ..Step::send(": ping\n\n") } };
    let steps = vec![ping, Step::send([TOKEN, STOP, DONE].concat())];
    let sim = sim(Script { steps, ..Script::default() });
    let proxy = Proxy::with(&[("up", "*", sim.addr())], |openai| openai.idle_timeout = Duration::from_millis(400));
    let reply = proxy.client().stream("m");
    assert_eq!((reply.ended, proxy.exchange().outcome), (Ended::Clean, Outcome::Ok));
}

#[test]
fn silence_after_a_whole_answer_ends_it_in_order() {
    let whole = [TOKEN, TOKEN, STOP, DONE].concat();
    let sim = sim(script(&whole, End::Silence));
    let proxy = Proxy::with(&[("up", "*", sim.addr())], |openai| openai.idle_timeout = Duration::from_millis(150));
    let reply = proxy.client().stream("m");
    assert_eq!((reply.body.as_slice(), reply.ended), (whole.as_bytes(), Ended::Clean));
    assert_eq!((proxy.exchange().outcome, proxy.counted()), (Outcome::Ok, (1, 1)));
}
