//! How many prompt tokens a step may read, so that the streams that decode beside it do not stall.
//!
//! Reading prompts may about double a step: its cost is estimated from the steps before.

use std::time::Duration;

/// The most prompt tokens a step reads; beyond, a larger matrix gains nothing and buffers grow.
const MOST: usize = 512;
/// The fewest beside decoding streams, so that a prompt gets on however slow the machine.
const FEWEST: usize = 8;
/// About as long as a step takes at most that only reads prompts, in seconds: whoever comes next waits for it.
const ALONE: f64 = 0.5;
/// The fewest prompt tokens of such a step: below, reading the weights costs more than computing with them.
const FEWEST_ALONE: usize = 64;
/// The weight of the newest observation.
const NEWEST: f64 = 0.25;

/// What steps cost, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// A step that only decodes. `None` before the first.
    decode: Option<f64>,
    /// One prompt token more in a step.
    prompt_token: Option<f64>,
}

impl Pace {
    /// How many prompt tokens the next step may read beside `decoding` sequences that decode.
    pub(super) fn budget(&self, decoding: usize) -> usize {
        let fewest = if decoding == 0 { FEWEST_ALONE } else { FEWEST };
        let time = if decoding == 0 { Some(ALONE) } else { self.decode };
        let (Some(time), Some(token)) = (time, self.prompt_token) else { return fewest.max(FEWEST * 4) };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to small positive numbers
        let tokens = (time / token.max(1e-9)).min(MOST as f64) as usize;
        tokens.max(fewest)
    }

    /// A step with `decoding` sequences that decode and `prompt_tokens` prompt tokens took `took`.
    pub(super) fn observe(&mut self, decoding: usize, prompt_tokens: usize, took: Duration) {
        let took = took.as_secs_f64();
        if prompt_tokens == 0 {
            self.decode = Some(blend(self.decode, took));
            return;
        }
        // Without an estimate of the rest, all of it is put on the prompt: the budget errs to the small side.
        let decode = if decoding > 0 { self.decode.unwrap_or(0.0) } else { 0.0 };
        let each = (took - decode).max(took * 0.05) / prompt_tokens as f64;
        self.prompt_token = Some(blend(self.prompt_token, each));
    }
}

fn blend(before: Option<f64>, now: f64) -> f64 {
    before.map_or(now, |before| before + (now - before) * NEWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn alone_a_prompt_gets_what_half_a_second_reads() {
        let mut pace = Pace::default();
        assert_eq!(pace.budget(0), FEWEST_ALONE);
        pace.observe(0, 64, ms(160));
        assert_eq!(pace.budget(0), 200);
        let mut fast = Pace::default();
        fast.observe(0, 64, ms(1));
        assert_eq!(fast.budget(0), MOST);
        let mut slow = Pace::default();
        slow.observe(0, 64, ms(64_000));
        assert_eq!(slow.budget(0), FEWEST_ALONE);
    }

    #[test]
    fn beside_streams_a_prompt_gets_as_long_as_they_take() {
        let mut pace = Pace::default();
        pace.observe(4, 0, ms(80));
        pace.observe(0, 100, ms(200));
        assert_eq!(pace.budget(4), 40);
        // Steps that do both teach the cost of a prompt token alone.
        for _ in 0..50 {
            pace.observe(4, 40, ms(80 + 40 * 4));
        }
        assert_eq!(pace.budget(4), 20);
    }

    #[test]
    fn a_prompt_always_gets_on() {
        let mut pace = Pace::default();
        pace.observe(1, 0, ms(1));
        pace.observe(0, 10, ms(10_000));
        assert_eq!(pace.budget(1), FEWEST);
    }
}
