#!/usr/bin/env bash
# Checks what is linked in against deny.toml: banned crates, licences, sources. Its advisory database is not asked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=$(bash scripts/tools.sh)
# --locked: a check never changes Cargo.lock.
exec "$tools/cargo-deny" --locked check --hide-inclusion-graph bans licenses sources
