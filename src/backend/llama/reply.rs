//! A reply: the engine's answers as a body, each event with the instant at which its last token was sampled.
//!
//! Invariant: a stream ends with `[DONE]` if every choice has finished, with an error object if the engine failed.
//! Dropping the body cancels what is left of the request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::engine::Output;
use super::events::{Count, Events, Identity, Usage, WholeChoice, Wording, whole};
use super::text::Text;
use crate::clock::{EngineReport, ReadStamp, Stamped};

/// A reply whose head can be sent.
pub struct Reply {
    /// Whether the body is a stream of events; otherwise it is one JSON document.
    pub stream: bool,
    /// The body.
    pub body: ReplyBody,
    /// When the request was handed over, before tokenization.
    pub sent: Instant,
    /// When the reply's head was known: once the request was accepted for a stream, at the end for a document.
    pub head_at: Instant,
}

/// What a reply is made of.
pub(super) struct Request {
    pub(super) identity: Identity,
    pub(super) wording: Wording,
    pub(super) text: Arc<Text>,
    /// Of all prompts.
    pub(super) prompt_tokens: usize,
    /// Of all prompts.
    pub(super) choices: usize,
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
    pub(super) logprobs: bool,
    pub(super) outputs: mpsc::Receiver<Output>,
}

/// A reply's body.
pub struct ReplyBody {
    source: Source,
    stamp: Option<ReadStamp>,
    only_echoes: bool,
    report: EngineReport,
}

enum Source {
    Stream(Box<Stream>),
    Whole(Bytes),
}

struct Stream {
    outputs: mpsc::Receiver<Output>,
    events: Events,
    usage: Usage,
    continuous: bool,
    /// Tokens of each choice so far.
    tokens: Vec<usize>,
    unfinished: usize,
    prompt_tokens: usize,
    ready: VecDeque<Ready>,
    /// No more outputs are looked at.
    over: bool,
}

/// An event that is ready.
struct Ready {
    event: Bytes,
    at: Instant,
    /// All that it says is the prompt.
    only_echoes: bool,
}

impl ReplyBody {
    /// A stream of events.
    pub(super) fn stream(request: Request) -> Self {
        let usage = if request.include_usage { Usage::Later } else { Usage::Absent };
        let stream = Stream {
            events: Events::new(&request.identity, request.text, request.wording),
            outputs: request.outputs,
            usage,
            continuous: request.continuous_usage,
            tokens: vec![0; request.choices],
            unfinished: request.choices,
            prompt_tokens: request.prompt_tokens,
            ready: VecDeque::new(),
            over: false,
        };
        let report = report(stream.prompt_tokens);
        Self { source: Source::Stream(Box::new(stream)), stamp: None, only_echoes: false, report }
    }

    /// Waits for everything and makes one document of it.
    ///
    /// # Errors
    /// What the engine failed of.
    pub(super) async fn whole(mut request: Request) -> Result<Self, String> {
        let mut report = report(request.prompt_tokens);
        let mut choices: Vec<_> = (0..request.choices).map(|_| WholeChoice::default()).collect();
        let mut unfinished = request.choices;
        while unfinished > 0 {
            match request.outputs.recv().await {
                Some(Output::Admitted { at, .. }) => report.admitted = report.admitted.or(Some(at)),
                Some(Output::Prefilled { at }) => report.prefilled = report.prefilled.or(Some(at)),
                Some(Output::Token(token)) => {
                    if let Some(choice) = choices.get_mut(token.choice as usize) {
                        choice.content.push_str(&token.text);
                        choice.logprobs.extend(token.logprobs);
                    }
                }
                Some(Output::Finished { choice, reason, tokens, logprobs, .. }) => {
                    unfinished -= 1;
                    report.output_tokens += tokens as u64;
                    if let Some(choice) = choices.get_mut(choice as usize) {
                        choice.logprobs.extend(logprobs);
                        choice.finished = Some((reason, tokens));
                    }
                }
                Some(Output::Failed { problem }) => return Err(problem),
                None => return Err(GONE.to_owned()),
            }
        }
        let stamp = Some(ReadStamp { at: Instant::now(), number: 0 });
        let Request { identity, mut wording, text, prompt_tokens, logprobs, .. } = request;
        // With probabilities it may have megabytes, which would keep this thread's streams waiting.
        let write = move || whole(&identity, &text, &mut wording, &choices, prompt_tokens, logprobs);
        let reply = tokio::task::spawn_blocking(write).await.map_err(|error| error.to_string())?;
        Ok(Self { source: Source::Whole(reply), stamp, only_echoes: false, report })
    }
}

