//! What candle's CPU kernels do with quantised weights: which are fast, and what they keep beside the weights.
//!
//! Source: candle-core 0.11.1, `quantized/repack_x86.rs` (`select`, the tile types), `quantized/k_quants.rs` (which
//! `vec_dot` has SIMD code) and `quantized/repack.rs`.

use candle_core::quantized::GgmlDType;

/// The instructions that decide which kernel runs.
#[allow(dead_code, reason = "each is made on some machines only")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernels {
    /// Nothing that helps.
    Scalar,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-VNNI.
    AvxVnni,
    /// x86-64 with AVX-512 and its VNNI.
    Avx512 {
        /// Tiles of 8-bit integers (AMX) as well.
        amx: bool,
    },
    /// `AArch64` with its NEON.
    Neon,
}

/// Values in a super-block of the K types.
const SUPER_BLOCK: usize = 256;
/// Rows that x86 kernels take together.
const TILE: usize = 16;

impl Kernels {
    /// Those of this machine.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn here() -> Self {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
            // Asking the processor itself would not tell whether the kernel lets processes use the tiles.
            let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            Self::Avx512 { amx: flags.contains(" amx_int8") && flags.contains(" amx_tile") }
        } else if is_x86_feature_detected!("avxvnni") && is_x86_feature_detected!("avx2") {
            Self::AvxVnni
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            Self::Avx2
        } else {
            Self::Scalar
        }
    }

    /// Those of this machine.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn here() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Neon } else { Self::Scalar }
    }

    /// Whether a matrix of `inputs` columns in blocks of `kind` is multiplied by code that is worth its quantisation.
    pub(super) fn fast(self, kind: GgmlDType, inputs: usize) -> bool {
        use GgmlDType::{Q2K, Q3K, Q4_0, Q4K, Q5K, Q6K, Q8_0};
        match self {
            Self::Scalar => false,
            Self::Avx2 | Self::AvxVnni | Self::Avx512 { .. } => match kind {
                Q8_0 => true,
                Q2K | Q3K | Q4K | Q5K | Q6K => inputs.is_multiple_of(SUPER_BLOCK),
                // As fast as Q8_0 where that is not laid out in tiles, and half as large.
                Q4_0 => self == Self::Avx2 || !inputs.is_multiple_of(SUPER_BLOCK),
                _ => false,
            },
            Self::Neon => matches!(kind, Q4_0 | Q8_0 | Q2K | Q3K | Q4K | Q5K | Q6K),
        }
    }

    /// Bytes that the kernels keep beside an `outputs` × `inputs` matrix: the same weights, laid out for them at the
    /// first multiplication.
    pub(super) fn beside(self, kind: GgmlDType, outputs: usize, inputs: usize) -> u64 {
        use GgmlDType::{Q4_0, Q4K, Q5K, Q6K, Q8_0};
        let tiles = (outputs / TILE * (inputs / SUPER_BLOCK)) as u64;
        let fits = outputs.is_multiple_of(TILE) && inputs.is_multiple_of(SUPER_BLOCK);
        let scales = |count: u64| count * TILE as u64 * 4;
        let values = (TILE * SUPER_BLOCK) as u64;
        let amx = self == Self::Avx512 { amx: true };
        match (self, kind) {
            (Self::Neon, Q4_0 | Q8_0 | Q4K | Q5K | Q6K) => matrix_bytes(kind, outputs, inputs),
            (Self::Scalar | Self::Neon, _) => 0,
            _ if !fits => 0,
            (_, Q4K) => tiles * (scales(16) + values / 2 + if amx { scales(16) + values } else { 0 }),
            (_, Q6K) => tiles * (scales(16) + values),
            (Self::AvxVnni | Self::Avx512 { .. }, Q8_0) => tiles * (values + values / 32 * 2),
            _ => 0,
        }
    }
}

/// Bytes of an `outputs` × `inputs` matrix in blocks of `kind`.
pub(super) fn matrix_bytes(kind: GgmlDType, outputs: usize, inputs: usize) -> u64 {
    (outputs * inputs / kind.block_size() * kind.type_size()) as u64
}
