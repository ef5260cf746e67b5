"""Clients that leave before the first token: how soon the proxy lets go of the upstream, and what it books.

The upstream is a bare socket that accepts a request, optionally answers with a head, and then waits for its own end.
"""

import pathlib
import socket
import statistics
import sys
import tempfile
import time

from harness import Proxy
from loopback import PATIENCE

TIMES = 20
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"still there?"}]}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: proxy\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    % len(BODY)
) + BODY


def read_until(connection: socket.socket, end: bytes) -> None:
    seen = b""
    while end not in seen:
        piece = connection.recv(65536)
        assert piece, f"closed after {seen!r}"
        seen += piece


def leave(proxy: Proxy, upstream: socket.socket, after_head: bool) -> float:
    """One client that leaves; returns the seconds from its close to the upstream connection's end."""
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE)
    client.sendall(REQUEST)
    held, _ = upstream.accept()
    with held:
        held.settimeout(PATIENCE)
        read_until(held, BODY)
        if after_head:
            held.sendall(HEAD)
            read_until(client, b"\r\n\r\n")
        left = time.monotonic()
        client.close()
        try:
            assert held.recv(1) == b"", "the proxy sent more after its client had left"
        except ConnectionResetError:
            pass
        return time.monotonic() - left


def main() -> None:
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.settimeout(PATIENCE)
        base = f"http://127.0.0.1:{upstream.getsockname()[1]}"
        with Proxy(binary, base, pathlib.Path(name)).run() as proxy:
            for after_head in (False, True):
                took = sorted(leave(proxy, upstream, after_head) * 1e3 for _ in range(TIMES))
                when = "after the head" if after_head else "before the head"
                print(f"cancel {when}: the upstream was let go after {statistics.median(took):.2f} ms, at most {took[-1]:.2f} ms")
            metrics = proxy.settled(2 * TIMES)
            booked = metrics.sum("requests_total", outcome="client_cancel_before_token")
            assert booked == 2 * TIMES == metrics.sum("requests_total"), booked
            assert metrics.sum("in_flight_requests") == 0
            assert metrics.sum("time_to_first_token_seconds_count") == 0


if __name__ == "__main__":
    main()
