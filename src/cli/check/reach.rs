//! The way to an upstream: the proxy the environment puts before it, name, TCP and TLS.

use std::net::SocketAddr;

use super::advice::unanswered;
use super::report::Finding;
use super::words::shown;
use crate::backend::upstream::{Probe, SetupError};
use crate::config::OpenAi;

/// How many addresses of a name are shown.
const MOST_ADDRESSES: usize = 4;

/// Which of the proxy variables applies, and why. `env` looks a variable up; `None` means unset.
pub(super) fn proxy(config: &OpenAi, env: &dyn Fn(&str) -> Option<String>) -> Finding {
    let base = &config.base_url;
    let first_set = |names: &[&'static str]| {
        names.iter().copied().find(|name| env(name).is_some_and(|value| !value.trim().is_empty()))
    };
    let (scheme, own, other) = if base.tls {
        ("https", ["https_proxy", "HTTPS_PROXY"], ["http_proxy", "HTTP_PROXY"])
    } else {
        ("http", ["http_proxy", "HTTP_PROXY"], ["https_proxy", "HTTPS_PROXY"])
    };
    let exempting = first_set(&["no_proxy", "NO_PROXY"]);
    if let Some(proxy) = &config.proxy {
        let variable = proxy.variable;
        let what = if own.contains(&variable) {
            format!("serves {scheme} upstreams")
        } else {
            "serves all upstreams".to_owned()
        };
        let listed = exempting.map(|name| format!(", and {name} does not list {}", base.host)).unwrap_or_default();
        return Finding::ok(format!("{proxy} from {variable}, which {what}{listed}"));
    }
    let applicable = first_set(&own).or_else(|| first_set(&["all_proxy", "ALL_PROXY"]));
    Finding::ok(match (applicable, exempting, first_set(&other)) {
        (Some(variable), Some(exempting), _) => {
            format!("none: {exempting} lists {}, so {variable} does not apply", base.host)
        }
        (None, _, Some(variable)) => format!("none: {variable} does not serve {scheme} upstreams"),
        _ => "none: no variable names one".to_owned(),
    })
}

/// The way itself, walked step by step.
pub(super) struct Way<'a> {
    probe: Probe,
    config: &'a OpenAi,
}

impl<'a> Way<'a> {
    pub(super) fn new(config: &'a OpenAi) -> Result<Self, SetupError> {
        Ok(Self { probe: Probe::new(config)?, config })
    }

    /// Looks up the name of the first hop: the proxy, or the upstream itself.
    pub(super) async fn dns(&mut self) -> Finding {
        let (host, whose) = match &self.config.proxy {
            Some(proxy) => (&proxy.host, "the proxy's name "),
            None => (&self.config.base_url.host, ""),
        };
        match self.probe.resolve().await {
            Ok(None) if self.config.proxy.is_some() => {
                let host = &self.config.base_url.host;
                Finding::skipped(format!("the proxy is given by its address, and looks {host} up itself"))
            }
            Ok(None) => Finding::skipped(format!("{host} is an address")),
            Ok(Some(found)) => {
                let some: Vec<String> = found.iter().take(MOST_ADDRESSES).map(|found| found.ip().to_string()).collect();
                let more = if found.len() > some.len() { ", …" } else { "" };
                Finding::ok(format!("{whose}{host}: {}{more}", some.join(", ")))
            }
            Err(cause) => unanswered(&cause, self.config),
        }
    }

    /// Connects to the first hop; through a proxy to an `https` upstream, asks it for a tunnel.
    pub(super) async fn tcp(&mut self) -> Finding {
        match self.probe.connect().await {
            Ok(address) => Finding::ok(self.connected(address)),
            Err(cause) => unanswered(&cause, self.config),
        }
    }

    fn connected(&self, address: SocketAddr) -> String {
        let base = &self.config.base_url;
        match &self.config.proxy {
            None => format!("connected to {address}"),
            Some(_) if base.tls => {
                format!("connected to the proxy at {address}, which opened a tunnel to {}:{}", base.host, base.port)
            }
            Some(_) => format!("connected to the proxy at {address}"),
        }
    }

    /// Shakes hands.
    pub(super) async fn tls(&mut self) -> Finding {
        match self.probe.tls().await {
            Ok(None) => Finding::skipped("base_url is http: nothing is encrypted"),
            Ok(Some(seen)) => {
                let alpn = seen.alpn.map(|name| format!(", {}", shown(&name, None))).unwrap_or_default();
                Finding::ok(format!("{}{alpn}; the certificate is {}'s", seen.version, self.config.base_url.host))
            }
            Err(cause) => unanswered(&cause, self.config),
        }
    }
}
