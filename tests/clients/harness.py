"""Starts the proxy for a client's test, and reads what its metrics say."""

import contextlib
import pathlib

from prometheus_client.parser import text_string_to_metric_families

from loopback import answers, free_ports, get, listening, running, wait_for


class Proxy:
    """`streamgauge serve` in front of one upstream."""

    def __init__(
        self,
        binary: str,
        base_url: str,
        folder: pathlib.Path,
        ca_file: pathlib.Path | None = None,
        more: str = "",
        switches: str = "",
        log_format: str = "text",
    ):
        self.port, self.admin = free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        trust = f'ca_file = "{ca_file}"\n' if ca_file else ""
        self._folder = folder
        self._config = folder / "streamgauge.toml"
        self._config.write_text(
            f'[server]\nlisten = "127.0.0.1:{self.port}"\nadmin = "127.0.0.1:{self.admin}"\nthreads = 1\n\n'
            f'[records]\nenabled = false\n\n{more}[backend.sim]\nkind = "openai"\nbase_url = "{base_url}"\n{trust}{switches}\n'
            f'[[route]]\nmodel = "*"\nbackend = "sim"\n'
        )
        self._command = [binary, "serve", "--config", str(self._config), "--log-format", log_format]
        self.log = folder / "streamgauge.log"

    @contextlib.contextmanager
    def run(self):
        with self.starting():
            assert self.is_ready()
            yield self

    def starting(self):
        """The process, once it listens; a model in it may still be loading."""
        return running("streamgauge", self._command, listening(self.port), self._folder)

    def is_ready(self) -> bool:
        return answers(f"http://127.0.0.1:{self.admin}/readyz")

    def metrics(self) -> "Metrics":
        return Metrics(get(f"http://127.0.0.1:{self.admin}/metrics"))

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
