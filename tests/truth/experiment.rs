//! One experiment: streams of known timing through the proxy, and what each side says of them.
//!
//! The simulation logs the instant of every write; the proxy takes its own marks of the same streams, in the same
//! process and so on the same clock. A request's name ties the two together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use streamgauge::backend::sim::{Entry, Kind, LogSink, Sim, SimConfig};
use streamgauge::backend::upstream::{RequestBody, Upstream};
use streamgauge::cli::running::Running;
use streamgauge::clock::monotonic_ns;
use streamgauge::config::{Backend, BackendKind, BaseUrl, Config, OpenAi, Route};
use streamgauge::measure::{Exchange, Listener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The `model` of what counts.
pub(crate) const MODEL: &str = "truth";
/// The `model` of the streams that open connections and warm the code.
const WARM_UP: &str = "warm-up";
/// Far more than any experiment takes; only something broken makes one wait for it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The timing one request asks of the simulation. Half-way to the first token come the head and an event that names the
/// role, neither of which is a token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) ttft: Duration,
    pub(crate) itl: Duration,
    pub(crate) tokens: u32,
}

/// `count` plans of mixed timing. Every other one has two tokens, so that its marks hold its one ITL exactly; the
/// others have `tokens`. Each ITL lies mid-way between two bucket edges of the ITL histogram.
pub(crate) fn plans(count: usize, tokens: u32) -> Vec<Plan> {
    const ITL_US: [u64; 4] = [45_000, 17_500, 35_000, 27_500];
    (0..count)
        .map(|number| Plan {
            // 7 and 16 have no common divisor, so that neighbours differ and all values occur.
            ttft: Duration::from_millis(50 + (number as u64 * 7 % 16) * 30),
            itl: Duration::from_micros(ITL_US[number / 2 % ITL_US.len()]),
            tokens: if number % 2 == 0 { 2 } else { tokens },
        })
        .collect()
}

/// What the simulation logged of one stream, in `CLOCK_MONOTONIC` nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth {
    /// It had read the request's last byte.
    pub(crate) request: u64,
    /// Right before each token event was written.
    pub(crate) tokens: Vec<u64>,
    /// How much later than scheduled that was: what the machine, not the proxy, adds to everything.
    pub(crate) lateness: Vec<u64>,
}

impl Truth {
    pub(crate) fn first(&self) -> u64 {
        self.tokens[0]
    }

    pub(crate) fn last(&self) -> u64 {
        self.tokens[self.tokens.len() - 1]
    }

    /// From the request read to the first token event written.
    pub(crate) fn ttft(&self) -> Duration {
        Duration::from_nanos(self.first() - self.request)
    }

    /// From the first token event written to the last.
    pub(crate) fn decode(&self) -> Duration {
        Duration::from_nanos(self.last() - self.first())
    }

    pub(crate) fn gaps(&self) -> impl Iterator<Item = Duration> {
        self.tokens.windows(2).map(|pair| Duration::from_nanos(pair[1] - pair[0]))
    }
}

/// One stream, told twice.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) plan: Plan,
    pub(crate) exchange: Exchange,
    pub(crate) truth: Truth,
}

impl Pair {
    /// |TTFT − truth|. It holds both ways: the simulation's delay in reading the request, ours in reading the token.
    pub(crate) fn ttft_error(&self) -> Duration {
        self.exchange.marks.ttft_upstream().expect("a stream with tokens has a TTFT").abs_diff(self.truth.ttft())
    }

    /// |ITL − truth| of a stream of two token events, which has one.
    pub(crate) fn itl_error(&self) -> Option<Duration> {
        let itl = self.exchange.stall.filter(|_| self.truth.tokens.len() == 2)?;
        Some(itl.abs_diff(self.truth.decode()))
    }

    /// |TPOT − truth| of a longer stream.
    pub(crate) fn tpot_error(&self) -> Option<Duration> {
        let gaps = u32::try_from(self.truth.tokens.len() - 1).ok().filter(|gaps| *gaps > 1)?;
        Some(self.exchange.tpot()?.abs_diff(self.truth.decode() / gaps))
    }

