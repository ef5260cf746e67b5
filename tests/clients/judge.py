"""What must be true of every client that was driven through the proxy.

It answers as it does straight from the simulation; each exchange ends as it should; TTFT agrees with the simulation's own
log; nothing of any request is lost or added on the way.
"""

import base64
import collections
import json
import pathlib
import statistics
import tempfile
import typing

from stage import TTFT_MS, Stage, Truth, began, end
from tap import Sent

# As in tests/truth: how far off the typical TTFT may be, beyond four times the simulation's own lateness.
TYPICAL_MS, LATENESS = 15.0, 4
# Head and role come at once: who takes either for a token is off by all of TTFT.
FARTHEST_MS = TTFT_MS * 3 / 4
# How often a busy machine may spoil the timing; all else must hold each time.
TRIES = 4

# Each connection has its own of these; the proxy's Via and Host are looked at apart.
OF_ONE_HOP = {"connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "expect",
              "content-length", "host", "via"}
CREDENTIALS = {"authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"}

# How many exchanges ended how: operation, outcome, stream.
Ends = dict[tuple[str, str, str], int]


def driven(name: str, binary: str, drive: typing.Callable[[str, str, pathlib.Path], typing.Any], wanted: Ends) -> None:
    """Runs `drive(base, text, folder)` at the simulation and at the proxy; it returns what its client saw.

    `base` has no path, `text` is what every reply says, `folder` is the client's own.
    """
    with tempfile.TemporaryDirectory() as place:
        folder, home = pathlib.Path(place), pathlib.Path(place) / "client"
        home.mkdir()
        with Stage(binary, folder).run() as stage:
            direct = drive(stage.direct, stage.text, home)
            for attempt in range(1, TRIES + 1):
                stage.begin()
                through = drive(stage.url, stage.text, home)
                assert through == direct, f"{name}: {difference(through, direct)}"
                errors, allowed = judged(stage, wanted)
                if not errors or (statistics.median(errors) < allowed and max(errors) < FARTHEST_MS):
                    break
                assert attempt < TRIES, f"{name}: TTFT is off by {errors} ms, {allowed} are allowed"
            for request in stage.tap.requests():
                print(f"    {described(request)}")
    typical = f"TTFT off by {statistics.median(errors):.2f} ms, at most {max(errors):.2f}" if errors else "no stream"
    print(f"{name}: {sum(wanted.values())} exchanges as they should be; {typical}", flush=True)


def difference(through, direct) -> str:
    """Where two answers begin to differ."""
    if isinstance(through, list) and isinstance(direct, list) and len(through) == len(direct):
        through, direct = next(pair for pair in zip(through, direct, strict=True) if pair[0] != pair[1])
    return f"{through}\nthrough the proxy, and without it\n{direct}"


def judged(stage: Stage, wanted: Ends) -> tuple[list[float], float]:
    """|TTFT − truth| of each stream, and how large it may typically be, in milliseconds; all else must be right."""
    exchanges = stage.exchanges(sum(wanted.values()))
    ended = dict(collections.Counter(map(end, exchanges)))
    assert ended == wanted, f"{ended}, wanted {wanted}: {[described(request) for request in stage.tap.requests()]}"
    arrived = stage.arrived()
    nothing_lost(stage.tap.requests(), arrived, stage.upstream)

    truths = stage.truths(arrived)
    left = sum(count for (_, outcome, _), count in wanted.items() if outcome.startswith("client_cancel"))
    assert sum(truth.client_left for truth in truths) == left, [vars(truth) for truth in truths]
    streams = sorted((exchange for exchange in exchanges if end(exchange)[2] == "true"), key=began)
    timed = [truth for truth in truths if truth.ttft is not None]
    assert len(streams) == len(timed), (streams, [vars(truth) for truth in truths])
    errors = [abs(one["ttft_upstream_ms"] - truth.ttft) for one, truth in zip(streams, timed, strict=True)]
    return errors, TYPICAL_MS + LATENESS * statistics.median([truth.lateness for truth in timed] or [0.0])


def nothing_lost(sent: list[Sent], arrived: list[dict], upstream: str) -> None:
    """Each request arrived once, and as it was sent: method, target, body, headers."""
    came = [as_arrived(request, upstream) for request in arrived]
    for request in map(as_sent, sent):
        like_it = [other for other in came if other[:3] == request[:3]] or came
        assert request in came, f"sent was\n{request}\nand not what arrived:\n{like_it}"
        came.remove(request)
    assert not came, f"arrived, and was never sent: {came}"


def as_sent(request: Sent) -> tuple:
    of_connection = {name.strip().lower() for name in (request.value("connection") or "").split(",")}
    headers = [(name.lower(), value) for name, value in request.headers]
    kept = sorted((name, redacted(name, value)) for name, value in headers if name not in OF_ONE_HOP | of_connection)
    return request.method, request.target, request.body, kept


def as_arrived(request: dict, upstream: str) -> tuple:
    headers = [(name.lower(), value) for name, value in request["headers"]]
    assert [value for name, value in headers if name == "host"] == [upstream], headers
    assert [name for name, _ in headers].count("via") == 1, headers
    body = base64.b64decode(request["body_base64"]) if "body_base64" in request else request["body"].encode()
    return request["method"], request["target"], body, sorted(pair for pair in headers if pair[0] not in OF_ONE_HOP)


def redacted(name: str, value: str) -> str:
    """A header's value as the simulation writes it down."""
    return f"(redacted, {len(value)} bytes)" if name in CREDENTIALS else value


def described(request: Sent) -> str:
    """A request in one line, without its content."""
    asks = "".join(f", {name} {value}" for name in ("accept-encoding", "user-agent") if (value := request.value(name)))
    stream = ", a stream" if request.body.startswith(b"{") and json.loads(request.body).get("stream") else ""
    return f"{request.method} {request.target}: {len(request.body)} bytes{stream}{asks}"
