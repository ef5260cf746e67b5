//! The loop: admit, step, sample, again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::pace::Pace;
use super::queue::Queue;
use super::schedule::split;
use super::sequence::Sequence;
use super::{Step, StepListener};
use crate::backend::llama::model::{Forward, Work};

/// A model and the sequences it works on.
pub(in crate::backend::llama) struct Engine<M> {
    model: M,
    queue: Arc<Queue>,
    /// Which sequence has which slot.
    slots: Vec<Option<Sequence>>,
    /// Occupied slots in the order of admission.
    order: Vec<usize>,
    /// Moves sequences together when a slot falls free, which pays where a batch is cheap only if it lies together.
    compact: bool,
    max_context: usize,
    pace: Pace,
    on_step: StepListener,
}

impl<M: Forward> Engine<M> {
    /// An engine of `slots` sequences with up to `max_context` tokens each.
    pub(in crate::backend::llama) fn new(
        model: M,
        queue: Arc<Queue>,
        slots: usize,
        max_context: usize,
        compact: bool,
        on_step: StepListener,
    ) -> Self {
        let slots = (0..slots).map(|_| None).collect();
        Self { model, queue, slots, order: Vec::new(), compact, max_context, pace: Pace::default(), on_step }
    }

    /// Computes once what will be computed, so that the first request pays for nothing. The queue is open then.
    ///
    /// # Errors
    /// What went wrong.
    pub(in crate::backend::llama) fn warm_up(&mut self) -> Result<(), String> {
        guarded(|| self.first_steps())?;
        self.queue.open();
        Ok(())
    }

    /// Serves until the queue is closed or something fails; then everyone is told. Returns what failed.
    pub(in crate::backend::llama) fn run(mut self) -> Option<String> {
        let served = guarded(|| {
            while self.step()? {}
            Ok(())
        });
        let problem = served.err();
        let told = match &problem {
            Some(problem) => format!("the engine has failed: {problem}"),
            None => "the engine was stopped".to_owned(),
        };
        self.queue.close(&told);
        for sequence in self.slots.iter().flatten() {
            sequence.fail(&told);
        }
        self.slots.clear();
        self.order.clear();
        // A listener that panics has done so before, and nothing comes after this.
        let _ = catch_unwind(AssertUnwindSafe(|| self.tell_occupied()));
        problem
    }

    /// Loads kernels and touches buffers; nothing of it is counted.
    fn first_steps(&mut self) -> candle_core::Result<()> {
        let prompt: Vec<u32> = vec![0; 64.min(self.max_context.saturating_sub(2)).max(1)];
        for _ in 0..2 {
            let began = Instant::now();
            self.model.forward(&[Work { slot: 0, position: 0, tokens: &prompt, wants_logits: true }])?;
            self.pace.observe(0, prompt.len(), began.elapsed());
        }
        if self.max_context > prompt.len() {
            for slots in [1, self.slots.len()] {
                let row = |slot| Work { slot, position: prompt.len(), tokens: &[0], wants_logits: true };
                let work: Vec<_> = (0..slots).map(row).collect();
                let began = Instant::now();
                self.model.forward(&work)?;
                self.pace.observe(slots, 0, began.elapsed());
            }
        }
        Ok(())
    }

