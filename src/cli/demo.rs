//! `streamgauge demo`: a simulated model and the proxy in one process, real streams between them, and a table.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use http_body_util::{BodyExt, Either, Full};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request};

use super::running::Running;
use super::serve::Signals;
use super::{Failed, LogArgs, logging};
use crate::backend::sim::{Schedule, Sim, SimConfig, SimHandle};
use crate::backend::upstream::{RequestBody, Upstream};
use crate::config::{Backend, BackendKind, BaseUrl, Config, OpenAi, Route};
use crate::measure::{Exchange, Listener, Outcome};

/// Requests sent at once, one line of the table each.
const LEVELS: [usize; 3] = [1, 4, 16];
/// Requests per level for each sent at once.
const ROUNDS: usize = 4;
const MODEL: &str = "demo-model";

/// Flags of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// End after the table instead of staying up for requests of your own.
    #[arg(long, env = "STREAMGAUGE_DEMO_EXIT", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    exit: bool,
    /// Where the proxy listens.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8484", env = "STREAMGAUGE_LISTEN")]
    listen: SocketAddr,
    /// Where /metrics is served.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9464", env = "STREAMGAUGE_ADMIN")]
    admin: SocketAddr,
    #[command(flatten)]
    log: LogArgs,
}

/// Prints a line. Whoever closed standard output wants no more of them.
macro_rules! say {
    ($($line:tt)*) => {
        let _ = writeln!(std::io::stdout(), $($line)*);
    };
}

/// Runs the demo.
///
/// # Errors
/// A port is taken, or a request did not come back whole.
pub fn run(args: &DemoArgs) -> Result<(), Failed> {
    // Access lines would drown the table.
    let format = args.log.log_format.unwrap_or(logging::Format::Text);
    let _log = logging::start(format, "warn").map_err(Failed::configuration)?;

    let schedule = Schedule {
        ttft: Duration::from_millis(150),
        itl: Duration::from_millis(12),
        tokens: 64,
        ..Schedule::default()
    };
    let models = vec![MODEL.to_owned()];
    let sim = Sim::spawn(SimConfig { schedule, models, ..SimConfig::default() }).map_err(Failed::running)?;
    let seen = Seen::default();
    let running = Running::start(&config(args, &sim)?, vec![seen.listener()]).map_err(Failed::configuration)?;

    say!("proxy    http://{}/v1", running.listen());
    say!("metrics  http://{}/metrics", running.admin());
    say!(
        "model    simulated: first token after {} ms, then one every {} ms, {} tokens a reply",
        schedule.ttft.as_millis(),
        schedule.itl.as_millis(),
        schedule.tokens
    );
    say!("");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::running)?;
    say!("{HEAD}");
    for concurrency in LEVELS {
        let (exchanges, took) = runtime.block_on(level(running.listen(), concurrency, &seen))?;
        say!("{}", line(concurrency, &exchanges, took));
    }
    say!("");
    say!("TTFT: request sent to first token. TPOT: time per token after the first. TGS: tokens per second of one");
    say!("request. throughput: tokens per second of all requests together. Each level was warmed up first.");
    if args.exit {
        return Ok(());
    }
    // Until here Ctrl-C ends the program at once; from here it ends the waiting.
    let mut signals = Signals::new().map_err(Failed::running)?;
    say!("");
    say!("Up until Ctrl-C. Try:");
    say!("  curl -N http://{}/v1/chat/completions -H 'content-type: application/json' \\", running.listen());
    say!(r#"    -d '{{"model":"{MODEL}","stream":true,"messages":[{{"role":"user","content":"hello"}}]}}'"#);
    say!("  curl -s http://{}/metrics | grep -E 'time_to_first_token_seconds_(sum|count)'", running.admin());
    signals.wait();
    Ok(())
}

fn config(args: &DemoArgs, sim: &SimHandle) -> Result<Config, Failed> {
    // Nothing of this machine's own configuration: the demo spends no key.
    let mut config = Config::default_for_env(|_| None).map_err(Failed::configuration)?;
    config.server.listen = args.listen;
    config.server.admin = args.admin;
    config.server.drain_timeout = Duration::from_secs(1);
    config.backends =
        vec![Backend { name: "sim".into(), kind: BackendKind::OpenAi(OpenAi::new(plain_http(sim.addr()))) }];
    config.routes = vec![Route { model: "*".to_owned(), backend: 0, upstream_model: None }];
    Ok(config)
}

