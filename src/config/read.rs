//! The sections of the file, each read into its type, and what must hold between them.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::section::{Node, Source};
use super::{Config, ConfigError, Log, LogFormat, Records, Route, Server, Slo, client_side, read_backend, read_route};

/// Looks an environment variable up.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(super) const TOP_KEYS: &[&str] = &["server", "log", "records", "backend", "route", "slo"];
pub(super) const SERVER_KEYS: &[&str] = &[
    "listen",
    "unix",
    "admin",
    "threads",
    "tls",
    "drain_timeout_ms",
    "max_body_bytes",
    client_side::LIMIT_KEYS[0],
    client_side::LIMIT_KEYS[1],
    client_side::LIMIT_KEYS[2],
    client_side::LIMIT_KEYS[3],
    client_side::LIMIT_KEYS[4],
    "cors",
    "hosts",
    "backend_header",
];
pub(super) const LOG_KEYS: &[&str] = &["format"];
pub(super) const RECORDS_KEYS: &[&str] = &["enabled", "path", "keep_days", "max_mb"];
pub(super) const SLO_KEYS: &[&str] = &["name", "ttft_ms", "tpot_ms"];

/// A whole file.
pub(super) fn config(name: &str, text: &str, env: Env<'_>) -> Result<Config, ConfigError> {
    let source = Source { name, text };
    let document = source.parse()?;
    let root = Node::root(source, &document);
    root.only(TOP_KEYS)?;

    let mut config = Config {
        server: root.get("server").map_or_else(|| Ok(Server::default()), |node| server(&node))?,
        log: root.get("log").map_or_else(|| Ok(Log::default()), |node| log(&node))?,
        records: records(root.get("records").as_ref(), env)?,
        backends: Vec::new(),
        routes: Vec::new(),
        slos: root.get("slo").map_or_else(|| Ok(Vec::new()), |node| slos(&node))?,
        warnings: Vec::new(),
    };
    let (backend_node, route_node) = (root.get("backend"), root.get("route"));
    if let Some(node) = &backend_node {
        config.backends = read_backend::backends(node, env, &mut config.warnings)?;
    }
    match (route_node, backend_node) {
        (Some(node), _) => config.routes = read_route::routes(&node, &config.backends, &mut config.warnings)?,
        (None, Some(node)) => return Err(node.error(read_route::no_route(&config.backends))),
        (None, None) => {
            config.backends.push(read_backend::taotoken(env, &mut config.warnings)?);
            config.routes.push(Route::to("*", 0));
        }
    }
    Ok(config)
}

/// The line on which a key is given, from 1. `None` where it is not.
pub(super) fn line_of(source: Source<'_>, key: &[&str]) -> Option<usize> {
    let document = source.parse().ok()?;
    let node = key.iter().try_fold(Node::root(source, &document), |node, name| node.get(name))?;
    Some(node.line())
}

fn server(node: &Node<'_>) -> Result<Server, ConfigError> {
    const ADDRESS: &str = "an IP address and a port, such as \"127.0.0.1:8484\" or \"[::1]:8484\"";
    const ORIGINS: &str = "an array of origins, such as [\"https://chat.example.org\"]";
    const HOSTS: &str = "an array of host names, such as [\"gauge.example.org\"]";
    node.only(SERVER_KEYS)?;
    let mut server = Server { limits: client_side::limits(node)?, ..Server::default() };
    server.tls = node.get("tls").map(|node| client_side::tls(&node)).transpose()?;
    server.unix = node.get("unix").map(|node| Ok(node.text()?.into())).transpose()?;
    if let Some(node) = node.get("listen") {
        server.listen = node.parsed(ADDRESS)?;
    }
    if let Some(node) = node.get("admin") {
        server.admin = node.parsed(ADDRESS)?;
    }
    if overlap(server.listen, server.admin) {
        let node = node.get("admin").or_else(|| node.get("listen")).unwrap_or_else(|| node.clone());
        return Err(node.error("listen and admin are the same address; give each its own port"));
    }
    if let Some(node) = node.get("threads") {
        server.threads = node.size(1..=1024)?;
    }
    if let Some(node) = node.get("drain_timeout_ms") {
        server.drain_timeout = node.millis(0)?;
    }
    if let Some(node) = node.get("max_body_bytes") {
        server.max_body_bytes = node.size(1..=1 << 40)?;
    }
    if let Some(node) = node.get("cors") {
        server.cors = node.elements(ORIGINS)?.iter().map(origin).collect::<Result<_, _>>()?;
    }
    if let Some(node) = node.get("backend_header") {
        server.backend_header = node.switch()?;
    }
    if let Some(node) = node.get("hosts") {
        server.hosts = node.elements(HOSTS)?.iter().map(host).collect::<Result<_, _>>()?;
    }
    Ok(server)
}

