//! What a check found: told step by step to people, or as one JSON document to programs.
//!
//! Invariant: every backend's report names every step of its walk, those that were not reached as skipped.
//!
//! The document: `schema`, `ok`, `warnings` of the configuration, and `backends`, each with `backend`, `base_url` (null
//! for a model in this process), `ok` and `steps`; each of those with `step`, `status` (`ok`, `note`, `failed`,
//! `skipped`), `detail`, `advice` and `ms`, the last two null where there is none.

use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;

/// How a report is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people: a line for each step, as it is taken.
    #[default]
    Text,
    /// For programs: one JSON document at the end.
    Json,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// As it should.
    Ok,
    /// Well enough to go on, with something to know.
    Note,
    /// It must be put right.
    Failed,
    /// It was not reached, or there is nothing to do.
    Skipped,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// What a step found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) status: Status,
    /// What was seen: one line.
    pub(super) detail: String,
    /// What to do. `None` where there is nothing to do.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(detail: impl Into<String>) -> Self {
        Self { status: Status::Ok, detail: detail.into(), advice: None }
    }

    pub(super) fn note(detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { status: Status::Note, detail: detail.into(), advice: Some(advice.into()) }
    }

    pub(super) fn failed(detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { status: Status::Failed, detail: detail.into(), advice: Some(advice.into()) }
    }

    pub(super) fn skipped(detail: impl Into<String>) -> Self {
        Self { status: Status::Skipped, detail: detail.into(), advice: None }
    }

    /// This, but no failure where it is spared one.
    pub(super) fn noted_if(self, spared: bool) -> Self {
        if spared && self.status == Status::Failed { Self { status: Status::Note, ..self } } else { self }
    }
}

#[derive(Serialize)]
struct Step {
    step: &'static str,
    #[serde(flatten)]
    finding: Finding,
    /// In milliseconds. `None` where nothing was waited for.
    ms: Option<f64>,
}

#[derive(Serialize)]
struct Checked {
    backend: String,
    base_url: Option<String>,
    /// No step failed.
    ok: bool,
    steps: Vec<Step>,
}

/// What programs read; a new form gets a new number.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    ok: bool,
    warnings: &'a [String],
    backends: &'a [Checked],
}

/// The report as it grows.
pub(super) struct Report {
    format: Format,
    warnings: Vec<String>,
    backends: Vec<Checked>,
}

impl Report {
    /// A report that begins with the configuration's warnings.
    pub(super) fn new(format: Format, warnings: Vec<String>) -> Self {
        let report = Self { format, warnings, backends: Vec::new() };
        for warning in &report.warnings {
            report.say(&format!("warning: {warning}\n"));
        }
        report
    }

    /// Begins the next backend. `base_url` is `None` for a model in this process.
    pub(super) fn backend(&mut self, name: &str, base_url: Option<String>) -> Steps<'_> {
        let gap = if self.backends.is_empty() && self.warnings.is_empty() { "" } else { "\n" };
        self.say(&format!("{gap}{name}  {}\n", base_url.as_deref().unwrap_or("a model in this process")));
        self.backends.push(Checked { backend: name.to_owned(), base_url, ok: true, steps: Vec::new() });
        Steps { report: self }
    }

    /// Ends the report. Returns how many backends failed, and of how many.
    pub(super) fn finish(self) -> (usize, usize) {
        let failed = self.backends.iter().filter(|backend| !backend.ok).count();
        let steps = self.backends.iter().flat_map(|backend| &backend.steps);
        let notes = steps.filter(|step| step.finding.status == Status::Note).count();
        match (self.format, failed, notes) {
            (Format::Text, 0, 0) => self.say("\nall is well\n"),
            (Format::Text, 0, notes) => self.say(&format!("\nnothing failed; notes: {notes}\n")),
            (Format::Text, ..) => {}
            (Format::Json, ..) => print(&format!("{}\n", self.json(failed == 0))),
        }
        (failed, self.backends.len())
    }

    fn json(&self, ok: bool) -> String {
        let document = Document { schema: 1, ok, warnings: &self.warnings, backends: &self.backends };
        serde_json::to_string_pretty(&document).unwrap_or_else(|_| unreachable!("texts and numbers become JSON"))
    }

    fn say(&self, text: &str) {
        if self.format == Format::Text {
            print(text);
        }
    }
}

/// One backend's steps.
pub(super) struct Steps<'a> {
    report: &'a mut Report,
}

impl Steps<'_> {
    /// Takes a step that needs no time. `None` where it failed, and the walk ends.
    pub(super) fn tell(&mut self, name: &'static str, finding: Finding) -> Option<()> {
        self.begin(name);
        self.end(name, finding, None)
    }

    /// Takes a step, timed. `None` where it failed, and the walk ends.
    pub(super) async fn take<T>(&mut self, name: &'static str, work: impl Future<Output = (Finding, T)>) -> Option<T> {
        self.begin(name);
        let ((finding, found), took) = timed(work).await;
        let took = (finding.status != Status::Skipped).then_some(took);
        self.end(name, finding, took).map(|()| found)
    }

    /// Notes those of `all` that were not reached.
    pub(super) fn skip_rest(&mut self, all: &[&'static str]) {
        let done = self.report.backends.last().map_or(0, |backend| backend.steps.len());
        for name in all.iter().skip(done) {
            // It has not failed, so there is no walk to end.
            let _ = self.tell(name, Finding::skipped("not reached"));
        }
    }

    /// Begins a step: its name first, so that one which takes long is known by it.
    pub(super) fn begin(&self, name: &str) {
        self.report.say(&format!("  {name:<14}  "));
    }

    /// Ends a step that was begun. `took` is `None` where nothing was waited for. `None` where it failed.
    pub(super) fn end(&mut self, name: &'static str, finding: Finding, took: Option<Duration>) -> Option<()> {
        let ms = took.map(|took| format!("{:.1} ms", took.as_secs_f64() * 1e3)).unwrap_or_default();
        self.report.say(&format!("{:<7}  {ms:>10}  {}\n", finding.status.word(), finding.detail));
        if let Some(advice) = &finding.advice {
            self.report.say(&format!("{:39}→ {advice}\n", ""));
        }
        let ok = finding.status != Status::Failed;
        if let Some(backend) = self.report.backends.last_mut() {
            backend.ok &= ok;
            // To the microsecond.
            let ms = took.map(|took| (took.as_secs_f64() * 1e6).round() / 1e3);
            backend.steps.push(Step { step: name, finding, ms });
        }
        ok.then_some(())
    }
}

/// Does `work`, and says how long that took.
pub(super) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let done = work.await;
    (done, began.elapsed())
}

/// Writes to standard output. Whoever closed it wants no more.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
