//! Every way in which a model does not load, and what is said.

use std::fs;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value as Meta;

use super::gguf::write;
use super::*;

/// Asserts that loading `config` fails over `file` and `key`, and that the error says each of `parts`.
fn refused(config: &config::Llama, file: &Path, key: &str, parts: &[&str]) {
    let error = refusal(config);
    assert_eq!((error.file.as_path(), error.key), (file, key), "{error}");
    for part in parts {
        assert!(error.problem.contains(part), "{part:?} is not in {error}");
    }
}

fn plain() -> Tiny {
    Tiny::new(4, 4, &json!({}))
}

#[test]
fn nothing_there() {
    let path = Path::new("/nonexistent/model");
    refused(&settings(path.into()), path, "model", &["not found", "a .gguf file"]);
}

#[test]
fn a_directory_without_a_configuration() {
    let directory = TempDir::new().expect("directory");
    refused(&settings(directory.path().into()), directory.path(), "model", &["no config.json"]);
    fs::write(directory.path().join("tiny.gguf"), "").expect("written");
    refused(&settings(directory.path().into()), directory.path(), "model", &["give the file itself, as in tiny.gguf"]);
}

#[test]
fn one_file_of_a_directory() {
    let tiny = plain();
    let file = tiny.path().join("model.safetensors");
    refused(&settings(file.clone()), &file, "model", &["give the directory"]);
}

#[test]
fn what_a_refused_download_leaves() {
    let tiny = plain();
    for name in ["config.json", "model.safetensors"] {
        let (file, tiny) = (tiny.path().join(name), plain().path().join(name));
        let original = fs::read(&file).expect("a file");
        drop(tiny);
        fs::write(&file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\n").expect("written");
        refused(&settings(file.parent().expect("a directory").into()), &file, "model", &["git lfs pull"]);
        fs::write(&file, "<!DOCTYPE html><title>401</title>").expect("written");
        refused(&settings(file.parent().expect("a directory").into()), &file, "model", &["gated", "access"]);
        fs::write(&file, "").expect("written");
        refused(&settings(file.parent().expect("a directory").into()), &file, "model", &["download it again"]);
        fs::write(&file, original).expect("written");
    }
    let gguf = tiny.path().join("a.gguf");
    fs::write(&gguf, "version https://git-lfs.github.com/spec/v1\n").expect("written");
    refused(&settings(gguf.clone()), &gguf, "model", &["git lfs pull"]);
}

#[test]
fn configurations_of_other_models() {
    for (more, parts) in [
        (json!({"model_type": "qwen2"}), vec!["model_type is qwen2", "only the Llama architecture"]),
        (json!({"model_type": "mistral", "architectures": null, "sliding_window": 4096}), vec!["sliding_window"]),
        (json!({"architectures": ["LlamaForSequenceClassification"]}), vec!["LlamaForSequenceClassification"]),
        (json!({"hidden_act": "gelu"}), vec!["hidden_act is gelu"]),
        (json!({"quantization_config": {"quant_method": "gptq"}}), vec!["quantised by gptq", ".gguf"]),
        (json!({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}), vec!["type yarn is not supported"]),
        (json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}), vec!["type dynamic is not supported"]),
        (json!({"rope_scaling": {"rope_type": "linear"}}), vec!["needs factor"]),
        (json!({"rope_scaling": {"rope_type": "linear", "factor": 0.0}}), vec!["numbers that cannot be"]),
        (json!({"partial_rotary_factor": 0.5}), vec!["partial_rotary_factor is 0.5"]),
        (json!({"num_key_value_heads": 3}), vec!["not a multiple of num_key_value_heads 3"]),
        (json!({"num_attention_heads": 0}), vec!["num_attention_heads is 0"]),
        (json!({"head_dim": 7}), vec!["head_dim is 7"]),
        (json!({"vocab_size": null}), vec!["vocab_size"]),
    ] {
        let tiny = plain();
        let file = tiny.path().join("config.json");
        let mut config = tiny.config.clone();
        for (key, value) in more.as_object().expect("fields") {
            config[key] = value.clone();
            if value.is_null() {
                config.as_object_mut().expect("fields").remove(key);
            }
        }
        fs::write(&file, config.to_string()).expect("written");
        refused(&settings(tiny.path().into()), &file, "model", &parts);
    }
    let tiny = plain();
    let file = tiny.path().join("config.json");
    fs::write(&file, "{\"model_type\": ").expect("written");
    refused(&settings(tiny.path().into()), &file, "model", &["not a Llama model's configuration"]);
}

#[test]
fn mistral_without_a_window_is_the_same_computation() {
    let tiny = Tiny::new(
        4,
        2,
        &json!({"model_type": "mistral", "architectures": ["MistralForCausalLM"],
        "sliding_window": null}),
    );
    tiny.load();
}

#[test]
fn weights_that_are_missing_or_of_another_model() {
    let mut tiny = plain();
    let file = tiny.path().join("model.safetensors");
    let up = tiny.tensors.remove("model.layers.1.mlp.up_proj.weight").expect("a tensor");
    candle_core::safetensors::save(&tiny.tensors, &file).expect("written");
    refused(&settings(tiny.path().into()), &file, "model", &["no tensor model.layers.1.mlp.up_proj.weight"]);
    tiny.tensors.insert("model.layers.1.mlp.up_proj.weight".into(), up.t().and_then(|up| up.contiguous()).expect("t"));
    candle_core::safetensors::save(&tiny.tensors, &file).expect("written");
    refused(&settings(tiny.path().into()), &file, "model", &["up_proj.weight has dimensions [64, 96]", "[96, 64]"]);
    tiny.tensors.insert("model.layers.1.mlp.up_proj.weight".into(), up.to_dtype(DType::F64).expect("f64"));
    candle_core::safetensors::save(&tiny.tensors, &file).expect("written");
    refused(&settings(tiny.path().into()), &file, "model", &["of type F64", "F32, F16 and BF16"]);
}

