//! Keeps web pages from spending a configured key through loopback.
//!
//! A page in a browser on the same machine can send requests to a loopback port, and a name that rebinds to loopback
//! makes them look local. Where a key is added to requests, they must show that they do not come from such a page.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, ORIGIN};
use http::uri::Authority;
use hyper::{Method, Uri, http};

use super::cors;
use super::failure::Refusal;
use crate::config::Server;

/// Refuses a request that a web page could have made. `bodyless` says that its body was over with its head; `server` says
/// which origins and hosts are trusted.
pub(super) fn check(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    bodyless: bool,
    server: &Server,
) -> Result<(), Refusal> {
    if let Some(origin) = headers.get(ORIGIN)
        && !cors::is_listed(server, origin)
    {
        let origin = origin.to_str().unwrap_or("");
        let message = format!(
            "requests from web pages are refused, as this backend's key is configured here; to trust the origin \
             {origin:?}, add it to cors under [server]"
        );
        return Err(Refusal::Forbidden { message });
    }
    let cross_site = headers.get("sec-fetch-site").is_some_and(|site| site != "none" && site != "same-origin");
    if cross_site && !headers.contains_key(ORIGIN) {
        let message = "requests from web pages are refused, as this backend's key is configured here; call from a \
                       program, or from an origin listed in cors under [server]";
        return Err(Refusal::Forbidden { message: message.to_owned() });
    }
    // One that is not text is no name that anybody configured.
    let host = headers.get(HOST).map(|host| host.to_str().unwrap_or("")).or(uri.authority().map(Authority::as_str));
    // HTTP/1.0 clients may leave the host out; browsers never do.
    if let Some(host) = host
        && !server.answers_to(host, |address| address.is_loopback())
    {
        let message = format!(
            "the host {host:?} is neither loopback nor configured, and this backend's key is configured here; to serve \
             under this name, add it to hosts under [server]"
        );
        return Err(Refusal::Forbidden { message });
    }
    let is_up = |segment: &str| matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "..");
    if uri.path().split('/').any(is_up) {
        let problem = "it climbs with \"..\" out of the base URL, and this backend's key is configured here";
        return Err(Refusal::Path { problem: problem.to_owned() });
    }
    if method == Method::POST && !is_json(headers) && !is_empty(headers, bodyless) {
        return Err(Refusal::NotJson);
    }
    Ok(())
}

/// Whether a request has no body and no type: how clients cancel a response. No form of a web page's comes so, and what
/// its scripts send carries an origin.
fn is_empty(headers: &HeaderMap, bodyless: bool) -> bool {
    let is_nothing = || headers.get(CONTENT_LENGTH).is_some_and(|length| length == "0");
    !headers.contains_key(CONTENT_TYPE) && (bodyless || is_nothing())
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()) else { return false };
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: &Method, headers: &[(&'static str, &str)]) -> Result<(), Refusal> {
        let server = Server {
            cors: vec!["https://app.example".to_owned()],
            hosts: vec!["gauge.lan".to_owned()],
            ..Server::default()
        };
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>();
        check(method, &Uri::from_static("/v1/chat/completions"), &headers, false, &server)
    }

    #[test]
    fn clients_that_are_no_web_page_pass() {
        for host in ["127.0.0.1:8484", "localhost", "[::1]:8484", "LOCALHOST:1", "127.9.9.9", "gauge.lan:80"] {
            let headers = [("host", host), ("content-type", "application/json; charset=utf-8")];
            assert!(judged(&Method::POST, &headers).is_ok(), "{host}");
        }
        assert!(judged(&Method::GET, &[("host", "localhost")]).is_ok());
        let allowed = [("host", "localhost"), ("origin", "https://app.example"), ("content-type", "application/json")];
        assert!(judged(&Method::POST, &allowed).is_ok());
    }

    #[test]
    fn a_path_that_climbs_out_of_the_base_url_is_refused() {
        let judged = |path: &str| {
            let headers = [("host".parse().unwrap(), "localhost".parse().unwrap())].into_iter().collect::<HeaderMap>();
            check(&Method::GET, &path.parse().unwrap(), &headers, true, &Server::default())
        };
        for path in ["/../admin", "/v1/..", "/v1/%2e%2E/x", "/v1/.%2e/x"] {
            assert!(matches!(judged(path), Err(Refusal::Path { .. })), "{path}");
        }
        for path in ["/v1/files/a..b", "/v1/...", "/v1/files?path=../x"] {
            assert!(judged(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn foreign_origins_rebound_hosts_and_form_posts_are_refused() {
        let json = ("content-type", "application/json");
        for origin in ["https://evil.example", "null", "http://127.0.0.1:8484"] {
            let refused = judged(&Method::POST, &[("host", "localhost"), ("origin", origin), json]);
            assert!(matches!(refused, Err(Refusal::Forbidden { .. })), "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            let image = [("host", "localhost"), ("sec-fetch-site", site)];
            assert!(matches!(judged(&Method::GET, &image), Err(Refusal::Forbidden { .. })), "{site}");
        }
        for host in ["\u{e9}", "evil.example", "127.0.0.1.evil.example", "192.0.2.1", "localhost.evil.example:8484"] {
            assert!(matches!(judged(&Method::POST, &[("host", host), json]), Err(Refusal::Forbidden { .. })), "{host}");
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let refused = judged(&Method::POST, &[("host", "localhost"), ("content-type", kind)]);
            assert!(matches!(refused, Err(Refusal::NotJson)), "{kind}");
        }
        assert!(matches!(judged(&Method::POST, &[("host", "localhost")]), Err(Refusal::NotJson)));
        let empty = ("content-length", "0");
        assert!(judged(&Method::POST, &[("host", "localhost"), empty]).is_ok());
        for more in
            [("content-type", "text/plain"), ("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")]
        {
            assert!(judged(&Method::POST, &[("host", "localhost"), empty, more]).is_err(), "{more:?}");
        }
    }
}
