#!/usr/bin/env bash
# Puts Llama-2's vocabulary, which the tests of its tokenization need, into the models' folder, once, and prints its path.
# It comes out of an npm package (MIT), pinned by hash. Needs Node.js and npm. --remake also writes
# tests/llama/tokens/expected.json anew.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tokens=$here/tests/llama/tokens
models=${STREAMGAUGE_MODELS:-${XDG_DATA_HOME:-$HOME/.local/share}/streamgauge/models}
vocabulary=$models/llama2-vocab.json
sha256=0abe48522ca248b1ff12f41338e29bc3de89fdeda69d95300e9072aa5bc64567

matches() {
    [[ -f $1 ]] && sha256sum --check --status <<<"$sha256  $1"
}

if [[ ${1:-} == --remake ]] || ! matches "$vocabulary"; then
    for tool in node npm; do
        command -v "$tool" >/dev/null || { echo "llama-vocab.sh: $tool is missing; install Debian's packages nodejs and npm" >&2; exit 1; }
    done
    mkdir -p "$models"
    scratch=$(mktemp -d "$models/.llama-vocab.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    cp "$tokens/package.json" "$tokens/package-lock.json" "$scratch"
    (cd "$scratch" && npm ci --loglevel error --ignore-scripts --no-audit --no-fund) >&2
    package=$scratch/node_modules/llama-tokenizer-js

    node "$tokens/make.mjs" expected "$package" >"$scratch/expected.json"
    if [[ ${1:-} == --remake ]]; then
        cp "$scratch/expected.json" "$tokens/expected.json"
    else
        cmp "$scratch/expected.json" "$tokens/expected.json" >&2 ||
            { echo "llama-vocab.sh: expected.json is not what make.mjs makes; run this with --remake" >&2; exit 1; }
    fi

    node "$tokens/make.mjs" vocabulary "$package" >"$scratch/llama2-vocab.json"
    matches "$scratch/llama2-vocab.json" ||
        { echo "llama-vocab.sh: the vocabulary is not the one known here: if make.mjs was changed, change sha256 in this script" >&2; exit 1; }
    mv "$scratch/llama2-vocab.json" "$vocabulary"
fi
echo "$vocabulary"
