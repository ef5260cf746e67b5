//! Requests that a proxy is handed one by one: those to upstreams of `http`.

use hyper::header::{HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode};

use super::failure::Cause;
use super::tunnel::ProxyFault;
use crate::config::Proxy;

/// The proxy, as requests need to know it.
#[derive(Clone)]
pub(super) struct Forwarding {
    proxy: Proxy,
    authorization: Option<HeaderValue>,
}

impl Forwarding {
    pub(super) fn new(proxy: &Proxy) -> Self {
        let authorization = proxy.authorization.as_ref().map(|secret| {
            let mut value = HeaderValue::from_str(secret.expose())
                .unwrap_or_else(|_| unreachable!("the configuration refuses what is not header-safe"));
            value.set_sensitive(true);
            value
        });
        Self { proxy: proxy.clone(), authorization }
    }

    /// Adds our credentials for the proxy.
    pub(super) fn authorize<B>(&self, request: &mut Request<B>) {
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
