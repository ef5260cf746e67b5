"""What must hold for docker-compose.yml, the Dockerfile and the files they use. Prints every problem found."""

import fnmatch
import pathlib
import re
import sys
import tomllib

from compose import Refused, dockerfile, model

PROFILES = ["demo", "gpu"]
FINAL = ["cuda", "runtime"]


def problems(compose, root):
    """Everything that is wrong below `root`, as sentences."""
    root = pathlib.Path(root).resolve()
    manifest = tomllib.loads((root / "Cargo.toml").read_text())
    stages = dockerfile(root)
    if build := list(dockerfile_problems(root, manifest, stages)):
        yield from build
        return
    try:
        for profiles in ([], *([profile] for profile in PROFILES)):
            model(compose, root, profiles)
        everything = model(compose, root, PROFILES)
    except Refused as refused:
        yield f"docker compose config: {refused}"
        return
    yield from compose_problems(root, manifest, stages, everything)
    yield from reference_problems(root, everything)
    yield from environment_problems(compose, root, everything)


def pinned(image):
    """Whether an image's tag says a version or a date."""
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    return bool(re.search(r"\d", tag))


def compose_problems(root, manifest, stages, everything):
    services = everything["services"]
    targets = {name for name, _, _ in stages}
    for name, service in services.items():
        image, build = service.get("image", ""), service.get("build")
        if not pinned(image):
            yield f"{name}: image {image!r} has no version as its tag"
        if image.startswith("streamgauge:") and image.split(":")[1].split("-")[0] != manifest["package"]["version"]:
            yield f"{name}: image {image!r} does not have the version of Cargo.toml, {manifest['package']['version']}"
        if build and build.get("target") not in targets:
            yield f"{name}: the Dockerfile has no target {build.get('target')!r}"
        for port in service.get("ports", []):
            if port.get("host_ip") != "127.0.0.1":
                yield f"{name}: port {port.get('published')} is published beyond loopback"
        for mount in service.get("volumes", []):
            if mount["type"] != "bind":
                continue
            source = pathlib.Path(mount["source"])
            if not mount.get("read_only"):
                yield f"{name}: {source} is mounted writable"
            if source.is_relative_to(root):
                if not source.exists():
                    yield f"{name}: {source.relative_to(root)} is mounted and does not exist"
            elif mount["bind"].get("create_host_path", True):
                yield f"{name}: {source} would be made, empty, where it is missing; set create_host_path: false"
        if service.get("cap_drop") != ["ALL"] or service.get("security_opt") != ["no-new-privileges:true"]:
            yield f"{name}: keeps privileges it has no use for"
        if service.get("restart") != "unless-stopped":
            yield f"{name}: is not restarted"
    for name in ("prometheus", "grafana", "streamgauge", "streamgauge-gpu"):
        if not any(mount["type"] == "volume" for mount in services[name].get("volumes", [])):
            yield f"{name}: keeps its data in no volume"

    gpu = services["streamgauge-gpu"]
    devices = gpu.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    if not any("gpu" in device["capabilities"] for device in devices):
        yield "streamgauge-gpu: reserves no GPU"
    if "streamgauge" not in gpu["networks"]["default"].get("aliases", []):
        yield "streamgauge-gpu: cannot be reached as streamgauge"
    for name, expected in {"streamgauge": [], "streamgauge-gpu": ["gpu"], "sim": ["demo"], "load": ["demo"]}.items():
        if services[name].get("profiles", []) != expected:
            yield f"{name}: has the profiles {services[name].get('profiles', [])}, not {expected}"

    full = tomllib.loads((root / "config/streamgauge-full.toml").read_text())
    for name in ("streamgauge", "streamgauge-gpu"):
        grace = sum(
            int(number) * {"m": 60, "s": 1}[unit]
            for number, unit in re.findall(r"(\d+)([ms])", services[name].get("stop_grace_period", "10s"))
        )
        if grace * 1000 <= full["server"]["drain_timeout_ms"]:
            yield f"{name}: is killed after {grace} s, before its streams have had drain_timeout_ms"


