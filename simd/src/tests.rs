//! Against plain loops.

use super::*;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| f32::from(u16::try_from((at * 7919 + seed * 104_729) % 2003).expect("small"));
    (0..count).map(|at| number(at) / 1001.5 - 1.0).collect()
}

#[test]
fn products_are_the_sums_they_stand_for() {
    for width in [1, 7, 16, 64, 100] {
        for rows in 1..=9 {
            for outputs in [1, 3, 4, 9] {
                let (x, w) = (numbers(rows * width, 1), numbers(outputs * width, 2));
                let mut y = vec![f32::NAN; rows * outputs];
                products(&x, &w, width, &mut y);
                for (o, w) in w.chunks_exact(width).enumerate() {
                    for (r, x) in x.chunks_exact(width).enumerate() {
                        let sum: f32 = w.iter().zip(x).map(|(w, x)| w * x).sum();
                        let apart = (y[o * rows + r] - sum).abs();
                        assert!(apart <= 1e-4, "{width} × {rows} × {outputs}: {apart}");
                    }
                }
            }
        }
    }
}

#[test]
fn exponentials_are_right_to_the_last_bits() {
    let mut found: Vec<f32> =
        (0..87_000_u32).map(|at| -f32::from(u16::try_from(at / 2).expect("small")) / 500.0).collect();
    let expected: Vec<f32> = found.iter().map(|number| number.exp()).collect();
    exponentials(&mut found);
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() <= expected * 3e-7, "{found} is not {expected}");
    }
    let mut far = [-1e4, f32::NEG_INFINITY, 0.0];
    exponentials(&mut far);
    assert!(far[0] < 1e-37 && far[1] < 1e-37 && (far[2] - 1.0).abs() < 1e-9, "{far:?}");
}

#[test]
fn gates_are_silu() {
    let gates: Vec<f32> = numbers(999, 1).iter().map(|number| number * 30.0).collect();
    let up = numbers(999, 2);
    let mut y = vec![f32::NAN; 999];
    gate(&gates, &up, &mut y);
    for at in 0..999 {
        let silu = gates[at] / (1.0 + (-gates[at]).exp()) * up[at];
        assert!((y[at] - silu).abs() <= 1e-6 * silu.abs().max(1e-3), "{} is not {silu}", y[at]);
    }
}

#[test]
fn attention_is_a_weighted_mean() {
    for (queries, positions, head_dim) in [(1, 1, 2), (1, 5, 64), (3, 130, 64), (5, 67, 20), (8, 64, 128)] {
        let q = numbers(queries * head_dim, 1);
        let (k, v) = (numbers(positions * head_dim, 2), numbers(positions * head_dim, 3));
        let mut out = vec![f32::NAN; queries * head_dim];
        Attend { q: &q, k: &k, v: &v, head_dim, scale: 0.5, out: &mut out }.run();
        for (q, out) in q.chunks_exact(head_dim).zip(out.chunks_exact(head_dim)) {
            let score = |k: &[f32]| (0.5 * q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>()).exp();
            let weights: Vec<f32> = k.chunks_exact(head_dim).map(score).collect();
            let sum: f32 = weights.iter().sum();
            for (dim, out) in out.iter().enumerate() {
                let mean: f32 = (0..positions).map(|at| weights[at] / sum * v[at * head_dim + dim]).sum();
                assert!((out - mean).abs() <= 1e-5, "{queries} × {positions} × {head_dim}: {out} is not {mean}");
            }
        }
    }
}

#[test]
fn what_is_no_number_stays_none() {
    for bad in [f32::NAN, f32::INFINITY] {
        let (q, mut k, v) = (vec![1.0; 8], numbers(24, 1), numbers(24, 2));
        k[9] = bad;
        let mut out = vec![0.0; 8];
        Attend { q: &q, k: &k, v: &v, head_dim: 8, scale: 0.5, out: &mut out }.run();
        assert!(out.iter().all(|number| number.is_nan()), "{bad}: {out:?}");
    }
}
