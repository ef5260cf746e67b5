//! Cross-origin resource sharing (CORS, the Fetch standard): pages of the origins listed in `cors` may ask here and
//! read every answer.
//!
//! Invariant: for an origin that is not listed nothing is added, answered or taken away. Bodies never change.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode, http};

use crate::config::Server;

/// Asks whether a public page may speak to a private address, and says so.
const REQUEST_PRIVATE_NETWORK: &str = "access-control-request-private-network";
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// What a page may do; its own header asks for one of them.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
/// Every header may be read. The star means that only while no credentials of the browser's are allowed, as here.
const ALL: HeaderValue = HeaderValue::from_static("*");
/// Ten minutes, in seconds: what browsers keep at least, and short enough for a changed configuration.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The request's origin, if it is a listed one. With none listed, no header is looked up.
pub(super) fn listed_origin(server: &Server, headers: &HeaderMap) -> Option<HeaderValue> {
    if server.cors.is_empty() {
        return None;
    }
    let origin = headers.get(ORIGIN)?;
    is_listed(server, origin).then(|| origin.clone())
}

/// Whether pages of `origin` are trusted.
pub(super) fn is_listed(server: &Server, origin: &HeaderValue) -> bool {
    server.cors.iter().any(|listed| listed.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
}

/// Whether a request of a listed origin is a browser's question, to be answered here, rather than the page's own.
pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to a preflight from `origin`, a listed one.
pub(super) fn preflight(asked: &HeaderMap, origin: HeaderValue) -> Response<Full<Bytes>> {
    const VARIES: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    for wanted in asked.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.append(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    headers.insert(VARY, HeaderValue::from_static(VARIES));
    if asked.get(REQUEST_PRIVATE_NETWORK).is_some_and(|asked| asked == "true") {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}

/// Lets pages of `origin`, a listed one, read an answer; what its backend had to say of that is replaced.
pub(super) fn allow(answer: &mut HeaderMap, origin: HeaderValue) {
    remove_theirs(answer);
    answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, ALL);
    if !varies_by_origin(answer) {
        answer.append(VARY, HeaderValue::from_static("origin"));
    }
}

fn remove_theirs(answer: &mut HeaderMap) {
    let theirs: Vec<HeaderName> =
        answer.keys().filter(|name| name.as_str().starts_with("access-control-")).cloned().collect();
    for name in theirs {
        answer.remove(name);
    }
}

fn varies_by_origin(answer: &HeaderMap) -> bool {
    let names = answer.get_all(VARY).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    names.map(str::trim).any(|name| name == "*" || name.eq_ignore_ascii_case("origin"))
}
