//! How a request becomes the engine's work.
//!
//! A request is read on a thread of its own (`text-NAME`): what it takes to parse, render and tokenize it keeps no stream
//! waiting, neither an upstream's nor the engine's.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::Refused;
use super::call::{Call, Sampler};
use super::engine::{Job, Queue, said};
use super::events::Identity;
use super::model::Facts;
use super::reply::Request;
use super::text::{StopMatcher, Text};

/// What reading requests takes.
pub(super) struct Desk {
    pub(super) text: Arc<Text>,
    pub(super) queue: Arc<Queue>,
    pub(super) facts: Facts,
    pub(super) vocab_size: usize,
    /// Tokens the weights know and the tokenizer does not.
    pub(super) unsayable: Vec<u32>,
    pub(super) fingerprint: String,
}

/// A request that is still to be read.
pub(super) struct Unread {
    /// Its JSON.
    pub(super) body: Bytes,
    /// Who waits for it.
    pub(super) reply: oneshot::Sender<Result<Accepted, Refused>>,
}

/// A request the engine has accepted.
pub(super) struct Accepted {
    pub(super) request: Request,
    pub(super) stream: bool,
    /// When it was.
    pub(super) head_at: Instant,
}

/// Reads requests, at most `waiting` of which may wait for it, until the sender is gone.
pub(super) fn start(backend: &str, desk: &Arc<Desk>, waiting: usize) -> io::Result<SyncSender<Unread>> {
    let (sender, unread) = sync_channel::<Unread>(waiting);
    let desk = desk.clone();
    let read = move || {
        for Unread { body, reply } in unread {
            if reply.is_closed() {
                continue;
            }
            let accepted = catch_unwind(AssertUnwindSafe(|| desk.accept(&body)))
                .unwrap_or_else(|panic| Err(Refused::Broken(said(&*panic).to_owned())));
            // Who has left meanwhile drops the request's channel, and so cancels it.
            drop(reply.send(accepted));
        }
    };
    thread::Builder::new().name(format!("text-{backend}")).spawn(read).map(|_| sender)
}

impl Desk {
    /// Reads a request and hands every choice of it over to the engine.
    fn accept(&self, body: &[u8]) -> Result<Accepted, Refused> {
        let call = Call::read(body, self.text.defaults(), self.vocab_size)?;
        self.refuse_what_cannot_fit(&call)?;
        let prompt = self.text.prompt(&call.messages)?;
        if let Some(token) = prompt.iter().find(|&&token| token as usize >= self.vocab_size) {
            // Caught here, it ends one request; in the engine, all.
            return Err(Refused::Broken(format!("token {token} is beyond the model's {} tokens", self.vocab_size)));
        }
        // Before the engine knows of it, so that it comes before whatever the engine does with it.
        let head_at = Instant::now();
        let request = self.submit(&call, prompt)?;
        Ok(Accepted { request, stream: call.stream, head_at })
    }

    /// Refuses messages of more bytes than the context's tokens can stand for, before work is put into them.
    fn refuse_what_cannot_fit(&self, call: &Call) -> Result<(), Refused> {
        let bytes: usize = call.messages.iter().map(|message| message.content.len()).sum();
        let context = self.facts.max_context;
        if bytes <= context.saturating_mul(self.text.longest_piece()) {
            return Ok(());
        }
        let message = format!(
            "the messages have {bytes} bytes, more than {context} tokens of this model can stand for (max_context); \
             send less"
        );
        Err(Refused::Bad { param: Some("messages".to_owned()), message })
    }

    /// Hands every choice of `call` over to the engine.
    fn submit(&self, call: &Call, prompt: Vec<u32>) -> Result<Request, Refused> {
        let (context, prompt_tokens) = (self.facts.max_context, prompt.len());
        if prompt_tokens >= context {
            let message = format!(
                "the prompt has {prompt_tokens} tokens and the context holds {context}, output included \
                 (max_context); send less"
            );
            return Err(Refused::Bad { param: Some("messages".to_owned()), message });
        }
        if call.choices as usize > self.queue.room() {
            let most = self.queue.room();
            let message =
                format!("n is {} and at most {most} choices can run or wait (max_queue); ask for fewer", call.choices);
            return Err(Refused::Bad { param: Some("n".to_owned()), message });
        }
        let limits = &call.limits;
        let max_tokens = limits.max_tokens.unwrap_or(usize::MAX).min(context - prompt_tokens);
        let (output, outputs) = mpsc::channel(Job::most_outputs(max_tokens).saturating_mul(call.choices as usize));
        let seed = call.sampling.seed.unwrap_or_else(random);
        let own_ends = if limits.ignore_eos { &[][..] } else { self.text.end_ids() };
        let end_ids = sorted(own_ends.iter().chain(&limits.stop_ids));
        // A model that may not end says something else instead: each of its tokens is output.
        let never = if limits.ignore_eos { self.text.end_ids() } else { &[] };
        let banned = sorted(never.iter().chain(&self.unsayable));
        let banned_at_first = sorted(banned.iter().chain(&*end_ids));
        let prompt: Arc<[u32]> = prompt.into();
        let stop = StopMatcher::new(&limits.stop);
        let job = |choice: u32| Job {
            prompt: prompt.clone(),
            choice,
            sampler: Sampler::new(&call.sampling, seed.wrapping_add(u64::from(choice))),
            decoder: self.text.decoder(),
            stop: stop.clone(),
            end_ids: end_ids.clone(),
            banned: banned.clone(),
            banned_at_first: banned_at_first.clone(),
            max_tokens,
            min_tokens: limits.min_tokens,
            logprobs: call.sampling.top_logprobs.is_some(),
            output: output.clone(),
        };
        self.queue.submit((0..call.choices).map(job).collect())?;
        let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(Request {
            identity: Identity {
                id: format!("chatcmpl-{:016x}{:016x}", random(), random()),
                created,
                model: cropped(call.model.as_deref().unwrap_or_default()),
                fingerprint: self.fingerprint.clone(),
            },
            text: self.text.clone(),
            prompt_tokens,
            choices: call.choices,
            include_usage: call.include_usage,
            continuous_usage: call.continuous_usage,
            logprobs: call.sampling.top_logprobs.is_some(),
            outputs,
        })
    }
}

/// A name as it is repeated in every event.
fn cropped(name: &str) -> String {
    const LONGEST: usize = 256;
    name[..name.floor_char_boundary(LONGEST)].to_owned()
}

/// In order, each once.
fn sorted<'a>(tokens: impl Iterator<Item = &'a u32>) -> Arc<[u32]> {
    let mut tokens: Vec<u32> = tokens.copied().collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens.into()
}

/// A number that differs each time and from process to process.
fn random() -> u64 {
    RandomState::new().hash_one(Instant::now())
}
