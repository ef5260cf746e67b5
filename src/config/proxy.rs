//! The HTTP proxy that the environment puts between us and an upstream, by curl's rules.
//!
//! `HTTPS_PROXY` serves upstreams of `https`, `HTTP_PROXY` those of `http`, `ALL_PROXY` both where theirs is not set, and
//! `NO_PROXY` lists whom to reach directly. Of each, the lower-case name is looked at first, and an empty variable is
//! none. Loopback is no exception: list it in `NO_PROXY`.
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
        Ok(Self { host, port, authorization: credentials.map(basic), variable })
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
mod tests {
    use super::*;

    fn chosen(url: &str, variables: &[(&str, &str)]) -> Result<Option<Proxy>, ConfigError> {
        let env = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Proxy::for_upstream(&url.parse().unwrap(), &env)
    }

    /// The proxy's URL and variable.
    fn named(url: &str, variables: &[(&str, &str)]) -> Option<(String, &'static str)> {
        chosen(url, variables).unwrap().map(|proxy| (proxy.to_string(), proxy.variable))
    }

    #[test]
    fn each_scheme_has_its_variable_and_lower_case_comes_first() {
        let (s, c) = ("https://api.example", "http://api.example");
        let all = [("https_proxy", "a:1"), ("HTTPS_PROXY", "b:2"), ("http_proxy", "c:3"), ("HTTP_PROXY", "d:4")];
        assert_eq!(named(s, &all), Some(("http://a:1".to_owned(), "https_proxy")));
        assert_eq!(named(c, &all), Some(("http://c:3".to_owned(), "http_proxy")));
        assert_eq!(named(s, &all[1..]).unwrap().1, "HTTPS_PROXY");
        assert_eq!(named(c, &all[3..]).unwrap().1, "HTTP_PROXY");
        assert_eq!(named(s, &all[2..]), None, "http's variable is not for https");
        for (url, own) in [(s, "HTTPS_PROXY"), (c, "HTTP_PROXY")] {
            assert_eq!(named(url, &[("ALL_PROXY", "e:5")]).unwrap().1, "ALL_PROXY");
            assert_eq!(named(url, &[("ALL_PROXY", "e:5"), ("all_proxy", "f:6")]).unwrap().1, "all_proxy");
            assert_eq!(named(url, &[("ALL_PROXY", "e:5"), (own, "g:7")]).unwrap().1, own);
            assert_eq!(named(url, &[("ALL_PROXY", "e:5"), (own, " ")]).unwrap().1, "ALL_PROXY", "empty is unset");
            assert_eq!(named(url, &[]), None);
        }
    }

    #[test]
    fn a_proxys_url_may_leave_out_its_scheme_and_port() {
        for (url, means) in [
            ("http://127.0.0.1:7890", "http://127.0.0.1:7890"),
            (" HTTP://Proxy.Example:8080/ ", "http://proxy.example:8080"),
            ("proxy.example", "http://proxy.example:1080"),
            ("[::1]:3128", "http://[::1]:3128"),
            ("http://u:p@[2001:db8::1]/", "http://[2001:db8::1]:1080"),
        ] {
            assert_eq!(named("https://api.example", &[("HTTPS_PROXY", url)]).unwrap().0, means, "{url}");
        }
    }

