//! Arithmetic for decoding on the CPU: few rows against many, as long vectors as the machine has.
//!
//! A matrix product that is tuned for many rows packs what it multiplies, or walks it number by number for a single
//! row; with few rows both cost several times what reading the memory does.

#![expect(clippy::inline_always, reason = "code that is not inlined into the dispatch is compiled without its vectors")]

use pulp::{Simd, WithSimd};

/// Scalar products of every row of `x` with every row of `w`, all of `width`: `y[o × rows + r]` of row `r` and `o`.
pub fn products(x: &[f32], w: &[f32], width: usize, y: &mut [f32]) {
    dispatch(Products { x, w, width, y });
}

/// `y` = `SiLU` of `gates` × `up`, number by number.
pub fn gate(gates: &[f32], up: &[f32], y: &mut [f32]) {
    dispatch(
        #[inline(always)]
        || {
            for (y, gate) in y.iter_mut().zip(gates) {
                *y = -gate.abs();
            }
            exponentials(y);
            for ((y, gate), up) in y.iter_mut().zip(gates).zip(up) {
                // 1 / (1 + e^-g), from e^-|g|, which cannot overflow.
                let sigmoid = if *gate < 0.0 { *y } else { 1.0 } / (1.0 + *y);
                *y = gate * sigmoid * up;
            }
        },
    );
}

/// One head's attention for the queries that share its keys.
pub struct Attend<'a> {
    /// `[queries, head_dim]`.
    pub q: &'a [f32],
    /// `[positions, head_dim]`.
    pub k: &'a [f32],
    /// `[positions, head_dim]`.
    pub v: &'a [f32],
    /// Numbers of one head.
    pub head_dim: usize,
    /// What scores are multiplied with.
    pub scale: f32,
    /// `[queries, head_dim]`.
    pub out: &'a mut [f32],
}

impl Attend<'_> {
    /// Every query attends to every position.
    pub fn run(self) {
        dispatch(self);
    }
}

/// Runs `operation` with the longest vectors that this machine has.
fn dispatch<O: WithSimd>(operation: O) -> O::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = pulp::x86::V3::try_new() {
        return Simd::vectorize(avx2, operation);
    }
    pulp::Arch::new().dispatch(operation)
}

struct Products<'a> {
    x: &'a [f32],
    w: &'a [f32],
    width: usize,
    y: &'a mut [f32],
}

