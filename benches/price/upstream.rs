//! The upstream all legs share: a thread per connection with blocking sockets, as cheap and as exact as this machine allows.
//!
//! What to answer comes with each request, in its `x-price` header: a [`Wish`]. Every paced event carries the instant
//! at which it was sent and the instant at which its request had arrived, both `CLOCK_MONOTONIC` nanoseconds.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use streamgauge::clock::monotonic_ns;

use crate::http::{self, Body};

/// A leg that keeps either end waiting for this long is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What one request wants of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// One JSON document of about 1 KB.
    Json,
    /// A stream whose events leave on an absolute schedule: the first `gap_us` after the request, then one every `gap_us`.
    Paced { events: u32, gap_us: u64 },
    /// A stream as fast as its events arrive, `per_write` to a write, each in a chunk of its own: the next write leaves
    /// when the client has told `gate` that the previous one has come, so that no proxy sees two of them in one read.
    Blast { events: u32, per_write: u32, gate: u32 },
    /// A stream that only TCP holds back, 8 events to a write, each in a chunk of its own.
    Flood { events: u32 },
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json => write!(f, "json"),
            Self::Paced { events, gap_us } => write!(f, "paced {events} {gap_us}"),
            Self::Blast { events, per_write, gate } => write!(f, "blast {events} {per_write} {gate}"),
            Self::Flood { events } => write!(f, "flood {events}"),
        }
    }
}

impl FromStr for Wish {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let bad = || io::Error::other(format!("the x-price header did not survive: {text:?}"));
        let mut words = text.split(' ');
        let kind = words.next();
        let numbers: Vec<u32> = words.map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
        match (kind, numbers.as_slice()) {
            (Some("json"), []) => Ok(Self::Json),
            (Some("paced"), &[events, gap_us]) => Ok(Self::Paced { events, gap_us: u64::from(gap_us) }),
            (Some("blast"), &[events, per_write, gate]) => Ok(Self::Blast { events, per_write, gate }),
            (Some("flood"), &[events]) => Ok(Self::Flood { events }),
            _ => Err(bad()),
        }
    }
}

/// Where a blast's client tells the upstream, past the proxy, how many token events have come.
pub(crate) struct Gate {
    come: Mutex<u32>,
    changed: Condvar,
}

/// One gate per connection that blasts.
pub(crate) static GATES: [Gate; 8] = [const { Gate { come: Mutex::new(0), changed: Condvar::new() } }; 8];

impl Gate {
    /// Says that `count` token events of this request have come so far.
    pub(crate) fn tell(&self, count: u32) {
        *self.come.lock().unwrap_or_else(PoisonError::into_inner) = count;
        self.changed.notify_one();
    }

    fn wait(&self, count: u32) -> io::Result<()> {
        let come = self.come.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(come, PATIENCE, |come| *come < count);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            return Err(io::Error::other(format!("{count} events were sent and have not come after {PATIENCE:?}")));
        }
        Ok(())
    }
}

/// The two instants in a paced event, `CLOCK_MONOTONIC` nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamps {
    /// When the event was handed to the socket.
    pub(crate) sent: u64,
    /// When the request's last byte had been read.
    pub(crate) asked: u64,
}

const BEFORE_STAMPS: &str = r#"data: {"id":"chatcmpl-"#;
const STAMP_DIGITS: usize = 20;

impl Stamps {
    /// Reads the stamps out of an event. `None` for every event that is not a paced token event.
    pub(crate) fn find(event: &[u8]) -> Option<Self> {
        let text = event.strip_prefix(BEFORE_STAMPS.as_bytes())?;
        let number = |at: usize| std::str::from_utf8(text.get(at..at + STAMP_DIGITS)?).ok()?.parse().ok();
        Some(Self { sent: number(0)?, asked: number(STAMP_DIGITS + 1)? })
    }
}

/// A chat chunk of about 200 bytes that carries `stamps`, framed as one HTTP chunk.
fn token_chunk(stamps: Stamps) -> String {
    let Stamps { sent, asked } = stamps;
    chunk(&format!(
        "{BEFORE_STAMPS}{sent:020}-{asked:020}\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
         \"model\":\"price\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" token\"}},\"finish_reason\":null}}]}}\n\n"
    ))
}

