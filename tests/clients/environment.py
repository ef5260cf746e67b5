"""What surrounds a client: nothing that points it anywhere but at the proxy, and no key but one made up here."""

import os
import pathlib
import subprocess

KEY = "sk-test"
KEPT = ("PATH", "CLIENT_MODULES")


def clean(**more: str) -> dict[str, str]:
    """An environment with what `more` says, and hardly anything else."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {"LANG": "C.UTF-8", "NO_PROXY": "127.0.0.1,localhost", **kept, **more}


def clean_here() -> None:
    """The same for clients in this process."""
    surroundings = clean()
    os.environ.clear()
    os.environ.update(surroundings)


def openai_at(base: str) -> dict[str, str]:
    """What the OpenAI SDKs, and most of what is built on them, are told."""
    return {"OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_KEY": KEY}


def anthropic_at(base: str) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": KEY}


def printed(command: list, seconds: float, settings: dict[str, str], folder: pathlib.Path | None = None) -> str:
    """What a client prints that runs in a process of its own, in `folder`, and ends well within `seconds`."""
    done = subprocess.run(command, cwd=folder, env=clean(**settings), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
