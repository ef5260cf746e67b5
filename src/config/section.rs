//! A TOML value that knows where it stands: typed reads whose errors name the file, the line and the key.
//!
//! Invariant: an error here names keys, types and paths, and repeats no other value: it may be a secret in the
//! wrong place.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// The text a value was read from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl<'a> Source<'a> {
    /// The document, a table.
    pub(super) fn parse(self) -> Result<DeValue<'a>, ConfigError> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let line = error.span().map(|span| self.line(span.start));
            let problem = match error.span().and_then(|span| self.text.get(span)) {
                Some(key) if error.message() == "duplicate key" => format!("{key} is already given above; keep one"),
                _ => format!("not valid TOML: {}", error.message().replace('\n', ", ")),
            };
            ConfigError::new(self.name, line, "", problem)
        })?;
        Ok(DeValue::Table(table.into_inner()))
    }

    /// The line, from 1, of the byte at `offset`.
    fn line(self, offset: usize) -> usize {
        memchr::memchr_iter(b'\n', &self.text.as_bytes()[..offset.min(self.text.len())]).count() + 1
    }
}

/// One value of the document, with its dotted key and place.
#[derive(Clone)]
pub(super) struct Node<'a> {
    source: Source<'a>,
    /// Dotted from the top, without array indices: the line tells elements apart.
    key: String,
    offset: usize,
    value: &'a DeValue<'a>,
}

impl<'a> Node<'a> {
    /// The whole document.
    pub(super) fn root(source: Source<'a>, value: &'a DeValue<'a>) -> Self {
        Self { source, key: String::new(), offset: 0, value }
    }

    /// An error at this value.
    pub(super) fn error(&self, problem: impl Display) -> ConfigError {
        ConfigError::new(self.source.name, Some(self.line()), &self.key, problem.to_string())
    }

    /// The line it stands on, from 1.
    pub(super) fn line(&self) -> usize {
        self.source.line(self.offset)
    }

    /// The value under `key`. `None` where it is left out, or this is no table.
    pub(super) fn get(&self, key: &str) -> Option<Self> {
        self.entries().ok()?.into_iter().find(|(name, _)| *name == key).map(|(_, node)| node)
    }

    /// The value under `key`, or an error that says how to give it.
    pub(super) fn require(&self, key: &str, example: &str) -> Result<Self, ConfigError> {
        self.get(key).ok_or_else(|| self.error(format!("{key} is missing; add {key} = {example}")))
    }

    /// The entries of a table, in the order of the file.
    pub(super) fn entries(&self) -> Result<Vec<(&'a str, Self)>, ConfigError> {
        let DeValue::Table(table) = self.value else { return Err(self.wrong_type("a table")) };
        let mut entries: Vec<_> = table
            .iter()
            .map(|(name, value)| {
                let name_text: &'a str = name.get_ref();
                let key = if self.key.is_empty() { name_text.to_owned() } else { format!("{}.{name_text}", self.key) };
                let node = Self { source: self.source, key, offset: name.span().start, value: value.get_ref() };
                (name_text, node)
            })
            .collect();
        entries.sort_by_key(|(_, node)| node.offset);
        Ok(entries)
    }

    /// The elements of an array, in order; `form` is how it is written.
    pub(super) fn elements(&self, form: &str) -> Result<Vec<Self>, ConfigError> {
        let DeValue::Array(array) = self.value else { return Err(self.wrong_type(form)) };
        let element = |value: &'a Spanned<DeValue<'a>>| {
            let offset = value.span().start;
            Self { source: self.source, key: self.key.clone(), offset, value: value.get_ref() }
        };
        Ok(array.iter().map(element).collect())
    }

    /// Refuses a table with any key not in `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), ConfigError> {
        match self.entries()?.into_iter().find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some((name, node)) => match known.iter().find(|known| is_near(known, name)) {
                Some(near) => Err(node.error(format!("no such key; did you mean {near}?"))),
                None => Err(node.error(format!("no such key; known here: {}", known.join(", ")))),
            },
        }
    }

    /// A string that is not blank.
    pub(super) fn text(&self) -> Result<&'a str, ConfigError> {
        self.text_or("a string")
    }

    /// [`Self::text`] where something else could stand as well; `form` is how it is written.
    pub(super) fn text_or(&self, form: &str) -> Result<&'a str, ConfigError> {
        match self.value {
            DeValue::String(text) if text.trim().is_empty() => Err(self.error("must not be empty")),
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong_type(form)),
        }
    }

    /// A string, read as `T`; `hint` says what it must be.
    pub(super) fn parsed<T: std::str::FromStr>(&self, hint: &str) -> Result<T, ConfigError> {
        self.text()?.parse().map_err(|_| self.error(format!("must be {hint}")))
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, ConfigError> {
        let text = self.text()?;
        words.iter().find(|(word, _)| *word == text).map(|&(_, value)| value).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            self.error(format!("must be one of {}", words.join(", ")))
        })
    }

    /// `true` or `false`.
    pub(super) fn switch(&self) -> Result<bool, ConfigError> {
        match self.value {
            DeValue::Boolean(on) => Ok(*on),
            _ => Err(self.wrong_type("true or false")),
        }
    }

    /// A whole number within `range`.
    pub(super) fn count(&self, range: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        let DeValue::Integer(number) = self.value else { return Err(self.wrong_type("a whole number")) };
        let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| self.error(format!("must be a whole number from {} to {}", range.start(), range.end())))
    }

    /// A part of a whole: above 0, at most 1.
    pub(super) fn share(&self) -> Result<f64, ConfigError> {
        const FORM: &str = "a number above 0 and at most 1";
        let share: Option<f64> = match self.value {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => return Err(self.wrong_type(FORM)),
        };
        share.filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| self.error(format!("must be {FORM}")))
    }

    /// [`Self::count`] for what is counted in memory.
    pub(super) fn size(&self, range: RangeInclusive<u64>) -> Result<usize, ConfigError> {
        usize::try_from(self.count(range)?).map_err(|_| self.error("is more than this machine can count"))
    }

    /// Milliseconds, at least `least`.
    pub(super) fn millis(&self, least: u64) -> Result<Duration, ConfigError> {
        /// A year: longer is surely a slip of the unit.
        const MOST: u64 = 366 * 24 * 3_600_000;
        match self.value {
            DeValue::Integer(_) => Ok(Duration::from_millis(self.count(least..=MOST)?)),
            _ => Err(self.wrong_type("a whole number of milliseconds")),
        }
    }

    /// A path to a file that is there.
    pub(super) fn file(&self) -> Result<PathBuf, ConfigError> {
        let path = PathBuf::from(self.text()?);
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() => Ok(path),
            Ok(_) => Err(self.error(format!("{} is not a file", path.display()))),
            Err(error) => Err(self.error(format!("{} cannot be read: {error}", path.display()))),
        }
    }

    /// Whether it has entries.
    pub(super) fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }

    /// Whether it has elements.
    pub(super) fn is_array(&self) -> bool {
        matches!(self.value, DeValue::Array(_))
    }

    fn wrong_type(&self, wanted: &str) -> ConfigError {
        self.error(format!("must be {wanted}; found: {}", self.value.type_str()))
    }
}

/// Whether two names are at most two slips apart (Levenshtein distance), and less than half of the name is wrong.
fn is_near(known: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, wanted) in known.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, found) in name.iter().enumerate() {
            let substituted = diagonal + usize::from(wanted != *found);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[name.len()] <= 2 && row[name.len()] * 2 < name.len()
}
