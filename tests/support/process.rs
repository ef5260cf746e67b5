//! The proxy in a process of its own: `streamgauge serve`.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde_json::Value;
use tempfile::TempDir;

use super::client::Client;
use super::eventually;

/// A command of the binary under test, with nothing of ours in its environment, and no proxies.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    for (name, _) in std::env::vars() {
        let proxy = name.to_ascii_uppercase().ends_with("_PROXY");
        if proxy || name.starts_with("STREAMGAUGE_") || name.starts_with("TAOTOKEN_") {
            command.env_remove(name);
        }
    }
    command
}

/// A configuration file, and the folder it is in.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) folder: TempDir,
}

impl ConfigFile {
    pub(crate) fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gauge.toml");
        std::fs::write(&path, text).expect("written");
        Self { path, folder }
    }

    /// `streamgauge serve` with this file.
    pub(crate) fn serve(&self) -> Command {
        let mut command = binary();
        command.arg("serve").arg("--config").arg(&self.path);
        command
    }

    /// What becomes of a configuration that cannot be served.
    pub(crate) fn refused(&self) -> Output {
        self.refused_in(&[])
    }

    /// [`ConfigFile::refused`], with these variables.
    pub(crate) fn refused_in(&self, environment: &[(&str, &str)]) -> Output {
        let mut command = self.serve();
        command.envs(environment.iter().copied());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut child = Killed(child);
        eventually("the process gives up", || child.0.try_wait().expect("waited for"));
        let mut output = Output { status: child.0.wait().expect("over"), stdout: Vec::new(), stderr: Vec::new() };
        child.0.stdout.take().expect("piped").read_to_end(&mut output.stdout).expect("read");
        child.0.stderr.take().expect("piped").read_to_end(&mut output.stderr).expect("read");
        output
    }
}

/// A process that does not outlive the test.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running `streamgauge serve`.
pub(crate) struct Serve {
    child: Killed,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    _config: ConfigFile,
}

impl Serve {
    /// Starts with a configuration, whose ports should be 0, and waits until it listens. `format` is `json` or `text`.
    pub(crate) fn start(config: &str, format: &str, environment: &[(&str, &str)]) -> Self {
        let config = ConfigFile::new(config);
        let mut command = config.serve();
        command.args(["--log-format", format]).envs(environment.iter().copied());
        let mut child = Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started"));
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let out = child.0.stdout.take().expect("piped");
        let err = child.0.stderr.take().expect("piped");
        let readers = vec![collect(out, lines.clone()), collect(err, lines.clone())];
        let (listen, admin) = eventually("it listens", || {
            let lines = lock(&lines);
            let line = lines.iter().find(|line| line.contains("listening"))?;
            Some((address(line, "base_url"), address(line, "metrics")))
        });
        Self { child, lines, readers, listen, admin, _config: config }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.listen)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Sends a signal by its name: `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status().expect("kill");
        assert!(sent.success());
    }

    /// Everything it wrote so far, to either stream.
    pub(crate) fn output(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    /// The access log's lines so far, from a log in JSON.
    pub(crate) fn access_log(&self) -> Vec<Value> {
        let lines = lock(&self.lines);
        let values = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}")));
        values.filter(|value| value["target"] == "streamgauge::access").collect()
    }

    /// How it ended, once it has, and everything it wrote.
    pub(crate) fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let status = eventually("the process ends", || self.child.0.try_wait().expect("waited for"));
        for reader in self.readers.drain(..) {
            reader.join().expect("read to the end");
        }
        let lines = lock(&self.lines).clone();
        (status, lines)
    }

    /// Its resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("its descriptors").count()
    }
}

fn collect(from: impl Read + Send + 'static, lines: Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            lock(&lines).push(line.expect("UTF-8"));
        }
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address in `key="http://ADDRESS/…"`, or its like in JSON.
fn address(line: &str, key: &str) -> SocketAddr {
    let value = line.split_once(key).and_then(|(_, rest)| rest.split_once("http://")).expect("a URL").1;
    value.split('/').next().and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("no address: {line}"))
}
