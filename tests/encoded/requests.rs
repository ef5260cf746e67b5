//! Compressed requests: read all the same, and sent on as they came where nothing has to be changed in them.

use std::io::Write;
use std::path::Path;

use crate::codings::encoded;
use crate::support::client::{Client, Reply};
use crate::support::eventually;
use crate::support::stage::{Proxy, SERVER, TO_UP, backend};
use crate::support::upstream::{Conn, Request, Upstream};
use crate::{FINISH, STREAM, TOKEN, WHOLE, every_coding, header};

const DOCUMENT: &str =
    r#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;

/// A body under this list of codings, in one piece.
fn packed(codings: &str, body: &str) -> Vec<u8> {
    encoded(codings, &[body]).concat()
}

/// A chat request with this body, said to be encoded so.
fn post(coding: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let head = head(&[&[("content-encoding", coding), ("content-length", &length)], headers].concat());
    [head.as_bytes(), body].concat()
}

/// The head of a chat request.
fn head(headers: &[(&str, &str)]) -> String {
    let mut head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n".to_owned();
    for (name, value) in [&[("content-type", "application/json")], headers].concat() {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head + "\r\n"
}

/// The value of a header of a request that an upstream read.
fn value<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Sends one request, whose connection is the upstream's first or `conn`, and returns what the upstream read of it.
fn relayed(client: &mut Client, upstream: &Upstream, conn: &mut Option<Conn>, request: &[u8]) -> Request {
    client.send(request);
    let conn = conn.get_or_insert_with(|| upstream.accept());
    let read = conn.request();
    conn.answer(DOCUMENT);
    let reply = client.reply();
    assert_eq!((reply.status, &*reply.body), (200, DOCUMENT.as_bytes()), "{reply:?}");
    read
}

fn refused(reply: &Reply, status: u16, code: &str, says: &str) {
    let error = &reply.json()["error"];
    assert_eq!((reply.status, error["code"].as_str()), (status, Some(code)), "{reply:?}");
    assert!(error["message"].as_str().expect("a message").contains(says), "{error}");
}

#[test]
fn a_request_goes_on_in_the_bytes_in_which_it_came() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let (mut client, mut conn) = (proxy.client(), None);
    for (count, codings) in (1..).zip(every_coding()) {
        let body = packed(codings, WHOLE);
        let read = relayed(&mut client, &upstream, &mut conn, &post(&header(codings), &[], &body));
        assert!(read.body == body && value(&read, "content-encoding") == Some(&*header(codings)), "{codings}");
        assert_eq!(value(&read, "content-length"), Some(&*body.len().to_string()));
        let exchange = proxy.finished(count).pop().expect("one");
        assert_eq!(
            (exchange.model_requested.as_deref(), exchange.stream, exchange.outcome.label()),
            (Some("m"), Some(false), "ok")
        );
    }
    // Its parts may come in chunks.
    let parts = encoded("gzip", &WHOLE.as_bytes().chunks(7).collect::<Vec<_>>());
    let mut request = head(&[("content-encoding", "gzip"), ("transfer-encoding", "chunked")]).into_bytes();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        request.extend([format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
    }
    request.extend(b"0\r\n\r\n");
    let read = relayed(&mut client, &upstream, &mut conn, &request);
    assert!(read.body == parts.concat() && value(&read, "content-encoding") == Some("gzip"));
    assert_eq!(value(&read, "transfer-encoding"), None);
    proxy.idle_scrape();
}

#[test]
fn what_it_asks_for_is_measured() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    client.send(post("zstd", &[("x-streamgauge-tag", "t")], &packed("zstd", STREAM)));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    for event in [TOKEN, TOKEN, FINISH, "[DONE]"] {
        conn.event(event);
    }
    conn.end_stream();
    assert!(client.reply().is_done());
    let exchange = proxy.finished(1).pop().expect("one");
    assert_eq!((exchange.stream, exchange.token_events, exchange.outcome.label()), (Some(true), 2, "ok"));
    assert!(exchange.marks.ttft_client().is_some());
}

#[test]
fn an_alias_is_put_into_the_plain_body() {
    let upstream = Upstream::bind();
    let route = "[[route]]\nmodel = \"m\"\nbackend = \"up\"\nupstream_model = \"other\"\n";
    let proxy = Proxy::start(&format!("{SERVER}{}{route}{TO_UP}", backend("up", upstream.addr(), "")));
    let (mut client, mut conn) = (proxy.client(), None);
    for codings in every_coding() {
        let request = post(&header(codings), &[], &packed(codings, WHOLE));
        let read = relayed(&mut client, &upstream, &mut conn, &request);
        let expected = WHOLE.replace("\"m\"", "\"other\"");
        assert_eq!((String::from_utf8_lossy(&read.body), value(&read, "content-encoding")), (expected.into(), None));
    }
    // One that the route does not touch stays as it is.
    let body = packed("br", &WHOLE.replace("\"m\"", "\"n\""));
    let read = relayed(&mut client, &upstream, &mut conn, &post("br", &[], &body));
    assert!(read.body == body && value(&read, "content-encoding") == Some("br"));
    // One that is signed cannot be changed.
    let signed = client.ask(post("br", &[("x-tt-sign", "s")], &packed("br", WHOLE)));
    refused(&signed, 400, "signed_request", "x-tt-sign");
}

