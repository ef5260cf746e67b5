//! The thread that counts, and those who wait for it: nobody who serves does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use streamgauge::measure::{Exchange, Listener};

use super::{TokenizerFile, output};
use crate::support::client::{Client, PATIENCE, chat};
use crate::support::metrics::Scrape;
use crate::support::stage::{Proxy, SERVER, backend, one_backend, sim};

/// What may wait, besides the one being counted.
const MOST_WAITING: usize = 256;

const BODY: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two"}]}"#;
const QUICK: &str = "ttft_ms=0,itl_ms=0,tokens=3";

/// Holds the thread that counts at the first exchange it tells, until opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    arrived: AtomicUsize,
}

impl Gate {
    fn listener(self: &Arc<Self>) -> Listener {
        let gate = self.clone();
        Box::new(move |exchange: &Exchange| {
            if output(exchange).is_some_and(|(_, source)| source == "tokenizer") {
                gate.arrived.fetch_add(1, Relaxed);
                let open = gate.open.lock().unwrap_or_else(PoisonError::into_inner);
                drop(gate.opened.wait_timeout_while(open, PATIENCE, |open| !*open));
            }
        })
    }

    fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}

/// Asks so often and reads each reply to its end.
fn ask(client: &mut Client, times: usize) {
    for _ in 0..times {
        let reply = client.chat(QUICK, BODY);
        assert!(reply.is_done(), "{reply:?}");
    }
}

#[test]
fn a_full_queue_tells_at_once_and_holds_nobody_up() {
    let (sim, file, gate) = (sim(), TokenizerFile::new(), Arc::<Gate>::default());
    let proxy = Proxy::with_listeners(&one_backend(sim.addr(), &file.key()), vec![gate.listener()]);
    let mut client = proxy.client();
    ask(&mut client, 1);
    crate::support::eventually("the first is being told", || (gate.arrived.load(Relaxed) == 1).then_some(()));
    ask(&mut client, MOST_WAITING + 5);
    let refused = proxy.finished(5);
    for exchange in &refused {
        let anomalies: Vec<_> = exchange.anomalies.seen().map(|(kind, count)| (kind.label(), count)).collect();
        assert_eq!((output(exchange), anomalies), (Some((3, "events")), vec![("tokenizer", 1)]));
        assert_eq!(exchange.prompt_tokens(), None);
    }
    // Who waits is in flight until it is told.
    let scrape = proxy.scrape();
    scrape.assert_balanced();
    assert_eq!((scrape.outcome("ok"), scrape.sum("in_flight_requests", &[])), (5.0, 1.0 + MOST_WAITING as f64));
    gate.open();
    let all = proxy.finished(MOST_WAITING + 6);
    let counted = all.iter().filter(|exchange| output(exchange).is_some_and(|(_, source)| source == "tokenizer"));
    assert_eq!(counted.count(), MOST_WAITING + 1);
    assert_eq!(proxy.idle_scrape().sum("stream_anomalies_total", &[("kind", "tokenizer")]), 5.0);
}

#[test]
fn a_stop_waits_for_what_is_to_be_counted() {
    let (sim, file, gate) = (sim(), TokenizerFile::new(), Arc::<Gate>::default());
    let told = Arc::<AtomicUsize>::default();
    let count = told.clone();
    let keep: Listener = Box::new(move |exchange: &Exchange| {
        assert_eq!(output(exchange).map(|(_, source)| source), Some("tokenizer"));
        count.fetch_add(1, Relaxed);
    });
    let proxy = Proxy::with_listeners(&one_backend(sim.addr(), &file.key()), vec![gate.listener(), keep]);
    let mut client = proxy.client();
    ask(&mut client, 20);
    drop(client);
    let stopping = thread::spawn(move || proxy.running.stop());
    crate::support::eventually("the first is being told", || (gate.arrived.load(Relaxed) == 1).then_some(()));
    // Whatever the stop has done by then, it cannot have come to its end.
    thread::sleep(Duration::from_millis(50));
    assert!(!stopping.is_finished() && told.load(Relaxed) == 0);
    gate.open();
    assert_eq!(stopping.join().expect("no panic"), 0);
    assert_eq!(told.load(Relaxed), 20);
}

#[test]
fn the_books_balance_while_tokens_are_counted() {
    const CLIENTS: usize = 8;
    const EACH: usize = 40;
    let (sim, file) = (sim(), TokenizerFile::new());
    let proxy = Proxy::before(sim.addr(), &file.key());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let scraping = scope.spawn(|| {
            let mut client = Client::connect(proxy.running.admin());
            while !over.load(Relaxed) {
                Scrape::over(&mut client).assert_balanced();
            }
        });
        let asking: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| ask(&mut proxy.client(), EACH))).collect();
        // Those who leave before the end are over all the same.
        for _ in 0..EACH {
            let mut client = proxy.client();
            client.send(chat("ttft_ms=0,itl_ms=1,tokens=100000", BODY));
            client.until(b"data: ").expect("an event");
        }
        for asking in asking {
            asking.join().expect("no panic");
        }
        let told = proxy.finished((CLIENTS + 1) * EACH);
        let left = told.iter().filter(|exchange| exchange.outcome.label() == "client_cancel").count();
        assert_eq!((left, told.len() - left), (EACH, CLIENTS * EACH));
        assert!(told.iter().all(|exchange| output(exchange).is_some_and(|(_, source)| source != "usage")));
        over.store(true, Relaxed);
        scraping.join().expect("no panic");
    });
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.outcome("ok"), (CLIENTS * EACH) as f64);
}

#[test]
fn a_mirrored_reply_is_counted_by_the_mirrors_tokenizer() {
    let (sims, file) = ([sim(), sim()], TokenizerFile::new());
    let [ours, mirror] = &sims;
    let backends = backend("a", ours.addr(), "") + &backend("b", mirror.addr(), &file.key());
    let route = "[[route]]\nmodel = \"*\"\nbackend = \"a\"\nmirror = { backend = \"b\", share = 1.0 }\n";
    let proxy = Proxy::start(&format!("{SERVER}{backends}{route}"));
    ask(&mut proxy.client(), 1);
    let told = proxy.finished(2);
    let of = |backend: &str| {
        let exchange = told.iter().find(|exchange| exchange.backend.as_deref() == Some(backend)).expect("told");
        (output(exchange).map(|(_, source)| source), exchange.prompt_tokens())
    };
    assert_eq!((of("a"), of("b+mirror")), ((Some("events"), None), (Some("tokenizer"), Some(2))));
}
