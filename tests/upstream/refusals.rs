//! Streams of HTTP/2 that the server ends without having processed them, frame by frame.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::{Client, Ended, PATIENCE};
use crate::support::eventually;
use crate::support::stage::{Proxy, one_backend};
use crate::{STREAM, assert_told, chat};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END: u8 = 1;
const END_HEADERS: u8 = 4;

const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;

const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A server that does nothing by itself.
struct Server(TcpListener);

/// One of its connections.
struct Wire(TcpStream);

impl Server {
    fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("an option");
        Self(listener)
    }

    fn addr(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    /// The next connection, greeted, with room for any upload.
    fn accept(&self) -> Wire {
        let (socket, _) = eventually("a connection comes", || self.0.accept().ok());
        socket.set_nonblocking(false).expect("an option");
        socket.set_read_timeout(Some(PATIENCE)).expect("an option");
        socket.set_nodelay(true).expect("an option");
        let mut wire = Wire(socket);
        wire.0.read_exact(&mut [0; 24]).expect("a preface");
        // SETTINGS_INITIAL_WINDOW_SIZE, and the same for the connection.
        wire.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        wire.send(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
        wire
    }

    fn is_wanted(&self) -> bool {
        self.0.accept().is_ok()
    }
}

impl Wire {
    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = u32::try_from(payload.len()).expect("a length").to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).expect("written");
    }

    /// Kind, flags and stream of the next frame.
    fn frame(&mut self) -> (u8, u8, u32) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).expect("a frame's head");
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        std::io::copy(&mut (&self.0).take(length.into()), &mut std::io::sink()).expect("a payload");
        (kind, flags, u32::from_be_bytes(stream))
    }

    /// Reads until a request's head has come, and says on which stream.
    fn head(&mut self) -> u32 {
        loop {
            if let (HEADERS, _, stream) = self.frame() {
                return stream;
            }
        }
    }

    /// Reads one request to its end.
    fn request(&mut self) -> u32 {
        let stream = self.head();
        loop {
            let (kind, flags, of) = self.frame();
            if kind == DATA && of == stream && flags & END != 0 {
                return stream;
            }
        }
    }

    fn begin(&mut self, stream: u32) {
        // `:status: 200` (index 8) and `content-type` (index 31), as in RFC 7541, appendix A.
        self.send(HEADERS, END_HEADERS, stream, b"\x88\x0f\x10\x11text/event-stream");
        self.send(DATA, 0, stream, TOKEN.as_bytes());
    }

    fn finish(&mut self, stream: u32) {
        self.send(DATA, END, stream, FINISH.as_bytes());
    }

    fn reset(&mut self, stream: u32, error: u32) {
        self.send(RST_STREAM, 0, stream, &error.to_be_bytes());
    }

    /// Takes no more streams, and has processed none beyond `last`.
    fn go_away(&mut self, last: u32) {
        self.send(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
    }
}

fn asking(proxy: &Proxy, name: &str) -> Client {
    let mut client = proxy.client();
    client.send(chat(&[("x-streamgauge-tag", name)], STREAM));
    client
}

fn before(server: &Server, more: &str) -> Proxy {
    Proxy::start(&one_backend(server.addr(), &format!("http2 = true\n{more}")))
}

#[test]
fn a_request_that_was_not_processed_is_asked_once_more_elsewhere() {
    for refuse in [|wire: &mut Wire, stream| wire.reset(stream, REFUSED_STREAM), |wire: &mut Wire, _| wire.go_away(0)] {
        let server = Server::bind();
        let proxy = before(&server, "");
        let mut client = asking(&proxy, "");
        let mut first = server.accept();
        let stream = first.request();
        refuse(&mut first, stream);
        let mut second = server.accept();
        let stream = second.request();
        second.begin(stream);
        second.finish(stream);
        let reply = client.reply();
        assert_eq!((reply.status, reply.ended), (200, Ended::Complete));
        assert_eq!(reply.body, [TOKEN, FINISH].concat().as_bytes());
        assert_eq!(proxy.outcome(1), "ok");
        let exchange = proxy.finished(1).remove(0);
        assert!(exchange.marks.sent < exchange.marks.first_token && exchange.marks.sent.is_some());

        // Once, not for ever.
        let mut client = asking(&proxy, "");
        let stream = second.request();
        second.reset(stream, REFUSED_STREAM);
        let mut third = server.accept();
        let stream = third.request();
        third.reset(stream, REFUSED_STREAM);
        let says = ["it ended the stream without having acted on the request: ", "refused", "; try again"];
        assert_told(&client.reply(), 502, "upstream_closed", &says);
        assert_eq!(proxy.finished(2)[1].outcome.label(), "reset");
        assert!(!server.is_wanted());
    }
}

#[test]
fn a_request_that_may_have_been_processed_is_not() {
    for (end, says) in [
        ((|wire, stream| wire.reset(stream, CANCEL)) as fn(&mut Wire, u32), "it reset the stream"),
        (
            |wire, stream| {
                wire.go_away(stream);
                wire.reset(stream, CANCEL);
            },
            "it reset the stream",
        ),
    ] {
        let server = Server::bind();
        let proxy = before(&server, "");
        let mut client = asking(&proxy, "");
        let mut wire = server.accept();
        let stream = wire.request();
        end(&mut wire, stream);
        let says = [says, "the request may have been acted on, so it was not repeated"];
        assert_told(&client.reply(), 502, "upstream_closed", &says);
        assert!(!server.is_wanted());
    }
}

#[test]
fn a_request_that_never_left_is_asked_elsewhere_and_harms_none_before_it() {
    let server = Server::bind();
    let proxy = before(&server, "idle_timeout_ms = 1500");
    let mut running = asking(&proxy, "running");
    let mut first = server.accept();
    let stream = first.request();
    first.begin(stream);
    let head = running.head();
    assert_eq!(head.status, 200);

    // An upload that is not read fills the socket, so that what comes after it cannot leave.
    let mut upload = proxy.client();
    let size = 64 << 20;
    upload.send(format!("POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {size}\r\n\r\n"));
    let upload = thread::spawn(move || {
        let piece = vec![b'x'; 1 << 20];
        while upload.socket().try_clone().expect("a socket").write_all(&piece).is_ok() {}
    });
    let uploading = first.head();
    thread::sleep(Duration::from_millis(500));
    let mut stuck = asking(&proxy, "stuck");
    thread::sleep(Duration::from_millis(300));
    first.go_away(uploading);
    let mut second = server.accept();
    let again = second.request();
    second.begin(again);
    second.finish(again);
    assert_eq!(stuck.reply().ended, Ended::Complete);

    // Longer than silence may last, in pieces far shorter.
    let (began, mut tokens) = (Instant::now(), 1);
    while began.elapsed() < Duration::from_millis(4000) {
        first.send(DATA, 0, stream, TOKEN.as_bytes());
        tokens += 1;
        thread::sleep(Duration::from_millis(50));
    }
    first.finish(stream);
    let reply = running.rest(head);
    assert_eq!(reply.ended, Ended::Complete);
    assert!(reply.body == (TOKEN.repeat(tokens) + FINISH).into_bytes(), "{} bytes", reply.body.len());
    let finished = proxy.finished(2);
    assert!(finished.iter().all(|exchange| exchange.outcome.label() == "ok"));
    let running = finished.iter().find(|exchange| exchange.tag.as_deref() == Some("running")).expect("finished");
    assert_eq!(running.token_events, tokens as u64);
    drop(first);
    upload.join().expect("the upload has ended");
}
