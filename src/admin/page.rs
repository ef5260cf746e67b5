//! The live page's files, part of the binary. It fetches nothing from anywhere else, and may not.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http_body_util::Full;
use hyper::{Response, http};

/// Own scripts, own styles, own connections, and nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Whether `path` belongs to the live page: a file of it, or what it listens to.
pub(super) fn is_part(path: &str) -> bool {
    path == "/live" || file(path).is_some()
}

/// The file at `path`. `None` where there is none.
pub(super) fn file(path: &str) -> Option<Response<Full<Bytes>>> {
    let (kind, text) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/index.html")),
        "/live.css" => ("text/css; charset=utf-8", include_str!("page/live.css")),
        "/live.js" => ("text/javascript; charset=utf-8", include_str!("page/live.js")),
        "/strips.js" => ("text/javascript; charset=utf-8", include_str!("page/strips.js")),
        _ => return None,
    };
    let mut response = Response::new(Full::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Another version of the program may answer the next time.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(response)
}
