//! The ways a model can be held: types, quantised, sharded, by chance, with biases.

use candle_core::quantized::GgmlDType;

use super::reference::expected;
use super::*;

fn wide() -> Tiny {
    Tiny::of_width(256, 512, 4, 2, &json!({"tie_word_embeddings": true}))
}

/// Difference in logits of `tiny` loaded as `config` says, against the largest logit, and the facts.
fn difference(tiny: &Tiny, config: &config::Llama) -> (f32, Facts) {
    let tokens = prompt(40, 2);
    let (mut model, facts) = load(config);
    let expected = expected(tiny, &tokens);
    let largest = apart(&expected, &vec![0.0; expected.len()]);
    (apart(&logits(&mut model, 0, 0, &tokens), &expected) / largest, facts)
}

#[test]
fn half_types_are_held_and_computed_in_halves() {
    let tiny = wide();
    for (dtype, name, tolerance) in [(config::Dtype::F16, "f16", 0.02), (config::Dtype::Bf16, "bf16", 0.1)] {
        let config = config::Llama { dtype, ..settings(tiny.path().into()) };
        let (difference, facts) = difference(&tiny, &config);
        assert!(difference <= tolerance, "{name}: {difference}");
        assert!(difference > 1e-6, "{name} loses nothing?");
        assert_eq!(facts.weights, name);
    }
}

#[test]
fn quantising_holds_every_matrix_in_blocks_and_the_output_as_well() {
    let tiny = wide();
    for (quantize, name, tolerance) in [(config::Quantize::Q8_0, "q8_0", 0.05), (config::Quantize::Q4K, "q4_k", 0.4)] {
        let config = config::Llama { quantize: Some(quantize), ..settings(tiny.path().into()) };
        let (difference, facts) = difference(&tiny, &config);
        assert!(difference <= tolerance, "{name}: {difference}");
        assert_eq!((facts.weights.as_str(), facts.notes.len()), (name, 0));
    }
    // 64 and 96 columns have no room for super-blocks.
    let narrow = Tiny::new(4, 2, &json!({}));
    let config = config::Llama { quantize: Some(config::Quantize::Q4K), ..settings(narrow.path().into()) };
    let (_, facts) = load(&config);
    assert_eq!(facts.weights, "q8_0");
    assert_eq!(facts.notes, ["q4_k does not go into 64 columns: q8_0", "q4_k does not go into 96 columns: q8_0"]);
}

#[test]
fn the_bytes_announced_are_those_held() {
    let tiny = Tiny::new(4, 2, &json!({}));
    let (model, facts) = tiny.load();
    let numbers: usize = tiny.tensors.values().map(Tensor::elem_count).sum();
    assert_eq!(facts.weight_bytes, 4 * numbers as u64);
    // Two layers, K and V, two heads of 16, f32.
    assert_eq!(facts.kv_bytes, 2 * 2 * 2 * 16 * 4 * 4 * 256);
    assert_eq!((facts.max_sequences, facts.max_context, facts.device.as_str()), (4, 256, "cpu"));
    assert_eq!(model.vocab_size(), 97);
}

#[test]
fn shards_are_one_model() {
    let tiny = Tiny::new(4, 2, &json!({}));
    let whole = tiny.path().join("model.safetensors");
    fs::remove_file(&whole).expect("removed");
    let mut map = serde_json::Map::new();
    for (index, first) in [(1, true), (2, false)] {
        let name = format!("model-0000{index}-of-00002.safetensors");
        let some = |name: &str| (name.contains("layers.0") || name.contains("embed")) == first;
        let shard: HashMap<String, Tensor> =
            tiny.tensors.iter().filter(|(name, _)| some(name)).map(|(name, it)| (name.clone(), it.clone())).collect();
        map.extend(shard.keys().map(|tensor| (tensor.clone(), json!(name))));
        candle_core::safetensors::save(&shard, tiny.path().join(name)).expect("written");
    }
    let (apart, _) = difference(&tiny, &settings(tiny.path().into()));
    assert!(apart <= 1e-5, "without an index: {apart}");
    let index = json!({"metadata": {}, "weight_map": map});
    fs::write(tiny.path().join("model.safetensors.index.json"), index.to_string()).expect("written");
    let (apart, _) = difference(&tiny, &settings(tiny.path().into()));
    assert!(apart <= 1e-5, "with an index: {apart}");
}

