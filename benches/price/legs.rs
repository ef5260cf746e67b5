//! The three ways to the upstream: straight, through streamgauge, through nginx; the two proxies as processes of their own.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::cpu;

/// How long a proxy may take until it answers.
const START: Duration = Duration::from_secs(15);

/// The process behind a leg, stopped when dropped.
pub(crate) struct Proxy {
    child: Child,
    /// nginx's workers outlive a killed master: it is asked to stop instead.
    stop: Option<Command>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let asked = self.stop.as_mut().is_some_and(|stop| stop.status().is_ok_and(|status| status.success()));
        if !asked {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// One way to the upstream.
pub(crate) struct Leg {
    /// `direct`, `nginx` or `streamgauge`.
    pub(crate) name: &'static str,
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    /// streamgauge's admin listener.
    pub(crate) admin: Option<SocketAddr>,
    proxy: Option<Proxy>,
}

impl Leg {
    /// The upstream itself.
    pub(crate) fn direct(upstream: SocketAddr) -> Self {
        Self { name: "direct", address: upstream, admin: None, proxy: None }
    }

    /// Debian's nginx with one worker, unbuffered, its files under `dir`.
    pub(crate) fn nginx(upstream: SocketAddr, dir: &Path) -> Result<Self, String> {
        let address = free_address()?;
        let conf = dir.join("nginx.conf");
        let dir = dir.display();
        let mut text = format!(
            "worker_processes 1;\ndaemon off;\npid {dir}/nginx.pid;\nerror_log {dir}/nginx-error.log warn;\n\
             events {{ worker_connections 4096; }}\nhttp {{\n  access_log {dir}/nginx-access.log;\n  tcp_nodelay on;\n\
             \x20 keepalive_timeout 600s;\n  keepalive_requests 100000000;\n"
        );
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            let _ = writeln!(text, "  {kind}_temp_path {dir}/{kind};");
        }
        let _ = write!(
            text,
            "  upstream up {{ server {upstream}; keepalive 256; keepalive_requests 100000000; keepalive_timeout 600s; }}\n\
             \x20 server {{\n    listen {address};\n    location / {{\n      proxy_pass http://up;\n      proxy_http_version 1.1;\n\
             \x20     proxy_set_header Connection \"\";\n      proxy_buffering off;\n      proxy_read_timeout 600s;\n    }}\n  }}\n}}\n"
        );
        write_file(&conf, &text)?;
        let nginx = nginx_binary();
        let child = Command::new(&nginx).arg("-c").arg(&conf).stdin(Stdio::null()).spawn().map_err(|e| {
            format!("{}: {e}; install Debian's package nginx-light, or leave this leg out", nginx.display())
        })?;
        let mut stop = Command::new(&nginx);
        stop.arg("-c").arg(&conf).args(["-s", "stop"]).stderr(Stdio::null());
        let leg = Self { name: "nginx", address, admin: None, proxy: Some(Proxy { child, stop: Some(stop) }) };
        leg.wait_until_ready()
    }

    /// `streamgauge serve` with one thread and metrics on, its files under `dir`.
    pub(crate) fn streamgauge(upstream: SocketAddr, dir: &Path) -> Result<Self, String> {
        let (address, admin) = (free_address()?, free_address()?);
        let config = dir.join("streamgauge.toml");
        let text = format!(
            "[server]\nlisten = \"{address}\"\nadmin = \"{admin}\"\nthreads = 1\n\n[records]\nenabled = false\n\n\
             [backend.sim]\nkind = \"openai\"\nbase_url = \"http://{upstream}\"\n\n[[route]]\nmodel = \"*\"\nbackend = \"sim\"\n"
        );
        write_file(&config, &text)?;
        let path = dir.join("streamgauge-access.log");
        let log =
            || File::options().create(true).append(true).open(&path).map_err(|e| format!("{}: {e}", path.display()));
        let child = Command::new(env!("CARGO_BIN_EXE_streamgauge"))
            .args(["serve", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?)
            .spawn()
            .map_err(|e| format!("streamgauge: {e}"))?;
        let proxy = Some(Proxy { child, stop: None });
        let leg = Self { name: "streamgauge", address, admin: Some(admin), proxy }.wait_until_ready().map_err(|e| {
            let said = fs::read_to_string(&path).unwrap_or_default();
            format!("{e}; it said: {}", said.lines().last().unwrap_or("nothing"))
        })?;
        leg.admin("/readyz").map(|_| leg)
    }

    /// The same leg under another name.
    pub(crate) fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// The process behind the leg. `None` for the direct leg.
    pub(crate) fn process(&self) -> Option<u32> {
        self.proxy.as_ref().map(|proxy| proxy.child.id())
    }

    /// CPU time of the leg's processes so far. `None` for the direct leg.
    pub(crate) fn cpu(&self) -> Option<cpu::Reading> {
        self.process().map(cpu::read_tree)
    }

    /// The body that `path` has on streamgauge's admin listener.
    pub(crate) fn admin(&self, path: &str) -> Result<String, String> {
        let admin = self.admin.ok_or_else(|| format!("{} has no admin listener", self.name))?;
        let answer = || -> std::io::Result<String> {
            let mut socket = TcpStream::connect(admin)?;
            socket.set_read_timeout(Some(START))?;
            socket
                .write_all(format!("GET {path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n").as_bytes())?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = answer().map_err(|e| format!("streamgauge's admin listener: GET {path}: {e}"))?;
        if !answer.starts_with("HTTP/1.1 200") {
            return Err(format!("GET {path}: {}", answer.lines().next().unwrap_or("no answer")));
        }
        Ok(answer)
    }

    fn wait_until_ready(mut self) -> Result<Self, String> {
        let start = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if let Some(proxy) = &mut self.proxy
                && let Ok(Some(status)) = proxy.child.try_wait()
            {
                return Err(format!("{} ended before it was ready ({status})", self.name));
            }
            if start.elapsed() > START {
                return Err(format!("{} does not listen on {} after {START:?}", self.name, self.address));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(self)
    }
}

/// Debian keeps nginx in a folder that is not on every user's path.
fn nginx_binary() -> PathBuf {
    let debian = Path::new("/usr/sbin/nginx");
    if debian.exists() { debian.to_owned() } else { PathBuf::from("nginx") }
}

fn free_address() -> Result<SocketAddr, String> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map_err(|e| format!("no free loopback port: {e}"))
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
