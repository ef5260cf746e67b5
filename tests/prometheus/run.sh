#!/usr/bin/env bash
# Proves dashboards, rules and Prometheus' configuration: their form, the alerts on made-up series, and every query on a
# minute of real traffic in a real Prometheus. Wants a built binary: STREAMGAUGE_BIN, or the debug build.
# Grafana itself does not run here; its published types stand in for it, so how the panels look is not checked. A missing tool is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
binary=${STREAMGAUGE_BIN:-$target/debug/streamgauge}
here=tests/prometheus
schema=$target/grafana-schema

for tool in node npm openssl prometheus promtool python3; do
    command -v "$tool" >/dev/null || { echo "tests/prometheus: $tool is missing; install Debian's packages nodejs, npm, openssl, prometheus and python3" >&2; exit 1; }
done
[[ -x $binary ]] || { echo "tests/prometheus: $binary is missing; build it with: cargo build" >&2; exit 1; }

promtool check config config/prometheus.yml
promtool check rules config/rules.yml
promtool test rules "$here/rules-test.yml"

if ! cmp --silent "$here/schema/package-lock.json" "$schema/installed.json"; then
    rm -rf "$schema"
    mkdir -p "$schema"
    cp "$here"/schema/{package.json,package-lock.json,.npmrc} "$schema/"
    npm ci --prefix "$schema" --loglevel error --no-audit --no-fund
    cp "$here/schema/package-lock.json" "$schema/installed.json"
fi
cp "$here"/schema/{check.mjs,panels.ts} "$schema/"
node "$schema/check.mjs" dashboards/*.json

PYTHONPATH="$here/../support" python3 "$here/proof.py" "$binary"