/// Whether two listeners would contend for one port. Port 0 never does: the system picks a free one.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() != 0 && a.port() == b.port() && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

/// An origin as browsers send it (RFC 6454, section 6.2): scheme, host, and the port where it is not the scheme's own.
///
/// No wildcard: any web page could then spend the keys configured here.
fn origin(node: &Node<'_>) -> Result<String, ConfigError> {
    let origin = node.text()?.to_ascii_lowercase();
    let bare = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ']);
    match origin.split_once("://") {
        Some((scheme, host)) if !scheme.is_empty() && bare(host) => Ok(origin),
        _ => {
            Err(node.error("must be an origin such as \"https://chat.example.org\", without a path; list each origin"))
        }
    }
}

fn host(node: &Node<'_>) -> Result<String, ConfigError> {
    let host = node.text()?.to_ascii_lowercase();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.bytes().all(good) || host.parse::<std::net::Ipv6Addr>().is_ok() {
        Ok(host)
    } else {
        Err(node.error("must be a host name such as \"gauge.example.org\", without scheme, port or path"))
    }
}

fn log(node: &Node<'_>) -> Result<Log, ConfigError> {
    node.only(LOG_KEYS)?;
    let format = node.get("format").map(|node| node.word(&[("text", LogFormat::Text), ("json", LogFormat::Json)]));
    Ok(Log { format: format.transpose()?.unwrap_or_default() })
}

fn records(node: Option<&Node<'_>>, env: Env<'_>) -> Result<Records, ConfigError> {
    let mut records = Records { enabled: true, path: default_records_path(env), keep_days: None, max_mb: None };
    let Some(node) = node else { return Ok(records) };
    node.only(RECORDS_KEYS)?;
    if let Some(node) = node.get("enabled") {
        records.enabled = node.switch()?;
    }
    if let Some(node) = node.get("path") {
        records.path = node.text()?.into();
    }
    records.keep_days = node.get("keep_days").map(|node| node.count(1..=100_000)).transpose()?;
    records.max_mb = node.get("max_mb").map(|node| node.count(1..=1 << 30)).transpose()?;
    Ok(records)
}

/// The user's data directory (XDG Base Directory Specification, which ignores relative paths), else where we stand.
fn default_records_path(env: Env<'_>) -> PathBuf {
    let absolute = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map_or_else(|| "streamgauge.db".into(), |data| data.join("streamgauge/records.db"))
}

fn slos(node: &Node<'_>) -> Result<Vec<Slo>, ConfigError> {
    let mut slos: Vec<Slo> = Vec::new();
    for node in node.elements("an array of tables, each headed [[slo]]")? {
        node.only(SLO_KEYS)?;
        let name = node.require("name", "\"interactive\"")?;
        let slo = Slo {
            name: name.text()?.to_owned(),
            ttft: node.get("ttft_ms").map(|node| node.millis(1)).transpose()?,
            tpot: node.get("tpot_ms").map(|node| node.millis(1)).transpose()?,
        };
        if slo.ttft.is_none() && slo.tpot.is_none() {
            return Err(node.error("sets no target; add ttft_ms or tpot_ms"));
        }
        if slos.iter().any(|before| before.name == slo.name) {
            return Err(name.error(format!("\"{}\" is the name of a target above; choose another", slo.name)));
        }
        slos.push(slo);
    }
    Ok(slos)
}
