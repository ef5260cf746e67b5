//! Where weights are read from: safetensors, GGUF, or chance.

use std::path::PathBuf;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Tensor};

use super::parts::Part;
use super::shape::Shape;
use crate::backend::llama::LoadError;

/// How a tensor's numbers are kept in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stored {
    /// One by one.
    Dense(DType),
    /// In blocks with a common scale.
    Blocks(GgmlDType),
}

/// A tensor as read, on the CPU.
pub(super) enum Raw {
    /// Numbers one by one.
    Dense(Tensor),
    /// Blocks.
    Blocks(QTensor),
}

/// A place that has weights. Everything about a tensor but its numbers is known without reading it.
pub(super) trait Source: Sync {
    /// How `part` is stored; `None` where it is not there. Wrong dimensions are an error.
    fn stored(&self, part: Part, shape: &Shape) -> Result<Option<Stored>, LoadError>;

    /// Reads `part`, which is there.
    fn read(&self, part: Part, shape: &Shape) -> Result<Raw, LoadError>;

    /// The file to name where `part` is missing, and the name it should have there.
    fn place(&self, part: Part) -> (PathBuf, String);

    /// Whether a layer may lack some of the biases that others have.
    fn biases_are_optional(&self) -> bool {
        false
    }

    /// How `part` is stored; an error where it is not there.
    fn need(&self, part: Part, shape: &Shape) -> Result<Stored, LoadError> {
        self.stored(part, shape)?.ok_or_else(|| {
            let (file, name) = self.place(part);
            LoadError::new("model", file, format!("has no tensor {name}: the model is incomplete, download it again"))
        })
    }
}

/// The error for a tensor whose dimensions are not those that the configuration gives.
pub(super) fn wrong_dims(file: impl Into<PathBuf>, name: &str, found: &[usize], expected: &[usize]) -> LoadError {
    LoadError::new(
        "model",
        file,
        format!(
            "tensor {name} has dimensions {found:?} where the model's configuration gives {expected:?}: \
             files of different models, or a damaged download"
        ),
    )
}
