//! The rule, as a table.

use super::*;
use GgmlDType::{Q4_0, Q4_1, Q4K, Q5K, Q6K, Q8_0, Q8K};

const AVX512: Option<Kernels> = Some(Kernels::Avx512 { amx: false });
const AVX2: Option<Kernels> = Some(Kernels::Avx2);
const NEON: Option<Kernels> = Some(Kernels::Neon);
const SCALAR: Option<Kernels> = Some(Kernels::Scalar);
const CUDA: Option<Kernels> = None;
const F32: Stored = Stored::Dense(DType::F32);
const BF16: Stored = Stored::Dense(DType::BF16);
const F16: Stored = Stored::Dense(DType::F16);

#[test]
fn the_table() {
    let dense = Held::Dense;
    let blocks = |kind| (Stored::Blocks(kind), Held::Blocks(kind));
    let q8 = Some(Quantize::Q8_0);
    let q4 = Some(Quantize::Q4K);
    for (kernels, dtype, quantize, (stored, held), inputs) in [
        // Without a wish the CPU computes in f32 and a GPU in halves.
        (AVX512, Dtype::Auto, None, (F32, dense(DType::F32)), 576),
        (AVX512, Dtype::Auto, None, (BF16, dense(DType::F32)), 576),
        (CUDA, Dtype::Auto, None, (F32, dense(DType::F16)), 576),
        (CUDA, Dtype::Auto, None, (F16, dense(DType::F16)), 576),
        (CUDA, Dtype::Auto, None, (BF16, dense(DType::BF16)), 576),
        // A wish is followed.
        (AVX512, Dtype::Bf16, None, (F32, dense(DType::BF16)), 576),
        (CUDA, Dtype::F32, None, (BF16, dense(DType::F32)), 576),
        // Blocks stay where they are fast.
        (AVX512, Dtype::Auto, None, blocks(Q4K), 4096),
        (AVX512, Dtype::Auto, None, blocks(Q5K), 4096),
        (AVX512, Dtype::Auto, None, blocks(Q8_0), 576),
        (AVX512, Dtype::Auto, None, blocks(Q4_0), 576),
        (AVX2, Dtype::Auto, None, blocks(Q4_0), 4096),
        (NEON, Dtype::Auto, None, blocks(Q4_0), 576),
        (CUDA, Dtype::Auto, None, blocks(Q4_1), 576),
        // Quantising takes every matrix that has room.
        (AVX512, Dtype::Auto, q8, (F32, Held::Blocks(Q8_0)), 576),
        (AVX512, Dtype::Auto, q4, (F32, Held::Blocks(Q4K)), 4096),
        (AVX512, Dtype::Auto, q4, (Stored::Blocks(Q8_0), Held::Blocks(Q4K)), 4096),
        (CUDA, Dtype::F16, q8, (F32, Held::Blocks(Q8_0)), 4096),
    ] {
        let policy = Policy::new(kernels, dtype, quantize, &[stored]);
        let case = format!("{kernels:?} {dtype:?} {quantize:?} {stored:?} {inputs}");
        assert_eq!(policy.hold(stored, inputs), (held, None), "{case}");
    }
}

