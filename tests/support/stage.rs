//! The proxy in this process, before a simulation, with everything it finished.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use streamgauge::backend::sim::{Script, Scripts, Sim, SimConfig, SimHandle};
use streamgauge::cli::running::Running;
use streamgauge::config::Config;
use streamgauge::measure::{Exchange, Listener};

use super::client::Client;
use super::eventually;
use super::metrics::Scrape;

/// What `[server]` says in most tests: free ports, and one thread so that there is one pool.
pub(crate) const SERVER: &str = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n";
/// Sends every model and path to the backend `up`.
pub(crate) const TO_UP: &str = "[[route]]\nmodel = \"*\"\nbackend = \"up\"\n";

/// A running proxy.
pub(crate) struct Proxy {
    pub(crate) running: Running,
    finished: Arc<Mutex<Vec<Exchange>>>,
}

impl Proxy {
    /// Starts what a configuration says.
    pub(crate) fn start(config: &str) -> Self {
        Self::with_listeners(config, Vec::new())
    }

    /// [`Proxy::start`], where the environment has these variables.
    pub(crate) fn in_environment(variables: &[(&str, &str)], config: &str) -> Self {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Self::run(&Config::parse("test.toml", config, find).unwrap_or_else(|error| panic!("{error}")), Vec::new())
    }

    /// [`Proxy::start`], with more who are told of finished exchanges; they come first.
    pub(crate) fn with_listeners(config: &str, listeners: Vec<Listener>) -> Self {
        let config = Config::parse("test.toml", config, |_| None).unwrap_or_else(|error| panic!("{error}"));
        Self::run(&config, listeners)
    }

    fn run(config: &Config, mut listeners: Vec<Listener>) -> Self {
        let finished: Arc<Mutex<Vec<Exchange>>> = Arc::default();
        let keep = finished.clone();
        listeners.push(Box::new(move |exchange: &Exchange| {
            keep.lock().unwrap_or_else(PoisonError::into_inner).push(exchange.clone());
        }));
        let running = Running::start(config, listeners).unwrap_or_else(|error| panic!("{error}"));
        Self { running, finished }
    }

    /// Before one upstream, with what `[backend.up]` says beyond its address.
    pub(crate) fn before(upstream: SocketAddr, more: &str) -> Self {
        Self::start(&one_backend(upstream, more))
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.running.listen())
    }

    pub(crate) fn scrape(&self) -> Scrape {
        Scrape::of(self.running.admin())
    }

    /// Every exchange finished so far, once there are `count`.
    pub(crate) fn finished(&self, count: usize) -> Vec<Exchange> {
        eventually(&format!("{count} exchanges are over"), || {
            let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(finished.len() <= count, "more exchanges than requests: {finished:?}");
            (finished.len() == count).then(|| finished.clone())
        })
    }

    /// The outcome of the last of `count` exchanges.
    pub(crate) fn outcome(&self, count: usize) -> &'static str {
        self.finished(count)[count - 1].outcome.label()
    }

    /// A scrape in which nothing is in flight any more.
    pub(crate) fn idle_scrape(&self) -> Scrape {
        eventually("nothing is in flight", || {
            let scrape = self.scrape();
            scrape.assert_balanced();
            scrape.is_idle().then_some(scrape)
        })
    }
}

/// A configuration with one backend called `up`.
pub(crate) fn one_backend(upstream: SocketAddr, more: &str) -> String {
    format!("{SERVER}{}{TO_UP}", backend("up", upstream, more))
}

/// One `[backend.NAME]`.
pub(crate) fn backend(name: &str, upstream: SocketAddr, more: &str) -> String {
    format!("[backend.{name}]\nkind = \"openai\"\nbase_url = \"http://{upstream}\"\n{more}\n")
}

/// A simulation that keeps its requests.
pub(crate) fn sim() -> SimHandle {
    spawn(SimConfig::default())
}

/// A simulation that plays `script` to everyone.
pub(crate) fn playing(script: Script) -> SimHandle {
    spawn(SimConfig { scripts: Scripts::from(script), ..SimConfig::default() })
}

pub(crate) fn spawn(config: SimConfig) -> SimHandle {
    Sim::spawn(SimConfig { keep_requests: true, ..config }).expect("a simulation")
}
