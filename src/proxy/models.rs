//! `/v1/models`: what the upstreams list and what the configuration adds, in one list.

use std::collections::HashSet;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::{Request, Response, StatusCode, http};
use serde_json::{Value, json};

use super::failure::Refusal;
use super::site::Backend;
use super::{Answer, Proxy, headers, pass_on};
use crate::measure::Observation;
use crate::route::Target;
use crate::server::Upload;

/// How long one of several upstreams may take over its list, if its `head_timeout_ms` is not shorter.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest list that is merged, in bytes.
const LARGEST: usize = 16 << 20;

impl Proxy {
    /// Lists models. With one upstream and nothing to add, its own list passes as it is.
    pub(super) async fn models(
        &self,
        target: &Target<'_>,
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
        let (head, _) = request.into_parts();
        if let ([only], true) = (upstreams.as_slice(), own.is_empty()) {
            return self.one_list(*only, target, head, observation).await;
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
        let list = json!({"object": "list", "data": models});
        let mut response = Response::new(Full::from(list.to_string()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
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
        mut head: http::request::Parts,
        observation: &mut Observation,
    ) -> Result<Answer, Refusal> {
        let backend = self.enter(index, &head, observation)?;
        headers::to_upstream(&mut head.headers, backend.key.as_ref(), target, true);
        let http10 = head.version == http::Version::HTTP_10;
        let reply = self.send(index, backend, target, head, Either::Left(Full::default()), observation).await?;
        Ok(pass_on(reply, http10, None, None, observation))
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
        self.guard(backend, &head)?;
        headers::to_upstream(&mut head.headers, backend.key.as_ref(), target, true);
        head.headers.remove(ACCEPT_ENCODING);
        if backend.key.is_none() && self.site.router.default_backend() != Some(index) {
            // The client's key is meant for where its requests go by default, not for everyone.
            headers::strip_credentials(&mut head.headers);
        }
        let unusable = |what: String| Refusal::Models { backend: backend.name.to_string(), what };
        let reply = self.ask(index, backend, target, head, Either::Left(Full::default()), |_| {}).await?;
        let status = reply.head.status;
        let body: Bytes = match Limited::new(reply.body, LARGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return Err(unusable(error.to_string())),
        };
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
