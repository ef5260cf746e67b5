//! Which headers pass, in which direction.
//!
//! Invariant: everything passes as it came, vendor headers included, except what belongs to one connection only
//! (RFC 9110, section 7.6.1), credentials that the backend replaces, and our own.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::http;

/// Names the experiment a request belongs to; ours, not forwarded.
pub(super) const TAG: HeaderName = HeaderName::from_static("x-streamgauge-tag");
/// A signature over path and body: such a request must not be altered.
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("x-tt-sign");

/// Where clients put API keys.
const CREDENTIALS: [HeaderName; 3] =
    [AUTHORIZATION, HeaderName::from_static("x-api-key"), HeaderName::from_static("api-key")];

/// Meaningful to one connection only, whether `Connection` names them or not.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Turns a client's headers into those for the upstream. `key` replaces the client's credentials.
///
/// `Host` is left to the connection, `Content-Length` to the body when it is known whole.
pub(super) fn to_upstream(headers: &mut HeaderMap, key: Option<&HeaderValue>, body_known: bool) {
    strip_hop_by_hop(headers);
    // We have answered it already, or will when the body is read.
    headers.remove(EXPECT);
    headers.remove(HOST);
    headers.remove(&TAG);
    headers.remove("te");
    if body_known {
        headers.remove(CONTENT_LENGTH);
    }
    if let Some(key) = key {
        for name in CREDENTIALS {
            headers.remove(name);
        }
        headers.insert(AUTHORIZATION, key.clone());
    }
}

/// Turns an upstream's headers into those for the client.
pub(super) fn to_client(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
}

/// Whether an upstream's reply has no length of its own, so that only its connection's end ends it.
pub(super) fn is_close_delimited(headers: &HeaderMap) -> bool {
    !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING)
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // A client must not make us drop what frames the message.
        .filter(|name: &HeaderName| *name != CONTENT_LENGTH && *name != HOST)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn hop_by_hop_headers_and_those_that_connection_names_are_stripped() {
        let mut headers = map(&[
            ("connection", "close, X-Mine , content-length"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-length", "3"),
            ("x-request-id", "abc"),
            ("x-tt-sign", "sig"),
        ]);
        to_client(&mut headers);
        assert_eq!(names(&headers), ["content-length", "x-request-id", "x-tt-sign"]);
    }

    #[test]
    fn a_key_replaces_every_credential_of_the_client() {
        let sent = [("authorization", "Bearer client"), ("x-api-key", "client"), ("api-key", "client"), ("host", "a")];
        let mut headers = map(&sent);
        to_upstream(&mut headers, Some(&HeaderValue::from_static("Bearer ours")), true);
        assert_eq!(names(&headers), ["authorization"]);
        assert_eq!(headers["authorization"], "Bearer ours");

        let mut headers = map(&sent);
        to_upstream(&mut headers, None, true);
        assert_eq!(names(&headers), ["api-key", "authorization", "x-api-key"]);
        assert_eq!(headers["authorization"], "Bearer client");
    }

    #[test]
    fn our_own_headers_and_expectations_stay_here() {
        let mut headers = map(&[("x-streamgauge-tag", "t"), ("expect", "100-continue"), ("te", "trailers")]);
        to_upstream(&mut headers, None, false);
        assert!(headers.is_empty());
    }
}
