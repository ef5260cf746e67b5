//! Attention of a step's rows to the cache.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops::softmax_last_dim;

use super::cache::Cache;
use super::cpu::AttendSingles;
use super::shape::Shape;
use super::step::{Span, Together};

/// How a device is best asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Single tokens attend by [`AttendSingles`]. K and V must be f32.
    pub(super) own: bool,
    /// Which single tokens attend in one call.
    pub(super) together: Together,
    /// Rows of one sequence that attend in one call: a row is also multiplied with what comes after it, up to the
    /// call's last, and the scores of all heads are in memory at once.
    pub(super) block: usize,
}

impl Manner {
    /// A call costs next to nothing, and for few rows there are faster ones than candle's.
    pub(super) const CPU: Self = Self { own: true, together: Together::Never, block: 128 };
    /// The same with K and V in halves.
    pub(super) const CPU_HALVES: Self = Self { own: false, ..Self::CPU };
    /// A call costs more than what it computes in vain.
    pub(super) const GPU: Self = Self { own: false, together: Together::WithinHalf, block: 1024 };

    /// `device`'s, for K and V of `cache`.
    pub(super) fn of(device: &Device, cache: DType) -> Self {
        match (device, cache) {
            (Device::Cpu, DType::F32) => Self::CPU,
            (Device::Cpu, _) => Self::CPU_HALVES,
            _ => Self::GPU,
        }
    }
}

/// A step's attention, the same in every layer.
pub(super) struct Attention {
    /// The first rows, if they attend in their own way.
    singles: Option<AttendSingles>,
    calls: Vec<Call>,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// One batch of products.
struct Call {
    /// The first row, and how many.
    row: usize,
    rows: usize,
    /// The first slot, and how many.
    slot: usize,
    slots: usize,
    /// Positions attended to.
    length: usize,
    /// Added to the scores, `[slots, rows / slots, length]` of f32; `None` where every row attends to all.
    mask: Option<Tensor>,
}

impl Attention {
    /// Prepares the calls for `spans`.
    pub(super) fn new(spans: &[Span], shape: &Shape, manner: Manner, device: &Device) -> Result<Self> {
        let mut calls = Vec::with_capacity(spans.len());
        let mut singles = Vec::new();
        let mut row = 0;
        for span in spans {
            match span {
                Span::Singles { slot, lengths } if manner.own => {
                    singles.extend(lengths.iter().enumerate().map(|(next, &length)| (slot + next, length)));
                    row += lengths.len();
                }
                Span::Singles { slot, lengths } => {
                    let length = lengths.iter().copied().max().unwrap_or_default();
                    let mask = lengths.iter().any(|&own| own != length).then(|| mask(lengths, length));
                    let slots = lengths.len();
                    let mask = mask.map(|mask| Tensor::from_vec(mask, (slots, 1, length), device)).transpose()?;
                    calls.push(Call { row, rows: slots, slot: *slot, slots, length, mask });
                    row += slots;
                }
                Span::Run { slot, position, count } => {
                    for start in (0..*count).step_by(manner.block) {
                        let rows = manner.block.min(count - start);
                        let length = position + start + rows;
                        let lengths: Vec<usize> = (length - rows + 1..=length).collect();
                        let mask = (rows > 1)
                            .then(|| Tensor::from_vec(mask(&lengths, length), (1, rows, length), device))
                            .transpose()?;
                        calls.push(Call { row: row + start, rows, slot: *slot, slots: 1, length, mask });
                    }
                    row += count;
                }
            }
        }
        let singles = (!singles.is_empty()).then_some(AttendSingles { rows: singles });
        Ok(Self { singles, calls, heads: shape.heads, kv_heads: shape.kv_heads, head_dim: shape.head_dim })
    }

    /// `q`, `[tokens, heads, head_dim]`, rotated → `[tokens, heads × head_dim]`, of the same type.
    pub(super) fn attend(&self, layer: usize, q: &Tensor, cache: &Cache) -> Result<Tensor> {
        let singles = self.singles.as_ref().map(|singles| {
            let q = q.narrow(0, 0, singles.rows.len())?.to_dtype(DType::F32)?;
            let [k, v] = cache.whole(layer);
            q.apply_op3_no_bwd(k, v, singles)
        });
        let calls = self.calls.iter().map(|call| self.call(call, layer, q, cache));
        let out = singles.into_iter().chain(calls).collect::<Result<Vec<_>>>()?;
        let out = match &out[..] {
            [only] => only.clone(),
            all => Tensor::cat(all, 0)?,
        };
        out.to_dtype(q.dtype())
    }

    fn call(&self, call: &Call, layer: usize, q: &Tensor, cache: &Cache) -> Result<Tensor> {
        let (group, rows) = (self.heads / self.kv_heads, call.rows / call.slots);
        let [k, v] = cache.view(layer, call.slot, call.slots, call.length)?;
        #[expect(clippy::cast_precision_loss, reason = "a head's width is small")]
        let scale = (self.head_dim as f64).sqrt().recip();
        // To [slots × kv_heads, group × rows, head_dim]: all that meets the same keys, without copying keys.
        let q = q.narrow(0, call.row, call.rows)?.affine(scale, 0.0)?.to_dtype(k.dtype())?;
        let q = q.reshape((call.slots, rows, self.heads, self.head_dim))?.transpose(1, 2)?.reshape((
            call.slots * self.kv_heads,
            group * rows,
            self.head_dim,
        ))?;
        let scores = q.matmul(&k.t()?)?.to_dtype(DType::F32)?;
        let scores = match &call.mask {
            None => scores,
            Some(mask) => scores
                .reshape((call.slots, self.heads, rows, call.length))?
                .broadcast_add(&mask.unsqueeze(1)?)?
                .reshape(scores.shape())?,
        };
        let out = softmax_last_dim(&scores)?.to_dtype(v.dtype())?.matmul(&v)?;
        out.reshape((call.slots, self.heads, rows, self.head_dim))?
            .transpose(1, 2)?
            .reshape((call.rows, self.heads * self.head_dim))
    }
}

/// Rows of `length` numbers: 0 up to each row's own length, then −∞.
fn mask(lengths: &[usize], length: usize) -> Vec<f32> {
    let mut mask = vec![f32::NEG_INFINITY; lengths.len() * length];
    for (row, &own) in mask.chunks_exact_mut(length).zip(lengths) {
        row[..own].fill(0.0);
    }
    mask
}