fn report(prompt_tokens: usize) -> EngineReport {
    EngineReport { prompt_tokens: Some(prompt_tokens as u64), ..EngineReport::default() }
}

/// The engine's thread is gone without a word, which it never should be.
const GONE: &str = "the engine is gone";

impl Stream {
    fn count(&self) -> Count {
        Count { prompt: self.prompt_tokens, completion: self.tokens.iter().sum() }
    }

    fn usage(&self) -> Usage {
        if self.continuous { Usage::Now(self.count()) } else { self.usage }
    }

    fn set_tokens(&mut self, choice: u32, tokens: usize) {
        if let Some(count) = self.tokens.get_mut(choice as usize) {
            *count = tokens;
        }
    }

    /// Turns an output into events.
    fn take(&mut self, output: Output, report: &mut EngineReport) {
        match output {
            Output::Admitted { choice, at } => {
                report.admitted = report.admitted.or(Some(at));
                if let Some(event) = self.events.begin(choice, self.usage()) {
                    self.tell(event, at);
                }
            }
            Output::Prefilled { at } => report.prefilled = report.prefilled.or(Some(at)),
            Output::Token(token) => {
                self.set_tokens(token.choice, token.tokens);
                let usage = self.usage();
                let event = self.events.token(&token, usage);
                self.tell(event, token.at);
            }
            Output::Finished { choice, at, reason, tokens, logprobs } => {
                self.set_tokens(choice, tokens);
                let usage = self.usage();
                let only_echoes = self.events.owes_echo(choice);
                let event = self.events.finish(choice, reason, &logprobs, usage);
                self.ready.push_back(Ready { event, at, only_echoes });
                self.unfinished = self.unfinished.saturating_sub(1);
                if self.unfinished == 0 {
                    if self.usage == Usage::Later {
                        self.tell(self.events.usage(self.count()), at);
                    }
                    self.tell(Events::done(), at);
                    self.over = true;
                }
            }
            Output::Failed { problem } => self.fail(&problem),
        }
        report.output_tokens = self.count().completion as u64;
    }

    fn tell(&mut self, event: Bytes, at: Instant) {
        self.ready.push_back(Ready { event, at, only_echoes: false });
    }

    fn fail(&mut self, problem: &str) {
        self.tell(Events::failed(problem), Instant::now());
        self.over = true;
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let stream = match &mut this.source {
            Source::Whole(reply) if reply.is_empty() => return Poll::Ready(None),
            Source::Whole(reply) => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(reply))))),
            Source::Stream(stream) => stream,
        };
        loop {
            if let Some(Ready { event, at, only_echoes }) = stream.ready.pop_front() {
                // Each event has an instant of its own: no two share a read.
                let number = this.stamp.map_or(0, |stamp| stamp.number + 1);
                this.stamp = Some(ReadStamp { at, number });
                this.only_echoes = only_echoes;
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            if stream.over {
                return Poll::Ready(None);
            }
            match ready!(stream.outputs.poll_recv(cx)) {
                Some(output) => stream.take(output, &mut this.report),
                None => stream.fail(GONE),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(reply) => reply.is_empty(),
            Source::Stream(stream) => stream.over && stream.ready.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(reply) => SizeHint::with_exact(reply.len() as u64),
            Source::Stream(_) => SizeHint::default(),
        }
    }
}

impl Stamped for ReplyBody {
    fn stamp(&self) -> Option<ReadStamp> {
        self.stamp
    }

    fn engine(&self) -> Option<EngineReport> {
        Some(self.report)
    }

    fn only_echoes(&self) -> bool {
        self.only_echoes
    }
}
