//! A backend's base URL, taken apart and checked once.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Where an upstream API is: `https://taotoken.net/api`.
///
/// Displays as it would be written: default port omitted, no slash at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// `https` rather than `http`.
    pub tls: bool,
    /// A DNS name in lower case, or an address; IPv6 without its brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The path, without a slash at its end; empty for the root.
    pub path: String,
}

impl BaseUrl {
    /// What belongs in the `Host` header: the port omitted where it is the scheme's own, IPv6 in brackets.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { Cow::from(format!("[{}]", self.host)) } else { (&*self.host).into() };
        if self.port == default_port(self.tls) { host.into_owned() } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// Why a base URL cannot be used. Its text never repeats the URL, which may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// No `http://` or `https://` at its start.
    #[error("the URL must start with http:// or https://")]
    Scheme,
    /// Nothing where the host belongs.
    #[error("the URL names no host; write it as https://host/path")]
    NoHost,
    /// The host is neither a DNS name nor an address.
    #[error("the URL's host must be a DNS name, an IPv4 address, or an IPv6 address in [brackets]")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the URL's port must be a number from 1 to 65535")]
    Port,
    /// A user name or password stands before the host.
    #[error("the URL holds a user name or password; give credentials as api_key instead")]
    Userinfo,
    /// A query or fragment follows the path.
    #[error("the URL must end with its path; remove what follows ? or #")]
    Query,
    /// The path holds a character that must be percent-encoded.
    #[error("the URL's path holds a space or another character that must be percent-encoded")]
    Path,
    /// The path ends in an operation.
    #[error("the URL ends in an operation; end it before /chat/completions or the like")]
    Operation,
}

impl FromStr for BaseUrl {
    type Err = BadUrl;

    /// Reads an absolute URL (RFC 3986) of scheme `http` or `https`.
    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let (scheme, rest) = text.trim().split_once("://").ok_or(BadUrl::Scheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(BadUrl::Scheme),
        };
        if rest.contains(['?', '#']) {
            return Err(BadUrl::Query);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(BadUrl::Userinfo);
        }
        let (host, port) = split_port(authority)?;
        let port = match port {
            None | Some("") => default_port(tls),
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                port.parse().ok().filter(|&port| port != 0).ok_or(BadUrl::Port)?
            }
            Some(_) => return Err(BadUrl::Port),
        };
        let path = path.trim_end_matches('/');
        if !path.bytes().all(|byte| byte.is_ascii_graphic() && !br#""<>\^`{|}"#.contains(&byte)) {
            return Err(BadUrl::Path);
        }
        // Not `/models`: the base URL of some Azure deployments ends so.
        let operations = ["/completions", "/v1/responses", "/v1/messages", "/v1/models", "/v1/embeddings"];
        if operations.iter().any(|operation| path.ends_with(operation)) {
            return Err(BadUrl::Operation);
        }
        Ok(Self { tls, host, port, path: path.to_owned() })
    }
}

/// Splits `host:port`; the host comes checked, in lower case, and without brackets.
pub(super) fn split_port(authority: &str) -> Result<(String, Option<&str>), BadUrl> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, after) = rest.split_once(']').ok_or(BadUrl::Host)?;
        let address: Ipv6Addr = address.parse().map_err(|_| BadUrl::Host)?;
        return match after.strip_prefix(':') {
            None if !after.is_empty() => Err(BadUrl::Host),
            port => Ok((address.to_string(), port)),
        };
    }
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    if port.is_some_and(|port| port.contains(':')) {
        return Err(BadUrl::Host);
    }
    if host.is_empty() {
        return Err(BadUrl::NoHost);
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if !host.bytes().all(good) {
        return Err(BadUrl::Host);
    }
    Ok((host.to_ascii_lowercase(), port))
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}
