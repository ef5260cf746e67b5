//! The forward: tokens to logits through all layers.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops::rms_norm;

use super::attention::{Attention, Manner};
use super::cache::{Cache, Rows};
use super::cpu::GateUp;
use super::rope::{Tables, Turns};
use super::shape::Shape;
use super::step::Step;
use super::weights::{Layer, Weights};
use super::{Forward, Work};

/// A Llama model on its device.
pub(in crate::backend::llama) struct Model {
    pub(super) shape: Shape,
    pub(super) weights: Weights,
    pub(super) tables: Tables,
    pub(super) cache: Cache,
    pub(super) manner: Manner,
    pub(super) device: Device,
}

/// What every layer of one step shares.
struct Shared {
    turns: Turns,
    rows: Rows,
    attention: Attention,
}

impl Forward for Model {
    fn forward(&mut self, work: &[Work<'_>]) -> Result<Vec<Vec<f32>>> {
        self.check(work)?;
        if work.is_empty() {
            return Ok(Vec::new());
        }
        let step = Step::new(work, self.manner.together);
        let positions = numbers(step.places.iter().map(|&(_, position)| position), &self.device)?;
        let shared = Shared {
            turns: self.tables.at(&positions)?,
            rows: self.cache.rows(&step.places, self.shape.head_dim, &self.device)?,
            attention: Attention::new(&step.spans, &self.shape, self.manner, &self.device)?,
        };
        let tokens = Tensor::new(step.tokens, &self.device)?;
        let mut x = self.weights.embedding.index_select(&tokens, 0)?;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            x = self.layer(index, layer, &shared, &x)?;
        }
        let logits = self.logits(&x, &step.wanted)?;
        self.device.synchronize()?;
        Ok(logits)
    }

    fn copy_slot(&mut self, from: usize, to: usize, len: usize) -> Result<()> {
        let (slots, context) = (self.cache.slots(), self.cache.context());
        if from >= slots || to >= slots || len > context {
            candle_core::bail!("copy of {len} tokens from slot {from} to {to}: there are {slots} slots of {context}");
        }
        self.cache.copy_slot(from, to, len)
    }

    fn vocab_size(&self) -> usize {
        self.shape.vocab_size
    }
}

impl Model {
    /// `x`, `[tokens, hidden_size]`, through one layer.
    fn layer(&self, index: usize, layer: &Layer, shared: &Shared, x: &Tensor) -> Result<Tensor> {
        let tokens = x.dim(0)?;
        let heads = |x: &Tensor, heads: usize| x.reshape((tokens, heads, self.shape.head_dim))?.contiguous();
        let normed = self.norm(x, &layer.attention_norm)?;
        let [q, k, v] = &layer.qkv.forward(&normed)?[..] else {
            candle_core::bail!("queries, keys and values are not three");
        };
        let q = shared.turns.apply(&heads(q, self.shape.heads)?)?;
        let k = shared.turns.apply(&heads(k, self.shape.kv_heads)?)?;
        let v = heads(v, self.shape.kv_heads)?;
        self.cache.write(index, &shared.rows, [&k, &v])?;
        let attended = shared.attention.attend(index, &q, &self.cache)?;
        let x = (x + layer.attention_output.whole(&attended)?)?;

        let normed = self.norm(&x, &layer.mlp_norm)?;
        let both = layer.gate_up.whole(&normed)?;
        let inner = match (both.device(), both.dtype()) {
            (Device::Cpu, DType::F32) => both.apply_op1_no_bwd(&GateUp)?,
            _ => candle_nn::ops::swiglu(&both)?,
        };
        x + layer.down.whole(&inner)?
    }

    /// The logits of `rows`.
    fn logits(&self, x: &Tensor, rows: &[usize]) -> Result<Vec<Vec<f32>>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let x =
            self.norm(&x.index_select(&numbers(rows.iter().copied(), &self.device)?, 0)?, &self.weights.final_norm)?;
        self.weights.output.whole(&x)?.to_dtype(DType::F32)?.to_vec2()
    }

    fn norm(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        #[expect(clippy::cast_possible_truncation, reason = "the reference computes in f32")]
        rms_norm(x, weight, self.shape.eps as f32)
    }

    /// Refuses work that would write over other sequences or read past the tables, which a GPU does without a word.
    fn check(&self, work: &[Work<'_>]) -> Result<()> {
        let (slots, context) = (self.cache.slots(), self.cache.context());
        let mut seen = vec![false; slots];
        for work in work {
            let end = work.position.saturating_add(work.tokens.len());
            if work.tokens.is_empty() || end > context {
                candle_core::bail!("{} tokens at {} of {context}", work.tokens.len(), work.position);
            }
            match seen.get_mut(work.slot) {
                None => candle_core::bail!("slot {} of {slots}", work.slot),
                Some(seen) if *seen => candle_core::bail!("slot {} twice in one step", work.slot),
                Some(seen) => *seen = true,
            }
            if let Some(token) = work.tokens.iter().find(|&&token| token as usize >= self.shape.vocab_size) {
                candle_core::bail!("token {token} of a vocabulary of {}", self.shape.vocab_size);
            }
        }
        Ok(())
    }
}

/// Indices as a tensor.
fn numbers(numbers: impl Iterator<Item = usize>, device: &Device) -> Result<Tensor> {
    let numbers = numbers.map(|number| u32::try_from(number).map_err(candle_core::Error::wrap));
    Tensor::new(numbers.collect::<Result<Vec<u32>>>()?, device)
}
