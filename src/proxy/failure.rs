//! What the client is told when there is no reply to pass on: status, error object, outcome.
//!
//! Each sentence names the guilty side and the next step.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http_body_util::Full;
use hyper::{Response, StatusCode, http};

use super::request::BadRequest;
use super::shape::Shape;
use crate::backend::llama::Refused;
use crate::backend::upstream::{Broken, Cause};
use crate::measure::{Fault, IntoFault, Outcome};
use crate::wire::encoding::MOST_RATIO;

mod next_step;

use next_step::next_step;

/// Why a request gets an answer of ours.
#[derive(Debug)]
pub(super) enum Refusal {
    /// As many requests are in flight as may be.
    Busy { most: usize },
    /// The body is larger than `max_body_bytes`.
    TooLarge { limit: usize },
    /// The body cannot be understood.
    BadRequest { message: String },
    /// The body is encoded in a way that is not known here, so that its model cannot be read.
    Compressed,
    /// The body becomes larger than this when decoded, out of proportion to what came.
    OutOfProportion { most: usize },
    /// The copies of encoded bodies take as much as they may.
    NoRoomToDecode,
    /// The body is not what its content coding allows.
    Undecodable { problem: String },
    /// No route takes the model.
    NoRoute { model: String, routes: Vec<String> },
    /// The request names a backend that there is not.
    UnknownBackend { name: String, backends: Vec<String> },
    /// No route takes this path.
    NoDefaultRoute,
    /// A web page may be trying to spend the configured key.
    Forbidden { message: String },
    /// A client takes streamgauge for a forward proxy.
    NoTunnel,
    /// A method that would show the backend's key to the client.
    Trace,
    /// The request has passed here before.
    Loop { backend: String, url: String },
    /// The path cannot be passed on.
    Path { problem: String },
    /// Not JSON where a key would be spent.
    NotJson,
    /// The request is signed, and an alias would break the signature.
    Signed { alias: String },
    /// The backend does not answer this kind of request.
    NotServing { backend: String },
    /// No list of models could be had.
    Models { backend: String, what: String },
    /// The client's body broke off.
    ClientBody,
    /// The model in this process gave no reply.
    Llama { backend: String, refused: Refused },
    /// The upstream gave no reply.
    Upstream { backend: String, url: String, cause: Cause },
    /// The upstream's stream, of which a whole reply was to be made, did not come to its end.
    Stream { backend: String, url: String, what: String, late: bool },
}

impl From<BadRequest> for Refusal {
    fn from(error: BadRequest) -> Self {
        Self::BadRequest { message: error.to_string() }
    }
}

/// An error as the client sees it.
struct Told {
    status: StatusCode,
    kind: &'static str,
    param: Option<&'static str>,
    code: &'static str,
    message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.told().message)
    }
}

