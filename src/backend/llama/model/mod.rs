//! The model: weights, K/V cache, and one forward over everything that is due.

// What a model is, and where it lies.
mod config_json;
mod files;
mod parts;
mod shape;

// Where weights come from.
mod dummy;
mod gguf;
mod safetensors;
mod source;

// How much memory they take, and in what form.
mod device;
mod free;
mod kernels;
mod load;
mod memory;
mod plan;
mod storage;
mod weights;

// What runs.
mod attention;
mod cache;
mod cpu;
mod forward;
mod linear;
mod rope;
mod step;

pub(super) use files::ModelFiles;
pub(super) use forward::Model;

/// What one sequence adds to a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    /// Where its K/V are: below `slots`.
    pub(super) slot: usize,
    /// The position of its first token: how many tokens the slot holds already.
    pub(super) position: usize,
    /// The tokens to add, at least one.
    pub(super) tokens: &'a [u32],
    /// Whether the logits after the last of them are wanted.
    pub(super) wants_logits: bool,
}

/// What the engine needs of a model.
pub(super) trait Forward: Send {
    /// Runs all of `work`, whose slots differ, in one forward. Returns the logits of those that want them, in the order
    /// of `work`, each `vocab_size` long. The device is done when this returns.
    fn forward(&mut self, work: &[Work<'_>]) -> candle_core::Result<Vec<Vec<f32>>>;

    /// Copies the K/V of the first `len` positions of slot `from` to slot `to`.
    fn copy_slot(&mut self, from: usize, to: usize, len: usize) -> candle_core::Result<()>;

    /// How many tokens the vocabulary has.
    fn vocab_size(&self) -> usize;
}

/// What a loaded model is, to be announced.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The device's name: `cpu`, `cuda:0`.
    pub(super) device: String,
    /// How its weights are held: `f32`, `q8_0`.
    pub(super) weights: String,
    /// Bytes of weights.
    pub(super) weight_bytes: u64,
    /// Bytes of K/V.
    pub(super) kv_bytes: u64,
    /// Sequences at once.
    pub(super) max_sequences: usize,
    /// Tokens of prompt and output together.
    pub(super) max_context: usize,
    /// What was done that the files do not show: requantised tensors, a smaller context, a device not found.
    pub(super) notes: Vec<String>,
}

#[cfg(test)]
mod tests;
