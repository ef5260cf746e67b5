//! A reply's body, whichever way it comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::body::LinkBody;
use super::failure::Broken;
use super::http2::StreamBody;
use crate::clock::{ReadStamp, Stamped};

/// An upstream's reply body. Frames are yielded as they were read.
pub struct ReplyBody(Carried);

#[allow(clippy::large_enum_variant)] // whoever keeps it boxes the whole
enum Carried {
    Own(LinkBody),
    Shared(StreamBody),
}

impl From<LinkBody> for ReplyBody {
    fn from(body: LinkBody) -> Self {
        Self(Carried::Own(body))
    }
}

impl From<StreamBody> for ReplyBody {
    fn from(body: StreamBody) -> Self {
        Self(Carried::Shared(body))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.get_mut().0 {
            Carried::Own(body) => Pin::new(body).poll_frame(cx),
            Carried::Shared(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Carried::Own(body) => body.is_end_stream(),
            Carried::Shared(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Carried::Own(body) => body.size_hint(),
            Carried::Shared(body) => body.size_hint(),
        }
    }
}

impl Stamped for ReplyBody {
    fn stamp(&self) -> Option<ReadStamp> {
        match &self.0 {
            Carried::Own(body) => body.stamp(),
            Carried::Shared(body) => body.stamp(),
        }
    }
}