#[test]
fn nothing_is_asked_beyond_what_is_compressed() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "include_usage = true\nmeasure_non_stream = true");
    let (mut client, mut conn) = (proxy.client(), None);
    for body in [WHOLE, STREAM] {
        let body = packed("gzip", body);
        let read = relayed(&mut client, &upstream, &mut conn, &post("gzip", &[("accept-encoding", "br")], &body));
        assert_eq!((read.body == body, value(&read, "accept-encoding")), (true, Some("br")));
    }
}

#[test]
fn a_mirror_gets_it_plain() {
    let (a, b) = (Upstream::bind(), Upstream::bind());
    let route = "[[route]]\nmodel = \"*\"\nbackend = \"up\"\nmirror = { backend = \"b\", share = 1.0 }\n";
    let proxy = Proxy::start(&format!("{SERVER}{}{}{route}", backend("up", a.addr(), ""), backend("b", b.addr(), "")));
    let body = packed("deflate", WHOLE);
    let read = relayed(&mut proxy.client(), &a, &mut None, &post("deflate", &[], &body));
    assert_eq!(read.body, body);
    let mut conn = b.accept();
    let mirrored = conn.request();
    conn.answer(DOCUMENT);
    assert_eq!((&*mirrored.body, value(&mirrored, "content-encoding")), (WHOLE.as_bytes(), None));
    proxy.finished(2);
}

#[test]
fn a_model_in_this_process_gets_it_plain() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llama/fixtures/gqa_tied");
    let config = format!(
        "{SERVER}[backend.here]\nkind = \"llama\"\nmodel = \"{}\"\nload = \"dummy\"\ndevice = \"cpu\"\n\
         [[route]]\nmodel = \"*\"\nbackend = \"here\"\n",
        model.display()
    );
    let proxy = Proxy::start(&config);
    proxy.running.loading()(&mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    eventually("it is ready", || (Client::connect(proxy.running.admin()).get("/readyz").status == 200).then_some(()));
    let body = WHOLE.replacen('{', r#"{"max_tokens":3,"ignore_eos":true,"#, 1);
    let reply = proxy.client().ask(post("gzip", &[], &packed("gzip", &body)));
    assert_eq!((reply.status, &reply.json()["usage"]["completion_tokens"]), (200, &3.into()), "{reply:?}");
}

#[test]
fn what_cannot_be_read_is_refused_and_says_why() {
    let upstream = Upstream::bind();
    let server = SERVER.to_owned() + "max_body_bytes = 1000\n";
    let proxy = Proxy::start(&format!("{server}{}{TO_UP}", backend("up", upstream.addr(), "")));
    let mut client = proxy.client();
    let sized = |length: usize| format!(r#"{{"model":"m","x":"{}"}}"#, "x".repeat(length - 20));
    for codings in every_coding() {
        let large = packed(codings, &sized(1001));
        assert!(large.len() < 200, "{codings}");
        refused(&client.ask(post(&header(codings), &[], &large)), 413, "request_too_large", "larger than 1000 bytes");
        let half = packed(codings, WHOLE);
        let half = client.ask(post(&header(codings), &[], &half[..half.len() - 9]));
        refused(&half, 400, "undecodable_request", "content-encoding");
        let text = client.ask(post(&header(codings), &[], &packed(codings, "model=m")));
        refused(&text, 400, "invalid_json", "cannot be read as a JSON object");
        let plain = client.ask(post(&header(codings), &[], WHOLE.as_bytes()));
        refused(&plain, 400, "undecodable_request", "nothing was sent upstream");
    }
    for coding in ["compress", "gzip, sdch", "gzip, gzip, gzip, gzip, gzip"] {
        let reply = client.ask(post(coding, &[], WHOLE.as_bytes()));
        refused(&reply, 415, "compressed_request", "gzip, deflate, br or zstd");
        assert_eq!(reply.header("accept-encoding"), Some("gzip, deflate, br, zstd"));
    }
    let taken = client.ask(post("gzip", &[], WHOLE.as_bytes()));
    assert_eq!((taken.status, taken.header("accept-encoding")), (400, None));
    // What becomes a thousand times as much is given up early.
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![b' '; 100 << 20]).expect("encoded");
    let mut roomy = SERVER.to_owned() + "max_body_bytes = 2_000_000\n";
    roomy += &(backend("up", upstream.addr(), "") + TO_UP);
    let bomb = post("gzip", &[], &bomb.finish().expect("finished"));
    refused(&Proxy::start(&roomy).client().ask(bomb), 413, "request_too_large", "2000000 bytes");

    assert!(!upstream.is_wanted(), "nothing of it was sent upstream");
    let refused = proxy.idle_scrape().outcome("rejected");
    assert_eq!(refused, f64::from(u32::try_from(every_coding().count()).expect("few") * 4 + 4));
}

#[test]
fn the_limit_itself_is_allowed() {
    let upstream = Upstream::bind();
    let server = SERVER.to_owned() + "max_body_bytes = 4_000_000\n";
    let proxy = Proxy::start(&format!("{server}{}{TO_UP}", backend("up", upstream.addr(), "")));
    let (mut client, mut conn) = (proxy.client(), None);
    // Most of it one letter, and as much of it not as keeps it in proportion.
    let large = format!(r#"{{"model":"m","x":"{}{}"}}"#, noise(80_000), "x".repeat(4_000_000 - 20 - 80_000));
    assert_eq!(large.len(), 4_000_000);
    for codings in every_coding() {
        let body = packed(codings, &large);
        assert!(body.len() < 100_000);
        assert_eq!(relayed(&mut client, &upstream, &mut conn, &post(&header(codings), &[], &body)).body, body);
    }
}

/// So many letters of which none can be told from the others before it.
fn noise(length: usize) -> String {
    let mut state = 1_u32;
    let letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + u8::try_from(state >> 26).expect("six bits"))
    };
    std::iter::repeat_with(letter).map(|letter| if letter == '\\' { '!' } else { letter }).take(length).collect()
}

