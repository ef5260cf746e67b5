//! `/metrics`, scraped and parsed back (Prometheus' text format 0.0.4).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::client::Client;

/// One line of a scrape.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// One scrape.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) text: String,
    pub(crate) samples: Vec<Sample>,
}

impl Scrape {
    /// Scrapes an admin listener.
    pub(crate) fn of(admin: SocketAddr) -> Self {
        Self::over(&mut Client::connect(admin))
    }

    /// Scrapes over an open connection.
    pub(crate) fn over(client: &mut Client) -> Self {
        let reply = client.get("/metrics");
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let text = String::from_utf8(reply.body).expect("UTF-8");
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(sample).collect();
        Self { text, samples }
    }

    /// The sum over every series of this name (without its prefix) that has these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&Sample| {
            sample.name.strip_prefix("streamgauge_") == Some(name)
                && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|found| found == value))
        };
        self.samples.iter().filter(has).map(|sample| sample.value).sum()
    }

    /// How many requests ended so.
    pub(crate) fn outcome(&self, outcome: &str) -> f64 {
        self.sum("requests_total", &[("outcome", outcome)])
    }

    /// Fails unless every request started is over or in flight.
    pub(crate) fn assert_balanced(&self) {
        let [started, ended, running] =
            ["requests_started_total", "requests_total", "in_flight_requests"].map(|name| self.sum(name, &[]));
        assert!((started - ended - running).abs() < 0.5, "{started} started, {ended} ended, {running} in flight");
    }

    /// Whether no request is in flight, in any series.
    pub(crate) fn is_idle(&self) -> bool {
        let gauges = self.samples.iter().filter(|sample| sample.name == "streamgauge_in_flight_requests");
        gauges.fold(true, |idle, gauge| {
            assert!(gauge.value >= 0.0, "{gauge:?}");
            idle && gauge.value == 0.0
        })
    }
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a name");
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"").expect("a label");
            let (value, after) = label_value(after);
            assert!(labels.insert(key.to_owned(), value).is_none(), "a label twice: {line}");
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.trim().parse().unwrap_or_else(|_| panic!("no value: {line}"));
    Sample { name: name.to_owned(), labels, value }
}

/// Reads up to the closing quote, the three escapes undone.
fn label_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => value.push('\n'),
                Some(escaped @ ('\\' | '"')) => value.push(escaped),
                other => panic!("an escape that does not exist: {other:?} in {text}"),
            },
            c => value.push(c),
        }
    }
    panic!("a label without end: {text}");
}