    /// One step. Returns whether there can be another.
    fn step(&mut self) -> candle_core::Result<bool> {
        self.drop_cancelled()?;
        let free = self.slots.len() - self.order.len();
        let Some(jobs) = self.queue.take(free, self.order.is_empty()) else { return Ok(false) };
        for job in jobs {
            let Some(slot) = self.slots.iter().position(Option::is_none) else { break };
            self.slots[slot] = Some(Sequence::begin(job, slot, Instant::now()));
            self.order.push(slot);
        }

        let began = Instant::now();
        let running: Vec<&Sequence> = self.order.iter().filter_map(|&slot| self.slots[slot].as_ref()).collect();
        let remaining: Vec<usize> = running.iter().filter_map(|sequence| sequence.remaining()).collect();
        let decoding = running.len() - remaining.len();
        let mut parts = split(self.pace.budget(decoding), &remaining).into_iter();
        // (slot, prompt tokens read or `None` for a decode), in the order of the work.
        let mut due: Vec<(usize, Option<usize>)> = Vec::new();
        for sequence in &running {
            match sequence.remaining() {
                None => due.push((sequence.slot, None)),
                Some(_) => due.extend(parts.next().filter(|part| *part > 0).map(|part| (sequence.slot, Some(part)))),
            }
        }
        // Slots in order let the model find neighbours.
        due.sort_unstable();
        let work = |&(slot, part): &(usize, Option<usize>)| Some(self.slots[slot].as_ref()?.work(part.unwrap_or(0)));
        let work: Vec<Work<'_>> = due.iter().filter_map(work).collect();
        if work.is_empty() {
            return Ok(true);
        }
        let wants: Vec<bool> = work.iter().map(|work| work.wants_logits).collect();
        let mut logits = self.model.forward(&work)?.into_iter();

        let computed = Instant::now();
        let mut over = Vec::new();
        for ((slot, part), wanted) in due.iter().copied().zip(wants) {
            let Some(sequence) = self.slots[slot].as_mut() else { continue };
            if let Some(part) = part {
                sequence.has_read(part, computed);
            }
            if !wanted {
                continue;
            }
            let Some(mut logits) = logits.next() else { candle_core::bail!("fewer logits than were asked for") };
            if let Some(last) = sequence.sample(&mut logits) {
                over.push((slot, last));
            }
        }
        let took = began.elapsed();
        let prefill_tokens = due.iter().filter_map(|(_, part)| *part).sum();
        self.pace.observe(decoding, prefill_tokens, took);
        let (slots, waiting) = (self.order.len() - over.len(), self.queue.waiting());
        (self.on_step)(Step { sequences: due.len(), prefill_tokens, took, slots, waiting });
        // Who asks again once told finds a free slot, and the step counted.
        for (slot, last) in over {
            if let Some(sequence) = self.release(slot) {
                sequence.end(last);
            }
        }
        self.close_gaps()?;
        Ok(true)
    }

    fn drop_cancelled(&mut self) -> candle_core::Result<()> {
        let cancelled = |slot: &usize| self.slots[*slot].as_ref().is_some_and(Sequence::is_cancelled);
        let gone: Vec<usize> = self.order.iter().copied().filter(cancelled).collect();
        if gone.is_empty() {
            return Ok(());
        }
        for slot in gone {
            self.release(slot);
        }
        self.tell_occupied();
        self.close_gaps()
    }

    /// Tells how many slots are in use and how many choices wait, outside of a step.
    fn tell_occupied(&mut self) {
        let (slots, waiting) = (self.order.len(), self.queue.waiting());
        (self.on_step)(Step { sequences: 0, prefill_tokens: 0, took: Duration::ZERO, slots, waiting });
    }

    fn release(&mut self, slot: usize) -> Option<Sequence> {
        self.order.retain(|other| *other != slot);
        let sequence = self.slots[slot].take()?;
        self.queue.release(sequence.tenancy.held(Instant::now()));
        Some(sequence)
    }

    /// Moves the last sequences into the gaps before them.
    fn close_gaps(&mut self) -> candle_core::Result<()> {
        if !self.compact {
            return Ok(());
        }
        let used = self.order.len();
        for gap in 0..used {
            if self.slots[gap].is_some() {
                continue;
            }
            let Some(last) = self.slots.iter().rposition(Option::is_some) else { break };
            let Some(cached) = self.slots[last].as_ref().map(Sequence::cached) else { break };
            // Should this fail, the sequence is still where it will be told.
            self.model.copy_slot(last, gap, cached)?;
            let Some(mut sequence) = self.slots[last].take() else { break };
            sequence.slot = gap;
            self.slots[gap] = Some(sequence);
            for slot in self.order.iter_mut().filter(|slot| **slot == last) {
                *slot = gap;
            }
        }
        Ok(())
    }
}

/// Does `work`; a panic is an error like any other.
fn guarded(work: impl FnOnce() -> candle_core::Result<()>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        // candle's errors may carry a backtrace behind their first line.
        Ok(done) => done.map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned()),
        Err(panic) => Err(said(&*panic).to_owned()),
    }
}

/// What a panic said.
pub(in crate::backend::llama) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}
