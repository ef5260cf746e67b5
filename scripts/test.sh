#!/usr/bin/env bash
# Runs every check, in the order of what fails fastest. Needs the Rust toolchain and the package registries; whatever else
# is missing it installs, once. A tool that cannot be had is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() {
    local name=$1 began=$SECONDS
    shift
    printf '\n── %s\n' "$name"
    "$@" || { printf '── %s: failed after %d s\n' "$name" $((SECONDS - began)) >&2; exit 1; }
    times+=("$(printf '%6d s  %s' $((SECONDS - began)) "$name")")
}

debian_packages() {
    local missing=()
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v nginx >/dev/null || [[ -x /usr/sbin/nginx ]] || missing+=(nginx-light)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
    command -v tinyproxy >/dev/null || missing+=(tinyproxy)
    command -v curl >/dev/null || missing+=(curl)
    command -v prometheus >/dev/null && command -v promtool >/dev/null || missing+=(prometheus)
    command -v chromium >/dev/null || missing+=(chromium)
    command -v node >/dev/null && command -v npm >/dev/null || missing+=(nodejs npm)
    ((${#missing[@]})) || { echo "all there"; return; }
    echo "installing ${missing[*]}"
    if ((EUID)); then
        echo "not root: install them yourself: apt-get install ${missing[*]}" >&2
        return 1
    fi
    apt-get update -qq || return
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}"
}

tools() {
    local folder
    folder=$(bash scripts/tools.sh) || return
    export PATH="$folder:$PATH"
    cargo deny --version || return
    cargo nextest --version | head -n 1
}

model_files() {
    bash scripts/models.sh && bash scripts/llama-vocab.sh
}

times=()
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

step "format" cargo fmt --all --check
step "Debian packages" debian_packages
step "cargo-deny, cargo-nextest" tools
step "licences, bans, sources" bash scripts/deny.sh
step "lints" cargo clippy --locked --workspace --all-targets -- -D warnings
step "CUDA, types only" bash scripts/cuda-check.sh
step "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
step "model files" model_files
step "tests" cargo nextest run --locked --workspace --no-fail-fast
step "documentation tests" cargo test --locked --workspace --doc
# The tests have left the binary.
step "real clients" bash tests/clients/run.sh
step "dashboards and rules" bash tests/prometheus/run.sh
step "live page" bash tests/browser/run.sh
step "compose file, Dockerfile" bash tests/compose/run.sh
# One short round in the debug profile: no price, but the comparison runs, and under load the metrics must add up.
step "price comparison, dry" cargo bench --locked --profile dev --bench price -- --rounds 1 --seconds 0.2

printf '\nall passed\n'
printf '%s\n' "${times[@]}" "$(printf '%6d s  in all' "$SECONDS")"
