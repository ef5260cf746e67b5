//! The engine with a model that only remembers: what it says next is decided by all it has read in that slot.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Engine, Job, Output, Queue, Reason, Rejected, State, Step};
use crate::backend::llama::call::{Sampler, Sampling};
use crate::backend::llama::model::{Forward, Work};
use crate::backend::llama::text::{StopMatcher, Text};

const VOCAB: usize = 97;
const CONTEXT: usize = 600;
/// The fake never says it unless a test has it do so.
const END: u32 = 96;

/// Said by a fake whose logits are no numbers.
const NOTHING: u32 = u32::MAX;

type Steps = Arc<Mutex<Vec<Vec<(usize, usize, usize)>>>>;

/// Remembers what each slot has read.
struct Fake {
    slots: Vec<Vec<u32>>,
    /// Every forward: (slot, position, tokens) of all its work.
    steps: Steps,
    /// Taken from before each forward, where a test wants to hold the engine.
    gate: Option<mpsc::Receiver<()>>,
    /// Fails at this forward.
    breaks: Option<(usize, Break)>,
    says: fn(&[u32]) -> u32,
    /// What a token costs.
    costs: Duration,
}

#[derive(Clone, Copy)]
enum Break {
    Panic,
    Error,
}

/// Any token but the end, decided by everything read.
fn hashed(read: &[u32]) -> u32 {
    let mut hasher = DefaultHasher::new();
    read.hash(&mut hasher);
    u32::try_from(hasher.finish() % u64::from(END)).unwrap()
}

impl Forward for Fake {
    fn forward(&mut self, work: &[Work<'_>]) -> candle_core::Result<Vec<Vec<f32>>> {
        if let Some(gate) = &self.gate {
            let _ = gate.recv();
        }
        thread::sleep(self.costs * work.iter().map(|work| u32::try_from(work.tokens.len()).unwrap()).sum());
        let mut steps = self.steps.lock().unwrap();
        if let Some((at, how)) = self.breaks
            && steps.len() == at
        {
            drop(steps);
            match how {
                Break::Panic => panic!("the device fell off"),
                Break::Error => candle_core::bail!("out of memory"),
            }
        }
        steps.push(work.iter().map(|work| (work.slot, work.position, work.tokens.len())).collect());
        let mut logits = Vec::new();
        for work in work {
            let slot = &mut self.slots[work.slot];
            if steps.len() <= WARM_UP {
                slot.resize(work.position, 0);
            }
            assert!(work.position <= slot.len(), "a gap in slot {}", work.slot);
            slot.truncate(work.position);
            slot.extend_from_slice(work.tokens);
            if work.wants_logits {
                let mut row = vec![0.0; VOCAB];
                match (self.says)(slot) {
                    NOTHING => row.fill(f32::NAN),
                    token => row[token as usize] = 9.0,
                }
                logits.push(row);
            }
        }
        Ok(logits)
    }

    fn copy_slot(&mut self, from: usize, to: usize, len: usize) -> candle_core::Result<()> {
        self.slots[to] = self.slots[from][..len].to_vec();
        Ok(())
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }
}

/// A running engine.
struct Stage {
    queue: Arc<Queue>,
    steps: Steps,
    gate: Option<mpsc::SyncSender<()>>,
    slots_in_use: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
    text: Arc<Text>,
}

struct Setup {
    slots: usize,
    places: usize,
    compact: bool,
    gated: bool,
    breaks: Option<(usize, Break)>,
    says: fn(&[u32]) -> u32,
    costs: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self { slots: 4, places: 64, compact: false, gated: false, breaks: None, says: hashed, costs: Duration::ZERO }
    }
}

impl Setup {
    fn start(self) -> Stage {
        let steps = Steps::default();
        let (gate, gated) = mpsc::sync_channel(10_000);
        let model = Fake {
            slots: vec![Vec::new(); self.slots],
            steps: steps.clone(),
            gate: self.gated.then_some(gated),
            breaks: self.breaks,
            says: self.says,
            costs: self.costs,
        };
        let queue = Arc::new(Queue::new(self.slots, self.places));
        let slots_in_use = Arc::new(AtomicUsize::new(0));
        let told = slots_in_use.clone();
        let on_step = Box::new(move |step: Step| told.store(step.slots, SeqCst));
        let mut engine = Engine::new(model, queue.clone(), self.slots, CONTEXT, self.compact, on_step);
        let thread = Some(thread::spawn(move || {
            engine.warm_up().unwrap();
            engine.run();
        }));
        let text = Arc::new(Text::stand_in(VOCAB));
        let stage = Stage { queue, steps, gate: self.gated.then_some(gate), slots_in_use, thread, text };
        if self.gated {
            stage.let_steps(WARM_UP);
        }
        eventually("it serves", || stage.queue.state() != State::Loading);
        stage
    }
}

