//! Which headers pass, in which direction.
//!
//! Invariant: everything passes as it came, vendor headers included, except what belongs to one connection only
//! (RFC 9110, section 7.6.1), credentials that the backend replaces, and our own.

use http::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE,
    ETAG, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http;

use super::credentials::{Credentials, X_API_KEY};
use super::shape::VERSION;
use crate::route::Target;

/// Names the experiment a request belongs to; ours, not forwarded.
pub(super) const TAG: HeaderName = HeaderName::from_static("x-streamgauge-tag");
/// Names the backend a request is to go to, where clients may; ours, not forwarded.
pub(super) const BACKEND: HeaderName = HeaderName::from_static("x-streamgauge-backend");
/// Marks a request that is a mirror's, wherever it goes: nobody is to mirror it again.
pub(super) const MIRRORED: HeaderName = HeaderName::from_static("x-streamgauge-mirrored");
/// A signature over path and body: such a request must not be altered.
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("x-tt-sign");

/// Where clients put API keys.
const CREDENTIALS: [HeaderName; 4] =
    [AUTHORIZATION, X_API_KEY, HeaderName::from_static("api-key"), HeaderName::from_static("x-goog-api-key")];

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

/// What describes a reply's body, and nothing of one that is put in its place.
const OF_THE_BODY: [HeaderName; 11] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    ACCEPT_RANGES,
    ETAG,
    LAST_MODIFIED,
    TRAILER,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// What describes a request, and not its sender. The last is for our own simulation.
const DESCRIBING: [HeaderName; 8] = [
    HeaderName::from_static("accept"),
    HeaderName::from_static("accept-language"),
    HeaderName::from_static("anthropic-beta"),
    HeaderName::from_static(VERSION),
    HeaderName::from_static("content-type"),
    HeaderName::from_static("user-agent"),
    // Where it has been: without it a loop would not be known for one.
    VIA,
    HeaderName::from_static("x-sim"),
];

/// Turns a client's headers into those for what it asks of the upstream. `key` replaces the client's credentials.
///
/// `Host` is left to the connection, `Content-Length` to the body when it is known whole.
pub(super) fn to_upstream(headers: &mut HeaderMap, key: Option<&Credentials>, target: &Target<'_>, body_known: bool) {
    strip_hop_by_hop(headers);
    // We have answered it already, or will when the body is read.
    headers.remove(EXPECT);
    headers.remove(HOST);
    headers.remove(&TAG);
    headers.remove(&BACKEND);
    headers.remove("te");
    if body_known {
        headers.remove(CONTENT_LENGTH);
    }
    if let Some(key) = key {
        strip_credentials(headers);
        key.add_to(headers, target);
    }
}

/// Puts the cookies back together that HTTP/2 lets a client send apart (RFC 9113, section 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let apart: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if apart.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&apart.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Turns an upstream's headers into those for the client.
pub(super) fn to_client(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // The coding has decided the length, whatever stands here (RFC 9112, section 6.3).
        headers.remove(CONTENT_LENGTH);
    }
    strip_hop_by_hop(headers);
}

