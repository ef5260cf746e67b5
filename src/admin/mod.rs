//! The admin listener: `/` and `/live` for people, `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever keeps
//! the process running.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::uri::Authority;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, Uri, http};

mod live;
mod message;
mod page;

pub use live::{Feed, Live};

use crate::config;
use crate::measure::Meter;
use crate::server::{Client, Handler};

/// Prometheus' text format, as its exposition formats page names it.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers on the admin listener.
pub struct Admin {
    meter: Arc<Meter>,
    live: Live,
    unready: Unready,
    server: config::Server,
}

/// Says why requests should go elsewhere. `None` when they may come.
pub type Unready = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// An answer in one piece, or what the live page listens to.
pub type AdminBody = Either<Full<Bytes>, Feed>;

impl Admin {
    /// Serves `meter` and `live`; `/readyz` answers 200 while `unready` gives no reason against it, else 503 with the
    /// reason. `server` says by which names the live page may be asked for.
    pub fn new(meter: Arc<Meter>, live: Live, unready: Unready, server: config::Server) -> Self {
        Self { meter, live, unready, server }
    }

    /// The live page is for whoever knows this machine's address: a web page whose own name was rebound to it would
    /// read every request's model, tag and instants. `/metrics`, which tells sums by model, answers any name, since
    /// scrapers use any.
    fn foreign_host(&self, uri: &Uri, headers: &HeaderMap) -> Option<Response<AdminBody>> {
        let host =
            headers.get(HOST).map(|host| host.to_str().unwrap_or("")).or(uri.authority().map(Authority::as_str))?;
        if self.server.answers_to(host, |_| true) {
            return None;
        }
        let problem = format!(
            "the host {host:?} is neither an address nor configured; open the live page by this machine's address, or add \
             the name to hosts under [server]\n"
        );
        Some(text(StatusCode::FORBIDDEN, problem).map(Either::Left))
    }

    fn answer(&self, uri: &Uri, headers: &HeaderMap) -> Response<AdminBody> {
        let path = uri.path();
        if page::is_part(path)
            && let Some(refused) = self.foreign_host(uri, headers)
        {
            return refused;
        }
        match path {
            "/metrics" => {
                let mut response = text(StatusCode::OK, self.meter.render());
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
                response.map(Either::Left)
            }
            "/live" => match self.live.feed() {
                Some(feed) => feed.map(Either::Right),
                None => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("{} live pages are open already: close one\n", live::MOST_FEEDS),
                )
                .map(Either::Left),
            },
            "/healthz" => text(StatusCode::OK, "ok\n".to_owned()).map(Either::Left),
            "/readyz" => match (self.unready)() {
                None => text(StatusCode::OK, "ready\n".to_owned()),
                Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
            }
            .map(Either::Left),
            path => page::file(path)
                .unwrap_or_else(|| {
                    let has = "the admin listener has / (the live page), /metrics, /healthz and /readyz\n";
                    text(StatusCode::NOT_FOUND, has.to_owned())
                })
                .map(Either::Left),
        }
    }
}

impl Handler for Admin {
    type Body = AdminBody;

    async fn handle(self: Arc<Self>, request: Request<Incoming>, _: Arc<Client>) -> Response<AdminBody> {
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return self.answer(request.uri(), request.headers());
        }
        let only = "the admin listener only answers GET and HEAD\n";
        text(StatusCode::METHOD_NOT_ALLOWED, only.to_owned()).map(Either::Left)
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
