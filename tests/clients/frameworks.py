"""What people build on the SDKs: the `llm` command, LangChain, Pydantic AI; each streamed and whole."""

import asyncio
import os
import pathlib
import sys

from environment import KEY, clean_here, openai_at, printed
from judge import driven
from loopback import PATIENCE
from readme import shown
from stage import MODEL

QUESTION = "how deep is the river today"


def llm_command(base: str, text: str, folder: pathlib.Path) -> list[str]:
    """The command with its settings in a folder of its own."""
    (folder / "extra-openai-models.yaml").write_text(shown("yaml", "model_id", base))
    llm = str(pathlib.Path(sys.executable).parent / "llm")
    settings = {"LLM_USER_PATH": str(folder), "HOME": str(folder)}
    run = lambda *arguments: printed([llm, *arguments], PATIENCE, settings)
    run("keys", "set", "streamgauge", "--value", KEY)
    said = [run("--model", MODEL, "--no-log", *switches, QUESTION) for switches in ([], ["--no-stream"])]
    assert said == [text + "\n"] * 2, said
    return said


def langchain(api: str):
    def drive(base: str, text: str, _) -> list:
        from langchain_openai import ChatOpenAI

        os.environ.update(openai_at(base))
        model = ChatOpenAI(model=MODEL, max_retries=0, timeout=PATIENCE, use_responses_api=api == "responses")
        whole = model.invoke(QUESTION)
        pieces = [chunk.text for chunk in model.stream(QUESTION)]
        assert whole.text == text == "".join(pieces), (whole, pieces)
        return [whole.text, pieces, whole.usage_metadata]

    return drive


def pydantic_ai(api: str):
    def drive(base: str, text: str, _) -> list:
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

        os.environ.update(openai_at(base))
        kind = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[api]

        async def both() -> list:
            agent = Agent(kind(MODEL))
            whole = await agent.run(QUESTION)
            async with agent.run_stream(QUESTION) as reply:
                pieces = [piece async for piece in reply.stream_text(delta=True, debounce_by=None)]
            assert whole.output == text == "".join(pieces), (whole.output, pieces)
            return [whole.output, pieces]

        return asyncio.run(both())

    return drive


def main() -> None:
    binary = sys.argv[1]
    clean_here()
    both = lambda operation: {(operation, "ok", "false"): 1, (operation, "ok", "true"): 1}
    driven("llm", binary, llm_command, both("chat"))
    for name, drive in [("langchain-openai", langchain), ("pydantic-ai", pydantic_ai)]:
        for api in ("chat", "responses"):
            driven(f"{name}, {api}", binary, drive(api), both(api))


if __name__ == "__main__":
    main()
