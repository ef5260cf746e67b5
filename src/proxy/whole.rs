//! A whole reply made of a stream: the client asked for one document, the upstream was asked for events, to be measured.
//!
//! Nothing can be said to the client until the stream is over, so a stream that does not end well becomes a status and an
//! error object, as it would have been without us.
//!
//! Invariants:
//! * An upstream that answers with a document, or with text, all the same is handed on as it is. Larger than [`LARGEST`]
//!   it is a 502, as a stream of that size is.
//! * What is held is counted in the [`Share`] as it grows, and until the client has taken the whole.
//! * The client does not wait for an upstream to end that has said its last.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt, Full};
use hyper::{Response, StatusCode, http};
use serde_json::Value;

use super::failure::Refusal;
use super::headers;
use super::reply::BackendBody;
use super::room::Share;
use super::shape::Shape;
use super::site::Site;
use crate::measure::{Content, Ending, Fault, ObservedBody};
use crate::server::Client;
use crate::wire::Dialect;
use crate::wire::assemble::{Assembler, LARGEST, MOST_CHOICES, Standing};
use crate::wire::encoding::{Codings, Decoder, Undecodable};
use crate::wire::sse::{Item, SseParser, opens_stream};

/// How long the end of a stream is waited for that has come to its last event, so that its connection can be used again.
const END: Duration = Duration::from_secs(1);
/// After so many blank bytes a reply is taken for a document.
const MOST_BLANK: usize = 64 << 10;

type Observed = ObservedBody<BackendBody>;

/// What must be known of a reply to make a whole of it.
pub(super) struct Gathering {
    /// What its head says of its body.
    pub(super) content: Content,
    /// The choices asked for.
    pub(super) choices: u32,
    /// What the client speaks, and so how it reads errors.
    pub(super) dialect: Dialect,
    /// What the reply is put together by.
    pub(super) reply: Assembler,
    /// Who is guilty should it fail, an index into the site's backends, and where that is.
    pub(super) backend: usize,
    pub(super) url: String,
    /// The name that backend knows the model by.
    pub(super) model: Box<str>,
    /// Where it is put together.
    pub(super) share: Share,
}

/// What was read.
enum Gathered {
    /// A document, as it came.
    Document(Bytes),
    /// A reply made of events; `lacks_usage` where all of them came and none told token counts.
    Reply { json: String, lacks_usage: bool },
    /// The upstream's own error object, or the event that is one, raw.
    Error(Box<str>),
    /// Nothing that could be handed on.
    Lost { what: String, late: bool },
}

/// Reads the stream to its end, and answers with the whole. Dropping the future drops the upstream's connection.
pub(super) async fn gather(
    gathering: Gathering,
    site: &Site,
    response: Response<Observed>,
    client: &Client,
) -> Response<Observed> {
    let Gathering { content, choices, dialect, reply, backend, url, model, share } = gathering;
    let shape = Shape::of_dialect(dialect);
    let backend = &site.backends[backend];
    let (mut head, observed) = response.into_parts();
    let mut source = Source { observed: observed.kept(), decoder: None, taken: 0, share, is_over: false };
    let gathered = match content {
        Content::Unlabelled => unlabelled(&mut source, reply, choices).await,
        Content::Events => events(&mut source, reply, None, choices).await,
        Content::Encoded { codings, .. } => match source.decode(codings) {
            Ok(()) => events(&mut source, reply, None, choices).await,
            Err(lost) => lost,
        },
        Content::Opaque => {
            let what = "its stream is compressed in a way that is not known here".to_owned();
            Gathered::Lost { what, late: false }
        }
    };
    // What was not read to its end is over all the same, or given up.
    let left = match gathered {
        Gathered::Document(_) | Gathered::Reply { .. } => Ending::Whole,
        Gathered::Error(_) => Ending::InError,
        Gathered::Lost { .. } => Ending::Broken(Fault::Truncated),
    };
    let may_end = !source.is_over && left != Ending::Broken(Fault::Truncated);
    let whole = match gathered {
        Gathered::Document(document) => {
            // Whole by now, whatever length it had been announced with.
            head.headers.remove(CONTENT_LENGTH);
            document
        }
        Gathered::Reply { json, lacks_usage } => {
            if lacks_usage {
                backend.asking.without_usage(dialect, &model, &backend.name);
            }
            headers::describe_json(&mut head.headers);
            json.into()
        }
        Gathered::Error(error) => {
            headers::describe_json(&mut head.headers);
            let (status, told) = in_shape(shape, &error, &backend.name);
            head.status = status;
            told.into()
        }
        Gathered::Lost { what, late } => {
            let backend = backend.name.to_string();
            let (refused, whole) = Refusal::Stream { backend, url, what, late }.response(shape).into_parts();
            (head.status, head.headers) = (refused.status, refused.headers);
            whole.collect().await.unwrap_or_else(|never| match never {}).to_bytes()
        }
    };
    let status = head.status.as_u16();
    let Source { observed, share, .. } = source;
    let whole = BackendBody::Whole(Full::new(Arc::new(share).kept_for(whole)));
    let (whole, rest) = observed.replaced(whole, status, left, client.outlet());
    if may_end {
        tokio::spawn(tokio::time::timeout(END, rest.drained()));
    }
    Response::from_parts(head, whole)
}

