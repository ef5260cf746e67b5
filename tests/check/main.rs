//! `streamgauge check` as users run it: each trouble is provoked for real, and what is said of it is compared.

#[path = "../support/mod.rs"]
mod support;

mod config;
mod dialects;
mod key;
mod model;
mod path;
mod reach;
mod reply;
mod stream;

use std::io::Read;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use support::eventually;
use support::process::{ConfigFile, Killed, binary};
use support::stage::TO_UP;
use support::upstream::{Request, Upstream};

/// What the upstream of most tests is asked with.
const KEY: &str = "sk-test-0123456789abcdefWXYZ";

/// Every step of an upstream's walk.
const STEPS: [&str; 13] = [
    "config",
    "key",
    "proxy",
    "dns",
    "tcp",
    "tls",
    "models",
    "chat",
    "stream",
    "stream_options",
    "completions",
    "responses",
    "messages",
];

/// A finished `streamgauge check --format json`.
struct Checked {
    code: Option<i32>,
    report: Value,
    stderr: String,
    /// All it wrote, to either stream.
    all: String,
}

/// Runs `check` with a configuration, more flags, and an environment. A key is always at hand in `UP_KEY`.
fn check_with(config: &str, flags: &[&str], environment: &[(&str, &str)]) -> Checked {
    let file = ConfigFile::new(config);
    let path = file.path.display().to_string();
    let (code, stdout, stderr) =
        run(&[&["--config", &path, "--format", "json"], flags].concat(), &[&[("UP_KEY", KEY)], environment].concat());
    let report = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    Checked { code, report, all: format!("{stdout}{stderr}"), stderr }
}

/// Runs `check` to its end: its exit status, and what it wrote to standard output and to standard error.
fn run(flags: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = binary();
    command.arg("check").args(flags).envs(environment.iter().copied());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut child = Killed(child);
    let status = eventually("the check ends", || child.0.try_wait().expect("waited for"));
    let read = |mut from: Box<dyn Read>| {
        let mut text = String::new();
        from.read_to_string(&mut text).expect("UTF-8");
        text
    };
    let out = read(Box::new(child.0.stdout.take().expect("piped")));
    let err = read(Box::new(child.0.stderr.take().expect("piped")));
    (status.code(), out, err)
}

/// Checks the backend `up` with this base URL, and what its section says beyond.
fn check(base_url: &str, more: &str) -> Checked {
    check_with(&up(base_url, more), &[], &[])
}

/// A configuration with the backend `up` alone.
fn up(base_url: &str, more: &str) -> String {
    format!("[backend.up]\nbase_url = \"{base_url}\"\napi_key = {{ env = \"UP_KEY\" }}\n{more}\n{TO_UP}")
}

impl Checked {
    /// A step of the only backend.
    fn step(&self, name: &str) -> &Value {
        let steps = self.report["backends"][0]["steps"].as_array().expect("steps");
        steps.iter().find(|step| step["step"] == name).unwrap_or_else(|| panic!("no step {name}: {}", self.report))
    }

    fn statuses(&self) -> Vec<(&str, &str)> {
        let steps = self.report["backends"][0]["steps"].as_array().expect("steps");
        steps
            .iter()
            .map(|step| (step["step"].as_str().expect("a name"), step["status"].as_str().expect("a word")))
            .collect()
    }

    /// The walk ended at `step`, which says `detail` and advises `advice`.
    fn failed_at(&self, step: &str, detail: &str, advice: &str) -> &Self {
        assert_eq!((self.code, &self.report["ok"]), (Some(1), &Value::Bool(false)), "{}", self.all);
        assert_eq!(self.stderr, "error: 1 of 1 backends failed: see the advice above\n");
        let (before, after): (Vec<_>, Vec<_>) = {
            let statuses = self.statuses();
            let at = statuses.iter().position(|(name, _)| *name == step).expect(step);
            (statuses[..at].to_vec(), statuses[at + 1..].to_vec())
        };
        assert!(before.iter().all(|(_, status)| *status != "failed"), "{}", self.report);
        assert!(after.iter().all(|(_, status)| *status == "skipped"), "{}", self.report);
        self.says(step, "failed", detail, advice)
    }

    /// A step has this status, says `detail` and advises `advice`; both may be parts of the sentence.
    fn says(&self, step: &str, status: &str, detail: &str, advice: &str) -> &Self {
        let found = self.step(step);
        assert_eq!(found["status"], status, "{found}");
        assert!(found["detail"].as_str().expect("a detail").contains(detail), "{detail:?} is not in {found}");
        assert!(found["advice"].as_str().unwrap_or("").contains(advice), "{advice:?} is not in {found}");
        for sentence in [&found["detail"], &found["advice"]].into_iter().filter_map(Value::as_str) {
            assert!(!sentence.contains(char::is_control) && !sentence.ends_with('.'), "{found}");
        }
        assert!(!self.all.contains(&KEY[3..]), "the key shows: {}", self.all);
        self
    }