/// Rows of `w` that are read together.
const TOGETHER: usize = 4;

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, w, width, y } = self;
        let rows = x.len() / width;
        for (w, y) in w.chunks(TOGETHER * width).zip(y.chunks_mut(TOGETHER * rows)) {
            // A row of w is read from memory once, for all rows of x.
            for (row, x) in x.chunks(4 * width).enumerate() {
                let mut put = |o: usize, r: usize, product: f32| y[o * rows + 4 * row + r] = product;
                match (w.len() / width, x.len() / width) {
                    (4, 4) => {
                        block::<S, 2, 4>(simd, &w[..2 * width], x, width, &mut put);
                        block::<S, 2, 4>(simd, &w[2 * width..], x, width, &mut |o, r, product| put(o + 2, r, product));
                    }
                    (4, 3) => {
                        block::<S, 2, 3>(simd, &w[..2 * width], x, width, &mut put);
                        block::<S, 2, 3>(simd, &w[2 * width..], x, width, &mut |o, r, product| put(o + 2, r, product));
                    }
                    (4, 2) => block::<S, 4, 2>(simd, w, x, width, &mut put),
                    (4, 1) => block::<S, 4, 1>(simd, w, x, width, &mut put),
                    _ => {
                        for (o, w) in w.chunks_exact(width).enumerate() {
                            for (r, x) in x.chunks_exact(width).enumerate() {
                                block::<S, 1, 1>(simd, w, x, width, &mut |_, _, product| put(o, r, product));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The products of `O` rows of `w` and `R` of `x`, with a sum in a register for each.
#[inline(always)]
fn block<S: Simd, const O: usize, const R: usize>(
    simd: S,
    w: &[f32],
    x: &[f32],
    width: usize,
    put: &mut impl FnMut(usize, usize, f32),
) {
    let w: [_; O] = std::array::from_fn(|o| S::as_simd_f32s(&w[o * width..(o + 1) * width]));
    let x: [_; R] = std::array::from_fn(|r| S::as_simd_f32s(&x[r * width..(r + 1) * width]));
    let vectors = w[0].0.len();
    let (w_vectors, x_vectors) = (w.map(|(head, _)| &head[..vectors]), x.map(|(head, _)| &head[..vectors]));
    let mut sums = [[simd.splat_f32s(0.0); R]; O];
    for at in 0..vectors {
        for o in 0..O {
            for r in 0..R {
                sums[o][r] = simd.mul_add_e_f32s(w_vectors[o][at], x_vectors[r][at], sums[o][r]);
            }
        }
    }
    for o in 0..O {
        for r in 0..R {
            let tail: f32 = w[o].1.iter().zip(x[r].1).map(|(w, x)| w * x).sum();
            put(o, r, simd.reduce_sum_f32s(sums[o][r]) + tail);
        }
    }
}

impl WithSimd for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { q, k, v, head_dim, scale, out } = self;
        let (queries, positions) = (q.len() / head_dim, k.len() / head_dim);
        // Scores, then weights, of a position for all queries: [positions, queries].
        let mut weights = vec![0.0; positions * queries];
        Products { x: q, w: k, width: head_dim, y: &mut weights }.with_simd(simd);
        let mut highest = vec![f32::NEG_INFINITY; queries];
        for scores in weights.chunks_exact(queries) {
            for (highest, &score) in highest.iter_mut().zip(scores) {
                *highest = highest.max(score);
            }
        }
        for scores in weights.chunks_exact_mut(queries) {
            for (score, highest) in scores.iter_mut().zip(&highest) {
                *score = (*score - highest) * scale;
            }
        }
        exponentials(&mut weights);
        let mut sums = vec![0.0; queries];
        for weights in weights.chunks_exact(queries) {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += weight;
            }
        }
        out.fill(0.0);
        // As many values as the fastest cache holds, for one query after the other.
        for (v, weights) in v.chunks(RUN * head_dim).zip(weights.chunks(RUN * queries)) {
            for (query, out) in out.chunks_exact_mut(head_dim).enumerate() {
                weigh(simd, v, &weights[query..], queries, out);
            }
        }
        for (out, sum) in out.chunks_exact_mut(head_dim).zip(sums) {
            for out in out {
                *out /= sum;
            }
        }
    }
}

/// Values that are weighed for one query before the next.
const RUN: usize = 64;

/// Adds to `out` the rows of `v`, each times its weight: every `step`th of `weights`.
#[inline(always)]
fn weigh<S: Simd>(simd: S, v: &[f32], weights: &[f32], step: usize, out: &mut [f32]) {
    let width = out.len();
    let (vectors, tail) = S::as_mut_simd_f32s(out);
    let whole = vectors.len() / 4 * 4;
    let (fours, ones) = vectors.split_at_mut(whole);
    let rows = || v.chunks_exact(width).zip(weights.iter().step_by(step));
    for (at, out) in fours.chunks_exact_mut(4).enumerate() {
        let mut sums = [out[0], out[1], out[2], out[3]];
        for (v, &weight) in rows() {
            let v = &S::as_simd_f32s(v).0[4 * at..4 * at + 4];
            let weight = simd.splat_f32s(weight);
            for (sum, &v) in sums.iter_mut().zip(v) {
                *sum = simd.mul_add_e_f32s(weight, v, *sum);
            }
        }
        out.copy_from_slice(&sums);
    }
    for (at, out) in ones.iter_mut().enumerate() {
        for (v, &weight) in rows() {
            *out = simd.mul_add_e_f32s(simd.splat_f32s(weight), S::as_simd_f32s(v).0[whole + at], *out);
        }
    }
    let start = width - tail.len();
    for (v, weight) in rows() {
        for (out, v) in tail.iter_mut().zip(&v[start..]) {
            *out += weight * v;
        }
    }
}

/// e to the power of each number, none of which is above 0.
#[inline(always)]
fn exponentials(numbers: &mut [f32]) {
    // Adding this leaves the nearest whole number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first with few enough bits that its multiples are exact.
    const LN2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
    for number in numbers {
        // Not `max`, which would make a number of NaN.
        let x = if *number < -87.0 { -87.0 } else { *number };
        let rounded = x * std::f32::consts::LOG2_E + ROUND;
        let whole = rounded - ROUND;
        let rest = (x - whole * LN2.0) - whole * LN2.1;
        // Taylor's series, whose next term is below 2^-24 for |rest| ≤ ln 2 / 2.
        let mut sum = 1.0 / 5040.0;
        for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            sum = sum * rest + factor;
        }
        *number = sum * f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    }
}

#[cfg(test)]
mod tests;
