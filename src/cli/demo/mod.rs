//! `streamgauge demo`: models and the proxy in one process, real streams between them, and a table.
//!
//! Two models are simulated: one keeps time, the other comes in bursts and stalls. A third, a small Llama, computes; it
//! takes part when its file is there.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use indicatif::{ProgressBar, ProgressStyle};

mod load;
mod table;

use super::running::Running;
use super::serve::Signals;
use super::{Failed, LogArgs, logging};
use crate::backend::sim::{Schedule, Sim, SimConfig, SimHandle};
use crate::config::{Backend, BackendKind, BaseUrl, Config, Dtype, Llama, OpenAi, Route};
use load::{Level, Seen};

const STEADY: &str = "steady";
const BURSTY: &str = "bursty";
/// What `scripts/models.sh` fetches.
const LOCAL_FILE: &str = "smollm2-135m-instruct-q4_1.gguf";

/// Flags of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// End after the table instead of staying up for requests of your own.
    #[arg(long, env = "STREAMGAUGE_DEMO_EXIT", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    exit: bool,
    /// Where the proxy listens.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8484", env = "STREAMGAUGE_LISTEN")]
    listen: SocketAddr,
    /// Where the live page and /metrics are served.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9464", env = "STREAMGAUGE_ADMIN")]
    admin: SocketAddr,
    /// The model that computes: a directory of safetensors or a .gguf file; what scripts/models.sh fetched if left out.
    #[arg(long, value_name = "PATH", env = "STREAMGAUGE_DEMO_MODEL")]
    model: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

/// Prints a line. Whoever closed standard output wants no more of them.
macro_rules! say {
    ($($line:tt)*) => {
        let _ = writeln!(std::io::stdout(), $($line)*);
    };
}

/// A model of the demo: its name, what is said of it, and what it is asked.
struct Shown {
    name: String,
    levels: Vec<Level>,
}

/// Runs the demo.
///
/// # Errors
/// A port is taken, the model cannot be loaded, or a request did not come back whole.
pub fn run(args: &DemoArgs) -> Result<(), Failed> {
    // Access lines would drown the table.
    let format = args.log.log_format.unwrap_or(logging::Format::Text);
    let _log = logging::start(format, "warn").map_err(Failed::configuration)?;

    let sims = [simulate(STEADY, steady())?, simulate(BURSTY, bursty())?];
    let fetched = models_folder().map(|folder| folder.join(LOCAL_FILE));
    let local = args.model.clone().or_else(|| fetched.clone().filter(|file| file.exists()));
    let name = local.as_deref().map_or_else(String::new, name_of);
    let seen = Seen::new();
    let config = config(args, &sims, local.as_deref(), &name)?;
    let running = Running::start(&config, vec![seen.listener()]).map_err(|error| match error.key().as_deref() {
        Some(["server", flag]) => {
            Failed::configuration(format!("--{flag}, STREAMGAUGE_{}: {}", flag.to_uppercase(), error.problem()))
        }
        _ => Failed::configuration(&error),
    })?;

    say!("live     http://{}/   open this in a browser: every request, token by token", running.admin());
    say!("proxy    http://{}/v1", running.listen());
    say!("metrics  http://{}/metrics", running.admin());
    say!("");
    let shared = "simulated; the first token after";
    say!("{STEADY}   {shared} 100 ms and 0.5 ms per prompt token, then one every 12 ms");
    say!("{BURSTY}   {shared} 40 ms and 0.2 ms per prompt token, then four every 48 ms, every 24th 300 ms late");
    let simulated = [(1, 4), (4, 2), (16, 2)].map(|(concurrency, rounds)| (512, concurrency, rounds));
    let computed = [(16, 1, 4), (128, 1, 2), (128, 4, 2)];
    let levels = |levels: &[(usize, usize, usize)], max_tokens| {
        let level = |&(words, concurrency, rounds)| Level { words, concurrency, rounds, max_tokens };
        levels.iter().map(level).collect()
    };
    let simulated = [&[(32, 1, 4)], &simulated[..]].concat();
    let mut models: Vec<Shown> =
        [STEADY, BURSTY].map(|name| Shown { name: name.to_owned(), levels: levels(&simulated, TOKENS) }).into();
    let load = running.loading();
    load(&mut |loaded| {
        say!("{name}   in this process {}", loaded.what);
        if args.model.is_some() {
            for note in &loaded.notes {
                say!("         {note}");
            }
        }
    })
    .map_err(Failed::configuration)?;
    if local.is_some() {
        say!("         it really computes: its lines may take a minute or more");
        models.push(Shown { name: name.clone(), levels: levels(&computed, 32) });
    } else {
        say!("none in this process; for a small real one: bash scripts/models.sh (93 MB), then demo again");
    }
    measure(&running, &models, &seen)?;
    seen.close();
    if args.exit {
        return Ok(());
    }
    // Until here Ctrl-C ends the program at once; from here it ends the waiting.
    let mut signals = Signals::new().map_err(Failed::running)?;
    let model = if local.is_some() { &name } else { STEADY };
    say!("");
    say!("Up until Ctrl-C. Try:");
    say!("  curl -N http://{}/v1/chat/completions -H 'content-type: application/json' \\", running.listen());
    say!(r#"    -d '{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"hello"}}]}}'"#);
    say!("  curl -s http://{}/metrics | grep -E 'time_to_first_token_seconds_(sum|count)'", running.admin());
    signals.wait();
    Ok(())
}

/// Sends every model what it is to be asked and prints the table, line by line.
fn measure(running: &Running, models: &[Shown], seen: &Seen) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::running)?;
    let width = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
    let requests: usize = models.iter().flat_map(|model| &model.levels).map(|level| level.requests()).sum();
    // Drawn on standard error, and only where that is a terminal.
    let bar = ProgressBar::new(requests as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} requests, {eta} to go   {msg}");
    bar.set_style(style.map_err(Failed::running)?);
    say!("");
    say!("{}", table::head(width));
    for Shown { name, levels } in models {
        for level in levels {
            bar.set_message(level.tag(name));
            let (exchanges, took) = runtime.block_on(load::level(running.listen(), name, *level, seen, &bar))?;
            let line = table::line(width, name, level.concurrency, &exchanges, took);
            bar.suspend(|| {
                say!("{line}");
            });
        }
    }
    bar.finish_and_clear();
    say!("");
    say!("{}", table::NOTES);
    Ok(())
}

