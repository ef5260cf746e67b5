//! Reads a model's weights, as planned, onto the device.

use candle_core::quantized::{QStorage, QTensor};
use candle_core::{DType, Device, Result, Tensor};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::linear::{Linear, Weight};
use super::parts::{Part, Role};
use super::plan::Plan;
use super::shape::Shape;
use super::source::{Raw, Source};
use super::storage::Held;
use crate::backend::llama::LoadError;

/// A model's weights.
pub(super) struct Weights {
    /// `[vocab_size, hidden_size]`.
    pub(super) embedding: Tensor,
    pub(super) layers: Vec<Layer>,
    /// `[hidden_size]`.
    pub(super) final_norm: Tensor,
    pub(super) output: Linear,
}

/// One decoder layer's.
pub(super) struct Layer {
    /// `[hidden_size]`.
    pub(super) attention_norm: Tensor,
    /// Queries, keys, values.
    pub(super) qkv: Linear,
    pub(super) attention_output: Linear,
    /// `[hidden_size]`.
    pub(super) mlp_norm: Tensor,
    /// Gate, up.
    pub(super) gate_up: Linear,
    pub(super) down: Linear,
}

/// Where weights come from and go to.
pub(super) struct Loader<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) shape: &'a Shape,
    pub(super) plan: &'a Plan,
    pub(super) device: &'a Device,
}

impl Loader<'_> {
    /// Reads everything.
    pub(super) fn load(&self) -> std::result::Result<Weights, LoadError> {
        let embedding = self.dense(Part::Embedding)?;
        let layers = (0..self.shape.layers).map(|layer| self.layer(layer)).collect::<std::result::Result<_, _>>()?;
        let compute = self.plan.policy.compute();
        let output = match (self.plan.held[&Part::Output], self.shape.tied) {
            (Held::Dense(dtype), true) if dtype == compute => Weight::Dense(embedding.clone()),
            (held, true) => self.place(Part::Output, self.convert(Part::Embedding, held)?)?,
            (held, false) => self.place(Part::Output, self.convert(Part::Output, held)?)?,
        };
        let output = Linear::new(vec![output], None).map_err(|error| self.fail(Part::Output, &error))?;
        Ok(Weights { embedding, layers, final_norm: self.dense(Part::FinalNorm)?, output })
    }

    fn layer(&self, layer: usize) -> std::result::Result<Layer, LoadError> {
        // Quantising takes far longer than reading, and each tensor is on its own.
        let read: Vec<(Role, Ready)> = Role::LINEAR
            .par_iter()
            .map(|&role| {
                let part = Part::Layer(layer, role);
                Ok((role, self.convert(part, self.plan.held[&part])?))
            })
            .collect::<std::result::Result<_, LoadError>>()?;
        let mut weights = Vec::with_capacity(read.len());
        for (role, ready) in read {
            weights.push((role, self.place(Part::Layer(layer, role), ready)?));
        }
        let mut join = |roles: &[Role]| {
            let (joined, rest) = std::mem::take(&mut weights).into_iter().partition(|(role, _)| roles.contains(role));
            weights = rest;
            let joined: Vec<(Role, Weight)> = joined;
            let bias = self.bias(layer, roles)?;
            Linear::new(joined.into_iter().map(|(_, weight)| weight).collect(), bias)
                .map_err(|error| self.fail(Part::Layer(layer, roles[0]), &error))
        };
        Ok(Layer {
            qkv: join(&[Role::Query, Role::Key, Role::Value])?,
            attention_output: join(&[Role::AttentionOutput])?,
            gate_up: join(&[Role::Gate, Role::Up])?,
            down: join(&[Role::Down])?,
            attention_norm: self.dense(Part::Layer(layer, Role::AttentionNorm))?,
            mlp_norm: self.dense(Part::Layer(layer, Role::MlpNorm))?,
        })
    }

    /// The biases of `roles` one after the other; zeros for those that have none beside others that do.
    fn bias(&self, layer: usize, roles: &[Role]) -> std::result::Result<Option<Tensor>, LoadError> {
        let mut any = false;
        let mut biases = Vec::with_capacity(roles.len());
        for &role in roles {
            let part = Part::Bias(layer, role);
            let present = role.has_bias(self.shape) && self.source.stored(part, self.shape)?.is_some();
            any |= present;
            biases.push(if present {
                self.dense(part)?
            } else {
                Tensor::zeros(role.widths(self.shape).0, self.plan.policy.compute(), self.device)
                    .map_err(|error| self.fail(part, &error))?
            });
        }
        if !any {
            return Ok(None);
        }
        Tensor::cat(&biases, 0).map(Some).map_err(|error| self.fail(Part::Bias(layer, roles[0]), &error))
    }

    /// Reads `part` in the type of activations.
    fn dense(&self, part: Part) -> std::result::Result<Tensor, LoadError> {
        let ready = self.convert(part, Held::Dense(self.plan.policy.compute()))?;
        match self.place(part, ready)? {
            Weight::Dense(tensor) => Ok(tensor),
            Weight::Blocks(_) => unreachable!("it was converted to be dense"),
        }
    }

    fn convert(&self, part: Part, held: Held) -> std::result::Result<Ready, LoadError> {
        let raw = self.source.read(part, self.shape)?;
        convert(raw, held).map_err(|error| self.fail(part, &error))
    }

    fn place(&self, part: Part, ready: Ready) -> std::result::Result<Weight, LoadError> {
        place(ready, self.device).map_err(|error| self.fail(part, &error))
    }

    fn fail(&self, part: Part, error: &candle_core::Error) -> LoadError {
        let (file, name) = self.source.place(part);
        let error = error.to_string();
        let error = error.lines().next().unwrap_or_default();
        LoadError::new("model", file, format!("tensor {name} cannot be loaded: {error}"))
    }
}

/// A matrix as it will be held, on the CPU still.
enum Ready {
    Dense(Tensor),
    Blocks(QTensor),
}

fn convert(raw: Raw, held: Held) -> Result<Ready> {
    match (raw, held) {
        (Raw::Dense(tensor), Held::Dense(dtype)) => tensor.to_dtype(dtype).map(Ready::Dense),
        (Raw::Dense(tensor), Held::Blocks(kind)) => {
            QTensor::quantize(&tensor.to_dtype(DType::F32)?, kind).map(Ready::Blocks)
        }
        (Raw::Blocks(tensor), Held::Dense(dtype)) => tensor.dequantize(&Device::Cpu)?.to_dtype(dtype).map(Ready::Dense),
        (Raw::Blocks(tensor), Held::Blocks(kind)) if tensor.dtype() == kind => Ok(Ready::Blocks(tensor)),
        (Raw::Blocks(tensor), Held::Blocks(kind)) => {
            QTensor::quantize(&tensor.dequantize(&Device::Cpu)?, kind).map(Ready::Blocks)
        }
    }
}

fn place(ready: Ready, device: &Device) -> Result<Weight> {
    match ready {
        Ready::Dense(tensor) => tensor.to_device(device).map(Weight::Dense),
        Ready::Blocks(tensor) if device.is_cpu() => Ok(Weight::Blocks(tensor)),
        Ready::Blocks(tensor) => {
            let storage = QStorage::from_data(tensor.data()?, device, tensor.dtype())?;
            QTensor::new(storage, tensor.shape().clone()).map(Weight::Blocks)
        }
    }
}
