//! A request to a model: it is read whole, routed by the model that it names, and asked, observed. One that only asks how
//! many tokens another would have goes the same way, unobserved.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Either, Full};
use hyper::Request;
use hyper::header::HeaderMap;
use hyper::{Version, http};

use super::beyond::Going;
use super::failure::Refusal;
use super::pick::Picked;
use super::request::ModelRequest;
use super::{Answer, Proxy, announced_length, codings, headers, last_read, local, pass_on};
use crate::measure::{Asked, Observation};
use crate::route::Target;
use crate::server::{Client, Upload};
use crate::wire::Dialect;

impl Proxy {
    /// Answers a request to a model, measured.
    pub(super) async fn infer(
        &self,
        dialect: Dialect,
        target: &Target<'_>,
        request: Request<Upload>,
        client: &Client,
        observation: &mut Observation,
    ) -> Result<Answer, Refusal> {
        let (head, body) = request.into_parts();
        let wanted = self.read(dialect, &head.headers, body, client, observation).await?;
        observation.asked(asked(&wanted, &head.headers));
        let (picked, alias) = self.lead(&head, &wanted, observation)?;
        let second = picked.mirror.and_then(|mirror| self.second(mirror, &head, &wanted));
        let mirrors = &self.site.mirrors;
        if let Some(llama) = &self.site.llamas[picked.backend] {
            return mirrors.beside(local::answer(llama, wanted, head.version, observation), second).await;
        }
        if let Some(counter) = self.site.tokens.of(picked.backend) {
            observation.count_with(counter.clone(), wanted.body());
        }
        let going = Going { backend: picked.backend, target, head, wanted, alias };
        let returned = mirrors.beside(self.send_wanted(going, observation), second).await?;
        Ok(self.pass_wanted_on(returned, observation))
    }

    /// Answers how many tokens a request to a model would have: asked of the backend to which that one goes, as its client
    /// wrote it but for the model's name.
    pub(super) async fn count(
        &self,
        dialect: Dialect,
        target: &Target<'_>,
        request: Request<Upload>,
        client: &Client,
        observation: &mut Observation,
    ) -> Result<Answer, Refusal> {
        let (mut head, body) = request.into_parts();
        let wanted = self.read(dialect, &head.headers, body, client, observation).await?;
        let (Picked { backend: index, .. }, alias) = self.lead(&head, &wanted, observation)?;
        let backend = &self.site.backends[index];
        let http10 = head.version == Version::HTTP_10;
        headers::to_upstream(&mut head.headers, backend.key.as_ref(), target, true);
        let body = Either::Left(Full::new(wanted.into_onward(&mut head.headers, alias)));
        let reply = self.send(index, backend, target, head, body, observation).await?;
        Ok(pass_on(reply, http10, None, None, observation))
    }

    /// Reads a request to its end, and what it asks for.
    async fn read(
        &self,
        dialect: Dialect,
        headers: &HeaderMap,
        body: Upload,
        client: &Client,
        observation: &mut Observation,
    ) -> Result<ModelRequest, Refusal> {
        let codings = codings(headers).ok_or(Refusal::Compressed)?;
        let body = self.read_body(headers, body).await?;
        observation.body_read(last_read(client));
        if codings.is_empty() {
            return Ok(ModelRequest::read(dialect, body)?);
        }
        let site = &self.site;
        Box::pin(site.decoding.read(dialect, codings, body, site.server.max_body_bytes)).await
    }

    /// Decides where a request goes, and under which other name its model is known there.
    fn lead(
        &self,
        head: &http::request::Parts,
        wanted: &ModelRequest,
        observation: &mut Observation,
    ) -> Result<(Picked<'_>, Option<&str>), Refusal> {
        let picked = self.site.pick(&head.headers, wanted)?;
        // What names a model has a body.
        self.enter(picked.backend, head, false, observation)?;
        let alias = picked.alias.filter(|alias| wanted.model.as_deref() != Some(alias));
        if let Some(alias) = alias
            && head.headers.contains_key(&headers::SIGNATURE)
        {
            return Err(Refusal::Signed { alias: alias.to_owned() });
        }
        Ok((picked, alias))
    }

    async fn read_body(&self, headers: &HeaderMap, mut body: Upload) -> Result<Bytes, Refusal> {
        let limit = self.site.server.max_body_bytes;
        let silence = self.site.server.limits.header_timeout;
        if announced_length(headers).is_some_and(|length| length > limit as u64) {
            return Err(Refusal::TooLarge { limit });
        }
        // Mostly one frame, which is kept as it is; many are copied together, so that a byte costs a byte.
        let mut first = Bytes::new();
        let mut joined = BytesMut::new();
        loop {
            let frame = match tokio::time::timeout(silence, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(_))) | Err(_) => return Err(Refusal::ClientBody),
            };
            let Ok(bytes) = frame.into_data() else { continue };
            if first.len() + joined.len() + bytes.len() > limit {
                return Err(Refusal::TooLarge { limit });
            }
            if first.is_empty() && joined.is_empty() {
                first = bytes;
            } else {
                joined.extend_from_slice(&std::mem::take(&mut first));
                joined.extend_from_slice(&bytes);
            }
        }
        Ok(if joined.is_empty() { first } else { joined.freeze() })
    }
}

/// What the measuring side needs to know of a request.
pub(super) fn asked(wanted: &ModelRequest, headers: &HeaderMap) -> Asked {
    let tag = headers.get(&headers::TAG).and_then(|tag| std::str::from_utf8(tag.as_bytes()).ok());
    Asked {
        model: wanted.model.as_deref().map(Box::from),
        stream: wanted.stream,
        choices: wanted.choices,
        echo: wanted.echo,
        tag: tag.map(Box::from),
    }
}
