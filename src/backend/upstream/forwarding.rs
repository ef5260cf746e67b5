//! Requests that a proxy is handed one by one: those to upstreams of `http`.

use hyper::header::{HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::response::Parts;
use hyper::http::uri::{Authority, InvalidUri, Scheme};
use hyper::{Request, StatusCode, Uri};

use super::failure::Cause;
use super::tunnel::ProxyFault;
use crate::config::Proxy;

/// How requests are made ready for the proxy.
#[derive(Clone)]
pub(super) struct Forwarding {
    proxy: Proxy,
    authority: Authority,
    authorization: Option<HeaderValue>,
}

impl Forwarding {
    /// To the upstream at `authority`, by way of `proxy`.
    pub(super) fn new(proxy: &Proxy, authority: &str) -> Result<Self, InvalidUri> {
        let authorization = proxy.authorization.as_ref().map(|secret| {
            let mut value = HeaderValue::from_str(secret.expose())
                .unwrap_or_else(|_| unreachable!("the configuration refuses what is not header-safe"));
            value.set_sensitive(true);
            value
        });
        Ok(Self { proxy: proxy.clone(), authority: authority.parse()?, authorization })
    }

    /// Gives the request the absolute form that proxies want (RFC 9112, section 3.2.2), and our credentials for it.
    pub(super) fn address<B>(&self, request: &mut Request<B>) {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.authority.clone());
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_else(|_| unreachable!("the request has a path"));
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
        }
    }

    /// What an answer says that only the proxy can have given. Any other may be the upstream's.
    pub(super) fn refusal(&self, head: &Parts) -> Option<Cause> {
        (head.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED).then(|| {
            let fault = ProxyFault::refused(head.status.as_u16(), head.status.canonical_reason().unwrap_or(""));
            Cause::Proxy { proxy: Box::new(self.proxy.clone()), fault }
        })
    }
}
