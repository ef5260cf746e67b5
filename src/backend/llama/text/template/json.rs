//! `tojson`, as Hugging Face has it: Python's `json.dumps` with nothing escaped that need not be.

use std::io::{self, Write};

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The filter. `indent` is how many spaces; other options of Python's are accepted and change nothing.
#[expect(clippy::needless_pass_by_value, reason = "the signature that minijinja takes")]
pub(super) fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent = options.get::<Option<usize>>("indent")?;
    let mut json = Vec::new();
    let written = match indent {
        Some(indent) => {
            let indent = " ".repeat(indent.min(16));
            value.serialize(&mut Serializer::with_formatter(&mut json, PrettyFormatter::with_indent(indent.as_bytes())))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut json, Spaced)),
    };
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidOperation, format!("a value cannot be written as JSON: {error}"))
    };
    written.map_err(|error| failed(&error))?;
    String::from_utf8(json).map_err(|error| failed(&error))
}

/// One line, with a space after each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