    /// Nothing failed.
    fn is_well(&self) -> &Self {
        assert_eq!((self.code, &self.report["ok"], &*self.stderr), (Some(0), &Value::Bool(true), ""), "{}", self.all);
        self
    }
}

/// What an upstream is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Models,
    Chat,
    Stream,
    StreamWithUsage,
    Completions,
    Responses,
    Messages,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let path = request.head.split(' ').nth(1).unwrap_or("");
        for (end, asked) in
            [("v1/completions", Self::Completions), ("/responses", Self::Responses), ("/messages", Self::Messages)]
        {
            if path.ends_with(end) {
                return asked;
            }
        }
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else { return Self::Models };
        match (body["stream"] == true, body["stream_options"]["include_usage"] == true) {
            (false, _) => Self::Chat,
            (true, false) => Self::Stream,
            (true, true) => Self::StreamWithUsage,
        }
    }
}

/// Stands in a reply where the upstream waits a little, and is not sent.
const PAUSE: char = '\0';

/// Ends a reply whose connection then stays open, and is not sent.
const OPEN: char = '\x01';

/// An upstream that answers each request with bytes of the test's own.
struct Playing {
    addr: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Playing {
    /// Answers with what `reply` says; the connection closes after each that does not end in [`OPEN`].
    fn new(reply: impl Fn(Asked, &Request) -> String + Send + 'static) -> Self {
        let upstream = Upstream::bind();
        let (addr, over) = (upstream.addr(), Arc::new(AtomicBool::new(false)));
        let ended = over.clone();
        let serve = move || {
            let mut open = Vec::new();
            while let Some(mut conn) = upstream.accept_unless(&ended) {
                // A connection that was opened only to see whether it can be brings no request.
                let Some(request) = conn.try_request() else { continue };
                let reply = reply(Asked::of(&request), &request);
                let stays = reply.ends_with(OPEN);
                for (index, part) in reply.trim_end_matches(OPEN).split(PAUSE).enumerate() {
                    if index > 0 {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    conn.try_send(part);
                }
                open.extend(stays.then_some(conn));
            }
        };
        Self { addr, over, thread: Some(std::thread::spawn(serve)) }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the upstream panicked");
    }
}

/// An upstream that does all well, but where `other` says something else.
fn upstream(other: impl Fn(Asked, &Request) -> Option<String> + Send + 'static) -> Playing {
    Playing::new(move |asked, request| other(asked, request).unwrap_or_else(|| well(asked)))
}

/// An upstream that does all well but for one thing.
fn upstream_but(wrong: Asked, reply: String) -> Playing {
    upstream(move |asked, _| (asked == wrong).then(|| reply.clone()))
}

/// What an API says of a path it does not have.
const NOT_HERE: &str = r#"{"error":{"message":"Invalid URL (POST)","type":"invalid_request_error"}}"#;

/// What a good upstream of chat completions answers.
fn well(asked: Asked) -> String {
    match asked {
        Asked::Models => json(200, r#"{"object":"list","data":[{"id":"gpt-4o"},{"id":"gpt-4o-mini"}]}"#),
        Asked::Chat => json(
            200,
            r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"length"}],"usage":{"prompt_tokens":8,"completion_tokens":1}}"#,
        ),
        Asked::Stream => events(&[TOKEN, FINISH, "[DONE]"]),
        Asked::StreamWithUsage => events(&[TOKEN, FINISH, USAGE, "[DONE]"]),
        Asked::Completions | Asked::Responses | Asked::Messages => json(404, NOT_HERE),
    }
}

const TOKEN: &str = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#;
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":1}}"#;

/// A reply in JSON.
fn json(status: u16, body: &str) -> String {
    reply(status, "content-type: application/json\r\n", body)
}

/// A stream of events.
fn events(data: &[&str]) -> String {
    let body: String = data.iter().flat_map(|data| ["data: ", data, "\n\n"]).collect();
    reply(200, "content-type: text/event-stream\r\n", &body)
}

/// A whole reply, after which the connection closes. `headers` come whole, each with its line end.
fn reply(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} Whatever\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// The same reply, announced longer than it is.
fn cut_short(reply: &str) -> String {
    reply.replace("content-length: ", "content-length: 9")
}
