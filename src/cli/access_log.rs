//! One line per request: what it was, where it went, how it ended, how long it took. No content, no key.
//!
//! It looks like any other line of the log, level `INFO`, target `streamgauge::access`, and obeys its levels; but it is
//! written for every request, so it is put together here, field by field, rather than by tracing's visitors.

use std::fmt::Write as _;
use std::time::Duration;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::logging::{Format, Lines};
use crate::measure::{Exchange, Listener};

/// The target whose level turns these lines on and off.
const TARGET: &str = "streamgauge::access";

/// Listens to finished exchanges and writes a line for each.
pub(super) fn listener(lines: Lines, format: Format) -> Listener {
    Box::new(move |exchange| {
        if tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            lines.push(line(exchange, format).as_bytes());
        }
    })
}

fn line(exchange: &Exchange, format: Format) -> String {
    let marks = &exchange.marks;
    let mut line = Line::begin(format);
    line.text("outcome", Some(exchange.outcome.label()));
    line.number("status", exchange.status.map(u64::from));
    line.text("operation", Some(exchange.operation));
    line.text("backend", exchange.backend.as_deref());
    line.text("model", exchange.model_requested.as_deref());
    line.text("model_served", exchange.model_served.as_deref());
    line.flag("stream", exchange.stream);
    line.ms("duration_ms", marks.duration());
    line.ms("ttft_ms", marks.ttft_client());
    line.ms("ttft_upstream_ms", marks.ttft_upstream());
    line.ms("tpot_ms", exchange.tpot());
    line.number("prompt_tokens", exchange.prompt_tokens());
    line.text("prompt_source", exchange.prompt().map(|(_, source)| source.label()));
    line.number("output_tokens", exchange.output.map(|output| output.count));
    line.text("source", exchange.output.map(|output| output.source.label()));
    line.flag("reused", exchange.reused);
    line.text("tag", exchange.tag.as_deref());
    line.end()
}

/// A line in the making. A field whose value is absent is left out.
struct Line {
    out: String,
    format: Format,
}

impl Line {
    fn begin(format: Format) -> Self {
        let mut out = String::with_capacity(512);
        if format == Format::Json {
            out.push_str(r#"{"timestamp":""#);
        }
        // Writing to a string cannot fail; nor can telling the time.
        let _ = SystemTime.format_time(&mut Writer::new(&mut out));
        let _ = match format {
            Format::Json => write!(out, r#"","level":"INFO","target":"{TARGET}","message":"request""#),
            Format::Text => write!(out, "  INFO {TARGET}: request"),
        };
        Self { out, format }
    }

    fn key(&mut self, key: &str) {
        let _ = match self.format {
            Format::Json => write!(self.out, ",\"{key}\":"),
            Format::Text => write!(self.out, " {key}="),
        };
    }

    fn text(&mut self, key: &str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.key(key);
        match self.format {
            Format::Json => self.out.push_str(&serde_json::Value::from(value).to_string()),
            // Debug escapes line ends and control characters: a client cannot forge a line.
            Format::Text => drop(write!(self.out, "{value:?}")),
        }
    }

    fn number(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.key(key);
            let _ = write!(self.out, "{value}");
        }
    }

    fn flag(&mut self, key: &str, value: Option<bool>) {
        if let Some(value) = value {
            self.key(key);
            let _ = write!(self.out, "{value}");
        }
    }

    /// Milliseconds with three decimals: microseconds are what the clock is worth here.
    fn ms(&mut self, key: &str, value: Option<Duration>) {
        if let Some(value) = value {
            self.key(key);
            let micros = value.as_micros();
            let _ = write!(self.out, "{}.{:03}", micros / 1000, micros % 1000);
        }
    }

    fn end(mut self) -> String {
        if self.format == Format::Json {
            self.out.push('}');
        }
        self.out.push('\n');
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(format: Format) -> String {
        let mut line = Line::begin(format);
        line.text("model", Some("a\"b\n\u{1b}[31m{forged}"));
        line.text("tag", None);
        line.number("status", Some(200));
        line.flag("stream", Some(true));
        line.ms("ttft_ms", Some(Duration::from_micros(206_007)));
        line.ms("tpot_ms", None);
        line.end()
    }

    #[test]
    fn a_json_line_is_one_object_with_what_is_known() {
        let line = made(Format::Json);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(object["level"], "INFO");
        assert_eq!(object["target"], TARGET);
        assert_eq!(object["model"], "a\"b\n\u{1b}[31m{forged}");
        assert_eq!((&object["status"], &object["stream"]), (&200.into(), &true.into()));
        assert_eq!(object["ttft_ms"], 206.007);
        assert!(object.get("tag").is_none() && object.get("tpot_ms").is_none());
    }

    #[test]
    fn a_text_line_cannot_be_forged_by_a_name() {
        let line = made(Format::Text);
        let expected = r#"INFO streamgauge::access: request model="a\"b\n\u{1b}[31m{forged}" status=200 stream=true ttft_ms=206.007"#;
        assert!(line.ends_with(&format!("{expected}\n")), "{line}");
        assert_eq!(line.matches('\n').count(), 1);
    }
}
