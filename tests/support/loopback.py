"""Processes, ports and certificates for tests on loopback; processes are gone when their `with` block ends."""

import contextlib
import os
import pathlib
import socket
import subprocess
import time
import urllib.request

PATIENCE = 30.0  # seconds for anything that should happen soon

EXTENSIONS = """\
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""

# The default gateway of the machine is nobody's business here.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def make_certificates(folder: pathlib.Path) -> None:
    """Makes ca.pem, and server.pem with server.key signed by it for localhost and 127.0.0.1, in `folder`."""

    def openssl(*arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"openssl {arguments[0]}: {done.stderr}")

    (folder / "openssl.cnf").write_text(EXTENSIONS)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-config", "openssl.cnf"]
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-subj", "/CN=streamgauge test authority", "-extensions", "ca")
    openssl("req", *new_key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", "server.pem", "-days", "2", "-extfile", "openssl.cnf", "-extensions", "server")


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, no two of them the same."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def free_port() -> int:
    return free_ports(1)[0]


def get(url: str) -> str:
    with opener.open(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def answers(url: str) -> bool:
    """Whether `url` is answered with 2xx."""
    try:
        get(url)
    except OSError:  # not listening yet, or not ready: urllib makes that an error too
        return False
    return True


def patiently(condition) -> bool:
    """Polls `condition` until it holds, for PATIENCE at most; returns whether it did."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def wait_for(what: str, condition) -> None:
    """Polls `condition` until it holds; fails after PATIENCE."""
    if not patiently(condition):
        raise AssertionError(f"waited {PATIENCE:.0f} s for {what}")


@contextlib.contextmanager
def running(name: str, command: list[str], ready, folder: pathlib.Path):
    """Runs `command` until the block ends; begins it once `ready()` holds."""
    log = folder / f"{name}.log"
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and "STREAMGAUGE" not in k}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    try:
        def is_ready() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}: {log.read_text()[-4000:]}")
            return ready()

        wait_for(f"{name} to be ready", is_ready)
        yield process
        if process.poll() is not None:
            raise AssertionError(f"{name} ended with {process.returncode}: {log.read_text()[-4000:]}")
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listening(port: int):
    """A condition for `running`: whether `port` accepts connections."""

    def accepts() -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        return False

    return accepts
