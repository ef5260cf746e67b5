//! The operations that the CPU does its own way while decoding, for candle.

use candle_core::{CpuStorage, CustomOp1, CustomOp2, CustomOp3, Layout, Result, Shape};
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use streamgauge_simd::{Attend, gate, products};

/// `x`, `[rows, inputs]`, and a matrix, `[outputs, inputs]`, both f32 → `[rows, outputs]`.
pub(super) struct FewRows;

/// Outputs that one thread computes in a go.
const OUTPUTS: usize = 64;

impl CustomOp2 for FewRows {
    fn name(&self) -> &'static str {
        "few-rows"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        matrix: &CpuStorage,
        matrix_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let ((rows, width), (outputs, _)) = (x_layout.shape().dims2()?, matrix_layout.shape().dims2()?);
        let (x, matrix) = (numbers(x, x_layout)?, numbers(matrix, matrix_layout)?);
        let mut y = vec![0.0; outputs * rows];
        spread(&mut y, OUTPUTS * rows, outputs * rows * width, |index, y| {
            let start = index * OUTPUTS * width;
            products(x, &matrix[start..start + y.len() / rows * width], width, y);
        });
        if rows == 1 {
            return Ok((CpuStorage::F32(y), (1, outputs).into()));
        }
        let mut turned = vec![0.0; y.len()];
        for (output, products) in y.chunks_exact(rows).enumerate() {
            for (row, product) in products.iter().enumerate() {
                turned[row * outputs + output] = *product;
            }
        }
        Ok((CpuStorage::F32(turned), (rows, outputs).into()))
    }
}

/// Gate and up side by side, `[rows, 2 × width]` of f32 → `SiLU` of gate × up, `[rows, width]`.
pub(super) struct GateUp;

impl CustomOp1 for GateUp {
    fn name(&self) -> &'static str {
        "gate-up"
    }

    fn cpu_fwd(&self, both: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, twice) = layout.shape().dims2()?;
        let mut y = vec![0.0; rows * twice / 2];
        let both = numbers(both, layout)?;
        // An exponential costs about as much as sixteen products.
        spread(&mut y, twice / 2, both.len() * 16, |row, y| {
            let (gates, up) = both[row * twice..(row + 1) * twice].split_at(twice / 2);
            gate(gates, up, y);
        });
        Ok((CpuStorage::F32(y), (rows, twice / 2).into()))
    }
}

/// Attention of single tokens: q, `[rows, heads, head_dim]`, k and v, `[slots, kv_heads, context, head_dim]`, all f32 →
/// `[rows, heads × head_dim]`.
pub(super) struct AttendSingles {
    /// Of each row its slot, and how many positions it attends to.
    pub(super) rows: Vec<(usize, usize)>,
}

impl CustomOp3 for AttendSingles {
    fn name(&self) -> &'static str {
        "attend-singles"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, heads, head_dim) = q_layout.shape().dims3()?;
        let (_, kv_heads, context, _) = k_layout.shape().dims4()?;
        let (q, k, v) = (numbers(q, q_layout)?, numbers(k, k_layout)?, numbers(v, v_layout)?);
        #[expect(clippy::cast_precision_loss, reason = "a head's width is small")]
        let scale = (head_dim as f32).sqrt().recip();
        let share = heads / kv_heads * head_dim;
        let mut out = vec![0.0; rows * heads * head_dim];
        let positions: usize = self.rows.iter().map(|&(_, length)| length).sum();
        spread(&mut out, share, positions * heads * head_dim * 2, |index, out| {
            let q = &q[index * share..(index + 1) * share];
            let ((slot, length), head) = (self.rows[index / kv_heads], index % kv_heads);
            let start = (slot * kv_heads + head) * context * head_dim;
            let own = start..start + length * head_dim;
            Attend { q, k: &k[own.clone()], v: &v[own], head_dim, scale, out }.run();
        });
        Ok((CpuStorage::F32(out), (rows, heads * head_dim).into()))
    }
}

/// Products below which handing work to other threads costs more than it brings.
const WORTH: usize = 1 << 19;

/// Runs `fill` on each `chunk` of `y` with its index; on all threads if `products` are worth it.
fn spread(y: &mut [f32], chunk: usize, products: usize, fill: impl Fn(usize, &mut [f32]) + Sync) {
    if products < WORTH || rayon::current_num_threads() == 1 {
        y.chunks_mut(chunk).enumerate().for_each(|(index, y)| fill(index, y));
    } else {
        y.par_chunks_mut(chunk).enumerate().for_each(|(index, y)| fill(index, y));
    }
}

/// The numbers of a tensor that lies in one piece.
fn numbers<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        candle_core::bail!("not contiguous: {layout:?}");
    };
    Ok(&storage.as_slice::<f32>()?[start..end])
}
