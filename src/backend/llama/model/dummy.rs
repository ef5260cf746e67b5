//! Weights by chance, the same every time: speed can be measured without a model.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};

use super::parts::{Part, Role};
use super::shape::Shape;
use super::source::{Raw, Source, Stored};
use crate::backend::llama::LoadError;

/// Stands for the weights of the model whose `config.json` this is.
pub(super) struct Dummy<'a> {
    pub(super) config: &'a Path,
}

/// Small enough that no layer drowns the others, as in a model before its training.
const DEVIATION: f32 = 0.02;

impl Source for Dummy<'_> {
    fn stored(&self, part: Part, shape: &Shape) -> Result<Option<Stored>, LoadError> {
        Ok((part != Part::Output || !shape.tied).then_some(Stored::Dense(DType::F32)))
    }

    fn read(&self, part: Part, shape: &Shape) -> Result<Raw, LoadError> {
        let dims = part.dims(shape);
        let count = dims.iter().product();
        let numbers = match part {
            Part::FinalNorm | Part::Layer(_, Role::AttentionNorm | Role::MlpNorm) => vec![1.0; count],
            _ => random(&part.hugging_face(), count),
        };
        Tensor::from_vec(numbers, dims, &Device::Cpu)
            .map(Raw::Dense)
            .map_err(|error| LoadError::new("model", self.config, error.to_string()))
    }

    fn place(&self, part: Part) -> (PathBuf, String) {
        (self.config.into(), part.hugging_face())
    }
}

/// Evenly distributed numbers around zero, chosen by `name` alone.
fn random(name: &str, count: usize) -> Vec<f32> {
    // FNV-1a makes the seed, SplitMix64 the numbers.
    let mut state = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let width = DEVIATION * 12_f32.sqrt();
    std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        #[expect(clippy::cast_precision_loss, reason = "24 bits fit")]
        let unit = (bits >> 40) as f32 / (1_u32 << 24) as f32;
        (unit - 0.5) * width
    })
    .take(count)
    .collect()
}
