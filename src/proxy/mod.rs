//! One exchange from top to bottom: read the request, find its route, ask the backend, pass the reply on, observed.
//!
//! Backends are upstreams, or models in this process (`local`). A [`Site`] is what all threads share; a [`Proxy`] is one
//! thread's handler with its own upstream connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, VIA};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::{Method, Request, Response, Version, http};

mod asking;
mod beyond;
mod cors;
mod credentials;
mod encoded;
mod failure;
mod guard;
mod headers;
mod inference;
mod listing;
mod local;
mod mirror;
mod models;
mod once;
mod pick;
mod reply;
mod request;
mod room;
mod shape;
mod site;
mod splice;
mod tokens;
mod whole;

pub use credentials::Credentials;
pub use mirror::Mirroring;
pub use reply::BackendBody;
pub use site::{BackendError, Site};
pub use tokens::{TokenizerError, check_tokenizer};

use crate::backend::upstream::{Failure, Reply, RequestBody, Upstream};
use crate::measure::{Answered, Content, Framing, Observation, ObservedBody};
use crate::route::{Operation, Target, classify, upstream_path};
use crate::server::{Client, Handler, Refused, Upload};
use crate::wire::chat::UsageStripper;
use crate::wire::encoding::Codings;
use asking::What;
use failure::Refusal;
use shape::Shape;
use site::Backend;
use whole::Gathering;

/// A reply towards the client: one of ours, or a backend's on its way through.
pub type ProxyBody = Either<Full<Bytes>, ObservedBody<BackendBody>>;

/// One thread's handler.
pub struct Proxy {
    site: Arc<Site>,
    /// By backend index; `None` for a backend that is no upstream.
    upstreams: Vec<Option<Upstream>>,
}

impl Handler for Proxy {
    type Body = ProxyBody;

    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: Arc<Client>,
    ) -> impl Future<Output = Response<ProxyBody>> + Send + 'static {
        let origin = cors::listed_origin(&self.site.server, request.headers());
        let preflight = origin.is_some() && cors::is_preflight(&request);
        let operation = if preflight { Operation::Other } else { classify(request.uri().path()).operation };
        let dialect = operation.dialect().filter(|_| request.method() == Method::POST);
        let meter = self.site.meter.clone();
        let observation = Observation::begin(meter, operation.label(), last_read(&client), dialect);
        async move {
            let Some(origin) = origin else { return self.answer(request, &client, observation).await };
            if preflight {
                return answer_preflight(request, origin, observation);
            }
            let mut response = self.answer(request, &client, observation).await;
            cors::allow(response.headers_mut(), origin);
            response
        }
    }

    fn connected(&self) {
        self.site.meter.connections().opened();
    }

    fn disconnected(&self) {
        self.site.meter.connections().closed();
    }

    fn refused(&self, why: Refused) {
        self.site.meter.connections().refused(why);
    }

    fn cutting_off(&self) {
        self.site.meter.cut_off();
    }
}

/// What a request leads to.
#[allow(clippy::large_enum_variant)] // made once per request and taken apart at once
enum Answer {
    /// A reply made here.
    Ours(Response<Full<Bytes>>),
    /// A backend's reply.
    Theirs {
        response: Response<BackendBody>,
        /// Only the connection's end ends it.
        framing_unknown: bool,
        /// Towards the client, too.
        unframed: bool,
        /// The longest time between two events, where they are looked at.
        event_timeout: Option<Duration>,
        onward: Onward,
    },
}

/// How a backend's reply goes on to the client.
enum Onward {
    /// As it comes.
    AsItComes,
    /// Without what only our asking for usage brought.
    Stripped(UsageStripper),
    /// A stream, as the whole reply that it is the parts of.
    Gathered(Box<Gathering>),
}

