//! Rotary position embeddings: the frequencies, scaled or not, and their cosines and sines for every position.
//!
//! Arithmetic is in f32 throughout, in the order of Hugging Face transformers, whose results are the reference.

use candle_core::{DType, Device, Result, Tensor};

use super::shape::Shape;

/// What is done to the frequencies for a context longer than the model was first trained for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scaling {
    /// Nothing.
    None,
    /// Positions are divided by `factor`.
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// Llama 3.1's: low frequencies are divided by `factor`, high ones kept, those between blended.
    Llama3 {
        /// At least 1.
        factor: f64,
        /// Wavelengths above `original / low` are low frequencies.
        low: f64,
        /// Wavelengths below `original / high` are high frequencies.
        high: f64,
        /// The context of the first training, in tokens.
        original: f64,
    },
    /// Each frequency is divided by its own number, as GGUF's `rope_freqs.weight` has them.
    Divisors(Vec<f32>),
}

impl Scaling {
    /// Refuses numbers that cannot be divided by.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let fine = |number: f64| number.is_finite() && number > 0.0;
        match self {
            Self::None => Ok(()),
            Self::Linear { factor } if fine(*factor) => Ok(()),
            Self::Llama3 { factor, low, high, original }
                if [factor, low, high, original].into_iter().all(|&number| fine(number)) && high > low =>
            {
                Ok(())
            }
            Self::Divisors(divisors) if divisors.iter().all(|&divisor| fine(divisor.into())) => Ok(()),
            other => Err(format!("RoPE scaling has numbers that cannot be: {other:?}")),
        }
    }
}

/// Cosine and sine for every position.
pub(super) struct Tables {
    /// `[max_context, head_dim / 2]`.
    cos: Tensor,
    /// `[max_context, head_dim / 2]`.
    sin: Tensor,
    /// Neighbouring numbers turn together, as in GGUF; else number i and i + `head_dim` / 2.
    interleaved: bool,
}

/// Cosine and sine for the tokens of one step.
pub(super) struct Turns {
    /// `[tokens, 1, head_dim / 2]`.
    cos: Tensor,
    /// `[tokens, 1, head_dim / 2]`.
    sin: Tensor,
    interleaved: bool,
}

impl Tables {
    /// For positions below `max_context`.
    pub(super) fn new(
        shape: &Shape,
        max_context: usize,
        interleaved: bool,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let frequencies = frequencies(shape);
        let angles: Vec<f32> = (0..max_context)
            .flat_map(|position| {
                #[expect(clippy::cast_precision_loss, reason = "positions stay below 2^24")]
                let position = position as f32;
                frequencies.iter().map(move |frequency| position * frequency)
            })
            .collect();
        let angles = Tensor::from_vec(angles, (max_context, frequencies.len()), &Device::Cpu)?;
        let table = |table: Tensor| table.to_dtype(dtype)?.to_device(device);
        Ok(Self { cos: table(angles.cos()?)?, sin: table(angles.sin()?)?, interleaved })
    }

    /// For tokens at `positions`, `[tokens]` of u32.
    pub(super) fn at(&self, positions: &Tensor) -> Result<Turns> {
        let pick = |table: &Tensor| table.index_select(positions, 0)?.unsqueeze(1);
        Ok(Turns { cos: pick(&self.cos)?, sin: pick(&self.sin)?, interleaved: self.interleaved })
    }
}

impl Turns {
    /// Turns `x`, `[tokens, heads, head_dim]`, contiguous.
    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let rope = if self.interleaved { candle_nn::rotary_emb::rope_i } else { candle_nn::rotary_emb::rope };
        rope(&x.unsqueeze(2)?, &self.cos, &self.sin)?.squeeze(2)
    }
}

/// Radians per position, one per pair of numbers of a head.
fn frequencies(shape: &Shape) -> Vec<f32> {
    #[expect(clippy::cast_precision_loss, reason = "a head's width is small")]
    let exponent = |pair: usize| (2 * pair) as f32 / shape.head_dim as f32;
    #[expect(clippy::cast_possible_truncation, reason = "the reference computes in f32")]
    let base = shape.rope_theta as f32;
    let plain = (0..shape.head_dim / 2).map(|pair| 1.0 / base.powf(exponent(pair)));
    #[expect(clippy::cast_possible_truncation, reason = "the reference computes in f32")]
    match &shape.rope_scaling {
        Scaling::None => plain.collect(),
        Scaling::Linear { factor } => plain.map(|frequency| frequency / *factor as f32).collect(),
        Scaling::Llama3 { factor, low, high, original } => plain
            .map(|frequency| llama3(frequency, *factor as f32, *low as f32, *high as f32, *original as f32))
            .collect(),
        Scaling::Divisors(divisors) => plain.zip(divisors).map(|(frequency, divisor)| frequency / divisor).collect(),
    }
}

/// As `_compute_llama3_parameters` in transformers.
fn llama3(frequency: f32, factor: f32, low: f32, high: f32, original: f32) -> f32 {
    let wavelength = 2.0 * std::f32::consts::PI / frequency;
    if wavelength > original / low {
        return frequency / factor;
    }
    if wavelength < original / high {
        return frequency;
    }
    let smooth = (original / wavelength - low) / (high - low);
    (1.0 - smooth) * frequency / factor + smooth * frequency
}
