//! GGUF files, written as llama.cpp's converter writes them, in every type that is read.

use std::fs::File;
use std::io::BufWriter;

use candle_core::quantized::gguf_file::{self, Value as Meta};
use candle_core::quantized::{GgmlDType, QTensor};

use super::reference::expected;
use super::*;

/// The rows of Q and K in llama.cpp's order: of each head, row i and i + half are neighbours.
fn permuted(tensor: &Tensor, heads: usize) -> candle_core::Result<Tensor> {
    let (outputs, inputs) = tensor.dims2()?;
    let halves = tensor.reshape((heads, 2, outputs / heads / 2, inputs))?;
    halves.transpose(1, 2)?.contiguous()?.reshape((outputs, inputs))
}

fn gguf_name(name: &str) -> String {
    let names = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    names.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

fn number(config: &Value, field: &str) -> u32 {
    config[field].as_u64().and_then(|number| u32::try_from(number).ok()).expect("a number")
}

fn metadata(config: &Value) -> Vec<(String, Meta)> {
    let number = |field| Meta::U32(number(config, field));
    let float = |field: &str| {
        #[expect(clippy::cast_possible_truncation, reason = "GGUF has f32")]
        let number = config[field].as_f64().expect("a number") as f32;
        Meta::F32(number)
    };
    [
        ("general.architecture", Meta::String("llama".into())),
        ("llama.embedding_length", number("hidden_size")),
        ("llama.feed_forward_length", number("intermediate_size")),
        ("llama.block_count", number("num_hidden_layers")),
        ("llama.attention.head_count", number("num_attention_heads")),
        ("llama.attention.head_count_kv", number("num_key_value_heads")),
        ("llama.attention.layer_norm_rms_epsilon", float("rms_norm_eps")),
        ("llama.rope.freq_base", float("rope_theta")),
        ("llama.context_length", number("max_position_embeddings")),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// Writes `tiny` with its matrices as `kind`, `more` beside or over the usual metadata, and `extra` tensors. Returns the
/// file, and a model with the weights as they are in it.
pub(super) fn write(
    mut tiny: Tiny,
    kind: GgmlDType,
    more: &[(&str, Meta)],
    extra: &[(&str, Tensor)],
) -> (PathBuf, Tiny) {
    let (heads, kv_heads) = (number(&tiny.config, "num_attention_heads"), number(&tiny.config, "num_key_value_heads"));
    let mut tensors = Vec::new();
    for (name, tensor) in &mut tiny.tensors {
        let kind = if tensor.rank() == 1 { GgmlDType::F32 } else { kind };
        let rows = |heads: u32| permuted(tensor, heads as usize).expect("rows");
        let stored = match name {
            name if name.ends_with("q_proj.weight") => rows(heads),
            name if name.ends_with("k_proj.weight") => rows(kv_heads),
            _ => tensor.clone(),
        };
        tensors.push((gguf_name(name), QTensor::quantize(&stored, kind).expect("quantised")));
        let quantized = QTensor::quantize(tensor, kind).expect("quantised");
        *tensor = quantized.dequantize(&Device::Cpu).expect("numbers");
    }
    for (name, tensor) in extra {
        tensors.push(((*name).to_owned(), QTensor::quantize(tensor, GgmlDType::F32).expect("numbers")));
    }
    let mut all = metadata(&tiny.config);
    all.retain(|(key, _)| more.iter().all(|(other, _)| key != other));
    all.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    let path = tiny.path().join("model.gguf");
    let mut file = BufWriter::new(File::create(&path).expect("a file"));
    let all: Vec<(&str, &Meta)> = all.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut file, &all, &tensors).expect("written");
    (path, tiny)
}

fn wide(more: &Value) -> Tiny {
    Tiny::of_width(256, 512, 4, 2, more)
}

/// The difference in the logits of `path` and of `weights`, against the largest logit.
fn difference(path: &Path, weights: &Tiny) -> f32 {
    let tokens = prompt(60, 2);
    let (mut model, _) = load(&settings(path.into()));
    let expected = expected(weights, &tokens);
    let largest = apart(&expected, &vec![0.0; expected.len()]);
    apart(&logits(&mut model, 0, 0, &tokens), &expected) / largest
}

#[test]
fn every_type_gives_the_logits_of_its_weights() {
    use GgmlDType::{BF16, F16, F32, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    for kind in [F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2K, Q3K, Q4K, Q5K, Q6K] {
        let (path, weights) = write(wide(&json!({})), kind, &[], &[]);
        let difference = difference(&path, &weights);
        // Products of blocks round the activations to 8 bits too.
        let tolerance = if matches!(kind, F32 | F16 | BF16) { 1e-5 } else { 0.1 };
        assert!(difference <= tolerance, "{kind:?}: {difference}");
    }
}

#[test]
fn a_tied_model_uses_its_embedding_twice() {
    for kind in [GgmlDType::F32, GgmlDType::Q6K] {
        let (path, weights) = write(wide(&json!({"tie_word_embeddings": true})), kind, &[], &[]);
        let difference = difference(&path, &weights);
        assert!(difference <= 0.03, "{kind:?}: {difference}");
    }
}

#[test]
fn blocks_that_are_slow_here_are_requantised_and_it_is_said_once() {
    let (path, _tiny) = write(Tiny::of_width(64, 96, 4, 2, &json!({})), GgmlDType::Q4_1, &[], &[]);
    let (_, facts) = load(&settings(path));
    if cfg!(target_arch = "x86_64") && is_x86_feature_detected!("avx2") {
        assert_eq!(facts.weights, "q8_0");
        assert_eq!(facts.notes, ["q4_1 has no fast kernel on this machine: requantised to q8_0"]);
    }
}

#[test]
fn dtype_dequantises() {
    let (path, weights) = write(wide(&json!({})), GgmlDType::Q4K, &[], &[]);
    let config = config::Llama { dtype: config::Dtype::F32, ..settings(path) };
    let (mut model, facts) = load(&config);
    let tokens = prompt(60, 2);
    let apart = apart(&logits(&mut model, 0, 0, &tokens), &expected(&weights, &tokens));
    assert!(apart <= 2e-3, "{apart}");
    assert_eq!(
        (facts.weights.as_str(), &facts.notes[..]),
        ("f32", &["q4_k dequantised to f32, as dtype asks".into()][..])
    );
}

#[test]
fn rope_factors_divide_the_frequencies() {
    // Llama 3's scaling as a converter computes it: the frequency of each pair is divided by its factor.
    let scaling = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64});
    let tiny = wide(&json!({"rope_theta": 500_000.0, "rope_scaling": scaling}));
    let factors: Vec<f32> = (0..32_u8)
        .map(|pair| {
            let wavelength = 2.0 * std::f32::consts::PI * 500_000_f32.powf(f32::from(pair) / 32.0);
            if wavelength < 16.0 {
                return 1.0;
            }
            if wavelength > 64.0 {
                return 8.0;
            }
            let smooth = (64.0 / wavelength - 1.0) / 3.0;
            1.0 / ((1.0 - smooth) / 8.0 + smooth)
        })
        .collect();
    let factors = Tensor::from_vec(factors, 32, &Device::Cpu).expect("factors");
    let (path, weights) = write(tiny, GgmlDType::F32, &[], &[("rope_freqs.weight", factors)]);
    let difference = difference(&path, &weights);
    assert!(difference <= 1e-5, "{difference}");
}

#[test]
fn linear_scaling_divides_positions() {
    let more =
        [("llama.rope.scaling.type", Meta::String("linear".into())), ("llama.rope.scaling.factor", Meta::F32(4.0))];
    let (path, weights) = write(wide(&json!({})), GgmlDType::F32, &more, &[]);
    let (mut scaled, _) = load(&settings(path));
    let plain = wide(&json!({"rope_scaling": {"type": "linear", "factor": 4.0}}));
    let (mut same, _) = plain.load();
    let tokens = prompt(60, 2);
    let scaled = logits(&mut scaled, 0, 0, &tokens);
    assert!(apart(&scaled, &logits(&mut same, 0, 0, &tokens)) <= 1e-3);
    assert!(apart(&scaled, &expected(&weights, &tokens)) > 0.1, "scaling changes nothing");
}
