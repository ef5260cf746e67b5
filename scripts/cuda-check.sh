#!/usr/bin/env bash
# Type-checks the feature `cuda`, tests included, on a machine without a CUDA toolkit. Nothing is run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# 90 is Hopper; which one does not matter to the types. A quantised tensor is larger with CUDA, which makes some enums
# uneven that otherwise are not.
exec env PATH="$PWD/scripts/cuda-stub:$PATH" CUDA_COMPUTE_CAP="${CUDA_COMPUTE_CAP:-90}" \
    cargo clippy --locked --features cuda --all-targets -- -D warnings -A clippy::large_enum_variant
