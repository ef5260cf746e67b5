//! A chat request on its way, and its reply on the way back, where more is asked than the client wrote.
//!
//! Invariant: a request goes out once. The exception is one that an upstream has refused for what only we asked: it goes
//! out once more, as its client wrote it, and that attempt is the one that is measured.

use http::header::ACCEPT_ENCODING;
use http_body_util::{Either, Full};
use hyper::{Version, http};

use super::asking::{What, is_refusal};
use super::failure::Refusal;
use super::request::ChatRequest;
use super::whole::Gathering;
use super::{Answer, Onward, Proxy, content_of, headers, is_event_stream, pass_on};
use crate::backend::upstream::Reply;
use crate::measure::{Content, Observation};
use crate::route::Target;

/// A chat request, and where it goes.
pub(super) struct Going<'a> {
    /// An index into the site's backends.
    pub(super) backend: usize,
    pub(super) target: &'a Target<'a>,
    /// Its head, as the client sent it.
    pub(super) head: http::request::Parts,
    pub(super) chat: ChatRequest,
    /// The name the backend knows the model by. `None` sends the client's name on.
    pub(super) alias: Option<&'a str>,
}

/// What came back.
pub(super) struct Returned {
    reply: Reply,
    /// What was asked beyond the client's words, of the attempt that this is the reply to.
    beyond: Option<What>,
    backend: usize,
    version: Version,
    /// `n`, the choices asked for.
    choices: u32,
}

impl Proxy {
    /// Sends a chat request.
    pub(super) async fn send_chat(&self, going: Going<'_>, observation: &mut Observation) -> Result<Returned, Refusal> {
        let Going { backend: index, target, mut head, chat, alias } = going;
        let backend = &self.site.backends[index];
        let (version, choices) = (head.version, chat.choices.max(1));
        let returned = |reply, beyond| Returned { reply, beyond, backend: index, version, choices };
        let signed = head.headers.contains_key(&headers::SIGNATURE);
        headers::to_upstream(&mut head.headers, backend.key.as_ref(), true);
        let model = alias.or(chat.model.as_deref()).unwrap_or("");
        let Some(ask) = backend.asking.beyond(&chat, model, signed, &backend.name) else {
            let body = Either::Left(Full::new(chat.spliced(alias, &[])));
            let reply = self.send(index, backend, target, head, body, observation).await?;
            return Ok(returned(reply, None));
        };
        let more = async {
            let body = |splices: &[_]| Either::Left(Full::new(chat.spliced(alias, splices)));
            let mut asking = head.clone();
            // What is to be taken out of a reply must be readable.
            asking.headers.remove(ACCEPT_ENCODING);
            let reply = self.send(index, backend, target, asking, body(&ask.splices), observation).await?;
            let status = reply.head.status;
            if status.is_success() {
                backend.asking.accepted(&ask, model);
            } else if is_refusal(status) && !ask.accepted_before {
                drop(reply);
                let reply = self.send(index, backend, target, head, body(&[]), observation).await?;
                if reply.head.status.is_success() {
                    backend.asking.refused(ask.what, model, status, &backend.name);
                }
                return Ok(returned(reply, None));
            }
            Ok(returned(reply, Some(ask.what)))
        };
        // Apart, so that requests of which nothing more is asked do not carry room for it.
        Box::pin(more).await
    }

    /// Passes a chat's reply on, without what its client did not ask for.
    pub(super) fn pass_chat_on(&self, returned: Returned, observation: &mut Observation) -> Answer {
        let Returned { reply, beyond, backend, version, choices } = returned;
        let backend = &self.site.backends[backend];
        let content = content_of(&reply.head.headers);
        // A document that says it is one, if only by its coding, is what the client asked for.
        let gathers = beyond == Some(What::Stream)
            && reply.head.status.is_success()
            && (content == Content::Unlabelled || is_event_stream(&reply.head.headers));
        let http10 = version == Version::HTTP_10;
        let mut answer = pass_on(reply, http10, backend.event_timeout, beyond, observation);
        if gathers && let Answer::Theirs { onward, .. } = &mut answer {
            let url = backend.base_url.as_ref().map(ToString::to_string).unwrap_or_default();
            *onward = Onward::Gathered(Gathering { content, choices, backend: backend.name.to_string(), url });
        }
        answer
    }
}
