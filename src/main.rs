//! Arguments, runtimes, wiring, exit codes; nothing else.

use std::process::ExitCode;

use clap::Parser;
use streamgauge::cli::Cli;

fn main() -> ExitCode {
    Cli::parse().run()
}
