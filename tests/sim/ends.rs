//! How replies and connections end, from either side.

use super::*;

#[test]
fn streams_end_as_badly_as_asked() {
    let sim = sim();
    for (end, ended) in [("rst", Ended::Reset), ("fin", Ended::Fin), ("truncate", Ended::Complete)] {
        let reply = Client::connect(sim.addr()).chat(&format!("ttft_ms=1,itl_ms=3,tokens=5,end={end}"), STREAM);
        assert_eq!(reply.ended, ended);
        // A reset may overtake what was sent before it.
        let events = if end == "rst" { 0 } else { reply.events().len() };
        assert_eq!(events, if end == "rst" { 0 } else { 5 });
        assert!(!reply.body.ends_with(b"[DONE]\n\n"));
    }
    let reply = Client::connect(sim.addr()).chat("ttft_ms=1,itl_ms=0,tokens=5,error_after=2", STREAM);
    assert_eq!(reply.events().len(), 3);
    assert_eq!(reply.events()[2]["error"]["type"], "server_error");
    let reply = Client::connect(sim.addr()).chat("ttft_ms=1,itl_ms=0,tokens=5,no_finish=1", STREAM);
    assert!(reply.is_done() && reply.events().iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    let reply = Client::connect(sim.addr()).chat("ttft_ms=1,itl_ms=0,tokens=5,no_done=1", STREAM);
    assert!(!reply.is_done() && reply.events()[5]["choices"][0]["finish_reason"] == "stop");
    let mut client = Client::connect(sim.addr());
    client.send(chat("ttft_ms=1,tokens=0,no_head=1,end=fin", STREAM));
    assert_eq!(client.some().expect_err("nothing at all").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn silence_lasts_until_the_client_leaves() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    client.send(chat("request=quiet,ttft_ms=1,itl_ms=0,tokens=2,end=silence", STREAM));
    eventually("both tokens are sent", || (of_kind(&sim.entries(), Kind::Token).len() == 2).then_some(()));
    client.socket().set_read_timeout(Some(Duration::from_millis(50))).expect("read timeout");
    while client.some().is_ok() {}
    assert_eq!(client.some().expect_err("silence").kind(), ErrorKind::WouldBlock);
    assert_eq!(sim.counts().open, 1);
    drop(client);
    let left = eventually("the departure is seen", || sim.departures().pop());
    assert_eq!(left.request.as_deref(), Some("quiet"));
}

#[test]
fn a_client_that_leaves_during_a_wait_is_missed_at_once() {
    let sim = sim();
    let mut closing = Client::connect(sim.addr());
    closing.send(chat("request=closing,ttft_ms=3600000", STREAM));
    closing.until(b"\r\n\r\n").expect("a head");
    drop(closing);
    let left = eventually("the close is seen", || sim.departures().pop());
    assert_eq!((left.request.as_deref(), left.how), (Some("closing"), Departure::Closed));
    let resetting = TcpStream::connect(sim.addr()).expect("connected");
    socket2::SockRef::from(&resetting).set_linger(Some(Duration::ZERO)).expect("linger");
    let mut resetting = Client::over(resetting);
    resetting.send(chat("request=resetting,ttft_ms=3600000", WHOLE));
    eventually("the request is read", || (sim.counts().requests == 2).then_some(()));
    drop(resetting);
    let left = eventually("the reset is seen", || sim.departures().into_iter().nth(1));
    assert_eq!((left.request.as_deref(), left.how), (Some("resetting"), Departure::Reset));
    let log = log_of(&sim, 2);
    assert_eq!(of_kind(&log, Kind::PeerLeft).len(), 2);
    assert_eq!(of_kind(&log, Kind::Token).len() + of_kind(&log, Kind::Body).len(), 0);
    eventually("both connections are counted out", || (sim.counts().open == 0).then_some(()));
}

#[test]
fn deadlines_beyond_all_clocks_break_nothing() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    client.send(chat("request=far,ttft_ms=1e22,itl_ms=1e22,tail_ms=1e22,tokens=3", STREAM));
    client.until(b"\r\n\r\n").expect("a head");
    drop(client);
    let left = eventually("the departure is seen", || sim.departures().pop());
    assert_eq!(left.request.as_deref(), Some("far"));
}

#[test]
fn dropping_the_handle_closes_the_port_and_every_connection() {
    let sim = sim();
    let addr = sim.addr();
    let mut client = Client::connect(addr);
    client.send(chat("ttft_ms=3600000", STREAM));
    client.until(b"\r\n\r\n").expect("a head");
    drop(sim);
    assert!(client.some().is_err());
    assert!(TcpStream::connect(addr).is_err());
}
