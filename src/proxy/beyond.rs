//! A request to a model on its way, and its reply on the way back, where more is asked than the client wrote.
//!
//! Invariant: a request goes out once. The exception is one that an upstream has refused for what only we asked: it goes
//! out once more, as its client wrote it, and the attempt whose answer the client gets is the one that is measured.

use http::header::ACCEPT_ENCODING;
use http_body_util::{Either, Full};
use hyper::{Version, http};

use super::asking::{What, is_refusal};
use super::failure::Refusal;
use super::request::ModelRequest;
use super::room::Share;
use super::whole::Gathering;
use super::{Answer, Onward, Proxy, content_of, headers, is_event_stream, pass_on};
use crate::backend::upstream::Reply;
use crate::measure::{Content, Observation};
use crate::route::Target;
use crate::wire::Dialect;
use crate::wire::assemble::Assembler;

/// A request to a model, and where it goes.
pub(super) struct Going<'a> {
    /// An index into the site's backends.
    pub(super) backend: usize,
    pub(super) target: &'a Target<'a>,
    /// Its head, as the client sent it.
    pub(super) head: http::request::Parts,
    pub(super) wanted: ModelRequest,
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
    dialect: Dialect,
    /// The choices asked for.
    choices: u32,
    /// `None` unless a stream was asked for in place of a whole reply.
    gatherable: Option<Box<Gatherable>>,
}

/// What it takes to make a whole reply of a stream.
struct Gatherable {
    /// The name the backend knows the model by.
    model: Box<str>,
    reply: Assembler,
    share: Share,
}

impl Proxy {
    /// Sends a request to a model.
    pub(super) async fn send_wanted(
        &self,
        going: Going<'_>,
        observation: &mut Observation,
    ) -> Result<Returned, Refusal> {
        let Going { backend: index, target, mut head, wanted, alias } = going;
        let backend = &self.site.backends[index];
        let (version, dialect, choices) = (head.version, wanted.dialect, wanted.choices.max(1));
        let model = alias.or(wanted.model.as_deref()).unwrap_or("");
        let returned = |reply, beyond, gatherable| Returned {
            reply,
            beyond,
            backend: index,
            version,
            dialect,
            choices,
            gatherable,
        };
        let ask = backend.asking.beyond(&wanted, model, &head.headers, &backend.name);
        let stream = ask.as_ref().is_some_and(|ask| ask.what == What::Stream);
        let share = if stream { self.site.room.begin() } else { None };
        // Without room for the whole it is asked for as such.
        let ask = ask.filter(|_| !stream || share.is_some());
        let gatherable = share
            .zip(Assembler::of(dialect))
            .map(|(share, reply)| Box::new(Gatherable { model: model.into(), reply, share }));
        headers::to_upstream(&mut head.headers, backend.key.as_ref(), target, true);
        let Some(ask) = ask else {
            // Taken, so that a copy that was only to be read does not wait for the reply.
            let body = Either::Left(Full::new(wanted.into_onward(&mut head.headers, alias)));
            let reply = self.send(index, backend, target, head, body, observation).await?;
            return Ok(returned(reply, None, None));
        };
        let more = async {
            let body = |splices: &[_]| Either::Left(Full::new(wanted.spliced(alias, splices)));
            let mut asking = head.clone();
            // What is to be taken out of a reply must be readable.
            asking.headers.remove(ACCEPT_ENCODING);
            let first = self.send(index, backend, target, asking, body(&ask.splices), observation).await?;
            let status = first.head.status;
            if status.is_success() {
                backend.asking.took(dialect, ask.what, model);
            } else if is_refusal(status) {
                // Without a second answer the first one stands.
                let again = self.send(index, backend, target, head, body(&[]), observation).await;
                let Ok(reply) = again else { return Ok(returned(first, Some(ask.what), None)) };
                if reply.head.status.is_success() {
                    backend.asking.refused(dialect, ask.what, model, status, &backend.name);
                }
                return Ok(returned(reply, None, None));
            }
            Ok(returned(first, Some(ask.what), gatherable))
        };
        // Apart, so that requests of which nothing more is asked do not carry room for it.
        Box::pin(more).await
    }

    /// Passes its reply on, without what its client did not ask for.
    pub(super) fn pass_wanted_on(&self, returned: Returned, observation: &mut Observation) -> Answer {
        let Returned { reply, beyond, backend: index, version, dialect, choices, gatherable } = returned;
        let backend = &self.site.backends[index];
        let content = content_of(&reply.head.headers);
        // A document that says it is one, if only by its coding, is what the client asked for.
        let gatherable = gatherable.filter(|_| {
            reply.head.status.is_success() && (content == Content::Unlabelled || is_event_stream(&reply.head.headers))
        });
        let http10 = version == Version::HTTP_10;
        let mut answer = pass_on(reply, http10, backend.event_timeout, beyond, observation);
        if let (Some(gatherable), Answer::Theirs { onward, .. }) = (gatherable, &mut answer) {
            let Gatherable { model, reply, share } = *gatherable;
            let url = backend.base_url.as_ref().map(ToString::to_string).unwrap_or_default();
            let gathering = Gathering { content, choices, dialect, reply, backend: index, model, url, share };
            *onward = Onward::Gathered(Box::new(gathering));
        }
        answer
    }
}