fn plain_http(address: SocketAddr) -> BaseUrl {
    BaseUrl { tls: false, host: address.ip().to_string(), port: address.port(), path: String::new() }
}

/// The exchanges the proxy has finished since they were last taken.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Exchange>>>);

impl Seen {
    fn listener(&self) -> Listener {
        let seen = self.0.clone();
        Box::new(move |exchange| seen.lock().unwrap_or_else(PoisonError::into_inner).push(exchange.clone()))
    }

    fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs one level, warm-up first, and returns what the proxy made of it and how long it took.
async fn level(proxy: SocketAddr, concurrency: usize, seen: &Seen) -> Result<(Vec<Exchange>, Duration), Failed> {
    let client = Arc::new(Upstream::new(&OpenAi::new(plain_http(proxy))).map_err(Failed::running)?);
    wave(&client, concurrency).await?;
    let warm_up = concurrency;
    collect(seen, warm_up).await?;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        wave(&client, concurrency).await?;
    }
    let took = began.elapsed();
    Ok((collect(seen, ROUNDS * concurrency).await?, took))
}

/// Sends `concurrency` requests at once and reads every reply to its end.
async fn wave(client: &Arc<Upstream>, concurrency: usize) -> Result<(), Failed> {
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..concurrency {
        let client = client.clone();
        streams.spawn(async move {
            let reply = client.send(request()).await.map_err(Failed::running)?;
            let status = reply.head.status;
            reply.body.collect().await.map_err(Failed::running)?;
            if status.is_success() { Ok(()) } else { Err(Failed::running(format!("the proxy answered {status}"))) }
        });
    }
    while let Some(stream) = streams.join_next().await {
        stream.map_err(Failed::running)??;
    }
    Ok(())
}

fn request() -> Request<RequestBody> {
    let body = format!(
        r#"{{"model":"{MODEL}","stream":true,"stream_options":{{"include_usage":true}},"messages":[{{"role":"user","content":"How fast are you?"}}]}}"#
    );
    let mut request = Request::new(Either::Left(Full::new(Bytes::from(body))));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = hyper::Uri::from_static("/v1/chat/completions");
    request.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    request
}

/// Waits for the proxy to have finished with `count` exchanges, which it does right after the client has.
async fn collect(seen: &Seen, count: usize) -> Result<Vec<Exchange>, Failed> {
    let mut exchanges = Vec::new();
    for _ in 0..500 {
        exchanges.extend(seen.take());
        if exchanges.len() >= count {
            return Ok(exchanges);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Err(Failed::running(format!("the proxy finished {} of {count} requests", exchanges.len())))
}

const HEAD: &str = "at once  requests     ok  TTFT p50   TTFT p95   TPOT p50    TGS p50  throughput\n\
                    -------  --------  -----  ---------  ---------  ---------  -------  ----------";

fn line(concurrency: usize, exchanges: &[Exchange], took: Duration) -> String {
    let ok = exchanges.iter().filter(|exchange| exchange.outcome == Outcome::Ok).count();
    let ttft = sorted(exchanges.iter().filter_map(|exchange| exchange.marks.ttft_upstream()).map(ms));
    let tpot = sorted(exchanges.iter().filter_map(Exchange::tpot).map(ms));
    let tgs = sorted(exchanges.iter().filter_map(Exchange::tgs));
    let tokens: u64 = exchanges.iter().filter_map(|exchange| exchange.output).map(|output| output.count).sum();
    format!(
        "{concurrency:>7}  {:>8}  {ok:>5}  {:>6} ms  {:>6} ms  {:>6} ms  {:>5}/s  {:>8.0}/s",
        exchanges.len(),
        shown(percentile(&ttft, 0.50)),
        shown(percentile(&ttft, 0.95)),
        shown(percentile(&tpot, 0.50)),
        shown(percentile(&tgs, 0.50)),
        tokens as f64 / took.as_secs_f64(),
    )
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The nearest-rank percentile of sorted values. `None` of none.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rank: whole, positive, small
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), Some(10.0));
        assert_eq!(percentile(&values, 0.95), Some(19.0));
        assert_eq!(percentile(&values[..1], 0.95), Some(1.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
