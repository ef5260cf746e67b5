//! What is wrong with a configuration, where, and what to do about it.

use std::fmt;

/// A configuration that cannot be used: the first thing wrong with it.
///
/// Displays as `streamgauge.toml:12: route.backend: no backend is called "llama3"; configured: taotoken, llama2`.
/// It never holds a key or any other value that may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    file: String,
    line: Option<usize>,
    key: String,
    problem: String,
}

impl ConfigError {
    /// `line` counts from 1, `None` where no line is at fault; `key` is dotted, empty where none is.
    pub(super) fn new(file: &str, line: Option<usize>, key: &str, problem: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, key: key.to_owned(), problem: problem.into() }
    }

    /// The file, or what stands for it, such as an environment variable's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line at fault, from 1. `None` where the file as a whole is, or no file was read.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// The key at fault, dotted from the top: `backend.taotoken.base_url`. Empty where no key is.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)
    }
}
