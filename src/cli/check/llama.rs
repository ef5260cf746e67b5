//! A model in this process: whether its files are there. Nothing is loaded.

use std::fs;
use std::path::Path;

use super::dialects::Spoken;
use super::report::{Finding, Steps};
use crate::config::{Llama, LoadWeights};

/// Every step, in order.
pub(super) const STEPS: [&str; 3] = ["config", "files", "dialects"];

/// Walks as far as it goes; `read` is what the configuration says, `required` which dialects must be answered. `None` where
/// a step failed.
pub(super) fn walk(config: &Llama, read: Finding, required: &[Spoken], steps: &mut Steps<'_>) -> Option<()> {
    steps.tell("config", read)?;
    steps.tell("files", files(config))?;
    steps.tell("dialects", dialects(required))
}

/// What a model in this process answers, whichever it is.
fn dialects(required: &[Spoken]) -> Finding {
    let missing = |spoken: &&Spoken| matches!(spoken, Spoken::Responses | Spoken::Messages);
    match required.iter().find(missing) {
        None => Finding::ok("chat and completions are answered; responses and messages need an upstream"),
        Some(spoken) => Finding::failed(
            format!("{} are not answered by a model in this process", spoken.step()),
            "send them to an upstream; --backend checks that one alone",
        ),
    }
}

fn files(config: &Llama) -> Finding {
    const FORM: &str = "set model to a directory of safetensors or to one .gguf file";
    let path = &config.model;
    let shown = path.display();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) => return Finding::failed(format!("{shown} cannot be read: {error}"), FORM),
    };
    if !found.is_dir() {
        return if has_ending(path, "gguf") {
            Finding::ok(format!("{shown}, {}; it is not loaded here", size(found.len())))
        } else {
            Finding::failed(format!("{shown} is a file, but no .gguf"), FORM)
        };
    }
    for needed in ["config.json", "tokenizer.json"] {
        if !path.join(needed).is_file() {
            return Finding::failed(format!("{shown} holds no {needed}"), "fetch the model's repository whole");
        }
    }
    let weights: Vec<u64> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| has_ending(&entry.path(), "safetensors"))
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .map(|found| found.len())
        .collect();
    if weights.is_empty() && config.load == LoadWeights::Files {
        return Finding::failed(
            format!("{shown} holds no .safetensors"),
            "fetch the weights, or set load = \"dummy\" to measure without them",
        );
    }
    let total = size(weights.iter().sum());
    Finding::ok(format!("{shown}, {} files of weights, {total}; they are not loaded here", weights.len()))
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending))
}

fn size(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
