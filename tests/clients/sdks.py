"""The official SDKs of OpenAI (Python, Node) and Anthropic: whole replies, streams, an abort, of every API that they speak."""

import json
import os
import pathlib
import sys

import anthropic
import openai

from environment import anthropic_at, clean_here, openai_at, printed
from judge import driven
from loopback import PATIENCE
from stage import MODEL, TOKENS

QUESTION = [{"role": "user", "content": "how deep is the river today"}]
# Replies of another kind than text: each is read once as a stream.
KINDS = [{"x-sim": "reasoning=6"}, {"x-sim": "tool=1"}]
# Long enough that whoever leaves after a few words leaves in its midst.
LONG = {"x-sim": "tokens=2000,itl_ms=5"}
FEW = 5
# What differs from one reply to the next by nature.
OWN = {"id", "item_id", "call_id", "created", "created_at", "completed_at", "obfuscation"}


def comparable(value):
    """What an SDK returned, without what is a reply's own."""
    if isinstance(value, dict):
        return {key: comparable(part) for key, part in value.items() if key not in OWN}
    return [comparable(part) for part in value] if isinstance(value, list) else value


def plain(reply):
    return comparable(reply.model_dump())


def aborted(stream, is_word) -> bool:
    """Leaves a stream after a few words."""
    words = 0
    for event in stream:
        words += is_word(event)
        if words == FEW:
            break
    stream.close()
    return words == FEW


def openai_chat(base: str, text: str, _) -> list:
    os.environ.update(openai_at(base))
    sdk = openai.OpenAI(max_retries=0, timeout=PATIENCE)
    ask = lambda **options: sdk.chat.completions.create(model=MODEL, messages=QUESTION, **options)
    whole = ask()
    assert whole.choices[0].message.content == text
    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    words = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(words) == text and chunks[-1].usage.completion_tokens == TOKENS
    thought, called = [list(ask(stream=True, extra_headers=kind)) for kind in KINDS]
    assert called[-1].choices[0].finish_reason == "tool_calls"
    assert aborted(ask(stream=True, extra_headers=LONG), lambda chunk: bool(chunk.choices[0].delta.content))
    return [plain(reply) for reply in [whole, *chunks, *thought, *called]]


def openai_responses(base: str, text: str, _) -> list:
    os.environ.update(openai_at(base))
    sdk = openai.OpenAI(max_retries=0, timeout=PATIENCE)
    ask = lambda **options: sdk.responses.create(model=MODEL, instructions="be brief", input=QUESTION, **options)
    whole = ask()
    assert whole.output_text == text and whole.usage.output_tokens == TOKENS
    events = list(ask(stream=True))
    words = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(words) == text and events[-1].type == "response.completed"
    assert events[-1].response.output_text == text
    thought, called = [list(ask(stream=True, extra_headers=kind)) for kind in KINDS]
    assert [item.type for item in thought[-1].response.output] == ["reasoning", "message"]
    assert [item.type for item in called[-1].response.output] == ["function_call"]
    assert aborted(ask(stream=True, extra_headers=LONG), lambda event: event.type == "response.output_text.delta")
    return [plain(reply) for reply in [whole, *events, *thought, *called]]


def anthropic_messages(base: str, text: str, _) -> list:
    os.environ.update(anthropic_at(base))
    sdk = anthropic.Anthropic(max_retries=0, timeout=PATIENCE)
    asked = {"model": MODEL, "max_tokens": 4096, "system": "be brief", "messages": QUESTION}
    whole = sdk.messages.create(**asked)
    assert whole.content[0].text == text and whole.usage.output_tokens == TOKENS
    streams, finals = [], []
    for kind in [{}, *KINDS]:
        with sdk.messages.stream(**asked, extra_headers=kind) as stream:
            streams.extend(stream)
            finals.append(stream.get_final_message())
    assert finals[0].content[0].text == text and finals[0].usage.output_tokens == TOKENS
    assert [final.stop_reason for final in finals] == ["end_turn", "end_turn", "tool_use"]
    assert [[block.type for block in final.content] for final in finals] == [["text"], ["thinking", "text"], ["tool_use"]]
    is_word = lambda event: event.type == "content_block_delta"
    assert aborted(sdk.messages.create(**asked, stream=True, extra_headers=LONG), is_word)
    counted = sdk.messages.count_tokens(model=MODEL, messages=QUESTION)
    assert counted.input_tokens > 0
    return [plain(reply) for reply in [whole, *streams, *finals, counted]]


def openai_node(base: str, text: str, _) -> dict:
    script = pathlib.Path(__file__).parent / "node" / "both.mjs"
    seen = json.loads(printed(["node", str(script), MODEL, str(FEW), json.dumps(LONG)], 6 * PATIENCE, openai_at(base)))
    assert seen["texts"] == [text] * 4 and seen["aborted"] == [True, True], seen
    return comparable(seen)


def each_of(operation: str, streams: int = 1 + len(KINDS)) -> dict:
    """A whole reply, streams, and one that its client left."""
    return {(operation, "ok", "false"): 1, (operation, "ok", "true"): streams, (operation, "client_cancel", "true"): 1}


def main() -> None:
    binary = sys.argv[1]
    clean_here()
    counted = {("other", "ok", "unknown"): 1}
    driven(f"openai-python {openai.__version__}, chat", binary, openai_chat, each_of("chat"))
    driven(f"openai-python {openai.__version__}, Responses", binary, openai_responses, each_of("responses"))
    driven("openai-node, chat and Responses", binary, openai_node, each_of("chat", 1) | each_of("responses", 1))
    driven(f"anthropic {anthropic.__version__}", binary, anthropic_messages, each_of("messages") | counted)


if __name__ == "__main__":
    main()