    #[test]
    fn credentials_are_decoded_and_shown_to_nobody() {
        for (userinfo, pair) in
            [("u:p", "u:p"), ("us%65r:p%40s%3as", "user:p@s:s"), ("only", "only:"), ("%zz:%", "%zz:%")]
        {
            let url = format!("http://{userinfo}@proxy.example:1");
            let proxy = chosen("https://api.example", &[("HTTPS_PROXY", &url)]).unwrap().unwrap();
            let expected = format!("Basic {}", STANDARD.encode(pair));
            assert_eq!(proxy.authorization.as_ref().map(Secret::expose), Some(&*expected), "{userinfo}");
            assert!(!format!("{proxy:?} {proxy}").contains(&STANDARD.encode(pair)));
            assert_eq!(proxy.to_string(), "http://proxy.example:1");
        }
        assert_eq!(chosen("https://a", &[("HTTPS_PROXY", "b:1")]).unwrap().unwrap().authorization, None);
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_an_error_of_its_variable_without_its_value() {
        let tail =
            "; give http://host:port, http://user:password@host:port or host:port, or add api.example to NO_PROXY";
        for (url, problem) in [
            ("socks5h://u:hush@a:1", "a proxy that is spoken to by socks5h cannot be used"),
            ("https://u:hush@a:1", "a proxy that is spoken to by https cannot be used"),
            ("hush://a", "the proxy's URL has a scheme other than http"),
            ("http://u:hush@", "the proxy's URL names no usable host"),
            ("http://u:hush@a/path", "the proxy's URL names no usable host"),
            ("u:hush@a:0", "the proxy's port must be a number from 1 to 65535"),
        ] {
            let error = chosen("https://api.example", &[("all_proxy", url)]).unwrap_err();
            assert_eq!(error.to_string(), format!("all_proxy: {problem}{tail}"), "{url}");
        }
        // Nobody needs it.
        assert_eq!(chosen("https://api.example", &[("ALL_PROXY", "socks5://a"), ("NO_PROXY", "*")]), Ok(None));
        assert_eq!(chosen("https://api.example", &[("HTTP_PROXY", "socks5://a")]), Ok(None));
    }

    #[test]
    fn no_proxy_lists_names_addresses_and_blocks() {
        let direct = [
            ("http://api.example", "*"),
            ("http://api.example", "other, *"),
            ("http://api.example", "api.example"),
            ("http://api.example", "API.Example."),
            ("http://api.example", "x,example"),
            ("http://api.example", "x .example"),
            ("http://api.example", "*.example"),
            ("http://api.example", ".api.example"),
            ("http://api.example", "api.example:80"),
            ("https://api.example:8443", ".example:8443"),
            ("http://127.0.0.1", "127.0.0.1"),
            ("http://127.0.0.1:9", "127.0.0.1:9"),
            ("http://127.0.0.1", "127.0.0.0/8"),
            ("http://10.1.2.3", "192.168.0.0/16,10.1.2.0/23"),
            ("http://10.1.2.3", "10.1.2.3/32"),
            ("http://10.1.2.3", "0.0.0.0/0"),
            ("http://[::1]", "::1"),
            ("http://[::1]", "[::1]"),
            ("http://[::1]:9", "[::1]:9"),
            ("http://[fd00::1]", "fd00::/8"),
            ("http://[fd00::1]", "::/0"),
        ];
        let proxied = [
            ("http://api.example", "pi.example"),
            ("http://api.example", "www.api.example"),
            ("http://api.example", "example.org"),
            ("http://api.example", "."),
            ("http://api.example", "*.*"),
            ("http://api.example", ",, ,"),
            ("http://api.example", "api.example:81"),
            ("http://api.example", "api.example:"),
            ("http://127.0.0.1", "localhost"),
            ("http://127.0.0.1", "0.0.1"),
            ("http://127.0.0.1", "127.0.0.1:81"),
            ("http://127.0.0.1", "127.0.0.0/33"),
            ("http://127.0.0.1", "127.0.0.0/"),
            ("http://10.1.2.3", "10.1.4.0/23"),
            ("http://10.1.2.3", "::/0"),
            ("http://[::1]", "127.0.0.1"),
            ("http://[::1]", "0.0.0.0/0"),
            ("http://[::1]", "[::1]:81"),
            ("http://[fe00::1]", "fd00::/8"),
            ("http://localhost", "127.0.0.1"),
        ];
        for (cases, expected) in [(&direct[..], false), (&proxied[..], true)] {
            for (url, list) in cases {
                for variable in ["no_proxy", "NO_PROXY"] {
                    let found = chosen(url, &[("ALL_PROXY", "p:1"), (variable, list)]).unwrap();
                    assert_eq!(found.is_some(), expected, "{url} with {variable}={list}");
                }
            }
        }
    }
}
