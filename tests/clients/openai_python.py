"""The official OpenAI SDK, with nothing changed but its base URL: TLS simulation → proxy → SDK.

What arrives must equal what the same SDK gets from the simulation directly, chunk by chunk, and the metrics must tell it.
"""

import pathlib
import ssl
import sys
import tempfile

import openai

from harness import Proxy
from loopback import free_port, listening, make_certificates, running

TOKENS = 16
TOOLS = """\
[script.tools]
step = [{ send = '''
data: {"id":"c","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"level","arguments":""}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"river\\": "}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\"Rhine\\"}"}},{"index":1,"id":"call_b","type":"function","function":{"name":"flow","arguments":"{}"}}]}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14}}

data: [DONE]

''' }]
"""
BASES = ["/v1", "", "/api"]
MESSAGES = [{"role": "user", "content": "how deep is the river today"}]


def client(base_url: str, ca: pathlib.Path | None = None) -> openai.OpenAI:
    own = {"http_client": openai.DefaultHttpxClient(verify=ssl.create_default_context(cafile=ca))} if ca else {}
    return openai.OpenAI(base_url=base_url, api_key="sk-test", max_retries=0, timeout=20.0, **own)


def comparable(reply) -> dict:
    """A reply or chunk without what differs from one request to the next by nature."""
    return {key: value for key, value in reply.model_dump().items() if key not in ("id", "created")}


def ask(sdk: openai.OpenAI, **options):
    return sdk.chat.completions.create(model="sim-model", messages=MESSAGES, **options)


def stream(sdk: openai.OpenAI, usage: bool) -> list[dict]:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    return [comparable(chunk) for chunk in ask(sdk, stream=True, **options)]


def text_of(chunks: list[dict]) -> str:
    return "".join(choice["delta"]["content"] or "" for chunk in chunks for choice in chunk["choices"])


def the_same_answers(direct: openai.OpenAI, proxy: Proxy) -> None:
    """Streams with and without usage and plain replies, through every spelling of the base URL."""
    with_usage, without, whole = stream(direct, True), stream(direct, False), comparable(ask(direct))
    assert len(text_of(with_usage).split()) > 0 and text_of(with_usage) == text_of(without)
    assert whole["choices"][0]["message"]["content"] == text_of(without)
    assert with_usage[-1]["usage"]["completion_tokens"] == TOKENS
    for base in BASES:
        sdk = client(proxy.url + base)
        assert stream(sdk, True) == with_usage, base
        assert stream(sdk, False) == without, base
        assert comparable(ask(sdk)) == whole, base

    streams, plain = 2 * len(BASES), len(BASES)
    metrics = proxy.settled(streams + plain)
    expect(
        metrics,
        requests_started_total=[({}, streams + plain)],
        requests_total=[
            ({}, streams + plain),
            ({"outcome": "ok", "status": "200", "stream": "true", "model": "sim-model"}, streams),
            ({"outcome": "ok", "status": "200", "stream": "false", "model": "sim-model"}, plain),
        ],
        in_flight_requests=[({}, 0)],
        time_to_first_token_seconds_count=[({"vantage": "upstream"}, streams), ({"vantage": "client"}, streams)],
        inter_token_latency_seconds_count=[({}, streams * (TOKENS - 1))],
        token_events_total=[({}, streams * TOKENS)],
        time_per_output_token_seconds_count=[
            ({"source": "usage"}, len(BASES)),
            ({"source": "events"}, len(BASES)),
        ],
        output_tokens_count=[({"source": "usage"}, len(BASES) + plain), ({"source": "events"}, len(BASES))],
        tokens_total=[
            ({"type": "output", "source": "usage"}, (len(BASES) + plain) * TOKENS),
            ({"type": "output", "source": "events"}, len(BASES) * TOKENS),
        ],
        request_duration_seconds_count=[({"stream": "true"}, streams), ({"stream": "false"}, plain)],
        stream_anomalies_total=[({}, 0)],
    )


def a_rate_limit(direct: openai.OpenAI, proxy: Proxy) -> None:
    """An upstream's 429 is the SDK's own error, with the upstream's words and its Retry-After."""
    seen = []
    for sdk in (direct, client(proxy.url + "/v1")):
        for streamed in (False, True):
            try:
                ask(sdk, stream=streamed, extra_headers={"x-sim": "status=429"})
            except openai.RateLimitError as error:
                seen.append((error.response.headers["retry-after"], error.response.text))
    assert len(seen) == 4 and len(set(seen)) == 1, seen
    expect(proxy.settled(2), requests_total=[({"outcome": "upstream_4xx", "status": "429"}, 2), ({}, 2)])