#[test]
fn what_is_changed_is_said() {
    let q8 = Some(Quantize::Q8_0);
    let q4 = Some(Quantize::Q4K);
    for (kernels, dtype, quantize, stored, inputs, held, note) in [
        (
            AVX512,
            Dtype::Auto,
            None,
            Q4_1,
            576,
            Held::Blocks(Q8_0),
            "q4_1 has no fast kernel on this machine: requantised to q8_0",
        ),
        (
            AVX512,
            Dtype::Auto,
            None,
            Q4_0,
            4096,
            Held::Blocks(Q8_0),
            "q4_0 has no fast kernel on this machine: requantised to q8_0",
        ),
        (
            CUDA,
            Dtype::Auto,
            None,
            Q8K,
            4096,
            Held::Blocks(Q8_0),
            "q8_k has no fast kernel on this machine: requantised to q8_0",
        ),
        (
            SCALAR,
            Dtype::Auto,
            None,
            Q8_0,
            576,
            Held::Dense(DType::F32),
            "q8_0 has no fast kernel on this machine: dequantised to f32",
        ),
        (CUDA, Dtype::F16, None, Q4K, 4096, Held::Dense(DType::F16), "q4_k dequantised to f16, as dtype asks"),
        (AVX512, Dtype::Auto, q4, Q6K, 576, Held::Blocks(Q8_0), "q4_k does not go into 576 columns: q8_0"),
        (AVX512, Dtype::Auto, q8, Q4_0, 48, Held::Dense(DType::F32), "q8_0 does not go into 48 columns: f32"),
    ] {
        let stored = Stored::Blocks(stored);
        let policy = Policy::new(kernels, dtype, quantize, &[stored]);
        assert_eq!(policy.hold(stored, inputs), (held, Some(note.into())));
    }
}

#[test]
fn dense_matrices_beside_blocks_are_f32_as_the_products_of_blocks_are() {
    let policy = Policy::new(CUDA, Dtype::Auto, None, &[F16, Stored::Blocks(Q6K)]);
    assert_eq!(policy.hold(F16, 64).0, Held::Dense(DType::F32));
}

#[test]
fn k_and_v_are_as_small_as_the_device_multiplies_well() {
    for (kernels, dtype, stored, cache) in [
        (AVX512, Dtype::Auto, F16, DType::F32),
        (AVX512, Dtype::F16, F16, DType::F16),
        (AVX512, Dtype::Bf16, F16, DType::F32),
        (CUDA, Dtype::Auto, F32, DType::F16),
        (CUDA, Dtype::Auto, BF16, DType::BF16),
        (CUDA, Dtype::Auto, Stored::Blocks(Q4K), DType::F16),
        (CUDA, Dtype::F32, F32, DType::F32),
    ] {
        assert_eq!(Policy::new(kernels, dtype, None, &[stored]).cache(), cache, "{dtype:?} {stored:?}");
    }
}

#[test]
fn bytes_are_those_of_candle_with_what_its_kernels_keep() {
    let bytes =
        |kernels, held, outputs, inputs| Policy::new(kernels, Dtype::Auto, None, &[F32]).bytes(held, outputs, inputs);
    let one = 4096 * 4096;
    assert_eq!(bytes(AVX512, Held::Dense(DType::F32), 4096, 4096), 4 * one);
    assert_eq!(bytes(CUDA, Held::Blocks(Q4K), 4096, 4096), one / 256 * 144);
    assert_eq!(bytes(AVX512, Held::Blocks(Q4K), 4096, 4096), one / 256 * 144 + one / 4096 * 3072);
    let amx = Some(Kernels::Avx512 { amx: true });
    assert_eq!(bytes(amx, Held::Blocks(Q4K), 4096, 4096), one / 256 * 144 + one / 4096 * (3072 + 5120));
    assert_eq!(bytes(AVX512, Held::Blocks(Q6K), 4096, 4096), one / 256 * 210 + one / 4096 * 5120);
    assert_eq!(bytes(AVX512, Held::Blocks(Q8_0), 4096, 4096), one / 32 * 34 * 2);
    // No tiles: an odd width, and an instruction set that lacks the product.
    assert_eq!(bytes(AVX512, Held::Blocks(Q8_0), 4096, 576), 4096 * 576 / 32 * 34);
    assert_eq!(bytes(Some(Kernels::Avx2), Held::Blocks(Q8_0), 4096, 4096), one / 32 * 34);
    for (kind, name_of) in [(Q8_0, "q8_0"), (Q4K, "q4_k"), (Q4_1, "q4_1")] {
        assert_eq!(name(Held::Blocks(kind)), name_of);
    }
}
