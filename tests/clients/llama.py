"""The official OpenAI SDK and a small real model in the proxy's own process, beside a simulated upstream.

`scripts/models.sh` fetches the model.
"""

import os
import pathlib
import sys
import tempfile

import openai

from harness import Proxy
from loopback import free_port, listening, running, wait_for

FILE = "smollm2-135m-instruct-q4_1.gguf"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def model_file() -> pathlib.Path:
    data = os.environ.get("XDG_DATA_HOME") or pathlib.Path.home() / ".local/share"
    folder = pathlib.Path(os.environ.get("STREAMGAUGE_MODELS") or pathlib.Path(data) / "streamgauge/models")
    assert (folder / FILE).exists(), f"{folder / FILE} is missing; run: bash scripts/models.sh"
    return folder / FILE


def the_model_answers(sdk: openai.OpenAI) -> None:
    """Whole and streamed, the same words, and Paris among them."""
    options = {"model": "llama-2-tiny", "messages": QUESTION, "temperature": 0, "max_tokens": 24}
    whole = sdk.chat.completions.create(**options)
    text = whole.choices[0].message.content
    assert "Paris" in text, text
    assert whole.choices[0].finish_reason == "stop" and whole.usage.completion_tokens >= 5
    pieces, usage, finish = [], None, None
    for chunk in sdk.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        assert chunk.object == "chat.completion.chunk" and chunk.model == "llama-2-tiny"
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            pieces.append(choice.delta.content or "")
    assert "".join(pieces) == text and finish == "stop"
    assert usage == whole.usage, (usage, whole.usage)


def the_sdk_understands_refusals(sdk: openai.OpenAI) -> None:
    """What cannot be done is the SDK's own error, and names the field."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    for param, options in [("tools", {"tools": tools}), ("messages", {"messages": []})]:
        try:
            sdk.chat.completions.create(**{"model": "llama-2-tiny", "messages": QUESTION, **options})
        except openai.BadRequestError as error:
            assert error.param == param, error
        else:
            raise AssertionError(f"{param} was not refused")


def main() -> None:
    binary = sys.argv[1]
    more = (
        f'[backend.local]\nkind = "llama"\nmodel = "{model_file()}"\ndevice = "cpu"\ndtype = "f32"\n'
        'max_sequences = 2\nmax_context = 512\n\n[[route]]\nmodel = "llama-2-*"\nbackend = "local"\n\n'
    )
    with tempfile.TemporaryDirectory() as name:
        folder, port = pathlib.Path(name), free_port()
        sim = running("sim", [binary, "sim", "--listen", f"127.0.0.1:{port}"], listening(port), folder)
        proxy = Proxy(binary, f"http://127.0.0.1:{port}", folder, more=more)
        with sim, proxy.starting():
            wait_for("the model to load", proxy.is_ready)
            sdk = openai.OpenAI(base_url=proxy.url + "/v1", api_key="none", max_retries=0, timeout=120.0)
            the_model_answers(sdk)
            the_sdk_understands_refusals(sdk)
            reply = sdk.chat.completions.create(model="hosted", messages=QUESTION, stream=True)
            assert sum(len(chunk.choices) for chunk in reply) > 0
            metrics = proxy.settled(5)
            for backend, streams in [("local", 1), ("sim", 1)]:
                count = metrics.sum("time_to_first_token_seconds_count", backend=backend, vantage="upstream")
                assert count == streams, (backend, count)
            assert metrics.sum("requests_total", outcome="ok") == 3
            assert metrics.sum("requests_total", outcome="rejected", backend="local") == 2
            assert metrics.sum("phase_seconds_count", backend="local", phase="prefill") == 2
            assert metrics.sum("stream_anomalies_total") == 0
    print("the OpenAI SDK, with a model in the process: all as it should be")


if __name__ == "__main__":
    main()