#[test]
fn a_base_nested_or_at_the_top_is_the_same() {
    let plain = Tiny::new(4, 2, &json!({"rope_theta": 777.0}));
    let parameters = json!({"rope_type": "default", "rope_theta": 777.0});
    let nested = Tiny::new(4, 2, &json!({"rope_theta": null, "rope_parameters": parameters}));
    let (apart, _) = difference(&plain, &settings(nested.path().into()));
    assert!(apart <= 1e-5, "{apart}");
    let other = Tiny::new(4, 2, &json!({"rope_theta": null}));
    let (apart, _) = difference(&plain, &settings(other.path().into()));
    assert!(apart > 1e-2, "the base changes nothing");
}

#[test]
fn weights_by_chance_need_only_a_configuration() {
    let tiny = wide();
    fs::remove_file(tiny.path().join("model.safetensors")).expect("removed");
    let config = config::Llama { load: config::LoadWeights::Dummy, ..settings(tiny.path().into()) };
    let tokens = prompt(20, 1);
    let first = logits(&mut load(&config).0, 0, 0, &tokens);
    assert!(first.iter().all(|logit| logit.is_finite()) && apart(&first, &vec![0.0; first.len()]) > 0.0);
    assert!(apart(&first, &logits(&mut load(&config).0, 0, 0, &tokens)) == 0.0, "not the same every time");
    let config = config::Llama { quantize: Some(config::Quantize::Q8_0), ..config };
    let (mut model, facts) = load(&config);
    assert_eq!(facts.weights, "q8_0");
    assert!(apart(&first, &logits(&mut model, 0, 0, &tokens)) > 0.0);
}

#[test]
fn biases_are_added() {
    let plain = Tiny::new(4, 2, &json!({}));
    let mut tiny = Tiny::new(4, 2, &json!({"attention_bias": true, "mlp_bias": true}));
    let file = tiny.path().join("model.safetensors");
    let error = refusal(&settings(tiny.path().into()));
    assert!(error.problem.contains("no tensor model.layers.0.self_attn.q_proj.bias"), "{error}");
    let add = |tiny: &mut Tiny, value: f32| {
        let matrices: Vec<(String, usize)> = tiny
            .tensors
            .iter()
            .filter(|(name, _)| name.ends_with("_proj.weight"))
            .map(|(name, tensor)| (name.replace(".weight", ".bias"), tensor.dims()[0]))
            .collect();
        for (name, width) in matrices {
            let bias = Tensor::full(value, width, &Device::Cpu).expect("a bias");
            tiny.tensors.insert(name, bias);
        }
        candle_core::safetensors::save(&tiny.tensors, &file).expect("written");
    };
    add(&mut tiny, 0.0);
    let (apart, _) = difference(&plain, &settings(tiny.path().into()));
    assert!(apart <= 1e-6, "biases of nothing: {apart}");
    add(&mut tiny, 0.5);
    let (apart, _) = difference(&plain, &settings(tiny.path().into()));
    assert!(apart > 1e-2, "biases change nothing");
    let quantised = config::Llama { quantize: Some(config::Quantize::Q8_0), ..settings(tiny.path().into()) };
    let tokens = prompt(9, 1);
    let dense = logits(&mut load(&settings(tiny.path().into())).0, 0, 0, &tokens);
    let quantised = logits(&mut load(&quantised).0, 0, 0, &tokens);
    let largest = self::apart(&dense, &vec![0.0; dense.len()]);
    assert!(self::apart(&dense, &quantised) / largest <= 0.05, "quantised layers lose their biases");
}

#[test]
fn gguf_biases_may_be_of_q_k_and_v_alone() {
    let tiny = Tiny::new(4, 2, &json!({}));
    let bias = |width: usize| Tensor::zeros(width, DType::F32, &Device::Cpu).expect("a bias");
    let extra = [("blk.0.attn_q.bias", bias(64)), ("blk.0.attn_k.bias", bias(32)), ("blk.0.attn_v.bias", bias(32))];
    let (path, weights) = super::gguf::write(tiny, GgmlDType::F32, &[], &extra);
    let (apart, _) = difference(&weights, &settings(path));
    assert!(apart <= 1e-5, "{apart}");
}
