#!/bin/sh
# Checks what is linked in against deny.toml: banned crates, licences, sources. Its advisory database is not asked.
# Installs the pinned cargo-deny into the target directory where it is not there yet.
set -eu
cd "$(dirname "$0")/.."
version=0.20.2
tools="${CARGO_TARGET_DIR:-$PWD/target}/tools"
deny="$tools/bin/cargo-deny"
if [ "$("$deny" --version 2>/dev/null)" != "cargo-deny $version" ]; then
  cargo install cargo-deny --version "$version" --locked --debug --root "$tools" --target-dir "$tools/build"
  rm -rf "$tools/build"
fi
# --locked: a check never changes Cargo.lock.
exec "$deny" --locked check --hide-inclusion-graph bans licenses sources
