#!/usr/bin/env bash
# Points real clients, unmodified, at the proxy. Wants a built binary: STREAMGAUGE_BIN, or the debug build.
# Everything it installs goes into a virtual environment beside the build; a missing tool is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
binary=${STREAMGAUGE_BIN:-$target/debug/streamgauge}
wanted=tests/clients/requirements.txt
venv=$target/clients-venv

for tool in python3 openssl node npm; do
    command -v "$tool" >/dev/null || { echo "tests/clients: $tool is missing; install Debian's packages python3, openssl, nodejs and npm" >&2; exit 1; }
done
[[ -x $binary ]] || { echo "tests/clients: $binary is missing; build it with: cargo build" >&2; exit 1; }

if ! cmp --silent "$wanted" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" || { echo "tests/clients: python3 cannot make virtual environments; install Debian's package python3-venv" >&2; exit 1; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted"
    cp "$wanted" "$venv/installed.txt"
fi

modules=$target/clients-node
if ! cmp --silent tests/clients/node/package-lock.json "$modules/installed.json"; then
    mkdir -p "$modules"
    cp tests/clients/node/package.json tests/clients/node/package-lock.json tests/clients/node/.npmrc "$modules/"
    npm ci --prefix "$modules" --ignore-scripts --no-audit --no-fund --loglevel=error
    cp tests/clients/node/package-lock.json "$modules/installed.json"
fi
export CLIENT_MODULES=$modules PYTHONPATH=tests/support PYTHONDONTWRITEBYTECODE=1

for script in openai_python.py openai_node.py cancel.py llama.py; do
    "$venv/bin/python" "tests/clients/$script" "$binary"
done