/// Describes JSON of our making, put in the place of the body that these headers came with.
pub(super) fn describe_json(headers: &mut HeaderMap) {
    for name in OF_THE_BODY {
        headers.remove(name);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
}

/// Whether an upstream's reply has no length of its own, so that only its connection's end ends it: no length, and
/// `chunked` not the last coding (RFC 9112, section 6.3).
pub(super) fn is_close_delimited(headers: &HeaderMap) -> bool {
    let coding = headers.get_all(TRANSFER_ENCODING).iter().next_back().and_then(|coding| coding.to_str().ok());
    match coding.and_then(|codings| codings.rsplit(',').next()) {
        Some(last) => !last.trim().eq_ignore_ascii_case("chunked"),
        None => !headers.contains_key(CONTENT_LENGTH),
    }
}

/// Removes what a client may have sent to prove who it is, where its request goes somewhere it did not ask for.
pub(super) fn strip_credentials(headers: &mut HeaderMap) {
    for name in CREDENTIALS {
        headers.remove(name);
    }
}

/// What of a client's headers goes to a backend that its client knows nothing of: what describes the request, and
/// nothing that could tell or prove who sends it, which vendors put under any name. Replies come uncompressed.
pub(super) fn for_mirror(headers: &HeaderMap) -> HeaderMap {
    let describes = |name: &HeaderName| DESCRIBING.contains(name) || *name == TAG;
    let describing = headers.iter().filter(|(name, _)| describes(name));
    let marked = (MIRRORED, HeaderValue::from_static("1"));
    describing.map(|(name, value)| (name.clone(), value.clone())).chain([marked]).collect()
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
    use crate::config::{MessagesAuth, Secret};
    use crate::route::classify;

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
            ("upgrade", "h2c"),
            ("content-length", "3"),
            ("x-request-id", "abc"),
            ("x-tt-sign", "sig"),
        ]);
        to_client(&mut headers);
        assert_eq!(names(&headers), ["content-length", "x-request-id", "x-tt-sign"]);
    }

    #[test]
    fn cookies_that_came_apart_are_one_header_again() {
        let mut headers = map(&[("cookie", "a=1"), ("x", "1")]);
        headers.append(COOKIE, HeaderValue::from_static("b=2; c=3"));
        headers.append(COOKIE, HeaderValue::from_bytes(b"d=\xe9").unwrap());
        join_cookies(&mut headers);
        let cookies: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(cookies, [&b"a=1; b=2; c=3; d=\xe9"[..]]);
        join_cookies(&mut headers);
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn a_coding_beats_a_length() {
        let mut headers = map(&[("content-length", "3"), ("transfer-encoding", "chunked")]);
        assert!(!is_close_delimited(&headers));
        to_client(&mut headers);
        assert!(headers.is_empty());
        assert!(is_close_delimited(&map(&[("transfer-encoding", "identity"), ("content-length", "3")])));
        assert!(!is_close_delimited(&map(&[("transfer-encoding", "gzip, Chunked")])));
        assert!(!is_close_delimited(&map(&[("content-length", "3")])));
        assert!(is_close_delimited(&map(&[])));
    }

    #[test]
    fn a_key_replaces_every_credential_of_the_client() {
        let sent = [("authorization", "Bearer client"), ("x-api-key", "client"), ("api-key", "client"), ("host", "a")];
        let mut headers = map(&sent);
        let ours = Credentials::new(&Secret::new("ours").unwrap(), MessagesAuth::Both);
        to_upstream(&mut headers, Some(&ours), &classify("/v1/chat/completions"), true);
        assert_eq!(names(&headers), ["authorization"]);
        assert_eq!(headers["authorization"], "Bearer ours");

        let mut headers = map(&sent);
        to_upstream(&mut headers, None, &classify("/v1/messages"), true);
        assert_eq!(names(&headers), ["api-key", "authorization", "x-api-key"]);
        assert_eq!(headers["authorization"], "Bearer client");
    }

    #[test]
    fn our_own_headers_and_expectations_stay_here() {
        let ours = [("x-streamgauge-tag", "t"), ("x-streamgauge-backend", "b")];
        let mut headers = map(&ours);
        to_upstream(&mut headers, None, &classify("/"), false);
        assert!(headers.is_empty());

        let mut headers = map(&[("expect", "100-continue"), ("te", "trailers")]);
        to_upstream(&mut headers, None, &classify("/"), false);
        assert!(headers.is_empty());
    }

    #[test]
    fn a_mirror_learns_what_a_request_is_and_not_whose() {
        let sent = [
            ("authorization", "Bearer client"),
            ("x-goog-api-key", "client"),
            ("cf-access-jwt-assertion", "client"),
            ("cookie", "session=1"),
            ("x-tt-sign", "sig"),
            ("x-session-id", "1"),
            ("x-forwarded-for", "192.0.2.1"),
            ("openai-organization", "org"),
            ("accept-encoding", "gzip"),
            ("x-streamgauge-tag", "t"),
            ("x-streamgauge-backend", "b"),
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
            ("via", "1.1 another"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "tools"),
            ("host", "a"),
        ];
        assert_eq!(
            names(&for_mirror(&map(&sent))),
            [
                "accept",
                "anthropic-beta",
                "anthropic-version",
                "content-type",
                "via",
                "x-streamgauge-mirrored",
                "x-streamgauge-tag"
            ]
        );
    }
}
