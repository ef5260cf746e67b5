//! A request answered by a model in this process.

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, Version};

use super::failure::Refusal;
use super::reply::BackendBody;
use super::request::ModelRequest;
use super::{Answer, Onward};
use crate::backend::llama::{Kind, Llama, Reply};
use crate::clock::Stamped;
use crate::measure::{Answered, Content, Framing, Observation};
use crate::transport::ConnectPhases;
use crate::wire::Dialect;

/// Asks `llama`, and tells the observation what to expect of its reply.
pub(super) async fn answer(
    llama: &Llama,
    wanted: ModelRequest,
    version: Version,
    observation: &mut Observation,
) -> Result<Answer, Refusal> {
    let kind = match wanted.dialect {
        Dialect::Chat => Kind::Chat,
        Dialect::Completion => Kind::Completion,
        Dialect::Responses | Dialect::Messages | Dialect::Embeddings | Dialect::Rerank => {
            return Err(Refusal::NotServing { backend: llama.name().to_string() });
        }
    };
    let Reply { stream, body, sent, head_at } =
        llama.answer(kind, wanted.into_body(None)).await.map_err(|(refused, sent)| {
            observation.unanswered(Some(sent), ConnectPhases::default());
            Refusal::Llama { backend: llama.name().to_string(), refused }
        })?;
    let unframed = stream && version == Version::HTTP_10;
    observation.answered(Answered {
        status: 200,
        content: if stream { Content::Events } else { Content::Unlabelled },
        framing: if stream && !unframed { Framing::Chunked } else { Framing::Identity },
        sent: Some(sent),
        head: head_at,
        connect: ConnectPhases::default(),
        reused: None,
        engine: body.engine(),
    });
    let mut response = Response::new(BackendBody::Llama(body));
    let kind = if stream { "text/event-stream; charset=utf-8" } else { "application/json" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if stream {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
    let onward = Onward::AsItComes;
    Ok(Answer::Theirs { response, framing_unknown: false, unframed, event_timeout: None, onward })
}
