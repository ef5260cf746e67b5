//! The admin listener: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever keeps the process running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
    ready: Arc<AtomicBool>,
}

impl Admin {
    /// Serves `meter`; `/readyz` answers 200 while `ready` is true, else 503.
    pub fn new(meter: Arc<Meter>, ready: Arc<AtomicBool>) -> Self {
        Self { meter, ready }
    }
}

impl Handler for Admin {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>, _: &Arc<Client>) -> Response<Full<Bytes>> {
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
            "/readyz" if self.ready.load(Relaxed) => text(StatusCode::OK, "ready\n".to_owned()),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned()),
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
