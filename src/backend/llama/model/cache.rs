//! K and V of every sequence, in memory taken once.
//!
//! Invariant: nothing here grows or is copied as sequences do; a step writes its own tokens and reads views.

use candle_core::{DType, Device, Result, Tensor};

use super::shape::Shape;

/// The K/V cache of all layers.
pub(super) struct Cache {
    layers: Vec<[Tensor; 2]>,
    slots: usize,
    heads: usize,
    context: usize,
}

/// Where a step's K and V go: the same rows in every layer.
pub(super) struct Rows {
    /// `[tokens × kv_heads, head_dim]` of u32.
    rows: Tensor,
}

impl Cache {
    /// For `slots` sequences of `context` tokens.
    pub(super) fn new(shape: &Shape, slots: usize, context: usize, dtype: DType, device: &Device) -> Result<Self> {
        // Rows of a layer are numbered in 32 bits.
        if u32::try_from(slots * shape.kv_heads * context).is_err() {
            candle_core::bail!("{slots} sequences of {context} tokens have more than 2^32 rows of K");
        }
        let dims = (slots, shape.kv_heads, context, shape.head_dim);
        // Not zeros, which the system hands out as a promise: what does not fit must fail now, not in the middle of a
        // sequence.
        let one = || Tensor::ones(dims, dtype, device);
        let layers = (0..shape.layers).map(|_| Ok([one()?, one()?])).collect::<Result<_>>()?;
        Ok(Self { layers, slots, heads: shape.kv_heads, context })
    }

    /// Sequences at once.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Tokens of each.
    pub(super) fn context(&self) -> usize {
        self.context
    }

    /// Bytes of K/V for one token of one sequence.
    pub(super) fn bytes_per_token(shape: &Shape, dtype: DType) -> u64 {
        (2 * shape.layers * shape.kv_heads * shape.head_dim * dtype.size_in_bytes()) as u64
    }

    /// Rows for tokens at `(slot, position)`.
    pub(super) fn rows(&self, tokens: &[(usize, usize)], head_dim: usize, device: &Device) -> Result<Rows> {
        let rows = tokens.iter().flat_map(|&(slot, position)| {
            (0..self.heads).map(move |head| (slot * self.heads + head) * self.context + position)
        });
        let rows: Vec<u32> =
            rows.map(|row| u32::try_from(row).map_err(candle_core::Error::wrap)).collect::<Result<_>>()?;
        let count = rows.len();
        let rows = Tensor::from_vec(rows, (count, 1), device)?.broadcast_as((count, head_dim))?.contiguous()?;
        Ok(Rows { rows })
    }

    /// Writes K and V, `[tokens, kv_heads, head_dim]` each, of layer `layer`.
    pub(super) fn write(&self, layer: usize, rows: &Rows, kv: [&Tensor; 2]) -> Result<()> {
        for (cache, new) in self.layers[layer].iter().zip(kv) {
            let flat = cache.flatten(0, 2)?;
            let new = new.to_dtype(cache.dtype())?.contiguous()?.flatten(0, 1)?;
            flat.scatter_set(&rows.rows, &new, 0)?;
        }
        Ok(())
    }

    /// K and V of `slots` slots from `slot` on and their first `len` positions: views of
    /// `[slots × kv_heads, len, head_dim]`.
    pub(super) fn view(&self, layer: usize, slot: usize, slots: usize, len: usize) -> Result<[Tensor; 2]> {
        let view = |cache: &Tensor| cache.narrow(0, slot, slots)?.flatten(0, 1)?.narrow(1, 0, len);
        let [k, v] = &self.layers[layer];
        Ok([view(k)?, view(v)?])
    }

    /// K and V of all slots, `[slots, kv_heads, context, head_dim]` each.
    pub(super) fn whole(&self, layer: usize) -> &[Tensor; 2] {
        &self.layers[layer]
    }

    /// Copies the first `len` positions of slot `from` to slot `to`.
    pub(super) fn copy_slot(&self, from: usize, to: usize, len: usize) -> Result<()> {
        if from == to || len == 0 {
            return Ok(());
        }
        for cache in self.layers.iter().flatten() {
            // A copy of its own: source and target may not share memory.
            let kept = cache.narrow(0, from, 1)?.narrow(2, 0, len)?.force_contiguous()?;
            cache.narrow(0, to, 1)?.slice_set(&kept, 2, 0)?;
        }
        Ok(())
    }
}
