"""The settings that README.md shows, so that what is driven here is what readers are told."""

import pathlib

from stage import MODEL

README = pathlib.Path(__file__).parents[2] / "README.md"
# What stands there for any address of the proxy, and for any model.
ADDRESS, ANY_MODEL = "http://127.0.0.1:8484", "gpt-x"


def shown(language: str, mark: str, base: str) -> str:
    """The one block in `language` that holds `mark`, for a proxy at `base` and the simulation's model."""
    blocks = [block.partition("\n") for block in README.read_text().split("```")[1::2]]
    [found] = [text for name, _, text in blocks if name == language and mark in text]
    assert ADDRESS in found, found
    return found.replace(ADDRESS, base).replace(ANY_MODEL, MODEL)
