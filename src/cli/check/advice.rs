//! From what was seen to a sentence that says what to do. Pure: no I/O, no clock.

use std::io;

use rustls::{CertificateError, InvalidMessage};

use super::ask::Heard;
use super::key::Key;
use super::report::Finding;
use super::words::{is_web_page, shown, words};
use crate::backend::upstream::{Broken, Cause, ProxyFault};
use crate::config::{BaseUrl, OpenAi, Proxy};

/// What a sentence may need to know of where a request went.
pub(super) struct Place<'a> {
    pub(super) config: &'a OpenAi,
    /// Where the request went: the base URL, and `path` below it.
    pub(super) url: String,
    /// The operation's own path: `/chat/completions`.
    pub(super) path: &'static str,
    pub(super) key: &'a Key<'a>,
}

/// Why no reply came, and what to do.
pub(super) fn unanswered(cause: &Cause, config: &OpenAi) -> Finding {
    Finding::failed(cause.to_string(), of_cause(cause, config))
}

fn of_cause(cause: &Cause, config: &OpenAi) -> String {
    let base = &config.base_url;
    let BaseUrl { host, port, .. } = base;
    match cause {
        Cause::Dns(_) => {
            format!("check how {host} is spelt in base_url, and that this machine's name service works")
        }
        Cause::Connect(error) if error.tried.iter().all(|(_, error)| is_refused(error)) => {
            format!("nothing listens at {host} on port {port}: start it, or correct base_url")
        }
        Cause::Connect(_) => format!("check that {host} is reachable from here, and its port in base_url"),
        Cause::Proxy { proxy, fault } => of_proxy(proxy, fault, base),
        Cause::Tls(error) => of_tls(error, base),
        Cause::ConnectTimeout { .. } => {
            "check the host and port in base_url and any firewall between; if it is just slow, raise connect_timeout_ms"
                .to_owned()
        }
        Cause::HeadTimeout(_) => "if it needs this long, raise head_timeout_ms".to_owned(),
        Cause::NotHttp2(_) => "set http2 = false, or ask its operator for HTTP/2".to_owned(),
        Cause::StreamReset(_) | Cause::Unprocessed(_) => "try again; if it stays so, set http2 = false".to_owned(),
        Cause::NoHead(_) | Cause::Closed(_) | Cause::Protocol(_) if !base.tls => {
            format!("if this port speaks TLS, write {}; else check that it is an HTTP API", over_tls(base))
        }
        Cause::Closed(_) => "try again; if it stays so, check that base_url points at an HTTP API".to_owned(),
        Cause::NoHead(_) | Cause::Protocol(_) => "check that base_url points at an HTTP API".to_owned(),
        Cause::RequestBody(_) => "try again".to_owned(),
    }
}

fn over_tls(base: &BaseUrl) -> String {
    format!("base_url = \"{}\"", BaseUrl { tls: true, ..base.clone() })
}

fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// What to do about a proxy.
fn of_proxy(proxy: &Proxy, fault: &ProxyFault, base: &BaseUrl) -> String {
    let (variable, host) = (proxy.variable, &base.host);
    match fault {
        ProxyFault::Dns(_) => format!("correct {variable}, or add {host} to NO_PROXY to go without"),
        ProxyFault::Connect(_) | ProxyFault::Closed(_) | ProxyFault::Timeout { .. } => {
            format!("start the proxy, correct or unset {variable}, or add {host} to NO_PROXY to go without")
        }
        ProxyFault::Refused { status: 401 | 407, .. } if proxy.authorization.is_some() => {
            format!("it does not take the name and password in {variable}: correct them")
        }
        ProxyFault::Refused { status: 407, .. } => {
            format!("it wants a name and a password: write {variable}=http://user:password@host:port")
        }
        ProxyFault::Refused { status: 502..=504, .. } => {
            format!(
                "it did not get to {host}: check how that is spelt in base_url, or add it to NO_PROXY to go without"
            )
        }
        ProxyFault::Refused { .. } => {
            format!("it does not let this through: ask who runs it, or add {host} to NO_PROXY to go without")
        }
        ProxyFault::Answer(_) => format!("check that {variable} names an HTTP proxy"),
    }
}

