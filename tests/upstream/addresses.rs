//! Connections in the making: silence, and each step by itself. (The race of several addresses is tested where it is run.)

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};
use streamgauge::backend::sim::{Sim, SimConfig};
use streamgauge::backend::upstream::{Cause, Probe};
use streamgauge::config::OpenAi;

use crate::support::stage::{Proxy, SERVER, TO_UP};
use crate::support::tls::Certificate;
use crate::support::upstream::Upstream;
use crate::{WHOLE, assert_told, chat};

/// A listener whose queue is full, so that attempts to connect get no answer; and those that fill it.
fn black_hole(address: SocketAddr) -> (Socket, Vec<Socket>) {
    let hole = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    hole.set_reuse_address(true).expect("an option");
    hole.bind(&address.into()).expect("bound");
    hole.listen(0).expect("listening");
    let filling = (0..4).map(|_| {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("an option");
        let _ = socket.connect(&address.into());
        socket
    });
    let filling = filling.collect();
    (hole, filling)
}

#[test]
fn silence_of_every_address_ends_with_the_time_for_connecting() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let _hole = black_hole(address);
    let config = format!("{SERVER}[backend.up]\nbase_url = \"http://{address}\"\nconnect_timeout_ms = 200\n{TO_UP}");
    let reply = Proxy::start(&config).client().ask(chat(&[], WHOLE));
    let says = ["connecting took longer than 200 ms", "base_url"];
    assert_told(&reply, 502, "upstream_connect_timeout", &says);
}

fn probe(url: &str, change: impl FnOnce(&mut OpenAi)) -> Probe {
    let mut config = OpenAi::new(url.parse().expect("a URL"));
    change(&mut config);
    Probe::new(&config).expect("a probe")
}

#[tokio::test]
async fn a_probe_walks_step_by_step() {
    let certificate = Certificate::new();
    let mut server = (*certificate.server).clone();
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let sim = Sim::spawn(SimConfig { tls: Some(server.into()), ..SimConfig::default() }).expect("a simulation");
    let port = sim.addr().port();
    let mut tls = probe(&format!("https://localhost:{port}"), |config| {
        config.ca_file = Some(certificate.file.clone());
    });
    let found = tls.resolve().await.expect("looked up").expect("a name");
    assert!(found.contains(&sim.addr()), "{found:?}");
    assert_eq!(tls.connect().await.expect("connected"), sim.addr());
    let seen = tls.tls().await.expect("a handshake").expect("TLS");
    assert_eq!((seen.version, seen.alpn.as_deref()), ("TLS 1.3", Some("http/1.1")));

    // A step does what must come before it.
    let mut untrusted = probe(&format!("https://localhost:{port}"), |_| {});
    assert!(matches!(untrusted.tls().await, Err(Cause::Tls(_))));

    let mut plain = probe(&format!("http://{}", sim.addr()), |_| {});
    assert_eq!(plain.resolve().await.expect("nothing to look up"), None);
    assert_eq!(plain.tls().await.expect("nothing to shake"), None);
    let gone = Upstream::bind().addr();
    let mut dead = probe(&format!("http://{gone}"), |_| {});
    assert!(matches!(dead.connect().await, Err(Cause::Connect(_))));
}
