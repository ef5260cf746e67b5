"""A wire tap: passes TCP on to one address and keeps what clients sent, so that it can be compared with what arrived.

Invariant: bytes pass as they came; what is kept is read only once the clients are done.
"""

import contextlib
import dataclasses
import socket
import threading

from loopback import PATIENCE


@dataclasses.dataclass
class Sent:
    """One request as its client wrote it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def value(self, name: str) -> str | None:
        """A header's value, or None without it."""
        return next((value for known, value in self.headers if known.lower() == name), None)


class Tap:
    """Listens on a port of its own, in front of `127.0.0.1:upstream`, while its `with` block lasts."""

    def __init__(self, upstream: int):
        self._upstream = upstream
        self._kept: list[bytearray] = []

    def __enter__(self) -> "Tap":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def forget(self) -> None:
        self._kept = []

    def requests(self) -> list[Sent]:
        """Every request of every connection so far, connection by connection."""
        return [request for kept in list(self._kept) for request in parsed(bytes(kept))]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: no more clients
            while True:
                client, _ = self._listener.accept()
                upstream = socket.create_connection(("127.0.0.1", self._upstream), timeout=PATIENCE)
                for end in (client, upstream):
                    end.settimeout(None)
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                kept = bytearray()
                self._kept.append(kept)
                for one, other, copy in [(client, upstream, kept), (upstream, client, None)]:
                    threading.Thread(target=pump, args=(one, other, copy), daemon=True).start()


def pump(one: socket.socket, other: socket.socket, copy: bytearray | None) -> None:
    """Passes on what `one` says; its end, clean or not, ends both."""
    with contextlib.suppress(OSError):
        while piece := one.recv(65536):
            if copy is not None:
                copy += piece
            other.sendall(piece)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def parsed(stream: bytes) -> list[Sent]:
    """The HTTP/1.1 requests of one connection. Whatever is not whole is an error."""
    requests = []
    while stream:
        head, end, stream = stream.partition(b"\r\n\r\n")
        assert end, f"a connection ends within a request's head: {head[:200]!r}"
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        request = Sent(method, target, headers, b"")
        if (request.value("transfer-encoding") or "").lower() == "chunked":
            request.body, stream = unchunked(stream)
        else:
            length = int(request.value("content-length") or 0)
            assert len(stream) >= length, f"{method} {target}: {len(stream)} of {length} bytes of its body"
            request.body, stream = stream[:length], stream[length:]
        requests.append(request)
    return requests


def unchunked(stream: bytes) -> tuple[bytes, bytes]:
    """A chunked body, and what follows it."""
    body = b""
    while True:
        size, _, stream = stream.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if length == 0:
            trailers, _, rest = (b"\r\n" + stream).partition(b"\r\n\r\n")
            assert not trailers, f"trailers: {trailers!r}"
            return body, rest
        body, stream = body + stream[:length], stream[length + 2 :]
