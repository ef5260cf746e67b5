//! An engine that breaks when a test wants it to.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::Llama;
use super::loaded::Parts;
use super::model::{Facts, Forward, Work};
use super::text::Text;

const VOCAB: usize = 64;

/// Warms up in peace, then waits for the word and panics.
struct Panics {
    forwards: usize,
    now: Receiver<()>,
}

impl Forward for Panics {
    fn forward(&mut self, work: &[Work<'_>]) -> candle_core::Result<Vec<Vec<f32>>> {
        self.forwards += 1;
        if self.forwards > 4 {
            let _ = self.now.recv();
            panic!("it broke, as a test wishes");
        }
        Ok(work.iter().filter(|work| work.wants_logits).map(|_| vec![0.0; VOCAB]).collect())
    }

    fn copy_slot(&mut self, _: usize, _: usize, _: usize) -> candle_core::Result<()> {
        Ok(())
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }
}

impl Llama {
    /// One with `slots` slots that panics in its first step once told to.
    pub(crate) fn that_panics(name: &str, slots: usize) -> (Self, SyncSender<()>) {
        let (tell, now) = sync_channel(1);
        let facts = Facts {
            device: "cpu".into(),
            weights: "none".into(),
            weight_bytes: 0,
            kv_bytes: 0,
            max_sequences: slots,
            max_context: 200,
            notes: Vec::new(),
        };
        let load = move || {
            let (text, on_step) = (Text::stand_in(VOCAB), Box::new(|_| {}));
            Ok(Parts { model: Panics { forwards: 0, now }, text, facts, max_queue: 8, on_step, file: "nowhere".into() })
        };
        (Self::spawn(&name.into(), "nowhere".into(), load).expect("a thread"), tell)
    }

    /// Choices that wait for a slot.
    pub(crate) fn waiting(&self) -> usize {
        self.0.loading.loaded().map_or(0, |loaded| loaded.desk.queue.waiting())
    }
}