#[test]
fn what_is_out_of_proportion_is_refused_and_says_so() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    let body = format!(r#"{{"model":"m","x":"{}"}}"#, "x".repeat(4_000_000));
    for codings in every_coding() {
        let refusal = client.ask(post(&header(codings), &[], &packed(codings, &body)));
        refused(&refusal, 413, "request_too_large", "64 times as much as came");
    }
    assert!(!upstream.is_wanted(), "nothing of it was sent upstream");
    // What is small may be as small as it likes.
    let body = format!(r#"{{"model":"m","x":"{}"}}"#, "x".repeat(2_000_000));
    let body = packed("zstd", &body);
    assert!(body.len() < 1_000);
    assert_eq!(relayed(&mut client, &upstream, &mut None, &post("zstd", &[], &body)).body, body);
}

#[test]
fn those_that_wait_for_a_reply_take_no_room_from_others() {
    const WAITING: usize = 12;
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    // Together they become as much as all copies may take.
    let large = format!(r#"{{"model":"m","x":"{}{}"}}"#, noise(1_000_000), "x".repeat(44 << 20));
    let large = packed("zstd", &large);
    let request = post("zstd", &[], &large);
    let waiting: Vec<_> = (0..WAITING)
        .map(|_| {
            let mut client = proxy.client();
            client.send(&request);
            let mut conn = upstream.accept();
            assert!(conn.request().body == large);
            (client, conn)
        })
        .collect();
    relayed(&mut proxy.client(), &upstream, &mut None, &request);
    for (mut client, mut conn) in waiting {
        conn.answer(DOCUMENT);
        assert_eq!(client.reply().status, 200);
    }
}

#[test]
fn identity_is_no_coding() {
    for (asking, begins) in [("measure_non_stream = true", &br#"{"stream":true,"#[..]), ("", WHOLE.as_bytes())] {
        let upstream = Upstream::bind();
        let proxy = Proxy::before(upstream.addr(), asking);
        let request = post("identity", &[], WHOLE.as_bytes());
        let read = relayed(&mut proxy.client(), &upstream, &mut None, &request);
        assert_eq!(value(&read, "content-encoding"), Some("identity"), "{asking}");
        assert!(read.body.starts_with(begins), "{asking}");
    }
}

#[test]
fn a_request_for_a_count_is_read_all_the_same() {
    let upstream = Upstream::bind();
    let route = "[[route]]\nmodel = \"m\"\nbackend = \"up\"\nupstream_model = \"other\"\n";
    let proxy = Proxy::start(&format!("{SERVER}{}{route}{TO_UP}", backend("up", upstream.addr(), "")));
    let (mut client, mut conn) = (proxy.client(), None);
    let mut relay = |body: &[u8]| {
        let head = head(&[("content-encoding", "br"), ("content-length", &body.len().to_string())]);
        let head = head.replacen("/v1/chat/completions", "/v1/messages/count_tokens", 1);
        relayed(&mut client, &upstream, &mut conn, &[head.as_bytes(), body].concat())
    };
    let plain = relay(&packed("br", WHOLE));
    let expected = WHOLE.replace("\"m\"", "\"other\"");
    assert_eq!((String::from_utf8_lossy(&plain.body), value(&plain, "content-encoding")), (expected.into(), None));
    let body = packed("br", &WHOLE.replace("\"m\"", "\"n\""));
    let read = relay(&body);
    assert!(read.body == body && value(&read, "content-encoding") == Some("br"));
}
