"""Starts the simulated upstream and the proxy for a client's test, and reads what the proxy's metrics say.

Everything listens on loopback; processes and files are gone when the `with` block ends.
"""

import contextlib
import os
import pathlib
import socket
import subprocess
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

PATIENCE = 20.0  # seconds for anything that should happen soon

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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(name: str, command: list[str], port: int, folder: pathlib.Path):
    """Runs `command` until the block ends; begins it once `port` accepts connections."""
    log = folder / f"{name}.log"
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and "STREAMGAUGE" not in k}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    try:
        def listening() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}: {log.read_text()}")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return True
            return False

        wait_for(f"{name} to listen", listening)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(what: str, condition) -> None:
    """Polls `condition` until it holds; fails after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.01)


class Proxy:
    """`streamgauge serve` in front of one upstream."""

    def __init__(
        self, binary: str, base_url: str, folder: pathlib.Path, ca_file: pathlib.Path | None = None, more: str = ""
    ):
        self.port, self.admin = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        trust = f'ca_file = "{ca_file}"\n' if ca_file else ""
        self._folder = folder
        self._config = folder / "streamgauge.toml"
        self._config.write_text(
            f'[server]\nlisten = "127.0.0.1:{self.port}"\nadmin = "127.0.0.1:{self.admin}"\nthreads = 1\n\n'
            f'[records]\nenabled = false\n\n{more}[backend.sim]\nkind = "openai"\nbase_url = "{base_url}"\n{trust}\n'
            f'[[route]]\nmodel = "*"\nbackend = "sim"\n'
        )
        self._command = [binary, "serve", "--config", str(self._config)]

    @contextlib.contextmanager
    def run(self):
        with running("streamgauge", self._command, self.port, self._folder):
            assert self._get("/readyz")[0] == 200
            yield self

    def _get(self, path: str) -> tuple[int, str]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.admin}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()

    def metrics(self) -> "Metrics":
        return Metrics(self._get("/metrics")[1])

    def settled(self, requests: int) -> "Metrics":
        """The metrics once `requests` requests have ended: a client may know of an end before the proxy has booked it."""
        wait_for(f"{requests} requests to end", lambda: self.metrics().sum("requests_total") >= requests)
        return self.metrics()


class Metrics:
    """One scrape, read by Prometheus' own parser."""

    def __init__(self, text: str):
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """The sum over all series called `streamgauge_NAME` whose labels include `labels`; 0 where none exists."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == f"streamgauge_{name}" and labels.items() <= sample.labels.items()
        )
