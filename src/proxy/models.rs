//! `/v1/models`: what the upstreams list and what the configuration adds, in one list.

use std::collections::HashSet;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue, VARY};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, StatusCode, Uri, http};
use serde_json::{Value, json};

use super::failure::Refusal;
use super::shape::{Shape, VERSION};
use super::site::Backend;
use super::{Answer, Proxy, answered, codings, headers, listing, pass_on};
use crate::backend::upstream::{Reply, ReplyBody};
use crate::measure::{Framing, Observation};
use crate::route::Target;
use crate::server::Upload;

/// How long one of several upstreams may take over its list, if its `head_timeout_ms` is not shorter.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest page of a list that Anthropic's API gives; others do not look at the query.
const LONGEST_PAGE: &str = "/v1/models?limit=1000";
/// The largest list that is merged, in bytes.
const LARGEST: usize = 16 << 20;

impl Proxy {
    /// Lists models, as clients of the API of this shape read them. With one upstream and nothing to add, its own list
    /// passes as it is if it is written so.
    pub(super) async fn models(
        &self,
        target: &Target<'_>,
        shape: Shape,
        request: Request<Upload>,
        observation: &mut Observation,
    ) -> Result<Answer, Refusal> {
        let own: Vec<(String, String)> = self
            .site
            .router
            .named()
            .map(|route| (route.model.clone(), self.site.backends[route.first().backend].name.to_string()))
            .chain(self.local())
            .collect();
        let upstreams: Vec<usize> =
            (0..self.upstreams.len()).filter(|index| self.upstreams[*index].is_some()).collect();
        let (mut head, _) = request.into_parts();
        if let ([only], true) = (upstreams.as_slice(), own.is_empty()) {
            return self.one_list(*only, target, shape, head, observation).await;
        }
        if shape == Shape::Anthropic {
            // Several lists have no pages in common, so each is asked for one that is as long as may be.
            let mut uri = head.uri.into_parts();
            uri.path_and_query = Some(PathAndQuery::from_static(LONGEST_PAGE));
            head.uri = Uri::from_parts(uri).unwrap_or_else(|_| unreachable!("it was whole, and still is"));
        }
        let mut models = Vec::new();
        let mut listed = HashSet::new();
        for (id, owner) in own {
            if listed.insert(id.clone()) {
                models.push(json!({"id": id, "object": "model", "created": 0, "owned_by": owner}));
            }
        }
        let mut refused = None;
        let mut answered = false;
        let lists = all(upstreams.iter().map(|index| self.list(*index, target, &head))).await;
        for (index, list) in upstreams.into_iter().zip(lists) {
            match list {
                Ok(theirs) => {
                    answered = true;
                    let new = |model: &Value| model["id"].as_str().is_some_and(|id| listed.insert(id.to_owned()));
                    models.extend(theirs.into_iter().filter(new));
                }
                Err(refusal) => {
                    tracing::warn!(backend = %self.site.backends[index].name, %refusal, "its models are not listed");
                    refused = Some(refusal);
                }
            }
        }
        if let Some(refusal) = refused.filter(|_| !answered && models.is_empty()) {
            return Err(refusal);
        }
        let list = listing::written(models, shape);
        let mut response = Response::new(Full::from(list.to_string()));
        describe(response.headers_mut());
        Ok(Answer::Ours(response))
    }

    /// Models in this process, by their own names, where a route leads to them.
    fn local(&self) -> impl Iterator<Item = (String, String)> {
        let routed = |(index, backend): (usize, &Backend)| {
            let model = backend.local_model.as_deref()?;
            let route = self.site.router.route(model)?;
            let leads_here = route.destination(index).is_some_and(|to| to.weight > 0);
            leads_here.then(|| (model.to_owned(), backend.name.to_string()))
        };
        self.site.backends.iter().enumerate().filter_map(routed)
    }

