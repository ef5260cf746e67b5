//! The weights a model is made of, and what files call them.

use super::shape::Shape;

/// One tensor of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// `[vocab_size, hidden_size]`.
    Embedding,
    /// `[hidden_size]`.
    FinalNorm,
    /// `[vocab_size, hidden_size]`; absent where the embedding serves.
    Output,
    /// A weight of layer `.0`.
    Layer(usize, Role),
    /// A bias of layer `.0`.
    Bias(usize, Role),
}

/// What a tensor does in its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    AttentionNorm,
    Query,
    Key,
    Value,
    AttentionOutput,
    MlpNorm,
    Gate,
    Up,
    Down,
}

impl Role {
    /// The matrices of a layer.
    pub(super) const LINEAR: [Self; 7] =
        [Self::Query, Self::Key, Self::Value, Self::AttentionOutput, Self::Gate, Self::Up, Self::Down];

    /// `(outputs, inputs)` of the matrix; of a norm `(hidden_size, 1)`.
    pub(super) fn widths(self, shape: &Shape) -> (usize, usize) {
        let (hidden, inner) = (shape.hidden_size, shape.intermediate_size);
        match self {
            Self::AttentionNorm | Self::MlpNorm => (hidden, 1),
            Self::Query => (shape.heads * shape.head_dim, hidden),
            Self::Key | Self::Value => (shape.kv_heads * shape.head_dim, hidden),
            Self::AttentionOutput => (hidden, shape.heads * shape.head_dim),
            Self::Gate | Self::Up => (inner, hidden),
            Self::Down => (hidden, inner),
        }
    }

    /// Whether it has a bias in a model of this shape.
    pub(super) fn has_bias(self, shape: &Shape) -> bool {
        match self {
            Self::AttentionNorm | Self::MlpNorm => false,
            Self::Query | Self::Key | Self::Value | Self::AttentionOutput => shape.attention_bias,
            Self::Gate | Self::Up | Self::Down => shape.mlp_bias,
        }
    }

    fn hugging_face(self) -> &'static str {
        match self {
            Self::AttentionNorm => "input_layernorm",
            Self::Query => "self_attn.q_proj",
            Self::Key => "self_attn.k_proj",
            Self::Value => "self_attn.v_proj",
            Self::AttentionOutput => "self_attn.o_proj",
            Self::MlpNorm => "post_attention_layernorm",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::Down => "mlp.down_proj",
        }
    }

    fn gguf(self) -> &'static str {
        match self {
            Self::AttentionNorm => "attn_norm",
            Self::Query => "attn_q",
            Self::Key => "attn_k",
            Self::Value => "attn_v",
            Self::AttentionOutput => "attn_output",
            Self::MlpNorm => "ffn_norm",
            Self::Gate => "ffn_gate",
            Self::Up => "ffn_up",
            Self::Down => "ffn_down",
        }
    }
}

impl Part {
    /// Its name in safetensors.
    pub(super) fn hugging_face(self) -> String {
        match self {
            Self::Embedding => "model.embed_tokens.weight".into(),
            Self::FinalNorm => "model.norm.weight".into(),
            Self::Output => "lm_head.weight".into(),
            Self::Layer(layer, role) => format!("model.layers.{layer}.{}.weight", role.hugging_face()),
            Self::Bias(layer, role) => format!("model.layers.{layer}.{}.bias", role.hugging_face()),
        }
    }

    /// Its name in GGUF.
    pub(super) fn gguf(self) -> String {
        match self {
            Self::Embedding => "token_embd.weight".into(),
            Self::FinalNorm => "output_norm.weight".into(),
            Self::Output => "output.weight".into(),
            Self::Layer(layer, role) => format!("blk.{layer}.{}.weight", role.gguf()),
            Self::Bias(layer, role) => format!("blk.{layer}.{}.bias", role.gguf()),
        }
    }

    /// Its dimensions: one for norms and biases, else outputs and inputs.
    pub(super) fn dims(self, shape: &Shape) -> Vec<usize> {
        match self {
            Self::Embedding | Self::Output => vec![shape.vocab_size, shape.hidden_size],
            Self::FinalNorm => vec![shape.hidden_size],
            Self::Layer(_, role @ (Role::AttentionNorm | Role::MlpNorm)) | Self::Bias(_, role) => {
                vec![role.widths(shape).0]
            }
            Self::Layer(_, role) => vec![role.widths(shape).0, role.widths(shape).1],
        }
    }
}
