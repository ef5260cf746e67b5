"""Where a client is driven: client → tap → proxy → simulation, and the three accounts of it.

What the client sent is in the tap, what arrived and when each event left in the simulation's files, how each exchange
ended in the proxy's access log and metrics.
"""

import collections
import contextlib
import datetime
import json
import pathlib
import statistics
import urllib.request

from harness import Proxy
from loopback import PATIENCE, free_port, listening, opener, running, wait_for
from tap import Tap

MODEL = "sim-model"
TTFT_MS, ITL_MS, TOKENS = 200, 4, 24


class Stage:
    """A simulation, and a tapped proxy in front of it."""

    def __init__(self, binary: str, folder: pathlib.Path):
        self._binary, self._folder = binary, folder
        self._requests, self._truth = folder / "requests.jsonl", folder / "truth.jsonl"

    @contextlib.contextmanager
    def run(self):
        port = free_port()
        self.direct, self.upstream = f"http://127.0.0.1:{port}", f"127.0.0.1:{port}"
        sim = [self._binary, "sim", "--listen", self.upstream, "--model", MODEL, "--role-first",
               "--ttft-ms", str(TTFT_MS), "--itl-ms", str(ITL_MS), "--tokens", str(TOKENS),
               "--log", str(self._truth), "--requests", str(self._requests)]
        proxy = Proxy(self._binary, self.direct, self._folder, log_format="json")
        with running("sim", sim, listening(port), self._folder), proxy.run(), Tap(proxy.port) as tap:
            self.proxy, self.tap, self.url = proxy, tap, tap.url
            self.text = self._text()
            yield self

    def _text(self) -> str:
        """What every reply of the simulation says, asked for without any client."""
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}).encode()
        asked = urllib.request.Request(f"{self.direct}/v1/chat/completions", body, {"content-type": "application/json"})
        with opener.open(asked, timeout=PATIENCE) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]

    def begin(self) -> None:
        """What came so far does not count."""
        self.tap.forget()
        self._arrived, self._logged = len(lines(self._requests)), len(self._exchanges(0))
        self._before = self.proxy.metrics()

    def _exchanges(self, first: int) -> list[dict]:
        return [line for line in lines(self.proxy.log) if line.get("message") == "request"][first:]

    def arrived(self) -> list[dict]:
        """The simulation's record of the requests since `begin`."""
        return lines(self._requests)[self._arrived :]

    def exchanges(self, count: int) -> list[dict]:
        """The access log since `begin`, once `count` exchanges have ended; the metrics must say the same."""
        wait_for(f"{count} exchanges to end", lambda: len(self._exchanges(self._logged)) >= count)
        wait_for("no request in flight", lambda: self.proxy.metrics().sum("in_flight_requests") == 0)
        exchanges, metrics = self._exchanges(self._logged), self.proxy.metrics()
        for (operation, outcome, stream), ended in collections.Counter(map(end, exchanges)).items():
            labels = {"operation": operation, "outcome": outcome, "stream": stream}
            booked = metrics.sum("requests_total", **labels) - self._before.sum("requests_total", **labels)
            assert booked == ended, f"{labels}: {booked} in the metrics, {ended} in the log"
        assert metrics.sum("requests_started_total") == metrics.sum("requests_total")
        new = metrics.sum("stream_anomalies_total") - self._before.sum("stream_anomalies_total")
        assert new == 0, f"{new} anomalies: {exchanges}"
        return exchanges

    def truths(self, arrived: list[dict]) -> list["Truth"]:
        """What the simulation logged of these requests, in the order of their coming; its log appears as exchanges end."""
        def logged() -> list[Truth]:
            entries = collections.defaultdict(list)
            for entry in lines(self._truth):
                entries[entry["request"]].append(entry)
            return [Truth(entries[request["request"]]) for request in arrived if request["request"] in entries]

        wait_for("the simulation's log", lambda: len(logged()) == len(arrived))
        return sorted(logged(), key=lambda truth: truth.asked)


class Truth:
    """What the simulation logged of one exchange, in milliseconds."""

    def __init__(self, entries: list[dict]):
        tokens = [entry for entry in entries if entry["kind"] in ("token", "reasoning")]
        self.asked = min(entry["at_ns"] for entry in entries) / 1e6
        self.client_left = any(entry["kind"] == "peer_left" for entry in entries)
        # None where the reply was no stream, or broke off before its first token.
        self.ttft = min(entry["at_ns"] for entry in tokens) / 1e6 - self.asked if tokens else None
        self.lateness = statistics.median((entry["at_ns"] - entry["due_ns"]) / 1e6 for entry in tokens) if tokens else 0.0


def end(exchange: dict) -> tuple[str, str, str]:
    """An exchange's operation, outcome and stream, as the metrics label them."""
    stream = {True: "true", False: "false"}.get(exchange.get("stream"), "unknown")
    return exchange["operation"], exchange["outcome"], stream


def began(exchange: dict) -> float:
    """When an exchange began, in milliseconds: its line is written at its end."""
    ended = datetime.datetime.fromisoformat(exchange["timestamp"]).timestamp()
    return ended * 1e3 - exchange["duration_ms"]


def lines(path: pathlib.Path) -> list[dict]:
    """The JSON lines of a file that may still be written to: what is no JSON, and an unfinished last line, is left out."""
    if not path.exists():
        return []
    # Not splitlines(): JSON leaves U+2028 raw.
    whole = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in whole if line.startswith("{")]