/// Forwards of the warm-up.
const WARM_UP: usize = 4;

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let began = Instant::now();
    while !check() {
        assert!(began.elapsed() < Duration::from_secs(30), "not seen: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A request, with what a test wants to change.
struct Ask {
    prompt: Vec<u32>,
    max_tokens: usize,
    min_tokens: usize,
    stop: Vec<String>,
    banned: Vec<u32>,
}

fn ask(prompt: Vec<u32>, max_tokens: usize) -> Ask {
    Ask { prompt, max_tokens, min_tokens: 0, stop: Vec::new(), banned: Vec::new() }
}

fn greedy() -> Sampling {
    Sampling { temperature: 0.0, ..Sampling::default() }
}

type Outputs = tokio::sync::mpsc::Receiver<Output>;

impl Stage {
    fn submit(&self, ask: &Ask) -> Result<Outputs, Rejected> {
        let (output, outputs) = tokio::sync::mpsc::channel(Job::most_outputs(ask.max_tokens));
        let job = Job {
            prompt: ask.prompt.clone().into(),
            choice: 0,
            sampler: Sampler::new(&greedy(), 1),
            decoder: self.text.decoder(),
            stop: StopMatcher::new(&ask.stop),
            end_ids: Arc::new([END]),
            banned: ask.banned.clone().into(),
            banned_at_first: ask.banned.iter().copied().chain([END]).collect(),
            max_tokens: ask.max_tokens,
            min_tokens: ask.min_tokens,
            logprobs: false,
            output,
        };
        self.queue.submit(vec![job]).map(|()| outputs)
    }

    fn let_steps(&self, count: usize) {
        for _ in 0..count {
            self.gate.as_ref().unwrap().send(()).unwrap();
        }
    }

    fn steps_done(&self) -> usize {
        self.steps.lock().unwrap().len()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.queue.close("the test is over");
        self.gate = None;
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap();
        }
    }
}

/// Everything one request got.
#[derive(Debug, Default, PartialEq)]
struct Got {
    text: String,
    finished: Option<(Reason, usize)>,
    failed: Option<String>,
}

fn collect(mut outputs: Outputs) -> Got {
    let mut got = Got::default();
    while let Some(output) = outputs.blocking_recv() {
        match output {
            Output::Admitted { .. } | Output::Prefilled { .. } => {}
            Output::Token(token) => got.text.push_str(&token.text),
            Output::Finished { reason, tokens, .. } => got.finished = Some((reason, tokens)),
            Output::Failed { problem } => got.failed = Some(problem),
        }
    }
    got
}

/// What the fake says to `prompt`, worked out without an engine.
fn expected(prompt: &[u32], tokens: usize) -> String {
    let text = Arc::new(Text::stand_in(VOCAB));
    let mut decoder = text.decoder();
    let mut read = prompt.to_vec();
    let mut said = String::new();
    for _ in 0..tokens {
        let token = hashed(&read);
        said.push_str(&decoder.push(token));
        read.push(token);
    }
    said + &decoder.finish()
}

#[test]
fn what_one_says_does_not_depend_on_the_others() {
    for compact in [false, true] {
        let stage = Setup { slots: 5, compact, ..Setup::default() }.start();
        let asks: Vec<Ask> = (0..40_u32)
            .map(|n| {
                let length = 1 + (n * 37) % 400;
                ask((0..length).map(|at| (at * 7 + n) % 90).collect(), 1 + (n as usize * 11) % 60)
            })
            .collect();
        let outputs: Vec<_> = asks.iter().map(|ask| stage.submit(ask).unwrap()).collect();
        for (ask, outputs) in asks.iter().zip(outputs) {
            let got = collect(outputs);
            assert_eq!(got.text, expected(&ask.prompt, ask.max_tokens));
            assert_eq!(got.finished, Some((Reason::Length, ask.max_tokens)));
        }
        eventually("every slot is free", || stage.slots_in_use.load(SeqCst) == 0);
        let steps = stage.steps.lock().unwrap();
        assert!(steps.iter().any(|step| step.len() == 5), "nothing ran together");
        if compact {
            let together = |step: &Vec<(usize, usize, usize)>| (0..step.len()).all(|slot| step[slot].0 == slot);
            assert!(steps.iter().all(together), "slots were not moved together");
        }
    }
}

#[test]
fn a_long_prompt_stops_no_stream() {
    // Slow enough that the short ones still run when the long one comes, however late this thread is.
    let stage = Setup { costs: Duration::from_micros(400), ..Setup::default() }.start();
    let short: Vec<_> = (0..3).map(|n| stage.submit(&ask(vec![n], 550)).unwrap()).collect();
    eventually("they decode", || stage.steps.lock().unwrap().iter().any(|step| step.len() == 3));
    let long = stage.submit(&ask(vec![5; 500], 2)).unwrap();
    assert_eq!(collect(long).finished, Some((Reason::Length, 2)));
    for outputs in short {
        assert_eq!(collect(outputs).finished, Some((Reason::Length, 550)));
    }
    let steps = stage.steps.lock().unwrap();
    let slot = steps[WARM_UP..].iter().flatten().find(|(_, _, tokens)| *tokens > 1).map(|(slot, _, _)| *slot).unwrap();
    let reading: Vec<_> =
        steps[WARM_UP..].iter().filter(|step| step.iter().any(|work| work.0 == slot && work.2 > 1)).collect();
    assert!(reading.len() > 1, "the prompt was read at once");
    assert!(reading.iter().all(|step| step.len() == 4), "a step that read the prompt left a stream out");
}

#[test]
fn who_leaves_is_gone_before_the_next_step() {
    let stage = Setup { slots: 1, gated: true, ..Setup::default() }.start();
    let first = stage.submit(&ask(vec![1], 500)).unwrap();
    let second = stage.submit(&ask(vec![2, 2], 1)).unwrap();
    stage.let_steps(3);
    eventually("it runs", || stage.steps_done() >= WARM_UP + 3);
    drop(first);
    // The step that was already under way when it left is the last that works for it.
    stage.let_steps(2);
    assert_eq!(collect(second).finished, Some((Reason::Length, 1)));
    let steps = stage.steps.lock().unwrap();
    assert!(steps.len() <= WARM_UP + 5, "{steps:?}");
    assert_eq!(steps.last().unwrap(), &[(0, 0, 2)]);
}

#[test]
fn who_leaves_while_waiting_makes_room() {
    let stage = Setup { slots: 1, places: 1, gated: true, ..Setup::default() }.start();
    let _running = stage.submit(&ask(vec![1], 500)).unwrap();
    stage.let_steps(1);
    eventually("it runs", || stage.steps_done() > WARM_UP);
    let waiting = stage.submit(&ask(vec![2], 5)).unwrap();
    let refused = stage.submit(&ask(vec![3], 5)).map(drop).unwrap_err();
    assert!(matches!(refused, Rejected::Full { waiting: 1, retry_after } if !retry_after.is_zero()), "{refused:?}");
    drop(waiting);
    assert!(stage.submit(&ask(vec![3], 5)).is_ok());
}

#[test]
fn when_the_engine_fails_everyone_is_told() {
    for (how, what) in [(Break::Panic, "the device fell off"), (Break::Error, "out of memory")] {
        let stage = Setup { slots: 2, breaks: Some((WARM_UP + 2, how)), ..Setup::default() }.start();
        let asked: Vec<_> = (0..5).filter_map(|n| stage.submit(&ask(vec![n], 50)).ok()).collect();
        assert!(!asked.is_empty());
        for outputs in asked {
            let got = collect(outputs);
            assert_eq!(got.finished, None);
            assert!(got.failed.as_ref().is_some_and(|problem| problem.contains(what)), "{got:?}");
        }
        let refused = stage.submit(&ask(vec![1], 1)).map(drop).unwrap_err();
        assert!(matches!(&refused, Rejected::Down(why) if why.contains(what)), "{refused:?}");
    }
}

/// Says 10, 11, 12, … and the end after the fifth.
fn counting(read: &[u32]) -> u32 {
    match read.last() {
        Some(&14) => END,
        Some(&last) if last >= 10 => last + 1,
        _ => 10,
    }
}

fn said(tokens: std::ops::Range<u32>) -> String {
    let text = Arc::new(Text::stand_in(VOCAB));
    let mut decoder = text.decoder();
    tokens.map(|token| decoder.push(token)).collect::<String>() + &decoder.finish()
}

#[test]
fn the_end_token_ends_and_is_no_output() {
    let stage = Setup { says: counting, ..Setup::default() }.start();
    let got = collect(stage.submit(&ask(vec![1], 100)).unwrap());
    assert_eq!(got, Got { text: said(10..15), finished: Some((Reason::Stop, 5)), failed: None });
}

#[test]
fn before_min_tokens_the_end_is_not_chosen() {
    let stage = Setup { says: counting, ..Setup::default() }.start();
    let got = collect(stage.submit(&Ask { min_tokens: 7, ..ask(vec![1], 100) }).unwrap());
    let (reason, tokens) = got.finished.unwrap();
    assert!(reason == Reason::Stop && tokens >= 7, "{reason:?} {tokens}");
}

#[test]
fn a_banned_end_is_never_chosen() {
    let stage = Setup { says: counting, ..Setup::default() }.start();
    let got = collect(stage.submit(&Ask { banned: vec![END], ..ask(vec![1], 40) }).unwrap());
    assert_eq!(got.finished, Some((Reason::Length, 40)));
}

#[test]
fn a_stop_string_ends_across_tokens_and_is_left_out() {
    let stage = Setup { says: counting, ..Setup::default() }.start();
    let whole = said(10..15);
    // It begins in one token and ends in the next.
    let (cut, end) = (said(10..12).len() - 1, said(10..13).len());
    let stop = whole[cut..end].to_owned();
    let got = collect(stage.submit(&Ask { stop: vec![stop], ..ask(vec![1], 100) }).unwrap());
    assert_eq!(got, Got { text: whole[..cut].to_owned(), finished: Some((Reason::Stop, 3)), failed: None });
    // One that never comes whole is told in the end.
    let stop = format!("{}x", &whole[whole.len() - 2..]);
    let got = collect(stage.submit(&Ask { stop: vec![stop], ..ask(vec![1], 100) }).unwrap());
    assert_eq!(got.text, whole);
}

#[test]
fn before_min_tokens_a_stop_string_is_text() {
    let stage = Setup { says: counting, ..Setup::default() }.start();
    let stop = said(11..12);
    let got = collect(stage.submit(&Ask { stop: vec![stop.clone()], min_tokens: 3, ..ask(vec![1], 100) }).unwrap());
    assert_eq!(got, Got { text: said(10..15), finished: Some((Reason::Stop, 5)), failed: None });
    let got = collect(stage.submit(&Ask { stop: vec![stop], min_tokens: 1, ..ask(vec![1], 100) }).unwrap());
    assert_eq!(got, Got { text: said(10..11), finished: Some((Reason::Stop, 2)), failed: None });
}

#[test]
fn who_is_told_of_the_end_finds_a_free_slot() {
    let stage = Setup { slots: 1, places: 0, ..Setup::default() }.start();
    for _ in 0..200 {
        let got = collect(stage.submit(&ask(vec![1], 2)).expect("the slot is free"));
        assert_eq!(got.finished, Some((Reason::Length, 2)));
    }
}

/// Says 7 for ever, but no number to a prompt of 3.
fn lost_at_three(read: &[u32]) -> u32 {
    if read[0] == 3 { NOTHING } else { 7 }
}

#[test]
fn logits_that_are_no_numbers_fail_their_request_alone() {
    let stage = Setup { says: lost_at_three, ..Setup::default() }.start();
    let others = stage.submit(&ask(vec![1], 50)).unwrap();
    let got = collect(stage.submit(&ask(vec![3], 50)).unwrap());
    assert!(got.failed.as_ref().is_some_and(|problem| problem.contains("not numbers")), "{got:?}");
    assert_eq!(collect(others).finished, Some((Reason::Length, 50)));
    assert_eq!(stage.queue.state(), State::Ready);
}
