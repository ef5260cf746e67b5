"""Runs on loopback what the containers would run: the configuration of docker-compose.yml, the health checks, the demo's
load; and asks as the apps would that the guard against web pages must let through."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request

from compose import dockerfile, health_check, model

DEADLINE = 60
running = []


def free_ports(count):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def start(command, log, **variables):
    # Only what a container would be given.
    environment = {"PATH": os.environ["PATH"], **variables}
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    running.append(process)
    return process


def until(what, holds, process=None):
    end = time.monotonic() + DEADLINE
    while not holds():
        if process is not None and process.poll() is not None:
            raise SystemExit(f"tests/compose: waiting for {what}: the process ended with {process.returncode}")
        if time.monotonic() > end:
            raise SystemExit(f"tests/compose: {what} did not happen within {DEADLINE} s")
        time.sleep(0.05)


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.read().decode()
    except OSError:
        return None


def chat(port, host, name):
    """The status of a chat completion that says it goes to `host`."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        data=b'{"model": "%s", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}' % name.encode(),
        headers={"content-type": "application/json", "host": host},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            reply.read()
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def want(what, got, expected):
    if got != expected:
        raise SystemExit(f"tests/compose: {what}: {got!r}, wanted {expected!r}")
    print(f"tests/compose: {what}: {got!r}")


def healthy(command, admin):
    environment = {"PATH": os.environ["PATH"], "STREAMGAUGE_ADMIN": admin}
    run = subprocess.run(command, env=environment, capture_output=True, timeout=DEADLINE)
    return run.returncode == 0


def main(compose, binary):
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder, "log"), "w+") as log:
        try:
            checked(compose, os.path.abspath(binary), pathlib.Path(folder), log)
        except BaseException:
            log.flush()
            print(pathlib.Path(log.name).read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            for process in running:
                process.kill()
                process.wait()


def checked(compose, binary, folder, log):
    sim, upstream, listen, admin = free_ports(4)
    services = model(compose, ".", ["demo", "gpu"], TAOTOKEN_BASE_URL=f"http://127.0.0.1:{upstream}")
    config = services["configs"]["streamgauge"]["content"]
    pathlib.Path(folder, "streamgauge.toml").write_text(config.replace("http://sim:9100", f"http://127.0.0.1:{sim}"))

    flags = services["services"]["sim"]["command"]
    want("the port of sim", "0.0.0.0:9100" in flags, True)
    simulated = [binary, *(flag.replace("0.0.0.0:9100", f"127.0.0.1:{sim}") for flag in flags)]
    until("sim answers", lambda: get(f"http://127.0.0.1:{sim}/health") is not None, start(simulated, log))
    probe = [word.replace("/9100", f"/{sim}") for word in services["services"]["sim"]["healthcheck"]["test"][1:]]
    want("sim is healthy", healthy(probe, ""), True)
    other = start([binary, "sim", "--listen", f"127.0.0.1:{upstream}", "--ttft-ms", "5", "--itl-ms", "1"], log)
    until("the upstream answers", lambda: get(f"http://127.0.0.1:{upstream}/health") is not None, other)

    (runtime,) = [stage for stage in dockerfile(".") if stage[0] == "runtime"]
    check = health_check(runtime)
    want("healthy before it runs", healthy(check, f"0.0.0.0:{admin}"), False)
    gauge = start(
        [binary],
        log,
        STREAMGAUGE_CONFIG=str(folder / "streamgauge.toml"),
        STREAMGAUGE_LISTEN=f"127.0.0.1:{listen}",
        STREAMGAUGE_ADMIN=f"127.0.0.1:{admin}",
        TAOTOKEN_API_KEY="key-of-mine",
    )
    until("streamgauge is healthy", lambda: healthy(check, f"0.0.0.0:{admin}"), gauge)
    # Its upstream has no admin listener: there, /readyz is not found.
    want("healthy where /readyz is 404", healthy(check, f"0.0.0.0:{upstream}"), False)

    # A key is configured, so that the guard is on for its backend.
    for host, expected in {
        f"127.0.0.1:{listen}": 200,
        "localhost:8484": 200,
        "streamgauge:8484": 200,
        "streamgauge": 200,
        "rebound.example": 403,
    }.items():
        shown = host.replace(str(listen), "8484")
        want(f"status for an app that calls http://{shown}", chat(listen, host, "gpt-x"), expected)
    want("status of a simulated model", chat(listen, "streamgauge:8484", "sim-steady"), 200)

    load = start(
        ["sh", "config/demo-load.sh"],
        log,
        BASE_URL=f"http://127.0.0.1:{listen}/v1",
        ROUNDS="6",
    )
    want("exit status of the load", load.wait(5 * DEADLINE), 0)

    def settled():
        metrics = get(f"http://127.0.0.1:{admin}/metrics") or ""
        return not re.search(r'^streamgauge_in_flight_requests\{.*\} [1-9]', metrics, re.MULTILINE)

    until("every request is over", settled)
    metrics = get(f"http://127.0.0.1:{admin}/metrics")
    outcomes = {}
    for labels, count in re.findall(r"^streamgauge_requests_total\{(.*?)\} (\d+)$", metrics, re.MULTILINE):
        fields = dict(re.findall(r'(\w+)="(.*?)"', labels))
        if fields["backend"] == "sim" and fields["stream"] == "true":
            outcomes[fields["outcome"]] = outcomes.get(fields["outcome"], 0) + int(count)
    print(f"tests/compose: the load's outcomes: {outcomes}")
    want("requests of the load", sum(outcomes.values()), 24)
    # In six rounds each of the four clients comes to one bad end, and to no two the same.
    del outcomes["ok"]
    want("bad ends", outcomes, {"truncated": 1, "upstream_5xx": 1, "inband_error": 1, "reset": 1})
    models = set(re.findall(r'time_to_first_token_seconds_count\{[^}]*model="(sim-\w+)"', metrics))
    want("models that streamed", models, {"sim-steady", "sim-bursty"})

    gauge.send_signal(signal.SIGTERM)
    want("exit status after SIGTERM", gauge.wait(DEADLINE), 0)
    want("healthy after it ran", healthy(check, f"0.0.0.0:{admin}"), False)

    # The other configuration needs a model to run. That it is read, and refused for the model alone, shows here.
    content = services["configs"]["streamgauge-gpu"]["content"]
    tomllib.loads(content)
    pathlib.Path(folder, "gpu.toml").write_text(content)
    run = subprocess.run(
        [binary, "--config", folder / "gpu.toml", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    want("exit status without the model", run.returncode, 2)
    want("the model is what is missing", "backend.llama.model" in run.stderr and "/models/" in run.stderr, True)


if __name__ == "__main__":
    main(*sys.argv[1:])
