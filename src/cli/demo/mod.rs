//! `streamgauge demo`: models and the proxy in one process, real streams between them, and a table.
//!
//! One model is simulated and keeps time exactly. The other, a small Llama, computes; it takes part when its file is
//! there.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};

mod load;
mod table;

use super::running::Running;
use super::serve::Signals;
use super::{Failed, LogArgs, logging};
use crate::backend::sim::{Schedule, Sim, SimConfig, SimHandle};
use crate::config::{Backend, BackendKind, BaseUrl, Config, Dtype, Llama, OpenAi, Route};
use load::{Level, Seen};

const SIMULATED: &str = "demo-model";
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
    /// Where /metrics is served.
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

/// Runs the demo.
///
/// # Errors
/// A port is taken, the model cannot be loaded, or a request did not come back whole.
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
    let models = vec![SIMULATED.to_owned()];
    let sim = Sim::spawn(SimConfig { schedule, models, ..SimConfig::default() }).map_err(Failed::running)?;
    let fetched = models_folder().map(|folder| folder.join(LOCAL_FILE));
    let local = args.model.clone().or_else(|| fetched.clone().filter(|file| file.exists()));
    let name = local.as_deref().map_or_else(String::new, name_of);
    let seen = Seen::default();
    let config = config(args, &sim, local.as_deref(), &name)?;
    let running = Running::start(&config, vec![seen.listener()]).map_err(Failed::configuration)?;

    say!("proxy    http://{}/v1", running.listen());
    say!("metrics  http://{}/metrics", running.admin());
    say!(
        "model    {SIMULATED}, simulated: first token after {} ms, then one every {} ms, {} tokens a reply",
        schedule.ttft.as_millis(),
        schedule.itl.as_millis(),
        schedule.tokens
    );
    let load = running.loading();
    load(&mut |loaded| {
        say!("model    {name}, in this process {}", loaded.what);
        if args.model.is_some() {
            for note in &loaded.notes {
                say!("         {note}");
            }
        }
    })
    .map_err(Failed::configuration)?;
    if local.is_none() {
        say!("model    none in this process; for a small real one: bash scripts/models.sh (93 MB), then demo again");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::running)?;
    let measure = |model: &str, level: Level| runtime.block_on(load::level(running.listen(), model, level, &seen));
    say!("");
    say!("{SIMULATED}");
    say!("{}", table::HEAD);
    for concurrency in [1, 4, 16] {
        let (exchanges, took) = measure(SIMULATED, Level { concurrency, rounds: 4, max_tokens: schedule.tokens })?;
        say!("{}", table::line(concurrency, &exchanges, took));
    }
    if local.is_some() {
        say!("");
        say!("{name}");
        say!("{}", table::HEAD);
        for concurrency in [1, 4] {
            let (exchanges, took) = measure(&name, Level { concurrency, rounds: 2, max_tokens: 32 })?;
            say!("{}", table::line(concurrency, &exchanges, took));
        }
    }
    say!("");
    say!("TTFT: request sent to first token. TPOT: time per token after the first. TGS: tokens per second of one");
    say!("request. throughput: tokens per second of all requests together. Each level was warmed up first.");
    if args.exit {
        return Ok(());
    }
    // Until here Ctrl-C ends the program at once; from here it ends the waiting.
    let mut signals = Signals::new().map_err(Failed::running)?;
    let model = if local.is_some() { &name } else { SIMULATED };
    say!("");
    say!("Up until Ctrl-C. Try:");
    say!("  curl -N http://{}/v1/chat/completions -H 'content-type: application/json' \\", running.listen());
    say!(r#"    -d '{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"hello"}}]}}'"#);
    say!("  curl -s http://{}/metrics | grep -E 'time_to_first_token_seconds_(sum|count)'", running.admin());
    signals.wait();
    Ok(())
}

/// What a model is asked for by: its file's or directory's name, where that is no pattern.
fn name_of(path: &Path) -> String {
    let name = path.file_stem().map(|name| name.to_string_lossy().replace(['*', '?', '[', ']', '{', '}', '"'], "-"));
    name.filter(|name| name != SIMULATED).unwrap_or_else(|| "local-model".to_owned())
}

/// Where `scripts/models.sh` puts model files. `None` where there is no home.
fn models_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("STREAMGAUGE_MODELS").or_else(|| {
        let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")))?;
        Some(data.join("streamgauge/models"))
    })
}

fn config(args: &DemoArgs, sim: &SimHandle, local: Option<&Path>, name: &str) -> Result<Config, Failed> {
    // Nothing of this machine's own configuration: the demo spends no key.
    let mut config = Config::default_for_env(|_| None).map_err(Failed::configuration)?;
    config.server.listen = args.listen;
    config.server.admin = args.admin;
    config.server.drain_timeout = Duration::from_secs(1);
    config.backends =
        vec![Backend { name: "sim".into(), kind: BackendKind::OpenAi(OpenAi::new(plain_http(sim.addr()))) }];
    config.routes = Vec::new();
    if let Some(path) = local {
        let llama = Llama::new(path.to_owned());
        // A model as small as the one that is fetched is worth its exact weights.
        let fetched = Llama { dtype: Dtype::F32, max_sequences: Some(4), max_context: Some(1024), ..llama.clone() };
        let llama = if args.model.is_some() { llama } else { fetched };
        config.backends.push(Backend { name: "local".into(), kind: BackendKind::Llama(llama) });
        config.routes.push(Route { model: name.to_owned(), backend: 1, upstream_model: None });
    }
    config.routes.push(Route { model: "*".to_owned(), backend: 0, upstream_model: None });
    Ok(config)
}

fn plain_http(address: SocketAddr) -> BaseUrl {
    BaseUrl { tls: false, host: address.ip().to_string(), port: address.port(), path: String::new() }
}
