#!/usr/bin/env bash
# Points coding agents, unmodified, at the proxy: aider, Codex CLI, Claude Code, opencode; those named, or all. Wants a
# built binary: STREAMGAUGE_BIN, or the debug build. The first run installs 2 GB beside the build.
#
#   bash tests/clients.sh [NAME…]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/clients/install.sh

python_packages "$target/clients-venv" tests/clients/requirements.txt
python_packages "$target/agents-venv" tests/clients/agents/requirements.txt
node_packages "$target/agents-node" tests/clients/agents install @anthropic-ai/claude-code/install.cjs opencode-ai/postinstall.mjs
export AIDER=$target/agents-venv/bin/aider AGENT_MODULES=$target/agents-node
export PYTHONPATH=tests/support PYTHONDONTWRITEBYTECODE=1

"$target/clients-venv/bin/python" tests/clients/agents.py "$binary" "$@"
