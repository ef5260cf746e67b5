"""Traffic of every kind: what goes well, each outcome and each anomaly that can be provoked over sockets.

Everything goes round and round until it is told to stop: a rate needs a counter that grows between two scrapes.
"""

import http.client
import json
import random
import socket
import struct
import threading
import time

OUTCOMES = ["ok", "client_cancel_before_token", "client_cancel", "upstream_3xx", "upstream_4xx", "upstream_5xx",
            "inband_error", "unconfirmed", "truncated", "reset", "connect_error", "timeout", "rejected"]
# Not among them: clock, observer and tokenizer, which no peer can provoke, or not with little traffic.
ANOMALIES = ["oversized_event", "oversized_reply", "unterminated_event", "malformed_event", "stray_json", "repeated_done",
             "json_for_stream", "mislabelled_stream", "content_encoding", "implausible_count"]
PROMPTS = {"<=32": 8, "<=64": 48, "<=256": 200, "<=1024": 800}  # words, which are the simulation's tokens
PATH = "/v1/chat/completions"
# The dialects beside chat completions: how a prompt is asked in each, and what each stream's end says.
DIALECTS = {
    "/v1/completions": (lambda prompt: {"prompt": prompt, "stream_options": {"include_usage": True}}, b"[DONE]"),
    "/v1/responses": (lambda prompt: {"input": prompt}, b"response.completed"),
    "/v1/messages": (lambda prompt: {"messages": [{"role": "user", "content": prompt}], "max_tokens": 64}, b"message_stop"),
}


def body(model: str, words: int = 4, usage: bool = True, stream: bool = True, **more) -> bytes:
    content = " ".join(["word"] * words)
    asked = {"model": model, "messages": [{"role": "user", "content": content}], "stream": stream, **more}
    if stream and usage:
        asked["stream_options"] = {"include_usage": True}
    return json.dumps(asked).encode()