/// What to do about a handshake that failed.
fn of_tls(error: &io::Error, base: &BaseUrl) -> String {
    let host = &base.host;
    let seen = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match seen {
        Some(rustls::Error::InvalidCertificate(wrong)) => match wrong {
            CertificateError::NotValidForName => {
                format!("the certificate is for another host than {host}: write the host it names in base_url")
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names: Vec<&str> = presented.iter().take(3).map(|name| bare_name(name)).collect();
                let names = shown(&names.join(", "), None);
                format!("the certificate is for {names}, not for {host}: write a host it names in base_url")
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate has expired: it must be renewed there; if it is valid, set this machine's clock"
                    .to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate is not valid yet: set this machine's clock".to_owned()
            }
            // The latter where an issuer of the same name is trusted, with another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "the certificate's issuer is not trusted here: for a CA of your own set ca_file to its certificate (PEM)"
                    .to_owned()
            }
            CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                "a CA's certificate is used there as the server's own: give the server one with basicConstraints CA:FALSE, \
                 signed by itself or by that CA"
                    .to_owned()
            }
            _ => "the certificate is no good: it must be replaced there".to_owned(),
        },
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            let plain = BaseUrl { tls: false, ..base.clone() };
            format!("this port speaks no TLS: write base_url = \"{plain}\", or give its TLS port")
        }
        _ => format!("check that {host} speaks TLS on port {}, version 1.2 or 1.3", base.port),
    }
}

/// `DnsName("localhost")` → `localhost`.
fn bare_name(name: &str) -> &str {
    name.split('"').nth(1).unwrap_or(name)
}

/// How a body broke off, and what to do.
pub(super) fn broken(broken: &Broken) -> Finding {
    let advice = match broken {
        Broken::Reset(_) | Broken::Truncated => {
            "try again; if it stays so, something between may be cutting replies off"
        }
        Broken::Idle(_) => "if it may be silent for so long, raise idle_timeout_ms",
    };
    Finding::failed(broken.to_string(), advice)
}

/// What to say of a reply that did not come to its end.
pub(super) fn endless(heard: &Heard) -> Option<Finding> {
    heard.endless.then(|| {
        let detail = format!("it was still answering after {} bytes, where one token was asked for", heard.body.len());
        Finding::failed(detail, "ask who runs it, or what stands between; clients would wait as long")
    })
}

/// What a reply says when it is none that can be read on: an error status, a redirect, a web page, nothing.
/// `None` where it may be what was asked for.
pub(super) fn refusal(heard: &Heard, place: &Place<'_>) -> Option<Finding> {
    let status = heard.status;
    if status.is_redirection() {
        return Some(redirect(heard, place));
    }
    if !status.is_success() {
        return Some(Finding::failed(answered(heard, place), of_status(heard, place)));
    }
    if let Some(ended) = heard.broken.as_ref() {
        return Some(broken(ended));
    }
    if let Some(endless) = endless(heard) {
        return Some(endless);
    }
    if heard.unreadable {
        let coding = shown(heard.coding.as_deref().unwrap_or(""), None);
        return Some(Finding::failed(
            format!("its answer is compressed ({coding}), which nobody asked for, and cannot be decoded"),
            "switch compression off for this path, or in what stands between",
        ));
    }
    if heard.body.trim_ascii().is_empty() {
        return Some(Finding::failed(
            format!("{} answered {status} with an empty body", place.url),
            "check that base_url names the API; something between may swallow replies",
        ));
    }
    if is_web_page(&heard.body) {
        return Some(Finding::failed(
            format!("{} answered with a web page, not with JSON", place.url),
            at_path(place, "base_url names a web site, not its API"),
        ));
    }
    None
}

/// Status and words.
pub(super) fn answered(heard: &Heard, place: &Place<'_>) -> String {
    let said = match words(&heard.body, place.key.secret) {
        Some(words) => format!(": {words}"),
        None if is_web_page(&heard.body) => " with a web page".to_owned(),
        None => String::new(),
    };
    format!("{} answered {}{said}", place.url, heard.status)
}

fn of_status(heard: &Heard, place: &Place<'_>) -> String {
    match heard.status.as_u16() {
        403 | 429 | 500.. if is_web_page(&heard.body) => {
            "a web page answers in the API's place: see what stands before it, a firewall, a gateway or a login"
                .to_owned()
        }
        400 if !place.config.base_url.tls && wants_tls(&heard.body) => {
            format!("this port speaks TLS: write {}", over_tls(&place.config.base_url))
        }
        401 => place.key.refused(),
        402 => "the account has no credit: top it up, or use another key".to_owned(),
        403 => "the key may not do this: check its permissions, its quota, and from where it may be used".to_owned(),
        404 => at_path(place, "nothing is there"),
        405 => at_path(place, "something else is there"),
        407 => "a proxy between wants credentials: check HTTPS_PROXY and its like".to_owned(),
        429 => "too many requests, or a quota is used up: wait, or use another key".to_owned(),
        500.. => "the upstream is at fault: try again later; if it stays so, tell its operator these words".to_owned(),
        _ => "the upstream does not take the smallest request there is: its words say why".to_owned(),
    }
}