/// Output tokens of a simulated reply.
const TOKENS: u32 = 64;

/// Keeps time.
fn steady() -> Schedule {
    Schedule {
        ttft: Duration::from_millis(100),
        per_prompt_token: Duration::from_micros(500),
        itl: Duration::from_millis(12),
        tokens: TOKENS,
        ..Schedule::default()
    }
}

/// Quicker to begin; but its tokens come in lumps, and sometimes not at all for a while.
fn bursty() -> Schedule {
    Schedule {
        ttft: Duration::from_millis(40),
        per_prompt_token: Duration::from_micros(200),
        stall: Duration::from_millis(300),
        stall_every: 24,
        events_per_write: 4,
        ..steady()
    }
}

fn simulate(name: &str, schedule: Schedule) -> Result<SimHandle, Failed> {
    let models = vec![name.to_owned()];
    Sim::spawn(SimConfig { schedule, models, ..SimConfig::default() }).map_err(Failed::running)
}

/// What a model is asked for by: its file's or directory's name, where that is no pattern.
fn name_of(path: &Path) -> String {
    let name = path.file_stem().map(|name| name.to_string_lossy().replace(['*', '?', '[', ']', '{', '}', '"'], "-"));
    name.filter(|name| ![STEADY, BURSTY].contains(&&**name)).unwrap_or_else(|| "local-model".to_owned())
}

/// Where `scripts/models.sh` puts model files. `None` where there is no home.
fn models_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("STREAMGAUGE_MODELS").or_else(|| {
        let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")))?;
        Some(data.join("streamgauge/models"))
    })
}

fn config(args: &DemoArgs, sims: &[SimHandle; 2], local: Option<&Path>, name: &str) -> Result<Config, Failed> {
    // Nothing of this machine's own configuration: the demo spends no key.
    let mut config = Config::default_for_env(|_| None).map_err(Failed::configuration)?;
    config.server.listen = args.listen;
    config.server.admin = args.admin;
    config.server.drain_timeout = Duration::from_secs(1);
    config.routes = Vec::new();
    config.backends = Vec::new();
    for (index, (name, sim)) in [STEADY, BURSTY].into_iter().zip(sims).enumerate() {
        let kind = BackendKind::OpenAi(OpenAi::new(plain_http(sim.addr())));
        config.backends.push(Backend { name: name.into(), kind });
        config.routes.push(Route::to(name, index));
    }
    if let Some(path) = local {
        let llama = Llama::new(path.to_owned());
        // A model as small as the one that is fetched is worth its exact weights.
        let fetched = Llama { dtype: Dtype::F32, max_sequences: Some(4), max_context: Some(1024), ..llama.clone() };
        let llama = if args.model.is_some() { llama } else { fetched };
        config.backends.push(Backend { name: "local".into(), kind: BackendKind::Llama(llama) });
        config.routes.push(Route::to(name, sims.len()));
    }
    config.routes.push(Route::to("*", 0));
    Ok(config)
}

fn plain_http(address: SocketAddr) -> BaseUrl {
    BaseUrl { tls: false, host: address.ip().to_string(), port: address.port(), path: String::new() }
}
