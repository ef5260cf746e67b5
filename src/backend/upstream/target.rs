//! The forms in which a request names whom it is for.

use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Uri, Version};

use super::tls::SetupError;
use crate::config::BaseUrl;

/// An upstream, as requests name it.
#[derive(Clone)]
pub(super) struct Target {
    host: HeaderValue,
    scheme: Scheme,
    authority: Authority,
}

impl Target {
    pub(super) fn new(base_url: &BaseUrl) -> Result<Self, SetupError> {
        let authority = base_url.authority();
        let host = HeaderValue::from_str(&authority).ok();
        let scheme = if base_url.tls { Scheme::HTTPS } else { Scheme::HTTP };
        match (host, authority.parse()) {
            (Some(host), Ok(authority)) => Ok(Self { host, scheme, authority }),
            _ => Err(SetupError::ServerName { host: authority }),
        }
    }

    /// A path, with the name in `Host`: how a server is asked (RFC 9112, section 3.2.1).
    pub(super) fn origin_form<B>(&self, request: &mut Request<B>) {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        (parts.scheme, parts.authority) = (None, None);
        *request.uri_mut() = whole(parts);
        *request.version_mut() = Version::HTTP_11;
        request.headers_mut().insert(HOST, self.host.clone());
    }

    /// A whole URL: how a proxy is asked (RFC 9112, section 3.2.2).
    pub(super) fn absolute_form<B>(&self, request: &mut Request<B>) {
        self.origin_form(request);
        // It stands for the server as a whole, which a URL says without a path (RFC 9112, section 3.2.4); a lone slash is
        // as near as `Uri` comes to that.
        if request.uri().path() == "*" {
            *request.uri_mut() = Uri::from_static("/");
        }
        self.name(request);
    }

    /// Scheme, authority and path, and no `Host`: how a server of HTTP/2 is asked (RFC 9113, section 8.3.1).
    pub(super) fn http2<B>(&self, request: &mut Request<B>) {
        self.name(request);
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().remove(HOST);
    }

    fn name<B>(&self, request: &mut Request<B>) {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        *request.uri_mut() = whole(parts);
    }
}

fn whole(parts: hyper::http::uri::Parts) -> Uri {
    Uri::from_parts(parts).unwrap_or_else(|_| unreachable!("a request to an upstream has a path"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_url_of_the_server_itself_has_no_asterisk() {
        let target = Target::new(&"http://api.example".parse().unwrap()).unwrap();
        let mut request = Request::options("*").body(()).unwrap();
        target.origin_form(&mut request);
        assert_eq!(request.uri().to_string(), "*");
        target.absolute_form(&mut request);
        assert_eq!(request.uri().to_string(), "http://api.example/");
    }

    #[test]
    fn each_form_can_follow_any_other() {
        let target = Target::new(&"https://api.example:8443/v1".parse().unwrap()).unwrap();
        let mut request = Request::builder().uri("/v1/models?x=1").body(()).unwrap();
        for _ in 0..2 {
            target.origin_form(&mut request);
            assert_eq!((request.uri().to_string(), request.version()), ("/v1/models?x=1".to_owned(), Version::HTTP_11));
            assert_eq!(request.headers()[HOST], "api.example:8443");
            target.absolute_form(&mut request);
            assert_eq!(request.uri().to_string(), "https://api.example:8443/v1/models?x=1");
            assert_eq!(request.headers()[HOST], "api.example:8443");
            target.http2(&mut request);
            assert_eq!(request.uri().to_string(), "https://api.example:8443/v1/models?x=1");
            assert_eq!((request.headers().get(HOST), request.version()), (None, Version::HTTP_2));
        }
    }
}
