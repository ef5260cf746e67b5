//! A backend's reply body, whichever kind of backend it comes from.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use crate::backend::{llama, upstream};
use crate::clock::{EngineReport, ReadStamp, Stamped};

/// A backend's reply body.
pub enum BackendBody {
    /// From an upstream's connection.
    Upstream(Box<upstream::ReplyBody>),
    /// From an engine in this process.
    Llama(llama::ReplyBody),
    /// Made here, of a stream that was read to its end.
    Whole(Full<Bytes>),
}

impl Body for BackendBody {
    type Data = Bytes;
    type Error = upstream::Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, upstream::Broken>>> {
        match self.get_mut() {
            Self::Upstream(body) => Pin::new(body).poll_frame(cx),
            Self::Llama(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Whole(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Upstream(body) => body.is_end_stream(),
            Self::Llama(body) => body.is_end_stream(),
            Self::Whole(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Upstream(body) => body.size_hint(),
            Self::Llama(body) => body.size_hint(),
            Self::Whole(body) => body.size_hint(),
        }
    }
}

impl Stamped for BackendBody {
    fn stamp(&self) -> Option<ReadStamp> {
        match self {
            Self::Upstream(body) => body.stamp(),
            Self::Llama(body) => body.stamp(),
            Self::Whole(_) => None,
        }
    }

    fn engine(&self) -> Option<EngineReport> {
        match self {
            Self::Upstream(body) => body.engine(),
            Self::Llama(body) => body.engine(),
            Self::Whole(_) => None,
        }
    }

    fn only_echoes(&self) -> bool {
        match self {
            Self::Llama(body) => body.only_echoes(),
            Self::Upstream(_) | Self::Whole(_) => false,
        }
    }
}
