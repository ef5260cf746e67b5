//! A record of every request as it came: one JSON object a line.
//!
//! Invariant: a request's line is in the file before the first byte of its reply leaves, so whoever has the reply finds
//! the request. The values of headers that are known to hold credentials never are; a query is written as it came.
//!
//! The file is written on the thread that keeps the streams' deadlines, which may be late by as much.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::http::Request;

/// Where requests are written down. Clones share one file.
#[derive(Debug, Clone)]
pub struct RequestRecord(Arc<Mutex<File>>);

/// Headers whose values are credentials, in lower case.
const SECRET: [&str; 7] =
    ["authorization", "x-api-key", "api-key", "x-goog-api-key", "x-auth-token", "cookie", "proxy-authorization"];

/// One request's line.
#[derive(Serialize)]
struct Line<'a> {
    request: &'a str,
    method: &'a str,
    target: &'a str,
    headers: Vec<(&'a str, String)>,
    #[serde(flatten)]
    body: Body<'a>,
}

/// A body: text where it is UTF-8.
#[derive(Serialize)]
enum Body<'a> {
    #[serde(rename = "body")]
    Text(&'a str),
    #[serde(rename = "body_base64")]
    Bytes(String),
}

impl RequestRecord {
    /// Writes to the file at `path`, which is emptied first.
    ///
    /// # Errors
    ///
    /// When the file cannot be created.
    pub fn file(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(File::create(path)?))))
    }

    /// Writes one request down, under the name by which the log knows it. One write of whole lines: a reader never sees
    /// lines of two requests mixed.
    pub(super) fn write(&self, name: &str, request: &Request) {
        let mut line = line(name, request);
        line.push('\n');
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
        if let Err(error) = written {
            tracing::error!(%error, request = name, "cannot write a request down");
        }
    }
}

fn line(name: &str, request: &Request) -> String {
    let headers = request.headers.iter().map(|(name, value)| {
        let secret = SECRET.iter().any(|known| name.eq_ignore_ascii_case(known));
        let value = if secret {
            format!("(redacted, {} bytes)", value.len())
        } else {
            String::from_utf8_lossy(value).into_owned()
        };
        (name.as_str(), value)
    });
    let line = Line {
        request: name,
        method: &request.method,
        target: &request.target,
        headers: headers.collect(),
        body: match std::str::from_utf8(&request.body) {
            Ok(text) => Body::Text(text),
            Err(_) => Body::Bytes(STANDARD.encode(&request.body)),
        },
    };
    serde_json::to_string(&line).expect("strings and lists of them are JSON")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;

    use super::*;

    fn request(headers: &[(&str, &'static [u8])], body: &'static [u8]) -> Request {
        Request {
            method: "POST".into(),
            target: "/v1/x?a=1".into(),
            headers: headers.iter().map(|(name, value)| ((*name).into(), Bytes::from_static(value))).collect(),
            body: Bytes::from_static(body),
            read_at: Instant::now(),
            keep_alive: true,
            chunked_allowed: true,
        }
    }

    #[test]
    fn names_keep_their_case_and_order_and_credentials_are_not_written() {
        let headers: &[(&str, &'static [u8])] = &[
            ("X-Api-Key", b"sk-1"),
            ("Host", b"h"),
            ("AUTHORIZATION", b"Bearer abc"),
            ("a", b"1"),
            ("a", b"\xff"),
            ("api-key", b""),
            ("Cookie", b"c=1"),
            ("proxy-authorization", b"Basic eA=="),
        ];
        assert_eq!(
            line("r\"1", &request(headers, "{\"naïve\":1}".as_bytes())),
            r#"{"request":"r\"1","method":"POST","target":"/v1/x?a=1","headers":[["X-Api-Key","(redacted, 4 bytes)"],["Host","h"],["AUTHORIZATION","(redacted, 10 bytes)"],["a","1"],["a","�"],["api-key","(redacted, 0 bytes)"],["Cookie","(redacted, 3 bytes)"],["proxy-authorization","(redacted, 10 bytes)"]],"body":"{\"naïve\":1}"}"#
        );
    }

    #[test]
    fn a_body_that_is_no_text_is_kept_all_the_same() {
        let line = line("r", &request(&[], b"\x28\xb5\x2f\xfd"));
        assert_eq!(
            line,
            r#"{"request":"r","method":"POST","target":"/v1/x?a=1","headers":[],"body_base64":"KLUv/Q=="}"#
        );
    }
}
