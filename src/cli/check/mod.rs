//! `streamgauge check`: walks to every backend one step at a time, and says what to do about the step that fails.
//!
//! What is tested is what `serve` does: the same connections, paths and readers.

use std::path::PathBuf;

use clap::Args;

mod advice;
mod ask;
mod asker;
mod beside;
mod chat;
mod dialects;
mod key;
mod llama;
mod models;
mod options;
mod over;
mod reach;
mod report;
mod stream;
mod walk;
mod words;

use super::Failed;
use crate::config::{Backend, BackendKind, Config};
pub use dialects::Spoken;
use models::Model;
pub use report::Format;
use report::{Report, Steps};
use walk::Start;

/// Flags of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// The configuration file; without one, see `TAOTOKEN_API_KEY` and `TAOTOKEN_BASE_URL`.
    #[arg(
        long,
        help = "The configuration file; without one, see TAOTOKEN_API_KEY and TAOTOKEN_BASE_URL",
        value_name = "FILE",
        env = "STREAMGAUGE_CONFIG"
    )]
    config: Option<PathBuf>,
    /// Check this backend alone.
    #[arg(long, value_name = "NAME", env = "STREAMGAUGE_CHECK_BACKEND")]
    backend: Option<String>,
    /// The model to ask for; if left out, the first that a route names for the backend, else the first it lists.
    #[arg(long, value_name = "NAME", env = "STREAMGAUGE_CHECK_MODEL")]
    model: Option<String>,
    /// A dialect that must be answered, or the check fails; may be repeated. Without, chat must be, or another where chat
    /// is not there or does not take the model.
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',', env = "STREAMGAUGE_CHECK_DIALECT")]
    dialect: Vec<Spoken>,
    /// How the report is written.
    #[arg(long, value_enum, default_value_t, env = "STREAMGAUGE_CHECK_FORMAT")]
    format: Format,
}

/// Checks, and reports on standard output.
///
/// # Errors
/// The configuration cannot be read, or a backend failed.
pub fn run(args: &CheckArgs) -> Result<(), Failed> {
    let env = |name: &str| std::env::var(name).ok();
    let config = match &args.config {
        Some(path) => Config::load(path, env),
        None => Config::default_for_env(env),
    }
    .map_err(Failed::configuration)?;
    let chosen: Vec<(usize, &Backend)> = chosen(&config, args.backend.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::running)?;

    let file =
        args.config.as_ref().map_or_else(|| "built-in configuration".to_owned(), |path| path.display().to_string());
    let required = &args.dialect[..];
    let mut report = Report::new(args.format, config.warnings.clone());
    for (index, backend) in chosen {
        let name = &*backend.name;
        let routed = config.routes.iter().any(|route| models::leads_to(route, index));
        match &backend.kind {
            BackendKind::OpenAi(openai) => {
                let model = Model::configured(&config, index, args.model.as_deref());
                let start = Start { backend: name, config: openai, file: &file, routed, model, required, env: &env };
                let mut steps = report.backend(name, Some(openai.base_url.to_string()));
                let arrived = runtime.block_on(walk::walk(start, &mut steps));
                end(arrived, &mut steps, &walk::STEPS);
            }
            BackendKind::Llama(llama) => {
                let mut steps = report.backend(name, None);
                let arrived = llama::walk(llama, walk::read(&file, name, routed), required, &mut steps);
                end(arrived, &mut steps, &llama::STEPS);
            }
        }
    }
    match report.finish() {
        (0, _) => Ok(()),
        (failed, all) => Err(Failed::running(format!("{failed} of {all} backends failed: see the advice above"))),
    }
}

/// The backends to check, with their places in the configuration.
fn chosen<'a>(config: &'a Config, wanted: Option<&str>) -> Result<Vec<(usize, &'a Backend)>, Failed> {
    let all = config.backends.iter().enumerate();
    let Some(wanted) = wanted else { return Ok(all.collect()) };
    let found: Vec<_> = all.filter(|(_, backend)| &*backend.name == wanted).collect();
    if found.is_empty() {
        let names: Vec<&str> = config.backend_names().map(|name| &**name).collect();
        let names = names.join(", ");
        return Err(Failed::configuration(format!(
            "--backend: no backend is called \"{wanted}\"; configured: {names}"
        )));
    }
    Ok(found)
}

fn end(arrived: Option<()>, steps: &mut Steps<'_>, all: &[&'static str]) {
    if arrived.is_none() {
        steps.skip_rest(all);
    }
}
