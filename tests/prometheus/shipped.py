"""What is shipped: the dashboards, and the queries in them and beside them."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATE_INTERVAL = "20s"
CHOICE = {"$backend": ".*", "$model": ".*", "$__rate_interval": RATE_INTERVAL}


def dashboards() -> list[tuple[pathlib.Path, dict]]:
    found = [(path, json.loads(path.read_text())) for path in sorted((ROOT / "dashboards").glob("*.json"))]
    assert len(found) >= 3, found
    return found


def queries_at_hand() -> list[str]:
    """The queries of dashboards/README.md."""
    found = re.findall(r"^\| [^|]+ \| `([^`]+)` \|$", (ROOT / "dashboards/README.md").read_text(), re.MULTILINE)
    found = [query for query in found if "streamgauge_" in query]
    assert len(found) >= 5, found
    return found


def panels(dashboard: dict) -> list[dict]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def substituted(query: str, **choice: str) -> str:
    for name, value in {**CHOICE, **{f"${name}": value for name, value in choice.items()}}.items():
        query = query.replace(name, value)
    assert "$" not in query, f"an unknown variable: {query}"
    return query
