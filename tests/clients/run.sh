#!/usr/bin/env bash
# Points real clients, unmodified, at the proxy: the SDKs and what is built on them. Wants a built binary: STREAMGAUGE_BIN,
# or the debug build. Coding agents are driven by tests/clients.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/clients/install.sh

python_packages "$target/clients-venv" tests/clients/requirements.txt
node_packages "$target/clients-node" tests/clients/node ci
export CLIENT_MODULES=$target/clients-node PYTHONPATH=tests/support PYTHONDONTWRITEBYTECODE=1

for script in openai_python.py openai_node.py cancel.py llama.py sdks.py frameworks.py; do
    "$target/clients-venv/bin/python" "tests/clients/$script" "$binary"
done