impl Proxy {
    async fn answer(
        &self,
        request: Request<Incoming>,
        client: &Arc<Client>,
        mut observation: Observation,
    ) -> Response<ProxyBody> {
        let path = request.uri().path().to_owned();
        let target = classify(&path);
        let (mut head, body) = request.into_parts();
        if head.version == Version::HTTP_2 {
            headers::join_cookies(&mut head.headers);
        }
        let shape = Shape::of(&target, &head.headers);
        let body = Upload::new(&head.headers, body);
        let request = Request::from_parts(head, body);
        let most = self.site.server.limits.max_in_flight;
        let answered = match (target.operation, request.method()) {
            _ if observation.at_once() > most => Err(Refusal::Busy { most }),
            (operation, &Method::POST) if let Some(dialect) = operation.dialect() => {
                self.infer(dialect, &target, request, client, &mut observation).await
            }
            (Operation::Count(dialect), &Method::POST) => {
                Box::pin(self.count(dialect, &target, request, client, &mut observation)).await
            }
            (Operation::Models, &Method::GET) => self.models(&target, shape, request, &mut observation).await,
            (_, &Method::CONNECT) => Err(Refusal::NoTunnel),
            (_, &Method::TRACE) => Err(Refusal::Trace),
            _ => self.pass(&target, request, &mut observation).await,
        };
        match answered {
            Ok(Answer::Ours(response)) => {
                observation.finish_whole(response.status().as_u16());
                response.map(Either::Left)
            }
            Ok(Answer::Theirs { response, framing_unknown, unframed, event_timeout, onward }) => {
                let stripper = match onward {
                    Onward::AsItComes => None,
                    Onward::Stripped(stripper) => Some(stripper),
                    Onward::Gathered(gathering) => {
                        let observe = |body| ObservedBody::new(body, observation, None, framing_unknown);
                        let observed = response.map(|body| observe(body).with_event_timeout(event_timeout));
                        return Box::pin(whole::gather(*gathering, &self.site, observed, client))
                            .await
                            .map(Either::Right);
                    }
                };
                response.map(|body| {
                    let body = ObservedBody::new(body, observation, Some(client.outlet()), framing_unknown);
                    let reset = unframed.then(|| client.io.clone());
                    Either::Right(body.with_event_timeout(event_timeout).with_reset_of(reset).stripped_by(stripper))
                })
            }
            Err(refusal) => {
                let response = refusal.response(shape);
                observation.end_with(refusal.outcome(), response.status().as_u16());
                response.map(Either::Left)
            }
        }
    }

    /// Any path that is not measured goes to the default upstream as it is.
    async fn pass(
        &self,
        target: &Target<'_>,
        request: Request<Upload>,
        observation: &mut Observation,
    ) -> Result<Answer, Refusal> {
        let (mut head, body) = request.into_parts();
        let by_hand = self.site.by_hand(&head.headers)?;
        let index = by_hand.or_else(|| self.site.router.default_backend()).ok_or(Refusal::NoDefaultRoute)?;
        let backend = self.enter(index, &head, body.is_end_stream(), observation)?;
        let http10 = head.version == Version::HTTP_10;
        let limit = self.site.server.max_body_bytes;
        if announced_length(&head.headers).is_some_and(|length| length > limit as u64) {
            return Err(Refusal::TooLarge { limit });
        }
        headers::to_upstream(&mut head.headers, backend.key.as_ref(), target, false);
        let body = if body.is_end_stream() { Either::Left(Full::default()) } else { Either::Right(body) };
        let reply = self.send(index, backend, target, head, body, observation).await?;
        Ok(pass_on(reply, http10, None, None, observation))
    }

    /// Notes where the request goes, and refuses it there if a web page could have sent it. `bodyless` says that it has no
    /// body.
    fn enter(
        &self,
        index: usize,
        head: &http::request::Parts,
        bodyless: bool,
        observation: &mut Observation,
    ) -> Result<&Backend, Refusal> {
        let backend = &self.site.backends[index];
        observation.routed(&backend.name);
        self.guard(backend, head, bodyless)?;
        Ok(backend)
    }

    /// Where a key would be added, refuses what a web page could have sent.
    fn guard(&self, backend: &Backend, head: &http::request::Parts, bodyless: bool) -> Result<(), Refusal> {
        match backend.key {
            Some(_) => guard::check(&head.method, &head.uri, &head.headers, bodyless, &self.site.server),
            None => Ok(()),
        }
    }

    async fn send(
        &self,
        index: usize,
        backend: &Backend,
        target: &Target<'_>,
        head: http::request::Parts,
        body: RequestBody,
        observation: &mut Observation,
    ) -> Result<Reply, Refusal> {
        let failed = |failure: &Failure| observation.unanswered(failure.sent, failure.phases);
        self.ask(index, backend, target, head, body, failed).await
    }

