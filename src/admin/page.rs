//! The live page's files, part of the binary. It fetches nothing from anywhere else, and may not.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http_body_util::Full;
use hyper::{Response, http};

/// Own scripts, own styles, own connections, and nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Every file: its path, its type, its text.
const FILES: [(&str, &str, &str); 13] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/live.css", "text/css; charset=utf-8", include_str!("page/live.css")),
    ("/cards.js", SCRIPT, include_str!("page/cards.js")),
    ("/details.js", SCRIPT, include_str!("page/details.js")),
    ("/downloads.js", SCRIPT, include_str!("page/downloads.js")),
    ("/feed.js", SCRIPT, include_str!("page/feed.js")),
    ("/filters.js", SCRIPT, include_str!("page/filters.js")),
    ("/legend.js", SCRIPT, include_str!("page/legend.js")),
    ("/live.js", SCRIPT, include_str!("page/live.js")),
    ("/rows.js", SCRIPT, include_str!("page/rows.js")),
    ("/state.js", SCRIPT, include_str!("page/state.js")),
    ("/strips.js", SCRIPT, include_str!("page/strips.js")),
    ("/text.js", SCRIPT, include_str!("page/text.js")),
];

/// Whether `path` belongs to the live page: a file of it, or what it listens to.
pub(super) fn is_part(path: &str) -> bool {
    path == "/live" || FILES.iter().any(|(known, ..)| *known == path)
}

/// The file at `path`. `None` where there is none.
pub(super) fn file(path: &str) -> Option<Response<Full<Bytes>>> {
    let (_, kind, text) = FILES.iter().find(|(known, ..)| *known == path)?;
    let mut response = Response::new(Full::from(*text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Another version of the program may answer the next time.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(response)
}
