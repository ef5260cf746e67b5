//! HTTP/2 to the upstream.
