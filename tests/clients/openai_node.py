"""The official OpenAI SDK for Node: what it sees through the proxy must be what it sees from the simulation directly.

Its answers are compared whole, chunk by chunk; the metrics must tell each request's end.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from harness import Proxy
from loopback import PATIENCE, free_port, listening, running

TOKENS = 16
SCRIPT = pathlib.Path(__file__).parent / "node" / "openai.mjs"


def seen_at(base_url: str) -> dict:
    """What the SDK saw at `base_url`."""
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("OPENAI")}
    command = ["node", str(SCRIPT), base_url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=6 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main() -> None:
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder, port = pathlib.Path(name), free_port()
        sim = [binary, "sim", "--listen", f"127.0.0.1:{port}", "--ttft-ms", "20", "--itl-ms", "2", "--tokens", str(TOKENS)]
        with running("sim", sim, listening(port), folder):
            direct = seen_at(f"http://127.0.0.1:{port}/v1")
            with Proxy(binary, f"http://127.0.0.1:{port}", folder).run() as proxy:
                through = seen_at(f"{proxy.url}/v1")
                metrics = proxy.settled(10)
    seen = direct["seen"]
    assert len(seen["stream"]) > TOKENS and seen["withUsage"][-1]["usage"]["completion_tokens"] == TOKENS, seen
    assert len(seen["models"]) > 0 and seen["whole"]["choices"][0]["message"]["content"], seen
    assert seen["refused"]["status"] == 429 and seen["aborted"] is True, seen
    assert seen["reset"] == seen["cut"] == "an error", seen
    for case, answer in seen.items():
        assert through["seen"][case] == answer, f"{case}: {through['seen'][case]} through the proxy, {answer} without"

    ended = {
        ("chat", "ok", "false"): 1,
        ("chat", "ok", "true"): 4,
        ("chat", "upstream_4xx", "false"): 1,
        ("chat", "client_cancel", "true"): 1,
        ("chat", "reset", "true"): 1,
        ("chat", "truncated", "true"): 1,
        ("other", "ok", "unknown"): 1,
    }
    for (operation, outcome, stream), count in ended.items():
        booked = metrics.sum("requests_total", operation=operation, outcome=outcome, stream=stream)
        assert booked == count, f"{operation} {outcome} stream={stream}: {booked}, wanted {count}"
    assert metrics.sum("requests_total") == sum(ended.values()) == metrics.sum("requests_started_total")
    assert metrics.sum("in_flight_requests") == 0
    print(f"openai-node {direct['version']}: the same answers, an abort, a refusal, two breaks: ok")


if __name__ == "__main__":
    main()
