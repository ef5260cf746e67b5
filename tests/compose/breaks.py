"""Breaks a copy of the files in each way that check.py and hadolint are there to find, and wants it found."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from check import problems

COPIED = [
    ".dockerignore", "Cargo.lock", "Cargo.toml", "Dockerfile", "README.md", "benches", "config", "dashboards",
    "docker-compose.yml", "rust-toolchain.toml", "simd", "src",
]

# (file, what stands there, what stands there instead; None removes the file, part of the problem to be found)
BREAKS = [
    ("docker-compose.yml", "prom/prometheus:v3.5.0", "prom/prometheus:latest", "has no version as its tag"),
    ("docker-compose.yml", "grafana/grafana:12.3.1", "grafana/grafana", "has no version as its tag"),
    ("docker-compose.yml", "image: streamgauge:0.1.0-cuda", "image: streamgauge:0.0.9-cuda", "the version of Cargo.toml"),
    ("docker-compose.yml", "target: cuda", "target: gpu", "no target 'gpu'"),
    ("docker-compose.yml", "- 127.0.0.1:9090:9090", "- 9090:9090", "port 9090 is published beyond loopback"),
    ("docker-compose.yml", "- 127.0.0.1:3000:3000", "- 0.0.0.0:3000:3000", "port 3000 is published beyond loopback"),
    ("docker-compose.yml", "./dashboards:/var/lib/grafana/dashboards:ro", "./dashboards:/var/lib/grafana/dashboards", "mounted writable"),
    ("docker-compose.yml", "./config/rules.yml:", "./config/rule.yml:", "config/rule.yml is mounted and does not exist"),
    ("docker-compose.yml", "create_host_path: false", "create_host_path: true", "set create_host_path: false"),
    ("docker-compose.yml", "cap_drop: [ALL]", "cap_drop: [KILL]", "keeps privileges"),
    ("docker-compose.yml", "restart: unless-stopped", 'restart: "no"', "is not restarted"),
    ("docker-compose.yml", "      - prometheus:/prometheus\n", "", "prometheus: keeps its data in no volume"),
    ("docker-compose.yml", "capabilities: [gpu]", "capabilities: [video]", "reserves no GPU"),
    ("docker-compose.yml", "aliases: [streamgauge]", "aliases: [gpu]", "cannot be reached as streamgauge"),
    ("docker-compose.yml", "profiles: [gpu]", "profiles: [gpu, demo]", "has the profiles"),
    ("docker-compose.yml", "stop_grace_period: 35s", "stop_grace_period: 25s", "is killed after 25 s"),
    ("docker-compose.yml", "  load:", "  load:\n    imagine: true", "docker compose config"),
    ("docker-compose.yml", "      sim:\n        condition: service_healthy", "      simulated:\n        condition: service_healthy", "docker compose config"),
    ("docker-compose.yml", "${CUDA_COMPUTE_CAP:-90}", "${CUDA_COMPUTE_CAP}", "docker compose config"),
    ("docker-compose.yml", "TAOTOKEN_API_KEY:\n", "TAOTOKEN_API_KEY: ${TAOTOKEN_API_KEY:-}\n", "where none is set"),
    ("docker-compose.yml", "    TAOTOKEN_API_KEY:\n", "", "TAOTOKEN_API_KEY does not arrive"),
    ("docker-compose.yml", "${TAOTOKEN_BASE_URL:-https://taotoken.net/api}", "https://taotoken.net/api", "TAOTOKEN_BASE_URL does not arrive"),
    ("docker-compose.yml", 'hosts = ["streamgauge"]', "hosts = []", "are refused once a key is configured"),
    ("docker-compose.yml", "http://sim:9100", "http://simulation:9100", "'simulation' is no service"),
    ("docker-compose.yml", "model = \"/models/", "model = \"/model/", "is not mounted"),
    ("docker-compose.yml", "dashboards/overview.json", "dashboards/home.json", "does not exist"),
    ("docker-compose.yml", ":/etc/prometheus/rules.yml:ro", ":/etc/rules.yml:ro", "is not mounted"),
    ("config/prometheus.yml", "streamgauge:9464", "gauge:9464", "'gauge' is no service"),
    ("config/rules.yml", None, None, "config/rules.yml is mounted and does not exist"),
    ("config/demo-load.sh", None, None, "config/demo-load.sh is mounted and does not exist"),
    ("config/streamgauge-full.toml", "drain_timeout_ms = 30_000", "drain_timeout_ms = 35_000", "is killed after 35 s"),
    ("Dockerfile", "debian:trixie-20260918-slim", "debian:trixie-slim", "has no version as its tag"),
    ("Dockerfile", "debian:trixie-20260918-slim", "debian:bookworm-20260918-slim", "another glibc"),
    ("Dockerfile", "13.0.2-runtime-ubuntu24.04", "13.0.2-runtime-ubuntu22.04", "another glibc"),
    ("Dockerfile", "rust:1.95.0-slim-trixie", "rust:1.94.0-slim-trixie", "the compiler is not rust-toolchain.toml's"),
    ("Dockerfile", "cargo build --release --locked --features cuda", "cargo build --release --locked --features gpu", "README.md has no `cargo build --release --features gpu`"),
    ("Dockerfile", "cargo build --release --locked \\", "cargo build --release \\", "a build is not --locked"),
    ("Dockerfile", "COPY benches benches\n", "", "benches/llama/main.rs is needed to build and is not copied"),
    ("Dockerfile", "COPY simd simd", "COPY simd configuration simd", "which does not exist"),
    ("Dockerfile", "COPY simd simd", "COPY simd config simd", "which .dockerignore leaves out"),
    ("Dockerfile", "USER 65534:65534", "USER root", "runs as root"),
    ("Dockerfile", "COPY --from=build --chown=65534:65534", "COPY --from=build", "does not belong to the user of runtime"),
    ("Dockerfile", "EXPOSE 8484 9464\n", "", "cuda and runtime differ"),
    ("Dockerfile", " AS runtime", " AS cpu", "the last stage is not runtime"),
    (".dockerignore", "*\n", "", "would be sent to the build"),
    ("src/main.rs", "fn main()", 'const PAGE: &str = include_str!("../config/page.html");\n\nfn main()', "config/page.html is needed to build"),
    ("Cargo.toml", 'members = ["simd"]', 'members = ["simd", "extra"]', "extra is needed to build and is not copied"),
]


def copy(to):
    for name in COPIED:
        source, target = pathlib.Path(name), pathlib.Path(to, name)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)


def found(compose, root):
    try:
        return list(problems(compose, root))
    except Exception as error:  # a check that stumbles over the break has found it, but must say what it is
        return [f"{type(error).__name__}: {error}"]


def main(compose, hadolint):
    missed = []
    with tempfile.TemporaryDirectory() as root:
        copy(root)
        for name, old, new, expected in BREAKS:
            path = pathlib.Path(root, name)
            text = path.read_text()
            if old is None:
                path.unlink()
            else:
                if old not in text:
                    missed.append(f"{name}: {old!r} stands nowhere; bring this list up to date")
                    continue
                # The first alone would be hidden where the second holds.
                path.write_text(text.replace(old, new) if old != "EXPOSE 8484 9464\n" else text.replace(old, new, 1))
            said = found(compose, root)
            if not any(expected in problem for problem in said):
                missed.append(f"{name}: {old!r} → {new!r}: wanted {expected!r}, got {said}")
            path.write_text(text)
        if rest := found(compose, root):
            missed.append(f"the copy is not whole again: {rest}")

        path = pathlib.Path(root, "Dockerfile")
        path.write_text(path.read_text().replace("WORKDIR /src\nCOPY Cargo", "WORKDIR src\nCOPY Cargo"))
        if subprocess.run([hadolint, path], capture_output=True, timeout=60).returncode == 0:
            missed.append("hadolint does not mind a relative WORKDIR")
    for miss in missed:
        print(f"tests/compose: break not found: {miss}", file=sys.stderr)
    print(f"tests/compose: {len(BREAKS) + 1 - len(missed)} of {len(BREAKS) + 1} deliberate breaks found")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
