//! `config.json` → [`Shape`].

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::rope::Scaling;
use super::shape::Shape;
use crate::backend::llama::LoadError;

/// Reads the shape from `config.json`'s text. `file` is named in errors.
pub(super) fn read(file: &Path, text: &[u8]) -> Result<Shape, LoadError> {
    let fail = |problem: String| LoadError::new("model", file, problem);
    let unreadable = |error: serde_json::Error| fail(format!("not a Llama model's configuration: {error}"));
    // Other models have other keys: what this one is comes before what it lacks.
    serde_json::from_slice::<Kind>(text).map_err(unreadable)?.check().map_err(fail)?;
    let config: Config = serde_json::from_slice(text).map_err(unreadable)?;
    config.computation().map_err(fail)?;
    let scaling = config.scaling().map_err(fail)?;
    let theta = config.rope_theta();
    if config.num_attention_heads == 0 {
        return Err(fail("num_attention_heads is 0, which no model has: the file is damaged".into()));
    }
    Shape {
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        layers: config.num_hidden_layers,
        heads: config.num_attention_heads,
        kv_heads: config.num_key_value_heads.unwrap_or(config.num_attention_heads),
        head_dim: config.head_dim.unwrap_or(config.hidden_size / config.num_attention_heads),
        eps: config.rms_norm_eps,
        rope_theta: theta,
        rope_scaling: scaling,
        tied: config.tie_word_embeddings,
        attention_bias: config.attention_bias,
        mlp_bias: config.mlp_bias,
        max_context: config.max_position_embeddings,
    }
    .check()
    .map_err(fail)
}

/// What model a `config.json` is of.
#[derive(Deserialize)]
struct Kind {
    model_type: Option<String>,
    architectures: Option<Vec<String>>,
    sliding_window: Option<Value>,
}

/// Ends what is said of every other model.
const ONLY: &str = "only the Llama architecture is served in this process; put other models behind an upstream";

impl Kind {
    /// Refuses other models.
    fn check(&self) -> Result<(), String> {
        let kind = self.model_type.as_deref().unwrap_or("llama");
        let heads = match kind {
            "llama" => "LlamaForCausalLM",
            // The same computation as long as attention reaches all the way back.
            "mistral" if self.sliding_window.is_none() => "MistralForCausalLM",
            "mistral" => return Err(format!("model_type is mistral with a sliding_window: {ONLY}")),
            other => return Err(format!("model_type is {other}: {ONLY}")),
        };
        match &self.architectures {
            Some(names) if !names.is_empty() && !names.iter().any(|name| name == heads) => {
                Err(format!("architectures is {}: {ONLY}", names.join(", ")))
            }
            _ => Ok(()),
        }
    }
}

/// What is read of `config.json`; defaults are transformers' `LlamaConfig`'s.
#[derive(Deserialize)]
struct Config {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    #[serde(default = "default_eps")]
    rms_norm_eps: f64,
    #[serde(default = "default_context")]
    max_position_embeddings: usize,
    #[serde(default)]
    hidden_act: Option<String>,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    partial_rotary_factor: Option<f64>,
    quantization_config: Option<Value>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>,
}

/// `rope_scaling`, and `rope_parameters`, which also has the base.
#[derive(Deserialize)]
struct Rope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

fn default_eps() -> f64 {
    1e-6
}

fn default_context() -> usize {
    2048
}

impl Config {
    /// Refuses what only looks like Llama.
    fn computation(&self) -> Result<(), String> {
        if let Some(activation) = self.hidden_act.as_deref()
            && activation != "silu"
        {
            return Err(format!("hidden_act is {activation}: a Llama model has silu"));
        }
        if let Some(quantization) = &self.quantization_config {
            let method = quantization.get("quant_method").and_then(Value::as_str).unwrap_or("unknown");
            return Err(format!(
                "its weights are quantised by {method}, which cannot be read: take the model without quantisation \
                 and set quantize, or take a .gguf file"
            ));
        }
        let rotary = self.rope_parameters.as_ref().and_then(|rope| rope.partial_rotary_factor);
        match self.partial_rotary_factor.or(rotary) {
            #[expect(clippy::float_cmp, reason = "1 is written as 1")]
            Some(factor) if factor != 1.0 => Err(format!("partial_rotary_factor is {factor}: {ONLY}")),
            _ => Ok(()),
        }
    }

    /// At the top, or nested as transformers 5 writes it.
    fn rope_theta(&self) -> f64 {
        let nested = |rope: &Option<Rope>| rope.as_ref().and_then(|rope| rope.rope_theta);
        nested(&self.rope_parameters).or(self.rope_theta).or(nested(&self.rope_scaling)).unwrap_or(10_000.0)
    }

    fn scaling(&self) -> Result<Scaling, String> {
        let Some(rope) = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref()) else {
            return Ok(Scaling::None);
        };
        let kind = rope.rope_type.as_deref().unwrap_or("default");
        let need = |name: &str, number: Option<f64>| {
            number.ok_or_else(|| format!("RoPE scaling of type {kind} needs {name}, which is missing"))
        };
        match kind {
            "default" => Ok(Scaling::None),
            "linear" => Ok(Scaling::Linear { factor: need("factor", rope.factor)? }),
            "llama3" => Ok(Scaling::Llama3 {
                factor: need("factor", rope.factor)?,
                low: need("low_freq_factor", rope.low_freq_factor)?,
                high: need("high_freq_factor", rope.high_freq_factor)?,
                original: need("original_max_position_embeddings", rope.original_max_position_embeddings)?,
            }),
            other => Err(format!(
                "RoPE scaling of type {other} is not supported (default, linear and llama3 are): \
                 put this model behind an upstream"
            )),
        }
    }
}