/// Whether a server complains of plain HTTP on its TLS port, as nginx and those written in Go do.
fn wants_tls(body: &[u8]) -> bool {
    let says = |words: &str| memchr::memmem::find(body, words.as_bytes()).is_some();
    says("plain HTTP request was sent to HTTPS port") || says("HTTP request to an HTTPS server")
}

/// What to do where a path is wrong.
pub(super) fn at_path(place: &Place<'_>, what: &str) -> String {
    match without_repeats(&place.config.base_url) {
        Some((segment, base)) => format!("base_url repeats \"{segment}\": write base_url = \"{base}\""),
        None => format!(
            "{what}: correct the path of base_url, which is what stands before {} in the service's documentation",
            place.path
        ),
    }
}

/// A base URL whose path names `api` or a version twice, put right; and the segment.
pub(super) fn without_repeats(base: &BaseUrl) -> Option<(String, BaseUrl)> {
    let prefix = |segment: &str| {
        let version = segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        version || segment == "api"
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut repeated = None;
    for segment in base.path.split('/').filter(|segment| !segment.is_empty()) {
        if prefix(segment) && kept.contains(&segment) {
            repeated = Some(segment.to_owned());
        } else {
            kept.push(segment);
        }
    }
    let path: String = kept.iter().flat_map(|segment| ["/", segment]).collect();
    repeated.map(|segment| (segment, BaseUrl { path, ..base.clone() }))
}

fn redirect(heard: &Heard, place: &Place<'_>) -> Finding {
    let status = heard.status;
    let Some(location) = &heard.location else {
        return Finding::failed(
            format!("{} answered {status} without saying where to", place.url),
            at_path(place, "nothing is there"),
        );
    };
    let target = without_secrets(location);
    let root = BaseUrl { path: String::new(), ..place.config.base_url.clone() };
    let target = if target.starts_with('/') && !target.starts_with("//") { format!("{root}{target}") } else { target };
    let advice = match target.trim_end_matches('/').strip_suffix(place.path).map(str::parse::<BaseUrl>) {
        Some(Ok(base)) => {
            format!("redirects are not followed, so that no key goes astray: write base_url = \"{base}\"")
        }
        _ => "redirects are not followed, so that no key goes astray: write in base_url where the API itself is"
            .to_owned(),
    };
    Finding::failed(format!("{} redirects ({status}) to {}", place.url, shown(&target, place.key.secret)), advice)
}

/// A URL without its query and credentials, which are nobody's business.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or("");
    let Some((scheme, rest)) = url.split_once("//") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}//{host}{path}")
}

/// The models of a list that are named nearly so, the nearest first; at most three.
pub(super) fn near<'a>(model: &str, listed: &'a [String]) -> Vec<&'a str> {
    /// Below this similarity (Jaro-Winkler, 0 to 1) two names have nothing to do with each other.
    const LEAST: f64 = 0.8;
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let wanted = last(model);
    let mut scored: Vec<_> = listed.iter().map(|name| (strsim::jaro_winkler(&wanted, &last(name)), &**name)).collect();
    scored.retain(|(score, name)| *score >= LEAST && *name != model);
    scored.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.cmp(other)));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(url: &str) -> BaseUrl {
        url.parse().unwrap()
    }

    #[test]
    fn a_repeated_segment_is_found_and_taken_out() {
        for (wrong, segment, right) in [
            ("https://a/v1/v1", "v1", "https://a/v1"),
            ("https://a/api/v1/v1", "v1", "https://a/api/v1"),
            ("https://a/api/api/v1", "api", "https://a/api/v1"),
            ("https://a/api/v1/api", "api", "https://a/api/v1"),
            ("http://a:8000/openai/v1beta/v1beta", "v1beta", "http://a:8000/openai/v1beta"),
        ] {
            let (found, put_right) = without_repeats(&base(wrong)).expect(wrong);
            assert_eq!((&*found, &*put_right.to_string()), (segment, right));
        }
        for fine in
            ["https://a", "https://a/api/v1", "https://a/client/v4/x/ai/v1", "https://a/x/x/v1", "https://a/video/v"]
        {
            assert_eq!(without_repeats(&base(fine)), None, "{fine}");
        }
    }

    #[test]
    fn near_names_are_near_and_few() {
        let listed: Vec<String> =
            ["gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4-turbo", "meta-llama/Llama-2-7b-chat-hf", "claude-3-5-sonnet"]
                .map(str::to_owned)
                .into();
        assert_eq!(near("gpt4o", &listed)[0], "gpt-4o");
        assert_eq!(near("gpt-4", &listed).len(), 3);
        assert_eq!(near("llama-2-7b-chat", &listed), ["meta-llama/Llama-2-7b-chat-hf"]);
        assert_eq!(near("claude-3.5-sonnet", &listed), ["claude-3-5-sonnet"]);
        assert_eq!(near("whisper", &listed), [""; 0]);
    }
}
