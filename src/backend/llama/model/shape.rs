//! What a model's numbers are: widths, heads, layers, positions.
//!
//! Invariant: a [`Shape`] is one this code computes exactly; whatever else a file asks for was refused while reading.

use super::rope::Scaling;

/// The hyperparameters of a model of the Llama architecture, in the names of Hugging Face's `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    /// Tokens in the vocabulary.
    pub(super) vocab_size: usize,
    /// Width of the residual stream.
    pub(super) hidden_size: usize,
    /// Width of the feed-forward layers.
    pub(super) intermediate_size: usize,
    /// Decoder layers.
    pub(super) layers: usize,
    /// Query heads.
    pub(super) heads: usize,
    /// Key and value heads; divides `heads`.
    pub(super) kv_heads: usize,
    /// Width of one head; even.
    pub(super) head_dim: usize,
    /// ε of the RMS norms.
    pub(super) eps: f64,
    /// Base of the rotary frequencies.
    pub(super) rope_theta: f64,
    /// What is done to them for a longer context.
    pub(super) rope_scaling: Scaling,
    /// The output matrix is the embedding.
    pub(super) tied: bool,
    /// Q, K, V and O have biases.
    pub(super) attention_bias: bool,
    /// Gate, up and down have biases.
    pub(super) mlp_bias: bool,
    /// The context the model was made for, in tokens.
    pub(super) max_context: usize,
}

impl Shape {
    /// Refuses what cannot be computed. The error names the field.
    pub(super) fn check(self) -> Result<Self, String> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.layers),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_context),
        ];
        // Far above any model, far below where a product of three overflows.
        if let Some((name, size)) = sizes.into_iter().find(|&(_, size)| size == 0 || size > 1 << 24) {
            return Err(format!("{name} is {size}, which no model has: the file is damaged"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(format!(
                "num_attention_heads {} is not a multiple of num_key_value_heads {}",
                self.heads, self.kv_heads
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(format!("head_dim is {}: rotary embeddings need an even one", self.head_dim));
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 0.0) {
            return Err(format!("rope_theta is {}: it must be a positive number", self.rope_theta));
        }
        if !(self.eps.is_finite() && self.eps >= 0.0) {
            return Err(format!("rms_norm_eps is {}: it must be a small positive number", self.eps));
        }
        self.rope_scaling.check()?;
        Ok(self)
    }
}