/// The finish event, `[DONE]` and the last chunk, as one write.
fn ending() -> String {
    let finish = "data: {\"id\":\"chatcmpl-end\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
                  \"model\":\"price\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    chunk(finish) + &chunk("data: [DONE]\n\n") + "0\r\n\r\n"
}

fn chunk(payload: &str) -> String {
    format!("{:x}\r\n{payload}\r\n", payload.len())
}

const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\
                           transfer-encoding: chunked\r\n\r\n";

fn json_response() -> String {
    let body = format!(
        "{{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"price\",\"choices\":\
         [{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{}\"}},\"finish_reason\":\"stop\"}}],\
         \"usage\":{{\"prompt_tokens\":20,\"completion_tokens\":160,\"total_tokens\":180}}}}",
        "token ".repeat(130)
    );
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Starts the upstream on a free loopback port; it serves until the process ends.
pub(crate) fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("upstream".to_owned()).spawn(move || {
        for socket in listener.incoming().flatten() {
            let served = thread::Builder::new().stack_size(256 * 1024).spawn(move || {
                if let Err(e) = serve(socket) {
                    eprintln!("upstream: {e}");
                }
            });
            if let Err(e) = served {
                eprintln!("upstream: no thread for a connection: {e}");
            }
        }
    })?;
    Ok(address)
}

/// Answers one connection's requests, one after the other, until the other side closes it.
fn serve(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let json = json_response();
    let mut buffer = vec![0; 16 * 1024];
    while let Some((wish, asked)) = next_request(&mut socket, &mut buffer)? {
        match wish {
            Wish::Json => socket.write_all(json.as_bytes())?,
            Wish::Paced { events, gap_us } => paced(&mut socket, asked, events, Duration::from_micros(gap_us))?,
            Wish::Blast { events, per_write, gate } => {
                let gate = GATES.get(gate as usize).ok_or_else(|| io::Error::other("no such gate"))?;
                blast(&mut socket, events, per_write, Some(gate))?;
            }
            Wish::Flood { events } => blast(&mut socket, events, 8, None)?,
        }
    }
    Ok(())
}

/// Reads one whole request; `None` when the connection was closed between requests, however roughly.
fn next_request(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Option<(Wish, Instant)>> {
    let mut filled = 0;
    let head = loop {
        match socket.read(&mut buffer[filled..]) {
            Ok(0) | Err(_) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::Error::other("a proxy closed within a request head")),
            Ok(n) => filled += n,
            Err(e) => return Err(e),
        }
        if let Some(head) = http::request_head(&buffer[..filled])? {
            break head;
        }
    };
    let mut body = Body::new(head.framing);
    body.feed(&buffer[head.len..filled], |_| ())?;
    while !body.is_done() {
        match socket.read(buffer)? {
            0 => return Err(io::Error::other("a proxy closed within a request body")),
            n => body.feed(&buffer[..n], |_| ())?,
        }
    }
    Ok(Some((head.wish.parse()?, Instant::now())))
}

fn paced(socket: &mut TcpStream, asked: Instant, events: u32, gap: Duration) -> io::Result<()> {
    socket.write_all(STREAM_HEAD.as_bytes())?;
    for event in 1..=events {
        // Each deadline counts from the request, so that late wake-ups do not add up.
        thread::sleep((asked + gap * event).saturating_duration_since(Instant::now()));
        let stamps = Stamps { sent: monotonic_ns(Instant::now()), asked: monotonic_ns(asked) };
        socket.write_all(token_chunk(stamps).as_bytes())?;
    }
    thread::sleep((asked + gap * (events + 1)).saturating_duration_since(Instant::now()));
    socket.write_all(ending().as_bytes())
}

fn blast(socket: &mut TcpStream, events: u32, per_write: u32, gate: Option<&Gate>) -> io::Result<()> {
    socket.write_all(STREAM_HEAD.as_bytes())?;
    let full = token_chunk(Stamps { sent: 0, asked: 0 }).repeat(per_write as usize);
    for n in 1..=events / per_write {
        socket.write_all(full.as_bytes())?;
        if let Some(gate) = gate {
            gate.wait(n * per_write)?;
        }
    }
    socket.write_all(ending().as_bytes())
}