    /// Asks a backend; `failed` is told of an attempt that brought no reply.
    async fn ask(
        &self,
        index: usize,
        backend: &Backend,
        target: &Target<'_>,
        head: http::request::Parts,
        body: RequestBody,
        failed: impl FnOnce(&Failure),
    ) -> Result<Reply, Refusal> {
        let (Some(base), Some(upstream)) = (&backend.base_url, &self.upstreams[index]) else {
            return Err(Refusal::NotServing { backend: backend.name.to_string() });
        };
        let path = upstream_path(base, target, head.uri.query());
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        *request.headers_mut() = head.headers;
        *request.uri_mut() =
            path.parse().map_err(|error: http::uri::InvalidUri| Refusal::Path { problem: error.to_string() })?;
        let headers = request.headers_mut();
        if self.has_been_here(headers) {
            return Err(Refusal::Loop { backend: backend.name.to_string(), url: base.to_string() });
        }
        headers.append(VIA, self.site.via.clone());
        upstream.send(request).await.map_err(|failure| {
            failed(&failure);
            Refusal::Upstream { backend: backend.name.to_string(), url: base.to_string(), cause: failure.cause }
        })
    }

    /// Whether a request has passed through this process before.
    fn has_been_here(&self, headers: &HeaderMap) -> bool {
        headers.get_all(VIA).iter().any(|via| *via == self.site.via)
    }

    /// Closes idle upstream connections that nobody should use any more.
    pub fn sweep(&self) {
        for upstream in self.upstreams.iter().flatten() {
            upstream.sweep();
        }
    }
}

/// Answers a browser that asks what a page of `origin` may do.
fn answer_preflight(request: Request<Incoming>, origin: HeaderValue, observation: Observation) -> Response<ProxyBody> {
    let (head, body) = request.into_parts();
    // Read to its end, should there be one.
    drop(Upload::new(&head.headers, body));
    let response = cors::preflight(&head.headers, origin);
    observation.finish_whole(response.status().as_u16());
    response.map(Either::Left)
}

/// Passes an upstream's reply on and tells the observation what to expect of it.
///
/// `beyond` is what was asked of it beyond the client's words.
fn pass_on(
    mut reply: Reply,
    http10: bool,
    event_timeout: Option<Duration>,
    beyond: Option<What>,
    observation: &mut Observation,
) -> Answer {
    // HTTP/2 ends streams by itself.
    let framing_unknown = reply.head.version != Version::HTTP_2 && headers::is_close_delimited(&reply.head.headers);
    headers::to_client(&mut reply.head.headers);
    let stripper = beyond.filter(|what| *what == What::Usage).and_then(|_| asking::stripper(&mut reply.head));
    let onward = stripper.map_or(Onward::AsItComes, Onward::Stripped);
    let has_length = reply.head.headers.contains_key(CONTENT_LENGTH);
    let unframed = http10 && !has_length;
    let framing = if unframed || has_length { Framing::Identity } else { Framing::Chunked };
    observation.answered(answered(&reply, framing));
    let Reply { mut head, body, .. } = reply;
    // What the upstream speaks is not what the client gets: its own connection decides.
    head.version = Version::HTTP_11;
    let response = Response::from_parts(head, BackendBody::Upstream(Box::new(body)));
    Answer::Theirs { response, framing_unknown, unframed, event_timeout, onward }
}

/// What the head of an upstream's reply told, whose body is framed so towards the client.
fn answered(reply: &Reply, framing: Framing) -> Answered {
    Answered {
        status: reply.head.status.as_u16(),
        content: content_of(&reply.head.headers),
        framing,
        sent: reply.sent,
        head: reply.head_at,
        connect: reply.phases,
        reused: Some(reply.reused),
        engine: None,
    }
}

fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn content_of(headers: &HeaderMap) -> Content {
    let events = is_event_stream(headers);
    match codings(headers) {
        None => Content::Opaque,
        Some(codings) if !codings.is_empty() => Content::Encoded { codings, events },
        Some(_) if events => Content::Events,
        Some(_) => Content::Unlabelled,
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let essence = kind.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case("text/event-stream")
}

/// The content codings. `None` where one is not known here; what is no text names none that is.
fn codings(headers: &HeaderMap) -> Option<Codings> {
    Codings::named(headers.get_all(CONTENT_ENCODING).iter().map(|value| value.to_str().unwrap_or("?")))
}

fn last_read(client: &Client) -> Instant {
    client.io.last_read().map_or_else(Instant::now, |stamp| stamp.at)
}
