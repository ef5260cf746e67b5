//! The clients: a thread per connection with blocking sockets, asking for one workload and timing what arrives.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use memchr::memmem;
use streamgauge::clock::{from_monotonic_ns, monotonic_ns};

use crate::http::{self, Body};
use crate::upstream::{GATES, PATIENCE, Stamps, Wish};

/// Pause between the events of a paced stream, and before its first.
const GAP_US: u64 = 20_000;
/// Token events of one paced stream: short streams give many first tokens.
const PACED_EVENTS: u32 = 20;
/// Token events of one blast stream; a multiple of every number of events a write.
const BLAST_EVENTS: u32 = 400;
/// Token events of one flood stream.
const FLOOD_EVENTS: u32 = 4_000;

/// One kind of traffic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    /// The name used by `--only`.
    pub(crate) name: &'static str,
    /// What the table calls it.
    pub(crate) title: &'static str,
    /// How many connections ask at once.
    pub(crate) connections: usize,
    /// What each request asks for.
    pub(crate) wish: Wish,
}

const PACED: Wish = Wish::Paced { events: PACED_EVENTS, gap_us: GAP_US };

const fn blast(per_write: u32) -> Wish {
    Wish::Blast { events: BLAST_EVENTS, per_write, gate: 0 }
}

/// Everything that is compared, in the table's order.
pub(crate) const WORKLOADS: [Workload; 6] = [
    Workload { name: "paced8", title: "8 paced streams", connections: 8, wish: PACED },
    Workload { name: "paced64", title: "64 paced streams", connections: 64, wish: PACED },
    Workload { name: "json", title: "1 KB JSON", connections: 8, wish: Wish::Json },
    Workload { name: "blast1", title: "blast, 1 event a write", connections: 8, wish: blast(1) },
    Workload { name: "blast8", title: "blast, 8 events a write", connections: 8, wish: blast(8) },
    Workload { name: "flood", title: "flood", connections: 8, wish: Wish::Flood { events: FLOOD_EVENTS } },
];

/// What the clients saw during one turn of one leg.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Requests answered in full.
    pub(crate) requests: u64,
    /// Token events received.
    pub(crate) events: u64,
    /// Paced: one per token event but the first, sent → received. JSON: one per request, asked → answered. Nanoseconds.
    pub(crate) latency: Vec<u64>,
    /// Paced: one per stream, the time to the first token less the upstream's own part of it. Nanoseconds.
    pub(crate) first: Vec<u64>,
    /// How long the turn took.
    pub(crate) wall: Duration,
}

impl Workload {
    /// Opens this workload's connections to one leg.
    pub(crate) fn connect(&self, address: SocketAddr) -> io::Result<Vec<Client>> {
        let own = |gate| match self.wish {
            Wish::Blast { events, per_write, .. } => Wish::Blast { events, per_write, gate },
            shared => shared,
        };
        (0..).take(self.connections).map(|gate| Client::open(address, own(gate))).collect()
    }

    /// Keeps all `clients` asking for about `time`; every request begun is also finished.
    pub(crate) fn turn(&self, clients: &mut [Client], time: Duration) -> io::Result<Seen> {
        let start = Instant::now();
        let stagger = match self.wish {
            Wish::Paced { gap_us, .. } => Duration::from_micros(gap_us) / u32::try_from(clients.len()).unwrap_or(1),
            Wish::Json | Wish::Blast { .. } | Wish::Flood { .. } => Duration::ZERO,
        };
        let asking = |client: &mut Client, begin: Instant| -> io::Result<Seen> {
            let mut seen = Seen::default();
            thread::sleep(begin.saturating_duration_since(Instant::now()));
            while seen.requests == 0 || begin.elapsed() + self.shortest() / 2 < time {
                client.ask(&mut seen)?;
            }
            Ok(seen)
        };
        let mut all = Seen::default();
        thread::scope(|scope| -> io::Result<()> {
            let begins = (0..).map(|n| start + Duration::from_millis(5) + stagger * n);
            let threads: Vec<_> = (clients.iter_mut().zip(begins))
                .map(|(client, begin)| {
                    thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, move || asking(client, begin))
                })
                .collect::<io::Result<_>>()?;
            for thread in threads {
                let seen = thread.join().map_err(|_| io::Error::other("a client thread panicked"))??;
                all.requests += seen.requests;
                all.events += seen.events;
                all.latency.extend(seen.latency);
                all.first.extend(seen.first);
            }
            Ok(())
        })?;
        all.wall = start.elapsed();
        Ok(all)
    }

    /// How long one request takes when nothing delays it.
    fn shortest(&self) -> Duration {
        match self.wish {
            Wish::Paced { events, gap_us } => Duration::from_micros(gap_us) * (events + 1),
            Wish::Json | Wish::Blast { .. } | Wish::Flood { .. } => Duration::ZERO,
        }
    }
}