impl Refusal {
    /// How the exchange ends with it.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::ClientBody | Self::Upstream { cause: Cause::RequestBody(_), .. } => Outcome::ClientCancelBeforeToken,
            Self::Upstream { cause, .. } => match cause {
                Cause::Dns(_)
                | Cause::Connect(_)
                | Cause::Proxy { .. }
                | Cause::Tls(_)
                | Cause::NotHttp2(_)
                | Cause::ConnectTimeout { .. } => Outcome::ConnectError,
                Cause::HeadTimeout(_) => Outcome::Timeout,
                Cause::NoHead(_)
                | Cause::Closed(_)
                | Cause::StreamReset(_)
                | Cause::Unprocessed(_)
                | Cause::Protocol(_)
                | Cause::RequestBody(_) => Outcome::Reset,
            },
            Self::Models { .. } => Outcome::Upstream5xx,
            Self::Stream { late: true, .. } => Outcome::Timeout,
            Self::Stream { late: false, .. } => Outcome::Truncated,
            Self::Llama { refused: Refused::Down(_) | Refused::Broken(_), .. } => Outcome::Internal,
            Self::Llama { refused: Refused::Bad { .. } | Refused::Full { .. } | Refused::Loading, .. }
            | Self::Busy { .. }
            | Self::TooLarge { .. }
            | Self::BadRequest { .. }
            | Self::Compressed
            | Self::OutOfProportion { .. }
            | Self::NoRoomToDecode
            | Self::Undecodable { .. }
            | Self::NoRoute { .. }
            | Self::UnknownBackend { .. }
            | Self::NoDefaultRoute
            | Self::Forbidden { .. }
            | Self::NoTunnel
            | Self::Trace
            | Self::Loop { .. }
            | Self::Path { .. }
            | Self::NotJson
            | Self::Signed { .. }
            | Self::NotServing { .. } => Outcome::Rejected,
        }
    }

    /// Its status.
    pub(super) fn status(&self) -> StatusCode {
        self.told().status
    }

    /// The answer for the client, whose errors have this shape.
    pub(super) fn response(&self, shape: Shape) -> Response<Full<Bytes>> {
        let Told { status, kind, param, code, message } = self.told();
        let param = self.param().or(param);
        let body = shape.error(status, &message, kind, &param.into(), &code.into());
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if matches!(self, Self::Compressed) {
            // What would be taken (RFC 9110, section 15.5.16).
            response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate, br, zstd"));
        }
        response
    }

    /// The field of the request at fault, where only the backend knows it.
    fn param(&self) -> Option<&str> {
        match self {
            Self::Llama { refused: Refused::Bad { param, .. }, .. } => param.as_deref(),
            _ => None,
        }
    }

    /// When trying again makes sense, in whole seconds.
    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Llama { refused: Refused::Full { retry_after, .. }, .. } => {
                Some((retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0)).clamp(1, 600))
            }
            Self::Llama { refused: Refused::Loading, .. } => Some(5),
            Self::Busy { .. } | Self::NoRoomToDecode => Some(1),
            _ => None,
        }
    }

    #[allow(clippy::too_many_lines)] // one table, in one place, is the point
    fn told(&self) -> Told {
        let (status, kind, param, code, message) = match self {
            Self::Busy { most } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server_error",
                None,
                "too_many_requests_in_flight",
                format!(
                    "{most} requests are in flight, as many as max_in_flight allows; try again after the time in \
                     retry-after"
                ),
            ),
            Self::TooLarge { limit } => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "invalid_request_error",
                None,
                "request_too_large",
                format!("the request body is larger than {limit} bytes; send less, or raise max_body_bytes"),
            ),
            Self::BadRequest { message } => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                None,
                "invalid_json",
                format!("{message}; nothing was sent upstream"),
            ),
            Self::Compressed => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "invalid_request_error",
                None,
                "compressed_request",
                "the request body is compressed in a way that is not known here, so its model cannot be read; send it as \
                 gzip, deflate, br or zstd, or without content-encoding"
                    .to_owned(),
            ),
            Self::OutOfProportion { most } => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "invalid_request_error",
                None,
                "request_too_large",
                format!(
                    "the request body becomes larger than {most} bytes when decoded, which is {MOST_RATIO} times as much as \
                     came, and 2 MiB; send it without content-encoding"
                ),
            ),
            Self::NoRoomToDecode => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server_error",
                None,
                "too_many_compressed_requests",
                "the compressed requests in flight take as much memory as they may; try again after the time in \
                 retry-after, or send it without content-encoding"
                    .to_owned(),
            ),
            Self::Undecodable { problem } => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                None,
                "undecodable_request",
                format!(
                    "the request body cannot be decoded as its content-encoding says: {problem}; nothing was sent upstream"
                ),
            ),
            Self::NoRoute { model, routes } => (
                StatusCode::NOT_FOUND,
                "invalid_request_error",
                Some("model"),
                "model_not_found",
                format!("no route takes the model {model:?}; routes: {}", routes.join(", ")),
            ),
            Self::UnknownBackend { name, backends } => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                None,
                "unknown_backend",
                format!(
                    "no backend is called {name:?}, as x-streamgauge-backend wants; configured: {}",
                    backends.join(", ")
                ),
            ),
            Self::NoDefaultRoute => (
                StatusCode::NOT_FOUND,
                "invalid_request_error",
                None,
                "path_not_found",
                "this path is none of streamgauge's, and no route with model = \"*\" takes it; add one".to_owned(),
            ),
            Self::Forbidden { message } => {
                (StatusCode::FORBIDDEN, "permission_error", None, "cross_origin", message.clone())
            }
            Self::NoTunnel => (
                StatusCode::METHOD_NOT_ALLOWED,
                "invalid_request_error",
                None,
                "no_tunnel",
                "streamgauge is no forward proxy; use its address as the base URL, not as HTTPS_PROXY".to_owned(),
            ),
            Self::Trace => (
                StatusCode::METHOD_NOT_ALLOWED,
                "invalid_request_error",
                None,
                "no_trace",
                "TRACE is refused: its answer would repeat the headers, keys included; use another method".to_owned(),
            ),
            Self::Loop { backend, url } => (
                StatusCode::LOOP_DETECTED,
                "invalid_request_error",
                None,
                "proxy_loop",
                format!("backend {backend:?} ({url}) leads back to this streamgauge; correct its base_url"),
            ),
            Self::Path { problem } => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                None,
                "bad_path",
                format!("the request's path cannot be passed on: {problem}; correct it"),
            ),
            Self::NotJson => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "invalid_request_error",
                None,
                "not_json",
                "this backend's key is configured here, so requests must have content-type: application/json, which \
                 web pages cannot send unasked; set that header"
                    .to_owned(),
            ),
            Self::Signed { alias } => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                Some("model"),
                "signed_request",
                format!(
                    "the request is signed (x-tt-sign), and its route would put {alias:?} in place of its model, \
                     which breaks the signature; name that model in the request, or remove upstream_model"
                ),
            ),
            Self::NotServing { backend } => (
                StatusCode::NOT_IMPLEMENTED,
                "api_error",
                None,
                "backend_not_available",
                format!(
                    "the backend {backend:?} is a model in this process, which answers chat completions and completions \
                     only; route other requests elsewhere"
                ),
            ),
            Self::Llama { backend, refused } => told_by_llama(backend, refused),
            Self::Models { backend, what } => (
                StatusCode::BAD_GATEWAY,
                "upstream_error",
                None,
                "upstream_models",
                format!("upstream {backend:?} gave no list of models: {what}; check its base_url and key"),
            ),
            Self::ClientBody => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                None,
                "incomplete_request",
                "the client's request body broke off; send it whole".to_owned(),
            ),
            Self::Stream { backend, url, what, late } => {
                let status = if *late { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
                let code = if *late { "upstream_timeout" } else { "upstream_stream" };
                (status, "upstream_error", None, code, format!("upstream {backend:?} ({url}): {what}; try again"))
            }
            Self::Upstream { cause: Cause::RequestBody(_), .. } => return Self::ClientBody.told(),
            Self::Upstream { backend, url, cause } => {
                let late = matches!(cause, Cause::HeadTimeout(_));
                let status = if late { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
                let message = format!("upstream {backend:?} ({url}): {cause}; {}", next_step(cause));
                (status, "upstream_error", None, upstream_code(cause), message)
            }
        };
        Told { status, kind, param, code, message }
    }
}

