//! A client that reads 1 KiB a second: its upstream must wait for it, and nobody else.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use streamgauge::backend::sim::{Schedule, Sim, SimConfig};
use streamgauge::measure::{Exchange, Outcome};

use super::hand::{Answering, Hand, STREAM_HEAD};
use super::net::{Proxy, asking, chat, eventually};
use super::replies::resident;

const MIB: usize = 1024 * 1024;
/// What the upstream would send if it were let.
const FLOOD: usize = 256 * MIB;
/// More than the kernel's buffers of two connections together, far less than the flood.
const MOST: usize = 64 * MIB;
const STREAMS: usize = 16;
const TOKENS: u32 = 24;
const ROUNDS: usize = 4;
const SLACK: Duration = Duration::from_millis(10);

#[test]
fn a_client_that_reads_1_kib_a_second_while_others_stream() {
    let schedule = Schedule {
        ttft: Duration::from_millis(60),
        itl: Duration::from_millis(15),
        tokens: TOKENS,
        ..Schedule::default()
    };
    let sim = Sim::spawn(SimConfig { schedule, ..SimConfig::default() }).expect("a simulation");
    let hand = Hand::new();
    let proxy = Proxy::with(&[("flood", "flood", hand.address()), ("sim", "*", sim.addr())], |_| {});

    others(&proxy);
    let alone = others(&proxy);

    let memory = resident();
    let stop = Arc::new(AtomicBool::new(false));
    let slow = slow_client(&proxy, stop.clone());
    let flooded = Arc::new(AtomicUsize::new(0));
    let flood = flood(hand.request(), flooded.clone(), stop.clone());
    // The upstream has come to a halt: for a while, nothing more is taken from it.
    let mut before = 0;
    let mut unmoved = 0;
    eventually("the upstream feels that its client is slow", || {
        let now = flooded.load(Relaxed);
        assert!(now < MOST, "{} MiB were taken for a client that reads 1 KiB a second", now / MIB);
        unmoved = if now == before { unmoved + 1 } else { 0 };
        before = now;
        (now > 0 && unmoved > 100).then_some(())
    });

    // This machine's noise may spoil a round; a proxy that lets others wait for the slow client spoils every one.
    let unaffected = |(ttft, tpot): (Duration, Duration)| ttft < alone.0 * 2 + SLACK && tpot < alone.1 * 2 + SLACK;
    let beside: Vec<_> = (0..ROUNDS).map(|_| others(&proxy)).collect();
    assert!(beside.iter().any(|round| unaffected(*round)), "alone {alone:?}, beside a slow client {beside:?}");
    let grown = resident().saturating_sub(memory) / MIB;
    assert!(grown < 32, "a slow client made the process grow by {grown} MiB");
    assert!(flooded.load(Relaxed) < MOST);

    stop.store(true, Relaxed);
    slow.join().expect("the slow client");
    flood.join().expect("the upstream");
    let exchange = proxy.exchange();
    assert_eq!((exchange.outcome, exchange.backend.as_deref()), (Outcome::ClientCancel, Some("flood")));
}

/// Streams at once through the proxy; the median TTFT and the median TPOT.
fn others(proxy: &Proxy) -> (Duration, Duration) {
    let address = proxy.address();
    let clients: Vec<_> =
        (0..STREAMS).map(|_| std::thread::spawn(move || super::net::Client::connect(address).stream("m"))).collect();
    for client in clients {
        assert_eq!(client.join().expect("a client").status, 200);
    }
    let exchanges = proxy.exchanges(STREAMS);
    assert!(exchanges.iter().all(|exchange| exchange.outcome == Outcome::Ok));
    assert!(exchanges.iter().all(|exchange| exchange.token_events == u64::from(TOKENS)));
    (
        median(exchanges.iter().filter_map(|exchange| exchange.marks.ttft_client())),
        median(exchanges.iter().filter_map(Exchange::tpot)),
    )
}

fn median(values: impl Iterator<Item = Duration>) -> Duration {
    let mut values: Vec<_> = values.collect();
    assert_eq!(values.len(), STREAMS);
    values.sort_unstable();
    values[STREAMS / 2]
}

fn slow_client(proxy: &Proxy, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    socket.connect(&proxy.address().into()).expect("connected");
    let mut socket = TcpStream::from(socket);
    socket.write_all(chat("", &asking("flood", true)).as_bytes()).expect("written");
    std::thread::spawn(move || {
        let mut kib = [0; 1024];
        while !stop.load(Relaxed) {
            socket.read_exact(&mut kib).expect("a KiB");
            // Its pace is what is tested: one KiB a second, in small steps so that it can be stopped.
            for _ in 0..50 {
                if !stop.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    })
}

/// Sends as much as is taken, until told to stop or the connection is closed.
fn flood(mut answering: Answering, sent: Arc<AtomicUsize>, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    answering.send(STREAM_HEAD);
    answering.socket().set_nonblocking(true).expect("non-blocking");
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"flood\"}}]}\n\n".repeat(300);
    let chunk = format!("{:x}\r\n{event}\r\n", event.len()).into_bytes();
    std::thread::spawn(move || {
        let mut at = 0;
        while !stop.load(Relaxed) && sent.load(Relaxed) < FLOOD {
            match answering.socket().write(&chunk[at..]) {
                Ok(written) => {
                    at = (at + written) % chunk.len();
                    sent.fetch_add(written, Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => return,
            }
        }
    })
}
