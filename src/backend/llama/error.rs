//! Why a model does not load.

use std::path::PathBuf;

use thiserror::Error;

/// A model that cannot be served: what is wrong, with which file, and what to do about it.
#[derive(Debug, Error)]
#[error("{}: {problem}", file.display())]
pub struct LoadError {
    /// The file or directory at fault.
    pub file: PathBuf,
    /// The configuration key to change: `model`, `device`, `dtype`, `quantize`, `max_sequences`, …
    pub key: &'static str,
    /// What is wrong and the next step.
    pub problem: String,
}

impl LoadError {
    pub(super) fn new(key: &'static str, file: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self { file: file.into(), key, problem: problem.into() }
    }
}
