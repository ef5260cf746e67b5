//! Replies given byte by byte.

use std::path::Path;

use super::*;

fn playing(script: Script) -> SimHandle {
    start(SimConfig { scripts: script.into(), ..SimConfig::default() })
}

const EVENTS: &str = "data: {\"a\":\"水位\"}\r\n\r\n: ping\n\ndata: [DONE]\n\n";

#[test]
fn bytes_arrive_as_written_in_every_framing_and_cut() {
    for framing in [Framing::Chunked, Framing::Length, Framing::Close] {
        for size in [1, 7, EVENTS.len()] {
            let steps = vec![Step::send(EVENTS).cut_every(size, Duration::ZERO), Step::send("tail")];
            let sim = playing(Script { framing, steps, ..Script::default() });
            let reply = Client::connect(sim.addr()).chat("", "not even JSON");
            assert_eq!((reply.status, reply.ended), (200, Ended::Complete));
            assert_eq!(reply.header("content-type"), Some("text/event-stream"));
            assert_eq!(reply.body, [EVENTS.as_bytes(), b"tail"].concat(), "{framing:?} {size}");
            let writes = of_kind(&log_of(&sim, 1), Kind::Raw).len();
            assert_eq!(writes, EVENTS.len().div_ceil(size) + 1, "each piece is its own write");
        }
    }
}

#[test]
fn waits_add_up_from_the_arrival() {
    let pause = Duration::from_millis(2);
    let step = Step { wait: pause, repeat: 3, ..Step::send("abcd").cut_every(2, Duration::from_micros(300)) };
    let sim =
        playing(Script { head: pause, steps: vec![step, Step::wait(pause), Step::send("e")], ..Script::default() });
    let reply = Client::connect(sim.addr()).chat("", WHOLE);
    assert_eq!(reply.body, b"abcdabcdabcde");
    let log = log_of(&sim, 1);
    let arrived = of_kind(&log, Kind::Request)[0].at_ns;
    let due: Vec<u64> = of_kind(&log, Kind::Raw).iter().map(|entry| (entry.due_ns - arrived) / 1_000).collect();
    assert_eq!(due, [4_000, 4_300, 6_300, 6_600, 8_600, 8_900, 10_900]);
    assert!(log.iter().all(|entry| entry.due_ns <= entry.at_ns));
}

#[test]
fn a_script_ends_as_it_says() {
    for (end, ended) in [(End::Fin, Ended::Fin), (End::Rst, Ended::Reset)] {
        let sim = playing(Script { end, ..Script::sending(EVENTS) });
        let mut client = Client::connect(sim.addr());
        assert_eq!(client.chat("", WHOLE).ended, ended);
    }
    let sim = playing(Script { end: End::Silence, ..Script::sending(EVENTS) });
    let mut client = Client::connect(sim.addr());
    client.send(chat("request=quiet", WHOLE));
    client.until(b"[DONE]\n\n").expect("the events");
    drop(client);
    let left = eventually("the departure is seen", || sim.departures().pop());
    assert_eq!(left.request.as_deref(), Some("quiet"));
    let sim = playing(Script::sending(EVENTS));
    let mut client = Client::connect(sim.addr());
    assert_eq!(client.chat("", WHOLE).body, client.chat("", WHOLE).body);
    assert_eq!(sim.counts().opened, 1, "a complete one keeps the connection");
}

#[test]
fn headers_go_out_verbatim_lies_included() {
    let headers = vec![("X-Odd".into(), "a: b".into()), ("Content-Length".into(), "9".into())];
    let script = Script { status: 418, headers, framing: Framing::Length, end: End::Fin, ..Script::sending("short") };
    let reply = Client::connect(playing(script).addr()).chat("", WHOLE);
    assert!(reply.head.contains("\r\nX-Odd: a: b\r\nContent-Length: 9\r\n"), "{}", reply.head);
    assert_eq!((reply.status, reply.ended, &*reply.body), (418, Ended::Fin, &b"short"[..]));
    let raw = Script { framing: Framing::Raw, end: End::Fin, ..Script::sending("HTTP/1.1 garbage") };
    let sim = playing(raw);
    let mut client = Client::connect(sim.addr());
    client.send(chat("", WHOLE));
    assert_eq!(client.until(b"garbage").expect("the bytes"), b"HTTP/1.1 garbage");
    assert_eq!(client.some().expect_err("closed").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn scripts_are_chosen_by_header_or_model_and_the_tour_plays() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let scripts = Scripts::load(&folder).expect("scripts");
    let tour = scripts.named["tour"].bytes();
    let sim = start(SimConfig { scripts, ..SimConfig::default() });
    let mut client = Client::connect(sim.addr());
    let by_header = client.chat("script=tour", WHOLE);
    assert_eq!(by_header.body, tour);
    assert_eq!(by_header.header("x-oneapi-request-id"), Some("tour-1"));
    assert_eq!(client.chat("", r#"{"model":"script:tour"}"#).body, tour);
    assert_eq!(client.chat("ttft_ms=1,itl_ms=0,tokens=2", STREAM).text(0, "content"), text(2));
}
