//! The command line: what each command takes, and the command behind it.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

mod access_log;
pub mod check;
pub mod demo;
mod engine_threads;
pub mod logging;
pub mod running;
pub mod serve;
pub mod sim;

/// Measures the streams of language models as they pass: an OpenAI-compatible reverse proxy.
#[derive(Debug, Parser)]
#[command(name = "streamgauge", version, about, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve as a proxy (also what happens with no command).
    Serve(serve::ServeArgs),
    /// Show what streamgauge measures: models, the proxy, and real streams between them.
    Demo(demo::DemoArgs),
    /// Check the way to every backend, step by step, and say what to do about what fails.
    ///
    /// Each upstream costs one request for its list of models, three chat completions (a fourth where the model refuses
    /// `max_tokens`) and one request in each other dialect, of one token each (16 for responses). The exit status is 0 if
    /// all is well, 1 if something failed, and 2 if the configuration or a flag is wrong.
    Check(check::CheckArgs),
    /// Simulate an upstream on an exact schedule.
    Sim(Box<sim::SimArgs>),
}

/// Flags that several commands share.
#[derive(Debug, Clone, Default, Args)]
pub struct LogArgs {
    /// How log lines are written; the configuration's format if left out.
    #[arg(long, value_enum, env = "STREAMGAUGE_LOG_FORMAT")]
    pub log_format: Option<logging::Format>,
}

impl Cli {
    /// Runs the command. Errors are printed; the exit code says which kind: 2 for a configuration that cannot be
    /// served (bad flags included), 1 for anything else.
    pub fn run(self) -> ExitCode {
        let done = match self.command {
            None => serve::run(&self.serve),
            Some(Command::Serve(args)) => serve::run(&args),
            Some(Command::Demo(args)) => demo::run(&args),
            Some(Command::Check(args)) => check::run(&args),
            Some(Command::Sim(args)) => sim::run(&args).map_err(Failed::configuration),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failed { message, code }) => {
                eprintln!("error: {message}");
                ExitCode::from(code)
            }
        }
    }
}

/// Why a command failed, with its exit code.
#[derive(Debug)]
pub struct Failed {
    message: String,
    code: u8,
}

impl Failed {
    /// The configuration, or a flag, cannot be served.
    pub fn configuration(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), code: 2 }
    }

    /// Something else went wrong.
    pub fn running(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), code: 1 }
    }
}