    /// From our mark of the request sent to the simulation's of the request read. Negative where the simulation was
    /// awake before us.
    pub(crate) fn request_delay_ns(&self) -> i128 {
        let marked = self.exchange.marks.sent.expect("a stream's request was sent");
        i128::from(self.truth.request) - i128::from(monotonic_ns(marked))
    }

    /// From the first token event's write in the simulation to our mark of it. Negative, were it marked too early.
    pub(crate) fn read_delay_ns(&self) -> i128 {
        let marked = self.exchange.marks.first_token.expect("a stream with tokens has a first");
        i128::from(monotonic_ns(marked)) - i128::from(self.truth.first())
    }
}

/// An experiment's result.
pub(crate) struct Outcome {
    pub(crate) pairs: Vec<Pair>,
    /// `/metrics`, taken after the last stream.
    pub(crate) metrics: String,
}

impl Outcome {
    /// How late the simulation typically was by its own schedule.
    pub(crate) fn lateness(&self) -> Duration {
        let all = self.pairs.iter().flat_map(|pair| pair.truth.lateness.iter().copied());
        Duration::from_nanos(percentile(all, 50))
    }

    /// The sum of the series of family or sample `name` that belong to the experiment.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        self.samples(name).map(|(_, value)| value).sum()
    }

    /// The largest difference, at any bucket edge, between the share of ITLs below it in the histogram and in truth.
    pub(crate) fn itl_histogram_error(&self) -> f64 {
        let truth: Vec<f64> =
            self.pairs.iter().flat_map(|pair| pair.truth.gaps()).map(|gap| gap.as_secs_f64()).collect();
        let mut edges: Vec<(f64, f64)> = Vec::new();
        for (labels, count) in self.samples("streamgauge_inter_token_latency_seconds_bucket") {
            let edge = label(labels, "le").parse().unwrap_or(f64::INFINITY);
            match edges.iter_mut().find(|(known, _)| known.total_cmp(&edge).is_eq()) {
                Some((_, sum)) => *sum += count,
                None => edges.push((edge, count)),
            }
        }
        let difference = |(edge, count): (f64, f64)| {
            let below = truth.iter().filter(|gap| **gap <= edge).count();
            ((count - below as f64) / truth.len() as f64).abs()
        };
        edges.into_iter().map(difference).fold(0.0, f64::max)
    }

    fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.metrics.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.split_once("} ")?;
            let ours = label(labels, "model") == MODEL;
            ours.then(|| (labels, value.parse().expect("a number")))
        })
    }
}

fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let value = labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.map_or("", |value| value.trim_matches('"'))
}

/// Sends a request for each plan, at most `at_once` at a time, after as many to warm up.
pub(crate) fn run(plans: &[Plan], at_once: usize) -> Outcome {
    let sim = Sim::spawn(SimConfig { log: Some(LogSink::memory()), ..SimConfig::default() }).expect("a simulation");
    let finished: Arc<Mutex<Vec<Exchange>>> = Arc::default();
    let seen = finished.clone();
    let listener: Listener = Box::new(move |exchange| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(exchange.clone());
    });
    let running = Running::start(&config(plain_http(sim.addr())), vec![listener]).expect("a proxy");
    let client = Upstream::new(&OpenAi::new(plain_http(running.listen()))).expect("a client");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let warm_up = Plan { ttft: Duration::from_millis(20), itl: Duration::from_millis(1), tokens: 2 };
    let requests = std::iter::repeat_n(warm_up, at_once)
        .map(|plan| request(WARM_UP, "none", plan))
        .chain(plans.iter().enumerate().map(|(number, plan)| request(MODEL, &number.to_string(), *plan)));
    let all = at_once + plans.len();
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, send(client, requests.collect(), at_once)).await.expect("every reply in time");
    });
    // The last may be told right after its client has seen its end, and booked right after it was told.
    let deadline = Instant::now() + PATIENCE;
    while finished.lock().unwrap_or_else(PoisonError::into_inner).len() < all || running.meter().in_flight("sim") > 0 {
        assert!(Instant::now() < deadline, "the proxy has not finished every exchange");
        std::thread::yield_now();
    }
    let metrics = running.meter().render();
    running.stop();
    let exchanges = std::mem::take(&mut *finished.lock().unwrap_or_else(PoisonError::into_inner));
    Outcome { pairs: pair(plans, exchanges, &sim.entries()), metrics }
}