def reference_problems(root, everything):
    """Names that files give to services, and paths that they give to mounts."""
    services = everything["services"]
    networks = [service["networks"]["default"] or {} for service in services.values()]
    hosts = {*services, *(alias for network in networks for alias in network.get("aliases", []))}

    def mounted(service, path):
        """The file on this side of a mount. None where nothing is mounted."""
        for mount in services[service].get("volumes", []):
            below = pathlib.PurePosixPath(path)
            if mount["type"] == "bind" and below.is_relative_to(mount["target"]):
                return pathlib.Path(mount["source"]) / below.relative_to(mount["target"])
        return None

    prometheus = (root / "config/prometheus.yml").read_text()
    scraped = [host for line in re.findall(r"targets:(.*)", prometheus) for host in re.findall(r"([\w.-]+):\d+", line)]
    if not scraped:
        yield "config/prometheus.yml: scrapes nothing that this check can read; write targets on one line"
    for host in scraped:
        if host not in hosts | {"localhost"}:
            yield f"config/prometheus.yml: {host!r} is no service"
    rules = re.findall(r"[\w./-]+\.ya?ml", "".join(re.findall(r"rule_files:(?:.*\n)(?:\s*- .*\n)*", prometheus)))
    for name in rules:
        if mounted("prometheus", pathlib.PurePosixPath("/etc/prometheus") / name) is None:
            yield f"config/prometheus.yml: the rule file {name} is not mounted"
    if not rules:
        yield "config/prometheus.yml: loads no rules"

    found = []
    for path in sorted((root / "config/grafana/provisioning").rglob("*.y*ml")):
        text = path.read_text()
        for host in re.findall(r"https?://([\w.-]+)", text):
            found.append(host)
            if host not in hosts:
                yield f"{path.relative_to(root)}: {host!r} is no service"
        for folder in re.findall(r"^\s*path:\s*(\S+)", text, re.MULTILINE):
            found.append(folder)
            if not (mounted("grafana", folder) or root / "none").is_dir():
                yield f"{path.relative_to(root)}: nothing is mounted at {folder}"
    if len(found) < 2:
        yield "config/grafana/provisioning: names neither a data source nor a folder of dashboards"
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    if not (mounted("grafana", home) or root / "none").is_file():
        yield f"grafana: its home dashboard {home} does not exist"

    for name, config in everything["configs"].items():
        parsed = tomllib.loads(config["content"])
        if not {"streamgauge"} <= set(parsed["server"]["hosts"]):
            yield f"configs.{name}: containers that say http://streamgauge:8484 are refused once a key is configured"
        for backend in parsed["backend"].values():
            host = re.match(r"https?://([\w.-]+)", backend.get("base_url", ""))
            if host and "." not in host[1] and host[1] not in hosts:
                yield f"configs.{name}: {host[1]!r} is no service"
            if "model" in backend and mounted("streamgauge-gpu", backend["model"]) is None:
                yield f"configs.{name}: the model {backend['model']} is not mounted"


def environment_problems(compose, root, bare):
    """What is set outside must arrive, and a key that is not set must not arrive empty."""
    given = model(compose, root, PROFILES, TAOTOKEN_API_KEY="key-of-mine", TAOTOKEN_BASE_URL="https://llm.example/v1")
    for name in ("streamgauge", "streamgauge-gpu"):
        if given["services"][name]["environment"].get("TAOTOKEN_API_KEY") != "key-of-mine":
            yield f"{name}: TAOTOKEN_API_KEY does not arrive"
        if bare["services"][name]["environment"].get("TAOTOKEN_API_KEY") is not None:
            yield f"{name}: has a TAOTOKEN_API_KEY where none is set"
        if '"https://llm.example/v1"' not in given["configs"][name]["content"]:
            yield f"{name}: TAOTOKEN_BASE_URL does not arrive"
        if '"https://taotoken.net/api"' not in bare["configs"][name]["content"]:
            yield f"{name}: the upstream is not TaoToken where TAOTOKEN_BASE_URL is not set"
    if "key-of-mine" in str(given["configs"]):
        yield "configs: a key is written into a file"