    async fn one_list(
        &self,
        index: usize,
        target: &Target<'_>,
        shape: Shape,
        mut head: http::request::Parts,
        observation: &mut Observation,
    ) -> Result<Answer, Refusal> {
        let backend = self.enter(index, &head, true, observation)?;
        headers::to_upstream(&mut head.headers, backend.key.as_ref(), target, true);
        let http10 = head.version == http::Version::HTTP_10;
        if shape == Shape::Anthropic {
            head.headers.remove(ACCEPT_ENCODING);
        }
        let mut reply = self.send(index, backend, target, head, Either::Left(Full::default()), observation).await?;
        let rewritten = shape == Shape::Anthropic && reply.head.status == StatusCode::OK;
        if !rewritten || codings(&reply.head.headers).is_none_or(|codings| !codings.is_empty()) {
            return Ok(pass_on(reply, http10, None, None, observation));
        }
        headers::to_client(&mut reply.head.headers);
        observation.answered(answered(&reply, Framing::Identity));
        let Reply { mut head, body, .. } = reply;
        // Whole by now, and of a length of its own.
        head.headers.remove(CONTENT_LENGTH);
        head.version = http::Version::HTTP_11;
        let mut body = read_whole(body).await.map_err(|what| unusable(backend, what))?;
        if let Some(models) = listing::foreign_to_anthropic(&body) {
            body = listing::written(models, shape).to_string().into();
            describe(&mut head.headers);
        }
        Ok(Answer::Ours(Response::from_parts(head, Full::new(body))))
    }

    /// One of several upstreams' list, within the time it has for it.
    async fn list(
        &self,
        index: usize,
        target: &Target<'_>,
        head: &http::request::Parts,
    ) -> Result<Vec<Value>, Refusal> {
        let backend = &self.site.backends[index];
        let patience = backend.head_timeout.min(PATIENCE);
        let late = |_| Refusal::Models {
            backend: backend.name.to_string(),
            what: format!("it did not come within {} ms", patience.as_millis()),
        };
        tokio::time::timeout(patience, self.read_list(index, backend, target, head.clone())).await.map_err(late)?
    }

    async fn read_list(
        &self,
        index: usize,
        backend: &Backend,
        target: &Target<'_>,
        mut head: http::request::Parts,
    ) -> Result<Vec<Value>, Refusal> {
        self.guard(backend, &head, true)?;
        headers::to_upstream(&mut head.headers, backend.key.as_ref(), target, true);
        head.headers.remove(ACCEPT_ENCODING);
        if backend.key.is_none() && self.site.router.default_backend() != Some(index) {
            // The client's key is meant for where its requests go by default, not for everyone.
            headers::strip_credentials(&mut head.headers);
        }
        let unusable = |what: String| unusable(backend, what);
        let reply = self.ask(index, backend, target, head, Either::Left(Full::default()), |_| {}).await?;
        let status = reply.head.status;
        let body = read_whole(reply.body).await.map_err(unusable)?;
        if status != StatusCode::OK {
            return Err(unusable(format!("it answered {status}")));
        }
        let list: Value = serde_json::from_slice(&body).map_err(|error| unusable(error.to_string()))?;
        match list {
            Value::Object(mut list) => match list.remove("data") {
                Some(Value::Array(models)) => Ok(models),
                _ => Err(unusable("its list has no data".to_owned())),
            },
            _ => Err(unusable("its list is no JSON object".to_owned())),
        }
    }
}

/// Describes a list of our making.
fn describe(headers: &mut HeaderMap) {
    headers::describe_json(headers);
    headers.append(VARY, HeaderValue::from_static(VERSION));
}

/// A list, as far as it may be large; or why it cannot be read.
async fn read_whole(body: ReplyBody) -> Result<Bytes, String> {
    match Limited::new(body, LARGEST).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(error.to_string()),
    }
}

fn unusable(backend: &Backend, what: String) -> Refusal {
    Refusal::Models { backend: backend.name.to_string(), what }
}

/// Does all of `work` at the same time; the results stand in its order.
async fn all<T>(work: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = work.map(|one| (Box::pin(one), None)).collect();
    poll_fn(|cx| {
        for (one, done) in running.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(result) = one.as_mut().poll(cx) {
                *done = Some(result);
            }
        }
        if running.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, done)| done).collect()
}