fn config(upstream: BaseUrl) -> Config {
    let mut config = Config::default_for_env(|_| None).expect("defaults are valid");
    config.server.listen = ([127, 0, 0, 1], 0).into();
    config.server.admin = ([127, 0, 0, 1], 0).into();
    config.server.threads = 2;
    config.server.drain_timeout = Duration::from_secs(1);
    config.backends = vec![Backend { name: "sim".into(), kind: BackendKind::OpenAi(OpenAi::new(upstream)) }];
    config.routes = vec![Route::to("*", 0)];
    config
}

fn plain_http(address: std::net::SocketAddr) -> BaseUrl {
    BaseUrl { tls: false, host: address.ip().to_string(), port: address.port(), path: String::new() }
}

async fn send(client: Upstream, requests: Vec<Request<RequestBody>>, at_once: usize) {
    let client = Arc::new(client);
    let places = Arc::new(Semaphore::new(at_once));
    let mut streams = JoinSet::new();
    for request in requests {
        let place = places.clone().acquire_owned().await.expect("never closed");
        let client = client.clone();
        streams.spawn(async move {
            let reply = client.send(request).await.expect("a reply");
            assert_eq!(reply.head.status, 200);
            reply.body.collect().await.expect("a whole reply");
            drop(place);
        });
    }
    while let Some(stream) = streams.join_next().await {
        stream.expect("no stream fails");
    }
}

fn request(model: &str, name: &str, plan: Plan) -> Request<RequestBody> {
    let Plan { ttft, itl, tokens } = plan;
    let body = format!(
        r#"{{"model":"{model}","stream":true,"stream_options":{{"include_usage":true}},"messages":[{{"role":"user","content":"how fast"}}]}}"#
    );
    let schedule = format!(
        "head_ms={},role_first=1,ttft_ms={},itl_ms={},tokens={tokens},request={name}",
        ttft.as_secs_f64() * 0.5e3,
        ttft.as_secs_f64() * 1e3,
        itl.as_secs_f64() * 1e3
    );
    let value = |text: &str| HeaderValue::from_str(text).expect("plain text");
    let mut request = Request::new(Either::Left(Full::new(Bytes::from(body))));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static("/v1/chat/completions");
    request.headers_mut().insert(CONTENT_TYPE, value("application/json"));
    request.headers_mut().insert("x-sim", value(&schedule));
    request.headers_mut().insert("x-streamgauge-tag", value(name));
    request
}

fn pair(plans: &[Plan], exchanges: Vec<Exchange>, entries: &[Entry]) -> Vec<Pair> {
    let mut truths = vec![Truth::default(); plans.len()];
    for entry in entries {
        let Some(truth) = entry.request.parse().ok().and_then(|number: usize| truths.get_mut(number)) else { continue };
        match entry.kind {
            Kind::Request => truth.request = entry.at_ns,
            Kind::Token => {
                truth.tokens.push(entry.at_ns);
                truth.lateness.push(entry.at_ns - entry.due_ns);
            }
            _ => {}
        }
    }
    let mut pairs: Vec<(usize, Pair)> = exchanges
        .into_iter()
        .filter_map(|exchange| {
            let number: usize = exchange.tag.as_deref()?.parse().ok()?;
            let truth = std::mem::take(&mut truths[number]);
            Some((number, Pair { plan: plans[number], exchange, truth }))
        })
        .collect();
    pairs.sort_by_key(|(number, _)| *number);
    pairs.into_iter().map(|(_, pair)| pair).collect()
}

/// The nearest-rank percentile. The values need not be sorted; there must be one.
pub(crate) fn percentile<T: Ord + Copy>(values: impl IntoIterator<Item = T>, percent: usize) -> T {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_unstable();
    values[(values.len() * percent).div_ceil(100).max(1) - 1]
}