/// One keep-alive connection to one leg.
pub(crate) struct Client {
    socket: TcpStream,
    wish: Wish,
    request: Vec<u8>,
    buffer: Vec<u8>,
    /// Payload of an event whose end has not arrived.
    partial: Vec<u8>,
}

impl Client {
    fn open(address: SocketAddr, wish: Wish) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let stream = wish != Wish::Json;
        let body = format!(
            "{{\"model\":\"price\",\"stream\":{stream},\"messages\":[{{\"role\":\"system\",\"content\":\"You measure.\"}},\
             {{\"role\":\"user\",\"content\":\"How much does it cost to be watched? {}\"}}]}}",
            "Say it again. ".repeat(20)
        );
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             accept: */*\r\nauthorization: Bearer none\r\nx-price: {wish}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let request = request.into_bytes();
        Ok(Self { socket, wish, request, buffer: vec![0; 64 * 1024], partial: Vec::new() })
    }

    /// Asks once and reads the whole answer, checking that nothing is missing from it.
    fn ask(&mut self, seen: &mut Seen) -> io::Result<()> {
        let gate = match self.wish {
            Wish::Blast { gate, .. } => GATES.get(gate as usize),
            _ => None,
        };
        if let Some(gate) = gate {
            gate.tell(0);
        }
        let asked = Instant::now();
        self.socket.write_all(&self.request)?;
        let mut filled = 0;
        let head = loop {
            filled += self.read(filled)?;
            if let Some(head) = http::response_head(&self.buffer[..filled])? {
                break head;
            }
        };
        let mut body = Body::new(head.framing);
        let mut fresh = head.len..filled;
        let (mut events, mut finished, mut payload_bytes) = (0, false, 0);
        loop {
            let at = Instant::now();
            let partial = &mut self.partial;
            body.feed(&self.buffer[fresh.clone()], |payload| {
                payload_bytes += payload.len();
                if self.wish != Wish::Json {
                    partial.extend_from_slice(payload);
                }
            })?;
            for_each_event(partial, |event| {
                finished |= event == b"data: [DONE]\n\n";
                let Some(stamps) = Stamps::find(event) else { return };
                events += 1;
                if stamps.sent != 0 {
                    note(seen, events == 1, asked, stamps, at);
                }
            });
            if body.is_done() {
                break;
            }
            if let Some(gate) = gate {
                gate.tell(events);
            }
            fresh = 0..self.read(0)?;
        }
        let (wanted, whole) = match self.wish {
            Wish::Json => (0, payload_bytes > 1_000),
            Wish::Paced { events, .. } | Wish::Blast { events, .. } | Wish::Flood { events } => (events, finished),
        };
        if events != wanted || !whole || !self.partial.is_empty() {
            return Err(io::Error::other(format!(
                "{events} events of {wanted}, {payload_bytes} bytes: not the answer sent"
            )));
        }
        if self.wish == Wish::Json {
            seen.latency.push(nanos(asked.elapsed()));
        }
        seen.requests += 1;
        seen.events += u64::from(events);
        Ok(())
    }

    fn read(&mut self, at: usize) -> io::Result<usize> {
        match self.socket.read(&mut self.buffer[at..])? {
            0 => Err(io::Error::other("the connection was closed within an answer")),
            n => Ok(n),
        }
    }
}

/// Takes every whole event off the front of `bytes`, its blank line included.
fn for_each_event(bytes: &mut Vec<u8>, mut event: impl FnMut(&[u8])) {
    let mut start = 0;
    while let Some(end) = memmem::find(&bytes[start..], b"\n\n") {
        event(&bytes[start..start + end + 2]);
        start += end + 2;
    }
    bytes.drain(..start);
}

fn note(seen: &mut Seen, first: bool, asked: Instant, stamps: Stamps, at: Instant) {
    let down = monotonic_ns(at).saturating_sub(stamps.sent);
    if first {
        let up = nanos(from_monotonic_ns(stamps.asked).saturating_duration_since(asked));
        seen.first.push(up + down);
    } else {
        seen.latency.push(down);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