/// The upstream's body, its codings undone.
struct Source {
    observed: Observed,
    /// `None` for what is not encoded.
    decoder: Option<Decoder>,
    /// What the decoder may hold, in bytes.
    taken: usize,
    share: Share,
    /// It was read to its end.
    is_over: bool,
}

impl Source {
    /// Undoes these codings from here on.
    fn decode(&mut self, codings: Codings) -> Result<(), Gathered> {
        self.taken = (codings.memory_mib() as usize) << 20;
        self.hold(0)?;
        self.decoder = Decoder::new(codings);
        if self.decoder.is_some() { Ok(()) } else { Err(no_room()) }
    }

    /// Counts so many bytes as held, their copy for the client included.
    fn hold(&mut self, bytes: usize) -> Result<(), Gathered> {
        if self.share.hold(self.taken + 2 * bytes) { Ok(()) } else { Err(no_room()) }
    }

    /// The next bytes. `None` at the end, the error where there is none.
    async fn next(&mut self) -> Option<Result<Bytes, Gathered>> {
        let Some(frame) = self.observed.frame().await else {
            self.is_over = true;
            return None;
        };
        let frame = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(cut) => return Some(Err(Gathered::Lost { what: cut.to_string(), late: cut.is_timeout() })),
        };
        let Some(decoder) = &mut self.decoder else { return Some(Ok(frame)) };
        let mut plain = BytesMut::new();
        let undone = decoder.feed(&frame, &mut |piece| plain.extend_from_slice(piece));
        let broken =
            |error: Undecodable| Gathered::Lost { what: format!("its stream cannot be read: {error}"), late: false };
        Some(undone.map(|()| plain.freeze()).map_err(broken))
    }

    /// Reads on without waiting: the end often comes with the last event.
    async fn rest_at_hand(&mut self) {
        let mut rest = pin!(async { while let Some(Ok(_)) = self.next().await {} });
        poll_fn(|cx| Poll::Ready(rest.as_mut().poll(cx).is_ready())).await;
    }
}

/// Reads a reply that does not say what it is: how its first line begins does.
async fn unlabelled(source: &mut Source, reply: Assembler, choices: u32) -> Gathered {
    let mut document = BytesMut::new();
    let mut is_document = false;
    loop {
        match source.next().await {
            None => return Gathered::Document(document.freeze()),
            Some(Err(lost)) => return lost,
            Some(Ok(bytes)) => document.extend_from_slice(&bytes),
        }
        if document.len() > LARGEST {
            return too_large();
        }
        if let Err(full) = source.hold(document.len()) {
            return full;
        }
        if is_document {
            continue;
        }
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0xEF | 0xBB | 0xBF);
        let blank = document.iter().take_while(|byte| is_blank(byte)).count();
        match opens_stream(&document[blank..]) {
            Some(true) => return events(source, reply, Some(document), choices).await,
            Some(false) => is_document = true,
            None => is_document = blank > MOST_BLANK,
        }
    }
}

/// Reads a stream of events. `guessed` was read before, of a reply that may yet turn out to be none: it is handed on if no
/// event comes.
async fn events(source: &mut Source, reply: Assembler, mut guessed: Option<BytesMut>, choices: u32) -> Gathered {
    let mut parser = SseParser::new(LARGEST);
    let mut events = Events { reply, oversized: false, came: false, read: 0 };
    if let Some(first) = &guessed {
        events.read = first.len();
        parser.feed(first, &mut |item| events.add(item));
    }
    // How it ended; `None` inside for an end in order.
    let mut end = None;
    while !events.reply.is_over() && end.is_none() {
        match source.next().await {
            Some(Ok(bytes)) => {
                events.read += bytes.len();
                parser.feed(&bytes, &mut |item| events.add(item));
                match &mut guessed {
                    Some(text) if !events.came => text.extend_from_slice(&bytes),
                    _ => guessed = None,
                }
                let held = events.held() + guessed.as_ref().map_or(0, BytesMut::len);
                if held > 2 * LARGEST {
                    return too_large();
                }
                if let Err(full) = source.hold(held) {
                    return full;
                }
            }
            last => {
                parser.finish(&mut |item| events.add(item));
                end = Some(last.and_then(Result::err));
            }
        }
    }
    let Events { reply, oversized, came, .. } = events;
    if reply.is_too_large() || oversized {
        return too_large();
    }
    if end.is_none() {
        // The connection can be used again if its reply is read to the end.
        source.rest_at_hand().await;
    }
    let in_order = matches!(end, Some(None));
    let broke = matches!(end, Some(Some(_)));
    match (reply.standing(choices, in_order), reply.error(), end.flatten(), guessed) {
        (Standing::Whole, ..) => Gathered::Reply { json: reply.json(), lacks_usage: !broke && !reply.has_usage() },
        (Standing::Error, Some(error), ..) => Gathered::Error(error.into()),
        (_, _, Some(lost), _) => lost,
        (_, _, None, Some(text)) if !came => Gathered::Document(text.freeze()),
        (_, _, None, _) => Gathered::Lost { what: "its stream ended before the answer did".to_owned(), late: false },
    }
}