fn told_by_llama(
    backend: &str,
    refused: &Refused,
) -> (StatusCode, &'static str, Option<&'static str>, &'static str, String) {
    match refused {
        Refused::Bad { message, .. } => {
            (StatusCode::BAD_REQUEST, "invalid_request_error", None, "invalid_request", message.clone())
        }
        Refused::Full { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
            None,
            "queue_full",
            format!("the backend {backend:?} is busy: {refused}; try again after the time in retry-after"),
        ),
        Refused::Loading => (
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
            None,
            "model_loading",
            format!("the backend {backend:?} is not ready: {refused}; try again after the time in retry-after"),
        ),
        Refused::Broken(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "server_error",
            None,
            "internal_error",
            format!("the backend {backend:?}: {refused}; please report it"),
        ),
        Refused::Down(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
            None,
            "engine_failed",
            format!("the backend {backend:?} cannot answer: {refused}; see the log"),
        ),
    }
}

fn upstream_code(cause: &Cause) -> &'static str {
    match cause {
        Cause::Dns(_) => "upstream_dns",
        Cause::Connect(_) => "upstream_connect",
        Cause::Proxy { .. } => "upstream_proxy",
        Cause::Tls(_) => "upstream_tls",
        Cause::ConnectTimeout { .. } => "upstream_connect_timeout",
        Cause::HeadTimeout(_) => "upstream_timeout",
        Cause::Closed(_) | Cause::StreamReset(_) | Cause::Unprocessed(_) => "upstream_closed",
        Cause::NotHttp2(_) | Cause::NoHead(_) | Cause::Protocol(_) => "upstream_protocol",
        Cause::RequestBody(_) => "incomplete_request",
    }
}

impl IntoFault for Broken {
    fn fault(&self) -> Fault {
        match self {
            Self::Reset(_) => Fault::Reset,
            Self::Truncated => Fault::Truncated,
            Self::Idle(_) => Fault::Timeout,
        }
    }
}
