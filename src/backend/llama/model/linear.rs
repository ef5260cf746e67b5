//! Linear layers: one matrix, or several over the same input.

use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{DType, Device, Module, Result, Tensor};

use super::cpu::FewRows;

/// A matrix on the device.
pub(super) enum Weight {
    /// `[outputs, inputs]`.
    Dense(Tensor),
    /// `[outputs, inputs]`.
    Blocks(QTensor),
}

/// Linear layers over one input. Dense ones are one matrix, so that a step multiplies once.
pub(super) struct Linear {
    product: Product,
    /// Of all outputs together.
    bias: Option<Tensor>,
    /// The outputs of each layer.
    widths: Vec<usize>,
}

enum Product {
    One(Tensor),
    Each(Vec<QMatMul>),
}

impl Linear {
    /// Joins `weights`. `bias` has one number per output of all of them, in their order.
    pub(super) fn new(weights: Vec<Weight>, bias: Option<Tensor>) -> Result<Self> {
        let mut widths = Vec::with_capacity(weights.len());
        let mut dense = Vec::new();
        for weight in &weights {
            match weight {
                Weight::Dense(tensor) => {
                    widths.push(tensor.dim(0)?);
                    dense.push(tensor.clone());
                }
                Weight::Blocks(tensor) => widths.push(tensor.shape().dims2()?.0),
            }
        }
        let product = match &dense[..] {
            [only] if weights.len() == 1 => Product::One(only.clone()),
            all if all.len() == weights.len() => Product::One(Tensor::cat(all, 0)?),
            _ => {
                let each = weights.into_iter().map(|weight| match weight {
                    Weight::Dense(tensor) => Ok(QMatMul::Tensor(tensor)),
                    Weight::Blocks(tensor) => QMatMul::from_qtensor(tensor),
                });
                Product::Each(each.collect::<Result<_>>()?)
            }
        };
        Ok(Self { product, bias, widths })
    }

    /// `x`, `[tokens, inputs]`, contiguous → one `[tokens, outputs]` per layer; of several, not all are contiguous.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        let outputs = self.products(x)?;
        let ([whole], true) = (&outputs[..], self.widths.len() > 1) else {
            return Ok(outputs);
        };
        let mut start = 0;
        let outputs = self.widths.iter().map(|&width| {
            start += width;
            whole.narrow(1, start - width, width)
        });
        outputs.collect()
    }

    /// [`Self::forward`] with the outputs of all layers side by side.
    pub(super) fn whole(&self, x: &Tensor) -> Result<Tensor> {
        match &self.products(x)?[..] {
            [whole] => Ok(whole.clone()),
            outputs => Tensor::cat(outputs, 1),
        }
    }

    /// The outputs of all layers side by side, or each layer's.
    fn products(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        let whole = match &self.product {
            Product::One(matrix) => multiply(x, matrix)?,
            Product::Each(matrices) => {
                let outputs = matrices.iter().map(|matrix| matrix.forward(x)).collect::<Result<Vec<_>>>()?;
                match &self.bias {
                    None => return Ok(outputs),
                    Some(_) => Tensor::cat(&outputs, 1)?,
                }
            }
        };
        let whole = match &self.bias {
            None => whole,
            Some(bias) => whole.broadcast_add(bias)?,
        };
        Ok(vec![whole])
    }
}

/// Rows up to which the CPU is faster by other ways than candle's product with the matrix on the right, which packs the
/// matrix anew every time.
const FEW: usize = 64;

/// `x`, `[tokens, inputs]`, and `matrix`, `[outputs, inputs]` → `[tokens, outputs]`.
fn multiply(x: &Tensor, matrix: &Tensor) -> Result<Tensor> {
    match (x.device(), x.dtype(), x.dim(0)?) {
        (Device::Cpu, DType::F32, ..=FEW) => x.apply_op2_no_bwd(matrix, &FewRows),
        (Device::Cpu, _, 2..=FEW) => matrix.matmul(&x.t()?)?.t()?.contiguous(),
        _ => x.matmul(&matrix.t()?),
    }
}
