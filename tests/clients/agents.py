"""Coding agents as their users run them, without a terminal: aider, Codex CLI, Claude Code, opencode.

Each has a home of its own, and there or in its environment the settings that README.md shows. What would reach beyond
loopback (updates, telemetry, catalogues of models and plugins) is turned off by the agents' own switches.
"""

import json
import os
import pathlib
import sys

from environment import KEY, anthropic_at, printed
from judge import driven
from readme import shown
from stage import MODEL

QUESTION = "how deep is the river today"
# An agent starts in seconds; a busy machine may need many more.
SECONDS = 180

# Codex CLI's switches for what would reach beyond loopback.
QUIET = ("check_for_update_on_startup=false", "analytics.enabled=false", "features.apps=false", "features.plugins=false")


def said(command: list, home: pathlib.Path, text: str, settings: dict[str, str]) -> str:
    """What an agent prints that runs in an empty folder; it must hold the simulation's text."""
    work = home / "work"
    work.mkdir(exist_ok=True)
    folders = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
    own = {f"XDG_{name}_HOME": str(home / folder) for name, folder in folders.items()}
    output = printed(command, SECONDS, {"HOME": str(home), "TERM": "dumb", **own, **settings}, work)
    # Agents break lines, and trim them.
    assert " ".join(text.split()) in " ".join(output.split()), f"{command[0]} said {output!r}, wanted {text!r}"
    return output


def modules(*path: str) -> str:
    return str(pathlib.Path(os.environ["AGENT_MODULES"], "node_modules", *path))


def aider(base: str, text: str, home: pathlib.Path) -> str:
    # What aider wants to know of a model; it would ask the network about one that it does not know.
    known = {"max_input_tokens": 32768, "max_output_tokens": 4096, "litellm_provider": "openai", "mode": "chat"}
    (home / "models.json").write_text(json.dumps({f"openai/{MODEL}": known}))
    command = [os.environ["AIDER"], "--model", f"openai/{MODEL}", "--model-metadata-file", home / "models.json",
               "--chat-mode", "ask", "--no-git", "--no-pretty", "--no-fancy-input", "--no-check-update",
               "--no-show-release-notes", "--no-show-model-warnings", "--analytics-disable", "--yes-always",
               "--message", QUESTION]
    settings = {"OPENAI_API_BASE": f"{base}/v1", "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return said(command, home, text, settings)


def codex(base: str, text: str, home: pathlib.Path) -> str:
    settings = home / ".codex"
    settings.mkdir(exist_ok=True)
    (settings / "config.toml").write_text(shown("toml", "model_providers", base))
    (settings / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": KEY}))
    quiet = [argument for switch in QUIET for argument in ("--config", switch)]
    command = [modules(".bin", "codex"), "exec", *quiet, "--strict-config", "--ephemeral", "--skip-git-repo-check",
               "--sandbox", "read-only", QUESTION]
    return said(command, home, text, {})


def claude_code(base: str, text: str, home: pathlib.Path) -> str:
    command = [modules(".bin", "claude"), "--print", "--model", MODEL, QUESTION]
    return said(command, home, text, {**anthropic_at(base), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})


def opencode(base: str, text: str, home: pathlib.Path) -> str:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "opencode.json").write_text(shown("json", "@ai-sdk", base))
    names = ("AUTOUPDATE", "SHARE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    quiet = {f"OPENCODE_DISABLE_{name}": "1" for name in names} | {"npm_config_offline": "true"}
    return said([modules(".bin", "opencode"), "run", QUESTION], home, text, {"OPENAI_API_KEY": KEY, **quiet})


# What each asks for one question: opencode wants a title for the conversation besides.
AGENTS = {
    "aider": (aider, {("chat", "ok", "true"): 1}),
    "opencode": (opencode, {("chat", "ok", "true"): 2}),
    "codex": (codex, {("responses", "ok", "true"): 1}),
    "claude": (claude_code, {("messages", "ok", "true"): 1}),
}


def main() -> None:
    binary, *names = sys.argv[1:]
    for name in names or AGENTS:
        drive, wanted = AGENTS[name]
        driven(name, binary, drive, wanted)


if __name__ == "__main__":
    main()
