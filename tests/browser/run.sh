#!/usr/bin/env bash
# Opens the live page in a real Chromium while real traffic runs. Wants a built binary: STREAMGAUGE_BIN, or the debug
# build. What it installs goes beside the build; a missing tool is a failure.
#
#   run.sh                  every check, with a soak of half a minute
#   run.sh --minutes 10     the same with a long soak
#   run.sh screenshots      the pictures in docs/ instead
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
binary=${STREAMGAUGE_BIN:-$target/debug/streamgauge}
modules=$target/browser

for tool in chromium node npm; do
    command -v "$tool" >/dev/null || { echo "tests/browser: $tool is missing; install Debian's packages chromium, nodejs and npm" >&2; exit 1; }
done
[[ -x $binary ]] || { echo "tests/browser: $binary is missing; build it with: cargo build" >&2; exit 1; }

if ! cmp --silent tests/browser/package-lock.json "$modules/installed.json"; then
    mkdir -p "$modules"
    cp tests/browser/package.json tests/browser/package-lock.json tests/browser/.npmrc "$modules/"
    # playwright-core drives the browser that is there; it fetches none.
    npm ci --prefix "$modules" --ignore-scripts --no-audit --no-fund --loglevel=error
    cp tests/browser/package-lock.json "$modules/installed.json"
fi

export BROWSER_MODULES=$modules STREAMGAUGE_BIN=$binary
if [[ ${1:-} == screenshots ]]; then exec node tests/browser/screenshots.mjs; fi
exec node tests/browser/live.mjs "$@"
