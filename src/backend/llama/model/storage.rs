//! How weights are held in memory: one pure rule from how they are stored, the device and the configuration.

use candle_core::DType;
use candle_core::quantized::GgmlDType;

use super::kernels::{Kernels, matrix_bytes};
use super::source::Stored;
use crate::config::{Dtype, Quantize};

/// How a matrix is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Held {
    /// Numbers one by one.
    Dense(DType),
    /// Blocks with a common scale.
    Blocks(GgmlDType),
}

/// What decides it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    /// `None` on CUDA, which multiplies every kind of block.
    kernels: Option<Kernels>,
    dtype: Dtype,
    quantize: Option<Quantize>,
    /// The type of activations, norms, and dense matrices.
    compute: DType,
}

impl Policy {
    /// For a model whose matrices are stored as `stored`; `kernels` are the CPU's, `None` on CUDA.
    pub(super) fn new(kernels: Option<Kernels>, dtype: Dtype, quantize: Option<Quantize>, stored: &[Stored]) -> Self {
        let blocks = stored.iter().any(|stored| matches!(stored, Stored::Blocks(_)));
        let compute = match dtype {
            // Products of blocks are f32.
            _ if quantize.is_some() => DType::F32,
            Dtype::F32 => DType::F32,
            Dtype::Bf16 => DType::BF16,
            // On the CPU every half would be widened at every product.
            Dtype::Auto if blocks || kernels.is_some() => DType::F32,
            Dtype::Auto if stored.contains(&Stored::Dense(DType::BF16)) => DType::BF16,
            Dtype::F16 | Dtype::Auto => DType::F16,
        };
        Self { kernels, dtype, quantize, compute }
    }

    /// The type of activations, norms and dense matrices.
    pub(super) fn compute(self) -> DType {
        self.compute
    }

    /// The type of K and V.
    pub(super) fn cache(self) -> DType {
        match (self.kernels, self.compute) {
            // bf16 has no product on the CPU: the whole cache would be widened at every step.
            (Some(_), DType::BF16) => DType::F32,
            // f32 is there because products of blocks are; attention does not need it.
            (None, DType::F32) if self.dtype != Dtype::F32 => DType::F16,
            (_, compute) => compute,
        }
    }

    /// How a matrix with `inputs` columns that is stored as `stored` is held, and what to tell about it.
    pub(super) fn hold(self, stored: Stored, inputs: usize) -> (Held, Option<String>) {
        let dense = Held::Dense(self.compute);
        let fits = |kind: GgmlDType| inputs.is_multiple_of(kind.block_size());
        if let Some(quantize) = self.quantize {
            let wanted = match quantize {
                Quantize::Q8_0 => GgmlDType::Q8_0,
                Quantize::Q4K => GgmlDType::Q4K,
            };
            let held = [wanted, GgmlDType::Q8_0].into_iter().find(|&kind| fits(kind)).map_or(dense, Held::Blocks);
            let note = (held != Held::Blocks(wanted))
                .then(|| format!("{} does not go into {inputs} columns: {}", name(Held::Blocks(wanted)), name(held)));
            return (held, note);
        }
        let Stored::Blocks(kind) = stored else {
            return (dense, None);
        };
        if self.dtype != Dtype::Auto {
            let note = format!("{} dequantised to {}, as dtype asks", name(Held::Blocks(kind)), name(dense));
            return (dense, Some(note));
        }
        let fast = match self.kernels {
            Some(kernels) => kernels.fast(kind, inputs),
            None => !matches!(kind, GgmlDType::Q8_1 | GgmlDType::Q8K),
        };
        if fast {
            return (Held::Blocks(kind), None);
        }
        let kernels = self.kernels.is_none_or(|kernels| kernels.fast(GgmlDType::Q8_0, inputs));
        let held = if kernels && fits(GgmlDType::Q8_0) { Held::Blocks(GgmlDType::Q8_0) } else { dense };
        let verb = if held == dense { "dequantised" } else { "requantised" };
        let note = format!("{} has no fast kernel on this machine: {verb} to {}", name(Held::Blocks(kind)), name(held));
        (held, Some(note))
    }

    /// Bytes of an `outputs` × `inputs` matrix, with what the kernels keep beside it.
    pub(super) fn bytes(self, held: Held, outputs: usize, inputs: usize) -> u64 {
        match held {
            Held::Dense(dtype) => (outputs * inputs * dtype.size_in_bytes()) as u64,
            Held::Blocks(kind) => {
                let beside = self.kernels.map_or(0, |kernels| kernels.beside(kind, outputs, inputs));
                matrix_bytes(kind, outputs, inputs) + beside
            }
        }
    }
}

/// Its name as GGML and the configuration write it.
pub(super) fn name(held: Held) -> String {
    match held {
        Held::Dense(dtype) => dtype.as_str().into(),
        Held::Blocks(kind) => {
            let name = format!("{kind:?}").to_lowercase();
            // `Q4K` → `q4_k`.
            name.strip_suffix('k').map_or(name.clone(), |bits| format!("{bits}_k"))
        }
    }
}

#[cfg(test)]
mod tests;
