//! The HTTP proxy that the environment puts between us and an upstream.
//!
//! `HTTPS_PROXY` serves upstreams of `https`, `HTTP_PROXY` those of `http`, `ALL_PROXY` both where theirs is not set, and
//! `NO_PROXY` lists whom to reach directly. Of each, the lower-case name is looked at first, and an empty variable is
//! none; so does curl, but that it ignores `HTTP_PROXY` in upper case, which a CGI's client could set. Loopback is no exception: list it in `NO_PROXY`.
//!
//! Invariant: what a variable says is repeated in no error, as it may hold a password.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::base_url::split_port;
use super::read::Env;
use super::{BaseUrl, ConfigError, Secret};

/// curl's default.
const DEFAULT_PORT: u16 = 1080;
const FORMS: &str = "give http://host:port, http://user:password@host:port or host:port";

/// A proxy. Displays as a URL without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// A DNS name in lower case, or an address; IPv6 without its brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The value of `Proxy-Authorization`. `None` where the URL holds no credentials.
    pub authorization: Option<Secret>,
    /// The variable that names it.
    pub variable: &'static str,
}

impl Proxy {
    /// The proxy for an upstream. `None` where it is reached directly.
    pub(super) fn for_upstream(base_url: &BaseUrl, env: Env<'_>) -> Result<Option<Self>, ConfigError> {
        let own = if base_url.tls { ["https_proxy", "HTTPS_PROXY"] } else { ["http_proxy", "HTTP_PROXY"] };
        let set = |variable: &'static str| Some((variable, env(variable).filter(|value| !value.trim().is_empty())?));
        let Some((variable, url)) = own.into_iter().chain(["all_proxy", "ALL_PROXY"]).find_map(set) else {
            return Ok(None);
        };
        let exempt = ["no_proxy", "NO_PROXY"].into_iter().find_map(set);
        if exempt.is_some_and(|(_, list)| is_exempt(&list, &base_url.host, base_url.port)) {
            return Ok(None);
        }
        Self::parse(&url, variable).map(Some).map_err(|problem| {
            let problem = format!("{problem}; {FORMS}, or add {} to NO_PROXY", base_url.host);
            ConfigError::new(variable, None, "", problem)
        })
    }

    /// Reads `http://[user:password@]host[:port][/]`, or the same without its scheme.
    fn parse(url: &str, variable: &'static str) -> Result<Self, String> {
        let url = url.trim();
        let rest = match url.split_once("://") {
            None => url,
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) => {
                let known = ["https", "socks4", "socks4a", "socks5", "socks5h"];
                return Err(match known.iter().find(|known| scheme.eq_ignore_ascii_case(known)) {
                    Some(known) => format!("a proxy that is spoken to by {known} cannot be used"),
                    None => "the proxy's URL has a scheme other than http".to_owned(),
                });
            }
        };
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = split_port(authority).map_err(|_| "the proxy's URL names no usable host".to_owned())?;
        let port = match port {
            None | Some("") => DEFAULT_PORT,
            Some(port) => port
                .parse()
                .ok()
                .filter(|&port| port != 0)
                .ok_or_else(|| "the proxy's port must be a number from 1 to 65535".to_owned())?,
        };
        Ok(Self {
            host,
            port,
            authorization: credentials.filter(|credentials| !credentials.is_empty()).map(basic),
            variable,
        })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "http://[{host}]:{port}") } else { write!(f, "http://{host}:{port}") }
    }
}

/// `Basic` credentials (RFC 7617) of a URL's percent-encoded `user:password`.
fn basic(userinfo: &str) -> Secret {
    let mut pair = percent_decoded(userinfo);
    if !pair.contains(&b':') {
        pair.push(b':');
    }
    Secret::new(&format!("Basic {}", STANDARD.encode(pair))).unwrap_or_else(|_| unreachable!("base64 is ASCII"))
}

/// What stands for no byte stays as it is.
fn percent_decoded(text: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = text.as_bytes();
    let mut decoded = Vec::new();
    while let [first, rest @ ..] = bytes {
        (decoded, bytes) = match (first, digit(rest.first()), digit(rest.get(1))) {
            (b'%', Some(high), Some(low)) => {
                decoded.extend(u8::try_from(high * 16 + low));
                (decoded, &rest[2..])
            }
            _ => {
                decoded.push(*first);
                (decoded, rest)
            }
        };
    }
    decoded
}

/// Whether `NO_PROXY` lists a host: `*`, a name with all below it, an address, a block of addresses (CIDR), or any of
/// the first three with a port.
fn is_exempt(list: &str, host: &str, port: u16) -> bool {
    let entries = list.split([',', ' ', '\t', '\r', '\n']).filter(|entry| !entry.is_empty());
    let address = host.parse::<IpAddr>().ok();
    entries.into_iter().any(|entry| {
        entry == "*"
            || match address {
                Some(address) => lists_address(entry, address, port),
                None => lists_name(entry, host, port),
            }
    })
}

fn lists_address(entry: &str, address: IpAddr, port: u16) -> bool {
    if let Some((network, length)) = entry.split_once('/') {
        let block = network.parse::<IpAddr>().ok().zip(length.parse().ok());
        return block.is_some_and(|(network, length)| is_in_block(address, network, length));
    }
    let bare = entry.strip_prefix('[').and_then(|entry| entry.strip_suffix(']')).unwrap_or(entry);
    bare.parse() == Ok(address) || entry.parse() == Ok(SocketAddr::new(address, port))
}

fn is_in_block(address: IpAddr, network: IpAddr, length: u32) -> bool {
    let (address, network, width) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (u128::from(address.to_bits()), network.to_bits().into(), 32),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    // A block of length 0 is every address of its family: nothing is left to compare.
    length <= width && (address ^ network).checked_shr(width - length).is_none_or(|differing| differing == 0)
}

fn lists_name(entry: &str, host: &str, port: u16) -> bool {
    let name = match entry.split_once(':') {
        None => entry,
        Some((name, only)) if only.parse() == Ok(port) => name,
        Some(_) => return false,
    };
    let name = name.strip_prefix('*').unwrap_or(name);
    let name = name.trim_matches('.').to_ascii_lowercase();
    let below = host.trim_end_matches('.').strip_suffix(&*name);
    !name.is_empty() && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
}

#[cfg(test)]
mod tests;