/// The events of a stream so far.
struct Events {
    reply: Assembler,
    oversized: bool,
    /// One came that says something.
    came: bool,
    /// What was read since the last, in bytes.
    read: usize,
}

impl Events {
    fn add(&mut self, item: Item<'_>) {
        self.read = 0;
        let (name, data) = match item {
            Item::Event(event) | Item::Unterminated(event) => (event.name, event.data),
            Item::Stray(text) => (&b""[..], text),
            Item::Oversized { .. } => {
                self.oversized = true;
                return;
            }
        };
        self.came |= !data.is_empty();
        self.reply.event(name, data);
    }

    /// What is held of them, in bytes, about; of the open one the parser holds its cap at most.
    fn held(&self) -> usize {
        self.reply.held() + self.read.min(LARGEST)
    }
}

fn no_room() -> Gathered {
    let what = "its answer finds no room beside those that are being put together".to_owned();
    Gathered::Lost { what, late: false }
}

fn too_large() -> Gathered {
    let what = format!("its answer is larger than {LARGEST} bytes or has more than {MOST_CHOICES} choices");
    Gathered::Lost { what, late: false }
}

/// The upstream's error in the client's shape, in its own words as far as it has any, and its status: the one that the
/// whole reply would have had where the error's type says it, otherwise 502.
fn in_shape(shape: Shape, error: &str, backend: &str) -> (StatusCode, String) {
    let mut error: Value = serde_json::from_str(error).unwrap_or_default();
    let status = shape.status_of(&error).unwrap_or(StatusCode::BAD_GATEWAY);
    let request_id = error.get_mut("request_id").map(Value::take).filter(Value::is_string);
    let inner = error.get_mut("error").filter(|inner| !inner.is_null()).map(Value::take);
    let mut error = inner.unwrap_or(error);
    let message = match &mut error {
        Value::String(text) => Value::String(std::mem::take(text)),
        other => other.get_mut("message").map(Value::take).unwrap_or_default(),
    };
    let silent = || format!("upstream {backend:?} ended its stream in an error without words; try again");
    let message = message.as_str().map_or_else(silent, str::to_owned);
    let [kind, param, code] = ["type", "param", "code"].map(|name| error.get(name).cloned().unwrap_or_default());
    let kind = kind.as_str().filter(|kind| !matches!(*kind, "" | "error"));
    let mut told = shape.upstream_error(status, &message, kind, &param, &code);
    if let (Shape::Anthropic, Some(id)) = (shape, request_id) {
        told["request_id"] = id;
    }
    (status, told.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_keeps_its_words_and_gets_the_shape() {
        let told = |error: &str| -> Value { serde_json::from_str(&in_shape(Shape::OpenAi, error, "up").1).unwrap() };
        for (error, message, kind, code) in [
            (r#"{"message":"busy","type":"server_error","code":503}"#, "busy", "server_error", json!(503)),
            (r#""plain words""#, "plain words", "upstream_error", Value::Null),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                "m",
                "overloaded_error",
                Value::Null,
            ),
            (r#"{"type":"error","message":"m","code":"c"}"#, "m", "upstream_error", json!("c")),
        ] {
            let expected = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
            assert_eq!(told(error), expected, "{error}");
        }
        let anthropic =
            |error: &str| -> Value { serde_json::from_str(&in_shape(Shape::Anthropic, error, "up").1).unwrap() };
        for (error, kind) in [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"},"request_id":"r"}"#,
                "overloaded_error",
            ),
            (r#"{"type":"error","error":{"type":7,"message":"m"}}"#, "api_error"),
            (r#"{"error":{"message":"m","code":"c"}}"#, "api_error"),
        ] {
            let mut expected = json!({"type": "error", "error": {"type": kind, "message": "m"}});
            if error.contains("request_id") {
                expected["request_id"] = json!("r");
            }
            assert_eq!(anthropic(error), expected, "{error}");
        }
        for error in ["{}", "[1]", "7", "true", r#"{"message":7}"#, "not json"] {
            assert!(told(error)["error"]["message"].as_str().unwrap().contains("\"up\""), "{error}");
        }
    }
}
