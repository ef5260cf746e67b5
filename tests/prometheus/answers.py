"""What Prometheus answers to each query, and whether it is what the traffic made."""

import bisect
import json
import math
import pathlib
import re

import expected
import promql
from checks import Findings
from shipped import dashboards, panels, substituted
from api import Prometheus

STEP = 2.0  # seconds between two points of a range
# How the query ends that is 0 in a healthy process.
BOOKS = "- sum(streamgauge_in_flight_requests)"


def finite(series: dict) -> list[float]:
    return [value for _, text in series["values"] for value in [float(text)] if math.isfinite(value)]


def shows(result: list[dict], wanted: dict[str, str]) -> bool:
    labels = {label: value for label, value in wanted.items() if label != "="}
    values = [finite(series) for series in result if labels.items() <= series["metric"].items()]
    if wanted.get("=") == expected.CALM["="]:
        return any(0 in found for found in values)
    if "=" in wanted:
        return any(found and not any(found) for found in values)
    return any(any(found) for found in values)


class Answers:
    def __init__(self, prometheus: Prometheus, start: float, end: float, findings: Findings):
        self.prometheus, self.start, self.end, self.findings = prometheus, start, end, findings

    def range(self, query: str) -> list[dict]:
        self.findings.queries += 1
        return self.prometheus.range(query, self.start, self.end, STEP)

    def panel(self, uid: str, panel: dict) -> None:
        for target in panel["targets"]:
            where = f"{uid}: {panel['title']}: {target['refId']}"
            # Also of an instant query: a single moment may be one whose scrape came too late.
            result = self.range(substituted(target["expr"]))
            for wanted in expected.PANELS[uid].get(panel["title"], [{}]):
                self.findings.that(shows(result, wanted), f"{where} does not show {wanted or 'anything'}: {target['expr']}")
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                named = all(series["metric"].get(label) for series in result)
                self.findings.that(named, f"{where}: the legend names {label}, which not every series has")
            # The choice of backend and model holds for every query that has such labels.
            for variable in ("backend", "model"):
                if f"${variable}" in target["expr"]:
                    nobody = self.range(substituted(target["expr"], **{variable: "nobody"}))
                    self.findings.that(nobody == [], f"{where} shows data of another {variable} than the one chosen")
            if "$backend" in target["expr"] and any("backend" in wanted for wanted in expected.PANELS[uid].get(panel["title"], [])):
                two = self.range(substituted(target["expr"], backend="(steady|local)"))
                chosen = {series["metric"].get("backend") for series in two}
                self.findings.that(chosen <= {"steady", "local"}, f"{where} shows {chosen} where two backends are chosen")

    def variable(self, uid: str, variable: dict) -> None:
        match = re.fullmatch(r"label_values\((streamgauge_\w+(?:\{.*\})?), (\w+)\)", variable["query"]["query"])
        assert match, f"{uid}: not a label_values query: {variable['query']}"
        self.findings.queries += 1
        values = set(self.prometheus.label_values(match[2], substituted(match[1])))
        missing = expected.VARIABLES[variable["name"]] - values
        self.findings.that(not missing, f"{uid}: the variable {variable['name']} does not offer {missing}, only {values}")

    def rule(self, rule: dict) -> None:
        self.findings.that(rule["health"] == "ok", f"{rule['name']}: {rule['health']}: {rule.get('lastError')}")
        is_alert = rule["type"] == "alerting"
        histogram = rule.get("labels", {}).get("histogram")
        queries = [promql.without_comparisons(rule["query"])] if is_alert else [rule["query"], rule["name"]]
        if histogram and not is_alert:
            queries[1] += f'{{histogram="{histogram}"}}'
        for query in queries:
            result = self.range(query)
            zero = rule["name"] in expected.RULES_ZERO or (histogram and histogram not in expected.LAST_BUCKETS_FILLED)
            shown = any(finite(series) for series in result) if zero else shows(result, {})
            self.findings.that(shown, f"{rule['name']} has no data: {query}")

    def at_hand(self, query: str) -> None:
        result = self.range(query)
        shown = any(finite(series) for series in result) if query.endswith(BOOKS) else shows(result, {})
        self.findings.that(shown, f"dashboards/README.md: no data of {query}")

    def selectors(self, query: str) -> None:
        """Each part of a query has data, also one that an `or` would stand in for."""
        for selector in promql.selectors(query):
            found = self.range(substituted(selector))
            self.findings.that(bool(found), f"no data of {selector}, of {query}")


def stat_wrong(prometheus: Prometheus, panel: dict, at: float) -> str:
    """What is wrong with what a stat shows `at` a moment without traffic, if anything: only 0, or no value, is right."""
    for target in panel["targets"]:
        # A shorter interval than a dashboard's, so that the traffic is over sooner.
        shown = prometheus.instant(substituted(target["expr"].replace("$__rate_interval", "4s")), at)
        values = [float(series["value"][1]) for series in shown]
        if any(value != 0 for value in values) or (values and panel["title"] in expected.IDLE_ABSENT):
            return f"{panel['title']} shows {values} without traffic: {target['expr']}"
    return ""


def true_ttfts(log: pathlib.Path, from_ns: int, to_ns: int) -> list[float]:
    """TTFT of every stream whose first token left within the window, in seconds, sorted."""
    asked, first = {}, {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "request":
            asked[entry["request"]] = entry["at_ns"]
        elif entry["kind"] in ("token", "reasoning"):
            first.setdefault(entry["request"], entry["at_ns"])
    return sorted((at - asked[name]) / 1e9 for name, at in first.items() if from_ns < at <= to_ns)


def check_ttft(
    prometheus: Prometheus, catalogue: promql.Catalogue, log: pathlib.Path, end: float, end_ns: int, window: int, findings: Findings
) -> str:
    """TTFT p50 of the dashboard's own query, over the last `window` seconds, against the simulation's log."""
    overview = next(dashboard for _, dashboard in dashboards() if dashboard["uid"] == "streamgauge-overview")
    panel = next(panel for panel in panels(overview) if panel["title"] == "TTFT of the backend (vantage upstream)")
    expr = next(target["expr"] for target in panel["targets"] if "(0.5," in target["expr"])
    query = substituted(expr.replace("$__rate_interval", f"{window}s"), backend="steady")
    result = prometheus.instant(query, end)
    assert len(result) == 1 and result[0]["metric"] == {"backend": "steady"}, (query, result)
    shown = float(result[0]["value"][1])
    truth = true_ttfts(log, end_ns - window * 10**9, end_ns)
    assert len(truth) >= 50, f"only {len(truth)} streams in the window"
    median = truth[len(truth) // 2]
    name = "streamgauge_time_to_first_token_seconds_bucket"
    bounds = sorted(float(le) for le in catalogue.metrics[name]["le"])
    apart = abs(bisect.bisect_left(bounds, shown) - bisect.bisect_left(bounds, median))
    told = f"TTFT p50: the dashboard says {shown * 1000:.1f} ms, the simulation's log {median * 1000:.1f} ms ({len(truth)} streams)"
    findings.that(apart <= 1, f"{told}: {apart} buckets apart")
    return told