def dockerfile_problems(root, manifest, stages):
    by_name = {stage[0]: stage for stage in stages}
    for name, base, _ in stages:
        if base not in by_name and not pinned(base):
            yield f"Dockerfile: the base image {base!r} of {name!r} has no version as its tag"
    if stages[-1][0] != "runtime" or "cuda" not in by_name:
        yield "Dockerfile: the last stage is not runtime, which a build without --target makes, or there is no cuda"
        return

    toolchain = tomllib.loads((root / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    rust = [base for _, base, _ in stages if base.startswith("rust:")]
    if not rust or any(not base.startswith(f"rust:{toolchain}-") for base in rust):
        yield f"Dockerfile: the compiler is not rust-toolchain.toml's {toolchain}: {rust}"

    documented = builds((root / "README.md").read_text())
    built = [build for _, _, steps in stages for kind, rest in steps if kind == "RUN" for build in builds(rest)]
    for build in built:
        if build not in documented:
            yield f"Dockerfile: README.md has no `{build}`, only {sorted(documented)}"
    if sorted(built) != ["cargo build --release", "cargo build --release --features cuda"]:
        yield f"Dockerfile: builds {built}, not each of the two kinds once"
    for _, _, steps in stages:
        for kind, rest in steps:
            if kind == "RUN" and "cargo build" in rest and "--locked" not in rest:
                yield "Dockerfile: a build is not --locked"

    copied = []
    ignored = ignore_rules(root)
    for name, _, steps in stages:
        for kind, rest in steps:
            if kind != "COPY" or "--from=" in rest:
                continue
            for source in [word for word in rest.split() if not word.startswith("--")][:-1]:
                copied.append(source)
                if not (root / source).exists():
                    yield f"Dockerfile: {name} copies {source}, which does not exist"
                if ignored(source):
                    yield f"Dockerfile: {name} copies {source}, which .dockerignore leaves out"
    for needed in sorted(needed_to_build(root, manifest)):
        if not any(pathlib.PurePath(needed).is_relative_to(source) for source in copied):
            yield f"Dockerfile: {needed} is needed to build and is not copied"
    for secret in (".git", ".env", "target"):
        if not ignored(secret):
            yield f".dockerignore: {secret} would be sent to the build"

    def own(name):
        """A final stage's lines that do not differ by design."""
        lines = [f"{kind} {rest}" for kind, rest in by_name[name][2]]
        return [re.sub(r"--from=\S+", "", line) for line in lines if not line.startswith("ENV CUDA")]

    if own("cuda") != own("runtime"):
        yield f"Dockerfile: cuda and runtime differ: {sorted(set(own('cuda')) ^ set(own('runtime')))}"
    for name in FINAL:
        _, base, steps = by_name[name]
        user = [rest for kind, rest in steps if kind == "USER"]
        if not user or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", user[-1]):
            yield f"Dockerfile: {name} runs as {user[-1] if user else 'root'}, not as a numbered user without rights"
        elif not any(f"--chown={user[-1]} /data" in rest for kind, rest in steps if kind == "COPY"):
            yield f"Dockerfile: /data does not belong to the user of {name}"
        if not any(kind == "HEALTHCHECK" for kind, _ in steps):
            yield f"Dockerfile: {name} has no HEALTHCHECK"
        (build,) = [re.search(r"--from=(\S+)", rest)[1] for kind, rest in steps if kind == "COPY" and "/out/" in rest]
        made_on = by_name[build][1]
        made_on = by_name[made_on][1] if made_on in by_name else made_on
        if system(made_on) is None or system(made_on) != system(base):
            yield f"Dockerfile: {name} runs on {base} what was built on {made_on}; another glibc may not start it"


def system(image):
    """The distribution an image's tag names, which decides its glibc."""
    found = re.search(r"trixie|bookworm|ubuntu\d+\.\d+", image)
    return found and found[0]


def builds(text):
    """The release builds that a text asks for, without what changes nothing about the binary."""
    found = set()
    for run in re.findall(r"cargo (?:run|build) [^`\n|;&#)]*", text):
        words = run.partition(" -- ")[0].split()
        if "--release" in words:
            found.add(" ".join(["cargo", "build", *(word for word in words[2:] if word != "--locked")]))
    return found


def ignore_rules(root):
    """What .dockerignore says of a path at the top: the last line that matches wins."""
    lines = [line.strip() for line in (root / ".dockerignore").read_text().splitlines()]
    rules = [line for line in lines if line and not line.startswith("#")]

    def ignored(path):
        verdict = False
        for rule in rules:
            if fnmatch.fnmatch(path.split("/")[0], rule.removeprefix("!")):
                verdict = not rule.startswith("!")
        return verdict

    return ignored


def needed_to_build(root, manifest):
    """Paths without which cargo refuses the manifest, or the compiler the sources."""
    yield from ("Cargo.toml", "Cargo.lock", "src/main.rs")
    yield from (member for member in manifest.get("workspace", {}).get("members", []))
    if (root / "build.rs").exists():
        yield "build.rs"
    for kind in ("bench", "bin", "example"):
        for entry in manifest.get(kind, []):
            folder = {"bench": "benches", "bin": "src/bin", "example": "examples"}[kind]
            yield entry.get("path", f"{folder}/{entry['name']}.rs")
    for source in (root / "src").rglob("*.rs"):
        if source.name.startswith("tests") or "tests" in source.parent.parts:
            continue
        text = source.read_text().partition("#[cfg(test)]\nmod tests {")[0]
        for name in re.findall(r"include_(?:str|bytes)!\(\s*\"([^\"]+)\"", text):
            yield str((source.parent / name).resolve().relative_to(root))
        for name in re.findall(r"include_\w+!\(concat!\(env!\(\"CARGO_MANIFEST_DIR\"\), \"/([^\"]+)\"", text):
            yield name


if __name__ == "__main__":
    found = list(problems(sys.argv[1], "."))
    for problem in found:
        print(f"tests/compose: {problem}", file=sys.stderr)
    sys.exit(bool(found))
