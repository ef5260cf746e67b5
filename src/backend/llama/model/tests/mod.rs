//! Tests of the model as a whole, on tiny random models that the tests write themselves.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Facts, Forward, Model, ModelFiles, Work};
use crate::backend::llama::LoadError;
use crate::config;

mod errors;
mod fixtures;
mod gguf;
mod reference;
mod ways;

/// A model on disk and its tensors.
struct Tiny {
    directory: TempDir,
    config: Value,
    tensors: HashMap<String, Tensor>,
}

impl Tiny {
    /// `heads` query heads over `kv_heads`, the fields of `more` over those of the usual configuration.
    fn new(heads: usize, kv_heads: usize, more: &Value) -> Self {
        Self::of_width(16 * heads, 96, heads, kv_heads, more)
    }

    fn of_width(hidden: usize, inner: usize, heads: usize, kv_heads: usize, more: &Value) -> Self {
        let mut config = json!({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
            "vocab_size": 97, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": 2,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0, "max_position_embeddings": 256, "tie_word_embeddings": false,
        });
        for (key, value) in more.as_object().expect("fields") {
            config[key] = value.clone();
        }
        let (kv, tied) = (hidden / heads * kv_heads, config["tie_word_embeddings"] == true);
        let mut shapes = vec![
            ("model.embed_tokens.weight".to_owned(), vec![97, hidden]),
            ("model.norm.weight".to_owned(), vec![hidden]),
        ];
        if !tied {
            shapes.push(("lm_head.weight".into(), vec![97, hidden]));
        }
        for layer in 0..2 {
            let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
            shapes.extend([
                (name("input_layernorm"), vec![hidden]),
                (name("post_attention_layernorm"), vec![hidden]),
                (name("self_attn.q_proj"), vec![hidden, hidden]),
                (name("self_attn.k_proj"), vec![kv, hidden]),
                (name("self_attn.v_proj"), vec![kv, hidden]),
                (name("self_attn.o_proj"), vec![hidden, hidden]),
                (name("mlp.gate_proj"), vec![inner, hidden]),
                (name("mlp.up_proj"), vec![inner, hidden]),
                (name("mlp.down_proj"), vec![hidden, inner]),
            ]);
        }
        let mut seed = 1;
        let tensors = shapes.into_iter().map(|(name, dims)| {
            // Norms around 1; matrices that make what goes through them neither fade nor grow.
            let (centre, width) = match dims[..] {
                [_, inputs] => (0.0, 2.5 / f32::from(u16::try_from(inputs).expect("narrow")).sqrt()),
                _ => (1.0, 0.5),
            };
            let numbers = random(&mut seed, dims.iter().product()).map(|number| centre + width * number).collect();
            (name, Tensor::from_vec::<_, f32>(numbers, dims, &Device::Cpu).expect("tensor"))
        });
        let tiny = Self { directory: TempDir::new().expect("directory"), tensors: tensors.collect(), config };
        fs::write(tiny.path().join("config.json"), tiny.config.to_string()).expect("written");
        candle_core::safetensors::save(&tiny.tensors, tiny.path().join("model.safetensors")).expect("written");
        tiny
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn load(&self) -> (Model, Facts) {
        load(&settings(self.path().into()))
    }
}

/// Numbers in −1 … 1, the same for the same seed.
fn random(seed: &mut u32, count: usize) -> impl Iterator<Item = f32> {
    (0..count).map(move |_| {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(*seed >> 16).expect("16 bits")) / 32_768.0 - 1.0
    })
}

/// On the CPU, four sequences.
fn settings(model: PathBuf) -> config::Llama {
    config::Llama { device: config::Device::Cpu, max_sequences: Some(4), ..config::Llama::new(model) }
}

fn load(config: &config::Llama) -> (Model, Facts) {
    let files = ModelFiles::open(&config.model).unwrap_or_else(|error| panic!("{error}"));
    Model::load(&files, config).unwrap_or_else(|error| panic!("{error}"))
}

/// The error of opening and loading.
fn refusal(config: &config::Llama) -> LoadError {
    let loaded = ModelFiles::open(&config.model).and_then(|files| Model::load(&files, config));
    loaded.err().expect("an error")
}

/// The logits after `tokens` at `position` of `slot`.
fn logits(model: &mut Model, slot: usize, position: usize, tokens: &[u32]) -> Vec<f32> {
    let work = Work { slot, position, tokens, wants_logits: true };
    let mut all = model.forward(&[work]).expect("a forward");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The largest difference between two lists of numbers.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |worst, apart| if apart > worst { apart } else { worst })
}

/// A prompt of `len` tokens.
fn prompt(len: usize, seed: u32) -> Vec<u32> {
    (0..u32::try_from(len).expect("short")).map(|at| (at * 31 + seed * 17 + at * at) % 97).collect()
}
