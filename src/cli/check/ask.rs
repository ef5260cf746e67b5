//! Asks one upstream, over the same connections, paths and readers as `serve`, and keeps what was heard.

use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::{Method, Request, StatusCode, http};
use serde_json::Value;

use super::over::Over;
use crate::backend::upstream::{Broken, Cause, Reply, SetupError, Upstream};
use crate::clock::{ReadStamp, Stamped as _};
use crate::config::{BaseUrl, MessagesAuth, OpenAi};
use crate::proxy::Credentials;
use crate::route::{classify, upstream_path};
use crate::wire::encoding::{Codings, Decoder};

/// The most of a reply that is kept, in bytes: a long list of models fits.
const LARGEST: usize = 4 << 20;

/// How long a stream that has said its last word is waited for to end.
const AFTER_DONE: Duration = Duration::from_millis(500);
/// How long a reply may take; what is asked for is one token.
const LONGEST: Duration = Duration::from_secs(60);

/// One upstream, and how it is asked.
pub(super) struct Asking<'a> {
    upstream: Upstream,
    config: &'a OpenAi,
}

/// A reply, as far as it came.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) status: StatusCode,
    /// The media type in lower case, without parameters. Empty where there is none.
    pub(super) media: String,
    /// Where a redirect leads. `None` without a legible `location`.
    pub(super) location: Option<String>,
    /// The content coding, which was not asked for. `None` where there is none.
    pub(super) coding: Option<String>,
    /// The coding could not be undone, so that the body is not all there.
    pub(super) unreadable: bool,
    /// Its content coding undone.
    pub(super) body: Vec<u8>,
    /// The body as it was read, piece by piece.
    pub(super) pieces: Vec<Piece>,
    /// How the body broke off. `None` where it came to its end.
    pub(super) broken: Option<Broken>,
    /// It had not come to its end after [`LONGEST`], or beyond what is kept of it.
    pub(super) endless: bool,
    /// When the request's last byte was written. `None` where the answer came before.
    pub(super) sent: Option<Instant>,
    /// When the reply's head was read.
    pub(super) head_at: Instant,
}

/// A part of a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// In bytes.
    pub(super) length: usize,
    /// The read that brought it.
    pub(super) read: ReadStamp,
}

impl<'a> Asking<'a> {
    pub(super) fn new(config: &'a OpenAi) -> Result<Self, SetupError> {
        Ok(Self { upstream: Upstream::new(config)?, config })
    }

    /// The URL that `path`, an operation's own below `/v1`, has upstream.
    pub(super) fn url(&self, path: &str) -> String {
        let base = &self.config.base_url;
        let root = BaseUrl { path: String::new(), ..base.clone() };
        format!("{root}{}", upstream_path(base, &classify(path), None))
    }

    /// Asks for what is at `path`.
    pub(super) async fn get(&self, path: &str) -> Result<Heard, Cause> {
        self.ask(Method::GET, path, Bytes::new(), None).await
    }

    /// [`Self::get`], as clients of Anthropic's API ask.
    pub(super) async fn get_as_anthropic(&self, path: &str) -> Result<Heard, Cause> {
        self.ask(Method::GET, path, Bytes::new(), Some(self.config.messages_auth)).await
    }

    /// Asks with a JSON body.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Heard, Cause> {
        let anthropic = classify(path).is_messages().then_some(self.config.messages_auth);
        self.ask(Method::POST, path, Bytes::from(body.to_string()), anthropic).await
    }

    /// [`Self::post`] in Anthropic's dialect, with the key sent in another way.
    pub(super) async fn post_with(&self, way: MessagesAuth, path: &str, body: &Value) -> Result<Heard, Cause> {
        self.ask(Method::POST, path, Bytes::from(body.to_string()), Some(way)).await
    }

    /// `anthropic` is how the key goes where that dialect is spoken. `None` speaks another.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        anthropic: Option<MessagesAuth>,
    ) -> Result<Heard, Cause> {
        let target = classify(path);
        let uri = upstream_path(&self.config.base_url, &target, None);
        let mut request = Request::new(Either::Left(Full::new(body)));
        *request.uri_mut() = uri.parse().unwrap_or_else(|_| unreachable!("the configuration checked the path"));
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert("user-agent", HeaderValue::from_static(concat!("streamgauge/", env!("CARGO_PKG_VERSION"))));
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if anthropic.is_some() {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        if let Some(key) = &self.config.api_key {
            Credentials::new(key, anthropic.unwrap_or_default()).add_to(headers, &target);
        }
        *request.method_mut() = method;
        let reply = self.upstream.send(request).await.map_err(|failure| failure.cause)?;
        Ok(hear(reply, target.operation.dialect().map(Over::new)).await)
    }
}

/// Reads a reply to its end, a little beyond its last word, which `over` knows, or as far as it is kept.
async fn hear(reply: Reply, mut over: Option<Over>) -> Heard {
    let mut late = tokio::time::Instant::now() + LONGEST;
    let Reply { head, mut body, sent, head_at, .. } = reply;
    let coding = text(&head.headers, &CONTENT_ENCODING).filter(|coding| !coding.eq_ignore_ascii_case("identity"));
    let mut decoder = coding.as_deref().map(|coding| Codings::named([coding]).and_then(Decoder::new));
    let mut heard = Heard {
        status: head.status,
        media: media(&head.headers),
        location: text(&head.headers, &LOCATION),
        coding,
        unreadable: false,
        body: Vec::new(),
        pieces: Vec::new(),
        broken: None,
        endless: false,
        sent,
        head_at,
    };
    let mut said_all = false;
    while heard.body.len() < LARGEST && !heard.unreadable {
        let Ok(frame) = tokio::time::timeout_at(late, Pin::new(&mut body).frame()).await else {
            heard.endless = !said_all;
            break;
        };
        match frame {
            None => break,
            Some(Err(broken)) => {
                heard.broken = Some(broken);
                break;
            }
            Some(Ok(frame)) => {
                let (Some(data), Some(read)) = (frame.data_ref(), body.stamp()) else { continue };
                let before = heard.body.len();
                match &mut decoder {
                    None => heard.body.extend_from_slice(data),
                    Some(Some(decoder)) => {
                        let mut keep = |piece: &[u8]| heard.body.extend_from_slice(piece);
                        heard.unreadable |= decoder.feed(data, &mut keep).is_err();
                    }
                    Some(None) => heard.unreadable = true,
                }
                heard.pieces.push(Piece { length: heard.body.len() - before, read });
                if !said_all && over.as_mut().is_some_and(|over| over.feed(&heard.body[before..])) {
                    said_all = true;
                    late = late.min(tokio::time::Instant::now() + AFTER_DONE);
                }
            }
        }
    }
    heard.endless |= heard.body.len() >= LARGEST;
    heard
}

fn media(headers: &HeaderMap) -> String {
    let whole = text(headers, &CONTENT_TYPE).unwrap_or_default();
    whole.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}
