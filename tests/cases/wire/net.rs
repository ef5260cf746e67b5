//! A proxy between two sockets, and a client of raw bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use streamgauge::backend::sim::{Scripts, Sim, SimConfig, SimHandle};
use streamgauge::cli::running::Running;
use streamgauge::config::{Backend, BackendKind, BaseUrl, Config, OpenAi, Route};
use streamgauge::measure::{Exchange, Listener};

/// Long enough for any machine; only a broken proxy makes a test wait for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy in front of one upstream, with one thread so that all its streams share it.
pub(crate) struct Proxy {
    running: Running,
    seen: Arc<Mutex<Vec<Exchange>>>,
}

impl Proxy {
    pub(crate) fn before(upstream: SocketAddr) -> Self {
        Self::with(&[("up", "*", upstream)], |_| {})
    }

    /// Backends, each with the glob of the models it takes.
    pub(crate) fn with(upstreams: &[(&str, &str, SocketAddr)], adjust: impl Fn(&mut OpenAi)) -> Self {
        let mut config = Config::default_for_env(|_| None).expect("the built-in configuration");
        config.server.listen = "127.0.0.1:0".parse().expect("an address");
        config.server.admin = config.server.listen;
        config.server.threads = 1;
        config.server.drain_timeout = Duration::from_secs(1);
        config.backends.clear();
        config.routes.clear();
        for (index, (name, model, address)) in upstreams.iter().enumerate() {
            let base =
                BaseUrl { tls: false, host: address.ip().to_string(), port: address.port(), path: String::new() };
            let mut openai = OpenAi::new(base);
            adjust(&mut openai);
            config.backends.push(Backend { name: (*name).into(), kind: BackendKind::OpenAi(openai) });
            config.routes.push(Route::to(*model, index));
        }
        let seen: Arc<Mutex<Vec<Exchange>>> = Arc::default();
        let kept = seen.clone();
        let listener: Listener = Box::new(move |exchange| kept.lock().unwrap().push(exchange.clone()));
        Self { running: Running::start(&config, vec![listener]).expect("a proxy"), seen }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.running.listen())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.listen()
    }

    /// The next `count` finished exchanges, in the order they finished.
    pub(crate) fn exchanges(&self, count: usize) -> Vec<Exchange> {
        eventually("the exchanges are over", || {
            let mut seen = self.seen.lock().unwrap();
            (seen.len() >= count).then(|| seen.drain(..count).collect())
        })
    }

    /// The one exchange that finishes next.
    pub(crate) fn exchange(&self) -> Exchange {
        self.exchanges(1).remove(0)
    }

    /// The sum of all samples of this metric whose labels include `label`.
    pub(crate) fn metric(&self, name: &str, label: &str) -> u64 {
        let text = self.running.meter().render();
        let lines = text.lines().filter(|line| line.split('{').next() == Some(name) && line.contains(label));
        lines.map(|line| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).expect("a whole number")).sum()
    }

    /// TTFTs of one vantage, and ITLs of either timing.
    pub(crate) fn counted(&self) -> (u64, u64) {
        (
            self.metric("streamgauge_time_to_first_token_seconds_count", r#"vantage="upstream""#),
            self.metric("streamgauge_inter_token_latency_seconds_count", ""),
        )
    }
}

/// Polls until there is a value.
pub(crate) fn eventually<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A simulated upstream with these scripts.
pub(crate) fn sim(scripts: impl Into<Scripts>) -> SimHandle {
    Sim::spawn(SimConfig { scripts: scripts.into(), keep_requests: true, ..SimConfig::default() })
        .expect("a simulation")
}

/// A chat request's body.
pub(crate) fn asking(model: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"how high is the river"}}]}}"#
    )
}

/// A chat request.
pub(crate) fn chat(headers: &str, body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: proxy\r\ncontent-type: application/json\r\n{headers}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// One connection to the proxy.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    unread: Vec<u8>,
    chunked: bool,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// As its framing says.
    Clean,
    /// Before that, by FIN or RST.
    Abrupt,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) ended: Ended,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("connected"))
    }

    pub(crate) fn over(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        socket.set_nodelay(true).expect("no delay");
        Self { socket, unread: Vec::new(), chunked: false }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("written");
    }

    /// Asks for a stream and reads the reply to its end.
    pub(crate) fn stream(&mut self, model: &str) -> Reply {
        self.send(chat("", &asking(model, true)));
        self.reply()
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let head = self.head();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut reply = Reply { status, head, body: Vec::new(), ended: Ended::Clean };
        let length = reply.header("content-length").map(|length| length.parse::<usize>().expect("a length"));
        if let Some(length) = length {
            self.exactly(length, &mut reply.body).expect("the whole body");
        } else {
            (reply.body, reply.ended) = self.rest();
        }
        reply
    }

    /// Reads a head. What follows is decoded as it says.
    pub(crate) fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                let head = String::from_utf8(head).expect("text");
                self.chunked = head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked\r\n");
                return head;
            }
            self.more().expect("a head");
        }
    }

    /// Reads a chunked body until it holds `mark`, which ends it here.
    pub(crate) fn body_until(&mut self, mark: &str) -> Vec<u8> {
        assert!(self.chunked, "a stream is chunked");
        let mut body = Vec::new();
        while !body.windows(mark.len()).any(|window| window == mark.as_bytes()) {
            assert!(self.chunk(&mut body).expect("the mark, before the end"), "the mark, before the end");
        }
        body
    }

    /// Reads one chunk of a chunked body.
    pub(crate) fn piece(&mut self, into: &mut Vec<u8>) {
        self.chunk(into).expect("a chunk");
    }

    /// The rest of a chunked body.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, Ended) {
        let mut body = Vec::new();
        let ended = match self.chunks(&mut body) {
            Ok(()) => Ended::Clean,
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                Ended::Abrupt
            }
            Err(error) => panic!("the body broke: {error}"),
        };
        (body, ended)
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        assert!(self.chunked, "a body without a length is chunked");
        while self.chunk(body)? {}
        Ok(())
    }

    /// Reads one chunk, as far as it comes. False for the last.
    fn chunk(&mut self, body: &mut Vec<u8>) -> io::Result<bool> {
        let line = loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                break self.unread.drain(..=end).collect::<Vec<u8>>();
            }
            self.more()?;
        };
        let size = std::str::from_utf8(&line).expect("text").trim();
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        self.exactly(size, body)?;
        self.exactly(2, &mut Vec::new())?;
        Ok(size > 0)
    }

    fn exactly(&mut self, length: usize, into: &mut Vec<u8>) -> io::Result<()> {
        let mut left = length;
        loop {
            let take = self.unread.len().min(left);
            into.extend(self.unread.drain(..take));
            left -= take;
            if left == 0 {
                return Ok(());
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.socket.read(&mut buffer)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            n => {
                self.unread.extend_from_slice(&buffer[..n]);
                Ok(())
            }
        }
    }
}

impl Reply {
    /// The value of the first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}
