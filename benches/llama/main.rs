//! What the Llama backend does with its time: a `streamgauge serve` of its own, real requests, its CPU clock.
//!
//! Rates are tokens per second of the process's CPU time, which other programs on the machine disturb least. What is
//! compared is measured in turns, round after round, and told as medians.
//!
//! `cargo bench --bench llama -- [--model PATH] [--rounds N] [SECTION …]`; sections: decode, stall, beside, memory. The
//! model is the one that scripts/models.sh fetches, if none is given.

#[path = "../../tests/support/mod.rs"]
mod support;

mod beside;
mod decode;
mod gauge;
mod memory;
mod stall;
mod stream;

use std::path::PathBuf;

/// What the command line asks for.
pub(crate) struct Options {
    pub(crate) model: PathBuf,
    /// More lines for the backend's section.
    pub(crate) more: String,
    pub(crate) rounds: usize,
}

type Section = (&'static str, fn(&Options));

const SECTIONS: [Section; 4] =
    [("decode", decode::run), ("stall", stall::run), ("beside", beside::run), ("memory", memory::run)];

fn main() {
    let mut options = Options { model: smollm2(), more: String::new(), rounds: 3 };
    let mut chosen = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} wants a value"));
        match argument.as_str() {
            // cargo says so of its own accord.
            "--bench" => {}
            "--model" => options.model = value().into(),
            "--set" => options.more = value().replace(';', "\n"),
            "--rounds" => options.rounds = value().parse().expect("a number of rounds"),
            name => chosen.push(name.to_owned()),
        }
    }
    for (name, run) in SECTIONS {
        if chosen.is_empty() || chosen.iter().any(|chosen| chosen == name) {
            println!("── {name}");
            run(&options);
            println!();
        }
    }
}

fn smollm2() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("STREAMGAUGE_MODELS").unwrap_or_else(|| {
        let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
        data.expect("a home").join("streamgauge/models")
    });
    folder.join("smollm2-135m-instruct-q4_1.gguf")
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The nearest-rank percentile, `share` between 0 and 1.
pub(crate) fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rank: whole, positive, small
    let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
    values[rank - 1]
}
