//! The admin listener: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever keeps the process running.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, http};

use crate::measure::Meter;
use crate::server::{Client, Handler};

/// Prometheus' text format, as its exposition formats page names it.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers on the admin listener.
pub struct Admin {
    meter: Arc<Meter>,
    unready: Unready,
}

/// Says why requests should go elsewhere. `None` when they may come.
pub type Unready = Box<dyn Fn() -> Option<String> + Send + Sync>;

impl Admin {
    /// Serves `meter`; `/readyz` answers 200 while `unready` gives no reason against it, else 503 with the reason.
    pub fn new(meter: Arc<Meter>, unready: Unready) -> Self {
        Self { meter, unready }
    }
}

impl Handler for Admin {
    type Body = Full<Bytes>;

    async fn handle(self: Arc<Self>, request: Request<Incoming>, _: Arc<Client>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "the admin listener only answers GET and HEAD\n".to_owned());
        }
        match request.uri().path() {
            "/metrics" => {
                let mut response = text(StatusCode::OK, self.meter.render());
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
                response
            }
            "/healthz" => text(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => match (self.unready)() {
                None => text(StatusCode::OK, "ready\n".to_owned()),
                Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
            },
            _ => text(StatusCode::NOT_FOUND, "the admin listener has /metrics, /healthz and /readyz\n".to_owned()),
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
