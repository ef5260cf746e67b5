"""Reads PromQL well enough to say which metrics, labels and label values a query names, and whether they exist."""

import re

KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
SUFFIXES = ("_bucket", "_sum", "_count")

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<duration>\[[^\]]*\])
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<number>[0-9][0-9.eE]*)
    |(?P<mark>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},]))""",
    re.VERBOSE,
)


class Catalogue:
    """What a real scrape, and Prometheus' own recording rules, offer: the labels of each metric, with their values."""

    def __init__(self, exposition: str, recorded: dict[str, list[dict[str, str]]]):
        self.metrics: dict[str, dict[str, set[str]]] = {}
        for line in exposition.splitlines():
            if line and not line.startswith("#"):
                name, labels = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ", line).groups()
                # What Prometheus itself adds.
                found = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""), job="", instance="")
                self._add(name, found)
        for name, series in recorded.items():
            self.metrics.setdefault(name, {})
            for labels in series:
                self._add(name, {k: v for k, v in labels.items() if k != "__name__"})

    def _add(self, name: str, labels: dict[str, str]) -> None:
        known = self.metrics.setdefault(name, {})
        for label, value in labels.items():
            known.setdefault(label, set()).add(value)

    def last_bound(self, metric: str) -> float:
        """The last finite bound of a histogram; 0 of one that does not exist."""
        bounds = self.metrics.get(f"{metric}_bucket", {}).get("le", set())
        return max((float(le) for le in bounds if le != "+Inf"), default=0.0)


def tokens(query: str) -> list[tuple[str, str]]:
    found, at = [], 0
    query = query.rstrip()
    while at < len(query):
        token = _TOKEN.match(query, at)
        assert token, f"cannot read {query[at:at + 30]!r} in {query}"
        found.append((token.lastgroup, token[token.lastgroup]))
        at = token.end()
    return found


def _closing(found: list[tuple[str, str]], opening: int) -> int:
    depth = 0
    for at in range(opening, len(found)):
        depth += found[at][1] in ("(", "{")
        depth -= found[at][1] in (")", "}")
        if depth == 0:
            return at
    raise AssertionError("a bracket is not closed")


def problems(query: str, catalogue: Catalogue, variables: set[str]) -> list[str]:
    """What `query` names and the catalogue does not know. `variables` are values that stand for a dashboard's choice."""
    found, wrong = tokens(query), []
    metrics: list[tuple[int, str]] = []
    groupings: list[tuple[int, list[str]]] = []
    at = 0
    while at < len(found):
        kind, text = found[at]
        following = found[at + 1][1] if at + 1 < len(found) else ""
        if kind == "name" and text in GROUPING and following == "(":
            end = _closing(found, at + 1)
            groupings.append((at, [name for kind, name in found[at + 2:end] if kind == "name"]))
            at = end
        elif kind == "name" and following != "(" and text not in KEYWORDS | GROUPING and not _aggregates(found, at):
            metrics.append((at, text))
            labels = catalogue.metrics.get(text)
            if labels is None:
                wrong.append(f"no metric is called {text}")
            if following == "{":
                end = _closing(found, at + 1)
                if labels is not None:
                    wrong += _matchers(text, found[at + 2:end], labels, variables)
                at = end
        at += 1
    for at, labels in groupings:
        within = _within(found, at, metrics)
        known = set().union(*(catalogue.metrics.get(metric, {}) for metric in within))
        wrong += [f"no label of {', '.join(sorted(set(within)))} is called {label}" for label in labels if label not in known]
    return wrong


def _aggregates(found, at: int) -> bool:
    """Whether `found[at]` is an aggregation whose grouping comes first: sum by (…) (…)."""
    return at + 1 < len(found) and found[at + 1][1] in ("by", "without")


def _within(found, at: int, metrics) -> list[str]:
    """The metrics that a grouping is about: those in the brackets after it; all, for a match between two sides."""
    end = _closing(found, at + 1)
    if found[at][1] in ("by", "without") and end + 1 < len(found) and found[end + 1][1] == "(":
        last = _closing(found, end + 1)
        return [metric for place, metric in metrics if end < place < last]
    return [metric for _, metric in metrics]


def _matchers(metric: str, found, labels: dict[str, set[str]], variables: set[str]) -> list[str]:
    wrong = []
    for at, (kind, label) in enumerate(found):
        if kind != "name":
            continue
        if label not in labels:
            wrong.append(f"{metric} has no label called {label}")
            continue
        operator, value = found[at + 1][1], found[at + 2][1][1:-1]
        if value in variables:
            continue
        alternatives = value.split("|") if "~" in operator else [re.escape(value)]
        hits = [any(re.fullmatch(one, known) for known in labels[label]) for one in alternatives]
        # Of a bound's spellings, one exists in each version of Prometheus.
        if not (any(hits) if label == "le" else all(hits)):
            wrong.append(f"{label} of {metric} is never {value}")
    return wrong


def selectors(query: str) -> list[str]:
    """Every metric with its matchers, as it stands in `query`."""
    return re.findall(r"streamgauge[\w:]*(?:\{[^}]*\})?", query)


def without_comparisons(query: str) -> str:
    """An alert's expression without its comparisons to a number."""
    bare, compared = re.subn(r"\s*(?:>=|<=|>|<|!=|==)\s*[\d.]+(?=\s|$)", "", query)
    assert compared, f"an alert that compares nothing to a number: {query}"
    return bare
