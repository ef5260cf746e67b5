//! Weights and shape from a GGUF file.
//!
//! Its Q and K have their rows in the order of interleaved rotary embeddings, as llama.cpp wants them; they stay so.

use std::fs::File;
use std::path::{Path, PathBuf};

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::{DType, Device};

use super::parts::Part;
use super::rope::Scaling;
use super::shape::Shape;
use super::source::{Raw, Source, Stored, wrong_dims};
use crate::backend::llama::LoadError;

/// A GGUF file, header read.
pub(super) struct Gguf<'a> {
    path: &'a Path,
    content: &'a Content,
}

/// The tensor by whose numbers Llama 3's frequencies are divided.
const ROPE_FACTORS: &str = "rope_freqs.weight";

impl<'a> Gguf<'a> {
    pub(super) fn new(path: &'a Path, content: &'a Content) -> Self {
        Self { path, content }
    }

    /// The shape that the metadata gives.
    pub(super) fn shape(&self) -> Result<Shape, LoadError> {
        self.architecture()?;
        let heads = self.required("attention.head_count")?;
        let hidden_size = self.required("embedding_length")?;
        let head_dim = match self.number("attention.key_length")? {
            Some(width) => width,
            None if heads > 0 => hidden_size / heads,
            None => 0,
        };
        if let Some(rotated) = self.number("rope.dimension_count")?
            && rotated != head_dim
        {
            return Err(self.fail(format!("rotates {rotated} of {head_dim} numbers of a head, which Llama does not")));
        }
        let embedding = Part::Embedding.gguf();
        let rows = self.content.tensor_infos.get(&embedding).and_then(|info| info.shape.dims().first().copied());
        let vocab_size = rows.ok_or_else(|| self.fail(format!("has no tensor {embedding}: download it again")))?;
        Shape {
            vocab_size,
            hidden_size,
            intermediate_size: self.required("feed_forward_length")?,
            layers: self.required("block_count")?,
            heads,
            kv_heads: self.number("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            eps: self.float("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5),
            rope_theta: self.float("rope.freq_base")?.unwrap_or(10_000.0),
            rope_scaling: self.scaling(head_dim)?,
            tied: !self.content.tensor_infos.contains_key(&Part::Output.gguf()),
            attention_bias: self.content.tensor_infos.contains_key("blk.0.attn_q.bias"),
            mlp_bias: self.content.tensor_infos.contains_key("blk.0.ffn_gate.bias"),
            max_context: self.required("context_length")?,
        }
        .check()
        .map_err(|problem| self.fail(problem))
    }

    fn architecture(&self) -> Result<(), LoadError> {
        let only = "only the Llama architecture is served in this process; put other models behind an upstream";
        match self.content.metadata.get("general.architecture") {
            Some(Value::String(name)) if name == "llama" => {}
            Some(Value::String(name)) => return Err(self.fail(format!("its architecture is {name}: {only}"))),
            _ => return Err(self.fail(format!("does not name its architecture (general.architecture): {only}"))),
        }
        match self.number("expert_count")? {
            Some(experts) if experts > 0 => {
                Err(self.fail(format!("is a mixture of {experts} experts, not plain Llama: {only}")))
            }
            _ => Ok(()),
        }
    }

    fn scaling(&self, head_dim: usize) -> Result<Scaling, LoadError> {
        if let Some(info) = self.content.tensor_infos.get(ROPE_FACTORS) {
            if info.shape.dims() != [head_dim / 2] {
                return Err(wrong_dims(self.path, ROPE_FACTORS, info.shape.dims(), &[head_dim / 2]));
            }
            let divisors = self.tensor(ROPE_FACTORS)?.dequantize(&Device::Cpu).and_then(|tensor| tensor.to_vec1());
            return Ok(Scaling::Divisors(divisors.map_err(|error| self.fail(format!("{ROPE_FACTORS}: {error}")))?));
        }
        let kind = match self.value("rope.scaling.type") {
            Some(Value::String(kind)) => Some(kind.as_str()),
            _ => None,
        };
        // Files from before `rope.scaling.type` have only a factor for linear scaling.
        let factor = match self.float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.float("rope.scale_linear")?,
        };
        match (kind, factor) {
            (Some("none"), _) | (None | Some("linear"), None | Some(0.0)) => Ok(Scaling::None),
            (None | Some("linear"), Some(factor)) => Ok(Scaling::Linear { factor }),
            (Some(other), _) => Err(self.fail(format!(
                "RoPE scaling of type {other} is not supported (none, linear and Llama 3's are): \
                 put this model behind an upstream"
            ))),
        }
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.content.metadata.get(&format!("llama.{key}"))
    }

    fn number(&self, key: &str) -> Result<Option<usize>, LoadError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let number = match value {
            Value::I32(number) => u64::try_from(*number).ok(),
            Value::I64(number) => u64::try_from(*number).ok(),
            other => other.to_u64().ok(),
        };
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.map(Some).ok_or_else(|| self.fail(format!("llama.{key} is not one number: {}", brief(value))))
    }

    fn required(&self, key: &str) -> Result<usize, LoadError> {
        self.number(key)?.ok_or_else(|| self.fail(format!("its metadata lack llama.{key}: convert the model again")))
    }

    fn float(&self, key: &str) -> Result<Option<f64>, LoadError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::F32(number)) => Ok(Some(f64::from(*number))),
            Some(Value::F64(number)) => Ok(Some(*number)),
            Some(value) => Err(self.fail(format!("llama.{key} is not a number: {}", brief(value)))),
        }
    }

    fn tensor(&self, name: &str) -> Result<candle_core::quantized::QTensor, LoadError> {
        let fail = |error: String| self.fail(format!("tensor {name} cannot be read ({error}): download it again"));
        let mut file = File::open(self.path).map_err(|error| fail(error.to_string()))?;
        self.content.tensor(&mut file, name, &Device::Cpu).map_err(|error| fail(error.to_string()))
    }

    fn fail(&self, problem: String) -> LoadError {
        LoadError::new("model", self.path, problem)
    }
}

/// A value as an error can quote it.
fn brief(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("a list of {}", items.len()),
        other => format!("{other:?}"),
    }
}

impl Source for Gguf<'_> {
    fn stored(&self, part: Part, shape: &Shape) -> Result<Option<Stored>, LoadError> {
        let name = part.gguf();
        let Some(info) = self.content.tensor_infos.get(&name) else {
            return Ok(None);
        };
        let expected = part.dims(shape);
        if info.shape.dims() != expected {
            return Err(wrong_dims(self.path, &name, info.shape.dims(), &expected));
        }
        Ok(Some(match info.ggml_dtype {
            GgmlDType::F32 => Stored::Dense(DType::F32),
            GgmlDType::F16 => Stored::Dense(DType::F16),
            GgmlDType::BF16 => Stored::Dense(DType::BF16),
            blocks => Stored::Blocks(blocks),
        }))
    }

    fn read(&self, part: Part, shape: &Shape) -> Result<Raw, LoadError> {
        let stored = self.need(part, shape)?;
        let tensor = self.tensor(&part.gguf())?;
        match stored {
            Stored::Blocks(_) => Ok(Raw::Blocks(tensor)),
            Stored::Dense(_) => tensor
                .dequantize(&Device::Cpu)
                .map(Raw::Dense)
                .map_err(|error| self.fail(format!("tensor {}: {error}", part.gguf()))),
        }
    }

    fn biases_are_optional(&self) -> bool {
        true
    }

    fn place(&self, part: Part) -> (PathBuf, String) {
        (self.path.into(), part.gguf())
    }
}