def a_break(proxy: Proxy, end: str, outcome: str) -> None:
    """A connection that breaks within the answer is an error in the SDK, never a clean end; what came before it was delivered."""
    chunks = []
    try:
        for chunk in ask(client(proxy.url + "/v1"), stream=True, extra_headers={"x-sim": f"tokens=8,end={end}"}):
            chunks.append(comparable(chunk))
    except Exception as error:  # the SDK lets its transport's errors through as they are
        assert type(error).__name__ in ("RemoteProtocolError", "ReadError", "APIConnectionError"), repr(error)
    else:
        raise AssertionError(f"end={end}: the SDK saw a clean end after {len(chunks)} chunks")
    expect(
        proxy.settled(1),
        requests_total=[({"outcome": outcome}, 1), ({}, 1)],
        time_to_first_token_seconds_count=[({"vantage": "upstream"}, 1)],
        token_events_total=[({}, 8)],
    )


def whole_replies_measured(direct: openai.OpenAI, proxy: Proxy) -> None:
    """`measure_non_stream`: the SDK cannot tell a reply made of a stream from the upstream's own, and TTFT is there."""
    sdk = client(proxy.url + "/v1")
    for options in ({}, {"n": 2}, {"max_tokens": 3}, {"stream": False}):
        assert comparable(ask(sdk, **options)) == comparable(ask(direct, **options)), options
    raw = sdk.chat.completions.with_raw_response.create(model="sim-model", messages=MESSAGES)
    assert raw.headers["content-type"] == "application/json", raw.headers
    assert int(raw.headers["content-length"]) == len(raw.content)

    called = ask(sdk, extra_headers={"x-sim": "script=tools"})
    [choice] = called.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    calls = [(call.id, call.type, call.function.name, call.function.arguments) for call in choice.message.tool_calls]
    assert calls == [("call_a", "function", "level", '{"river": "Rhine"}'), ("call_b", "function", "flow", "{}")], calls
    assert called.usage.completion_tokens == 9

    requests = 6
    tokens = 2 * TOKENS + 2 * TOKENS + 3 + TOKENS
    metrics = proxy.settled(requests)
    expect(
        metrics,
        requests_total=[({}, requests), ({"outcome": "ok", "status": "200", "stream": "false"}, requests)],
        time_to_first_token_seconds_count=[({"vantage": "upstream"}, requests), ({"vantage": "client"}, 0)],
        output_tokens_count=[({"source": "usage"}, requests)],
        tokens_total=[({"type": "output", "source": "usage"}, tokens + 9)],
        stream_anomalies_total=[({}, 0)],
    )


def usage_asked_for_the_client(direct: openai.OpenAI, proxy: Proxy) -> None:
    """`include_usage`: chunk by chunk what a client gets that did not ask, and the tokens are the upstream's own count."""
    with_usage, without = stream(direct, True), stream(direct, False)
    sdk = client(proxy.url + "/v1")
    assert stream(sdk, False) == without
    assert stream(sdk, True) == with_usage
    expect(
        proxy.settled(2),
        output_tokens_count=[({"source": "usage"}, 2), ({"source": "events"}, 0)],
        tokens_total=[({"type": "output", "source": "usage"}, 2 * TOKENS)],
        stream_anomalies_total=[({}, 0)],
    )


def expect(metrics, **wanted: list[tuple[dict, float]]) -> None:
    wrong = [
        f"streamgauge_{name}{labels}: {metrics.sum(name, **labels)}, wanted {value}"
        for name, series in wanted.items()
        for labels, value in series
        if metrics.sum(name, **labels) != value
    ]
    assert not wrong, "\n".join(wrong)


def main() -> None:
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_certificates(folder)
        (folder / "scripts.toml").write_text(TOOLS)
        ca, port = folder / "ca.pem", free_port()
        sim = [binary, "sim", "--listen", f"127.0.0.1:{port}", "--ttft-ms", "50", "--itl-ms", "5", "--tokens", str(TOKENS),
               "--script", str(folder / "scripts.toml"),
               "--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")]
        upstream = f"https://localhost:{port}"
        with running("sim", sim, listening(port), folder):
            direct = client(f"{upstream}/v1", ca)
            measured, usage = "measure_non_stream = true\n", "include_usage = true\n"
            cases = {
                "the same answers": ("", lambda proxy: the_same_answers(direct, proxy)),
                "a rate limit": ("", lambda proxy: a_rate_limit(direct, proxy)),
                "a reset": ("", lambda proxy: a_break(proxy, "rst", "reset")),
                "an end within the body": ("", lambda proxy: a_break(proxy, "fin", "truncated")),
                "whole replies, measured": (measured, lambda proxy: whole_replies_measured(direct, proxy)),
                "a rate limit, measured": (measured + usage, lambda proxy: a_rate_limit(direct, proxy)),
                "usage asked for the client": (usage, lambda proxy: usage_asked_for_the_client(direct, proxy)),
            }
            for case, (switches, check) in cases.items():
                with Proxy(binary, upstream, folder, ca, switches=switches).run() as proxy:
                    check(proxy)
                print(f"openai {openai.__version__}: {case}: ok")


if __name__ == "__main__":
    main()
