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
use super::call::{Call, Kind, Sampler};
use super::engine::{Job, Queue, said};
use super::events::{Identity, Wording};
use super::model::Facts;
use super::prompts::Prepared;
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
    pub(super) kind: Kind,
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
        for Unread { kind, body, reply } in unread {
            if reply.is_closed() {
                continue;
            }
            let accepted = catch_unwind(AssertUnwindSafe(|| desk.accept(kind, &body)))
                .unwrap_or_else(|panic| Err(Refused::Broken(said(&*panic).to_owned())));
            // Who has left meanwhile drops the request's channel, and so cancels it.
            drop(reply.send(accepted));
        }
    };
    thread::Builder::new().name(format!("text-{backend}")).spawn(read).map(|_| sender)
}

impl Desk {
    /// Reads a request and hands every choice of it over to the engine.
    fn accept(&self, kind: Kind, body: &[u8]) -> Result<Accepted, Refused> {
        let call = Call::read(kind, body, self.text.defaults(), self.vocab_size)?;
        self.refuse_too_many(&call)?;
        let prompts = self.prepare(&call)?;
        // Before the engine knows of it, so that it comes before whatever the engine does with it.
        let head_at = Instant::now();
        let request = self.submit(&call, &prompts)?;
        Ok(Accepted { request, stream: call.stream, head_at })
    }

    /// Refuses more choices than can ever run and wait at once.
    fn refuse_too_many(&self, call: &Call) -> Result<(), Refused> {
        let (choices, most) = (call.all_choices(), self.queue.room());
        if choices <= most {
            return Ok(());
        }
        let message =
            format!("it asks for {choices} choices and at most {most} can run or wait (max_queue); ask for fewer");
        let param = if call.choices > 1 { "n" } else { "prompt" };
        Err(Refused::Bad { param: Some(param.to_owned()), message })
    }

    /// Hands every choice of `call` over to the engine: `n` of each prompt, one prompt after the other.
    fn submit(&self, call: &Call, prompts: &[Prepared]) -> Result<Request, Refused> {
        let outputs = prompts.iter().map(|prompt| Job::most_outputs(prompt.max_tokens)).fold(0, usize::saturating_add);
        let (output, outputs) = mpsc::channel(outputs.saturating_mul(call.choices as usize));
        let limits = &call.limits;
        let seed = call.sampling.seed.unwrap_or_else(random);
        let own_ends = if limits.ignore_eos { &[][..] } else { self.text.end_ids() };
        let end_ids = sorted(own_ends.iter().chain(&limits.stop_ids));
        // A model that may not end says something else instead: each of its tokens is output.
        let never = if limits.ignore_eos { self.text.end_ids() } else { &[] };
        let banned = sorted(never.iter().chain(&self.unsayable));
        let banned_at_first = sorted(banned.iter().chain(&*end_ids));
        let stop = StopMatcher::new(&limits.stop);
        // `place` is that among the choices of the same prompt: what they say is what they would if it came alone.
        let job = |choice: u32, prompt: &Prepared, place: u32| Job {
            prompt: prompt.tokens.clone(),
            choice,
            sampler: Sampler::new(&call.sampling, seed.wrapping_add(u64::from(place))),
            decoder: prompt.decoder.clone(),
            stop: stop.clone(),
            end_ids: end_ids.clone(),
            banned: banned.clone(),
            banned_at_first: banned_at_first.clone(),
            max_tokens: prompt.max_tokens,
            min_tokens: limits.min_tokens,
            logprobs: call.sampling.top_logprobs.is_some(),
            output: output.clone(),
        };
        let each = prompts.iter().flat_map(|prompt| (0..call.choices).map(move |place| (prompt, place)));
        self.queue.submit((0..).zip(each).map(|(choice, (prompt, place))| job(choice, prompt, place)).collect())?;
        let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let wording = Wording::of(call, prompts);
        Ok(Request {
            identity: Identity {
                id: format!("{}-{:016x}{:016x}", wording.id_prefix(), random(), random()),
                created,
                model: cropped(call.model.as_deref().unwrap_or_default()),
                fingerprint: self.fingerprint.clone(),
            },
            wording,
            text: self.text.clone(),
            prompt_tokens: prompts.iter().map(|prompt| prompt.tokens.len()).sum(),
            choices: call.all_choices(),
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