class Traffic:
    """Threads that make requests to the proxy at `port` from `start` to `stop`."""

    def __init__(self, port: int):
        self.port = port
        self.problems: list[str] = []
        self.counts: dict[str, int] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()
        workers = [self._steady] * 4 + [self._secure] * 2 + [self._local] * 4 + [
            self._counted, self._fast, self._coalesced, self._odd, self._broken, self._statuses, self._timeouts, self._leaving,
            self._many_models, self._slow, self._stalling, self._whole, self._unmeasured, self._dialects]
        self._threads = [threading.Thread(target=self._run, args=(worker, seed), daemon=True)
                         for seed, worker in enumerate(workers)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)
            if thread.is_alive():
                self.problems.append(f"{thread.name} did not end")

    def _run(self, worker, seed: int) -> None:
        kept = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        rng = random.Random(seed)
        try:
            while not self._over.is_set():
                worker(kept, rng)
                with self._lock:
                    self.counts[worker.__name__] = self.counts.get(worker.__name__, 0) + 1
        except Exception as error:  # whatever ends a worker early must end the test
            self.problems.append(f"{worker.__name__}: {error!r}")
        finally:
            kept.close()

    def _ask(self, kept, payload: bytes, sim: str = "", status: int | None = 200, broken: bool = False, path: str = PATH) -> bytes:
        """One request, read to its end. `broken`: the reply may end before its framing says."""
        headers = {"content-type": "application/json"} | ({"x-sim": sim} if sim else {})
        text = b""
        try:
            kept.request("POST", path, payload, headers)
            reply = kept.getresponse()
            assert status is None or reply.status == status, f"{sim}: {reply.status} {reply.read()[:300]}"
            text = reply.read()
        except (http.client.HTTPException, ConnectionError):
            kept.close()
            if not broken:
                raise
        return text

    def _pause(self, seconds: float) -> None:
        self._over.wait(seconds)

    # What goes well.

    def _steady(self, kept, rng) -> None:
        # Spread so that p50 is in the middle of a bucket, with p95 two buckets further up.
        words = rng.choice(list(PROMPTS.values()))
        sim = f"ttft_ms={rng.uniform(60, 640):.1f},itl_ms={rng.uniform(4, 12):.1f},tokens={rng.randint(2, 24)}"
        assert b"[DONE]" in self._ask(kept, body("steady-model", words, usage=rng.random() < 0.8), sim)

    def _secure(self, kept, rng) -> None:
        if rng.random() < 0.2:  # ends the upstream connection, so that new ones are opened; a reset may overtake the head
            self._ask(kept, body("secure-model"), "ttft_ms=10,itl_ms=2,tokens=4,end=rst", None, broken=True)
            return
        sim = f"role_first=1,ttft_ms={rng.uniform(60, 200):.1f},itl_ms=10,tokens=12,reasoning=4"
        assert b"[DONE]" in self._ask(kept, body("secure-model", rng.choice(list(PROMPTS.values()))), sim)

    def _counted(self, kept, rng) -> None:
        payload = body("counted-model", rng.choice(list(PROMPTS.values())), usage=False)
        assert b"[DONE]" in self._ask(kept, payload, f"ttft_ms={rng.uniform(60, 200):.1f},itl_ms=10,tokens=12")

    def _local(self, kept, rng) -> None:
        payload = body("llama-2-tiny", rng.choice([2, 10, 40]), max_tokens=rng.randint(4, 24), ignore_eos=True)
        assert b"[DONE]" in self._ask(kept, payload)
        self._pause(0.05)

    def _fast(self, kept, rng) -> None:
        """Beyond the last bound of tokens per second on any machine: usage counts a million tokens in one event."""
        self._ask(kept, body("odd-model"), "script=million")
        self._pause(0.1)

    def _coalesced(self, kept, rng) -> None:
        self._ask(kept, body("secure-model"), "ttft_ms=30,itl_ms=8,tokens=24,events_per_write=4")
        self._ask(kept, body("odd-model"), "ttft_ms=30,itl_ms=8,tokens=24,events_per_write=4")

    def _slow(self, kept, rng) -> None:
        self._ask(kept, body("slow-model"), "ttft_ms=2300,itl_ms=1,tokens=3")

    def _stalling(self, kept, rng) -> None:
        self._ask(kept, body("slow-model"), "ttft_ms=5,itl_ms=1200,tokens=2")

    def _whole(self, kept, rng) -> None:
        self._ask(kept, body("steady-model", stream=False), "ttft_ms=20,itl_ms=1,tokens=8")
        self._ask(kept, body("llama-2-tiny", stream=False, max_tokens=4, ignore_eos=True))
        self._pause(0.5)

    def _dialects(self, kept, rng) -> None:
        for path, (asked, end) in DIALECTS.items():
            payload = {"model": "secure-model", "stream": True, **asked(" ".join(["word"] * rng.choice(list(PROMPTS.values()))))}
            assert end in self._ask(kept, json.dumps(payload).encode(), "ttft_ms=30,itl_ms=10,tokens=12", path=path)
        self._pause(0.2)

    def _unmeasured(self, kept, rng) -> None:
        kept.request("GET", "/v1/models")
        kept.getresponse().read()
        self._pause(0.5)

    def _many_models(self, kept, rng) -> None:
        for number in range(3):
            self._ask(kept, body(f"model-{number}"), "ttft_ms=5,itl_ms=1,tokens=3")
        self._pause(0.5)

    # What does not.

    def _odd(self, kept, rng) -> None:
        for kind in ANOMALIES:
            whole = kind == "oversized_reply"
            self._ask(kept, body("odd-model", stream=not whole), f"script={kind}", broken=True)
        self._pause(1.5)

    def _broken(self, kept, rng) -> None:
        for sim, status in [
            ("ttft_ms=2,itl_ms=1,tokens=6,end=rst", 200),
            ("ttft_ms=2,itl_ms=1,tokens=6,end=fin", 200),
            ("ttft_ms=2,itl_ms=1,tokens=6,end=truncate", 200),
            ("ttft_ms=2,itl_ms=1,tokens=9,error_after=3", 200),
            ("ttft_ms=2,itl_ms=1,tokens=4,no_finish=1", 200),
        ]:
            self._ask(kept, body("odd-model"), sim, None if sim.endswith("rst") else status, broken=True)
        self._pause(0.3)

    def _statuses(self, kept, rng) -> None:
        for status in [302, 404, 429, 503]:
            self._ask(kept, body("odd-model"), f"ttft_ms=2,status={status}", status)
        self._ask(kept, body("gone-model"), status=502)
        self._ask(kept, b"{", status=400)
        self._pause(0.3)

    def _timeouts(self, kept, rng) -> None:
        self._ask(kept, body("short-model"), "head_ms=600000,ttft_ms=600000", 504)
        self._ask(kept, body("short-model"), "ttft_ms=1,itl_ms=1,tokens=3,end=silence", None, broken=True)

    def _leaving(self, kept, rng) -> None:
        self._leave(body("odd-model"), "head_ms=600000,ttft_ms=600000", wanted=None)
        self._leave(body("odd-model"), "ttft_ms=1,itl_ms=5,tokens=1000000", wanted=b"data: ")
        self._pause(0.3)

    def _leave(self, payload: bytes, sim: str, wanted: bytes | None) -> None:
        """Leaves once `wanted` was read, or after a moment."""
        head = (f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nx-sim: {sim}\r\n"
                f"content-length: {len(payload)}\r\n\r\n")
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(head.encode() + payload)
            read = b""
            while wanted and wanted not in read:
                more = client.recv(4096)
                assert more, "the reply ended before it was left"
                read += more
            if not wanted:
                time.sleep(0.3)  # the reset is to find the request read