#[test]
fn safetensors_that_are_cut_off_or_damaged() {
    let tiny = plain();
    let file = tiny.path().join("model.safetensors");
    let whole = fs::read(&file).expect("a file");
    for (text, part) in [
        (&whole[..whole.len() - 1], "cut off"),
        (&whole[..1000], "cut off"),
        (&whole[..5], "not a safetensors file"),
        (&b"PK\x03\x04 a zip file and nothing that is read"[..], "not a safetensors file"),
    ] {
        fs::write(&file, text).expect("written");
        refused(&settings(tiny.path().into()), &file, "model", &[part, "download it again"]);
    }
    let mut damaged = whole.clone();
    damaged[9] = b'!';
    fs::write(&file, damaged).expect("written");
    refused(&settings(tiny.path().into()), &file, "model", &["its header is damaged"]);
}

#[test]
fn directories_without_safetensors() {
    let tiny = plain();
    fs::remove_file(tiny.path().join("model.safetensors")).expect("removed");
    refused(&settings(tiny.path().into()), tiny.path(), "model", &["no safetensors file", "load = \"dummy\""]);
    fs::write(tiny.path().join("pytorch_model.bin"), "").expect("written");
    refused(&settings(tiny.path().into()), tiny.path(), "model", &["PyTorch pickles", "convert them to safetensors"]);
}

#[test]
fn a_shard_that_is_missing() {
    let tiny = plain();
    let index = tiny.path().join("model.safetensors.index.json");
    let map = json!({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}});
    fs::write(&index, map.to_string()).expect("written");
    refused(
        &settings(tiny.path().into()),
        &index,
        "model",
        &["names model-00001-of-00002.safetensors, which is missing"],
    );
}

#[test]
fn gguf_files_of_other_models() {
    let text = |text: &str| Meta::String(text.into());
    for (more, parts) in [
        (vec![("general.architecture", text("qwen2"))], vec!["architecture is qwen2", "only the Llama architecture"]),
        (vec![("llama.expert_count", Meta::U32(8))], vec!["mixture of 8 experts"]),
        (vec![("llama.rope.scaling.type", text("yarn"))], vec!["type yarn is not supported"]),
        (vec![("llama.rope.dimension_count", Meta::U32(8))], vec!["rotates 8 of 16"]),
        (vec![("llama.block_count", text("two"))], vec!["llama.block_count is not one number"]),
        (vec![("llama.block_count", Meta::U32(3))], vec!["no tensor blk.2.attn_norm.weight"]),
        (vec![("llama.feed_forward_length", Meta::U32(95))], vec!["blk.0.ffn_gate.weight has dimensions [96, 64]"]),
    ] {
        let (path, _tiny) = write(plain(), GgmlDType::F32, &more, &[]);
        refused(&settings(path.clone()), &path, "model", &parts);
    }
}

#[test]
fn files_that_are_no_gguf_or_damaged() {
    let (path, _tiny) = write(plain(), GgmlDType::F32, &[], &[]);
    let whole = fs::read(&path).expect("a file");
    fs::write(&path, b"ggml of old").expect("written");
    refused(&settings(path.clone()), &path, "model", &["not a GGUF file"]);
    fs::write(&path, &whole[..300]).expect("written");
    refused(&settings(path.clone()), &path, "model", &["cut off", "download it again"]);
    fs::write(&path, &whole[..whole.len() - 5000]).expect("written");
    refused(&settings(path.clone()), &path, "model", &["cannot be read", "download it again"]);
    // The type of the first tensor follows its name, rank and dimensions.
    let mut newer = whole.clone();
    let name = b"output_norm.weight";
    let at = newer.windows(name.len()).position(|found| found == name).expect("its name") + name.len() + 4 + 8;
    newer[at] = 20;
    fs::write(&path, newer).expect("written");
    refused(&settings(path.clone()), &path, "model", &["unknown dtype for tensor 20", "Q4_K_M, Q8_0 or F16"]);
}

#[test]
fn dummy_weights_for_a_gguf() {
    let (path, _tiny) = write(plain(), GgmlDType::F32, &[], &[]);
    let config = config::Llama { load: config::LoadWeights::Dummy, ..settings(path.clone()) };
    refused(&config, &path, "load", &["config.json"]);
}

#[test]
fn a_context_the_model_was_not_made_for() {
    let tiny = plain();
    let config = config::Llama { max_context: Some(257), ..settings(tiny.path().into()) };
    refused(&config, tiny.path(), "max_context", &["256 tokens", "257"]);
}

#[test]
fn more_memory_than_there_is() {
    let tiny = Tiny::new(4, 4, &json!({"max_position_embeddings": 1 << 24}));
    let config = config::Llama { max_sequences: Some(60_000), ..settings(tiny.path().into()) };
    refused(&config, tiny.path(), "max_sequences", &["bytes", "are free", "max_sequences 60000"]);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_gpu_without_cuda() {
    let tiny = plain();
    let config = config::Llama { device: config::Device::Cuda(0), ..settings(tiny.path().into()) };
    refused(&config, tiny.path(), "device", &["this build has no CUDA", "--features cuda", "device = \"auto\""]);
}
