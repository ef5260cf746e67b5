"""What can be said of dashboards and rules by reading them: their form, and whether what they name exists."""

import re
import sys

import expected
import promql
from shipped import RATE_INTERVAL, dashboards, panels

# Labels whose values are different measurements.
MIXED = {"source", "timing", "vantage"}
# Panels of the whole process.
OF_EVERYTHING = {"Books"}


class Findings:
    """What is wrong, told all together."""

    def __init__(self):
        self.wrong: list[str] = []
        self.queries = 0

    def that(self, holds: bool, problem: str) -> None:
        if not holds:
            self.wrong.append(problem)

    def tell(self) -> None:
        """Ends the program if anything is wrong."""
        for problem in self.wrong:
            print(f"tests/prometheus: {problem}", file=sys.stderr)
        if self.wrong:
            sys.exit(1)


def check_files(findings: Findings) -> None:
    """What can be said of the dashboards without running anything."""
    for path, dashboard in dashboards():
        name, uid = path.name, dashboard["uid"]
        findings.that(re.fullmatch(r"[a-z]+(-[a-z]+)*", path.stem) is not None, f"{name}: the name is not lower case and hyphens")
        findings.that(uid == f"streamgauge-{path.stem}", f"{name}: uid {uid} is not streamgauge-{path.stem}")
        findings.that(any("streamgauge" in link["tags"] for link in dashboard["links"]) and "streamgauge" in dashboard["tags"],
                      f"{name}: no link to the other dashboards, or no tag for theirs")
        variables = [variable["name"] for variable in dashboard["templating"]["list"]]
        findings.that(variables == ["datasource", "backend", "model"], f"{name}: its variables are {variables}")
        ids = [panel["id"] for panel in dashboard["panels"]]
        findings.that(len(ids) == len(set(ids)), f"{name}: two panels have one id")
        cells = [(x, y) for panel in dashboard["panels"] for at in [panel["gridPos"]]
                 for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        findings.that(len(cells) == len(set(cells)) and all(x < 24 for x, _ in cells), f"{name}: panels overlap, or leave the grid")
        titles = [panel["title"] for panel in panels(dashboard)]
        for title in sorted(set(titles) ^ set(expected.PANELS.get(uid, {}))):
            findings.that(False, f"{name}: the panel {title!r} is in only one of the dashboard and tests/prometheus/expected.py")
        findings.that(len(titles) == len(set(titles)), f"{name}: two panels have one title")
        for panel in panels(dashboard):
            told = panel["description"]
            findings.that(bool(told) and told.endswith(".") and "\n" not in told, f"{name}: {panel['title']}: no one-line description")
            findings.that(bool(panel["fieldConfig"]["defaults"].get("unit")), f"{name}: {panel['title']}: no unit")
            if panel["type"] == "stat":
                check_stat(f"{name}: {panel['title']}", panel, findings)
            if panel["type"] == "xychart":
                check_xychart(f"{name}: {panel['title']}", panel, findings)


def check_stat(where: str, panel: dict, findings: Findings) -> None:
    """A stat shows what is now, or that nothing is. Of a range, Grafana would take the last sample, however old it is."""
    for target in panel["targets"]:
        findings.that(target["instant"] and not target["range"], f"{where}: not an instant query")
    findings.that(bool(panel["fieldConfig"]["defaults"].get("noValue")), f"{where}: no text for the absence of a value")
    findings.that(panel["options"]["graphMode"] == "none", f"{where}: a graph, of which an instant query has one point")


def check_xychart(where: str, panel: dict, findings: Findings) -> None:
    """What Grafana needs to draw one query against another, a series for each backend."""
    # Tables of several queries name their columns by query; merged, they share the columns Time and backend.
    columns = {f"Value #{target['refId']}" for target in panel["targets"]}
    findings.that(len(columns) == 2 and all(target["format"] == "table" for target in panel["targets"]), f"{where}: not two tables")
    steps = [(step["id"], step["options"].get("fields")) for step in panel["transformations"]]
    findings.that(steps == [("merge", None), ("partitionByValues", ["backend"])], f"{where}: its transformations are {steps}")
    # Mapped by hand, a series is drawn of one frame alone, which has to be named; automatically, of every frame.
    findings.that(panel["options"]["mapping"] == "auto", f"{where}: shows no frame, or one backend alone")
    matched = {axis: series[axis]["matcher"]["options"] for series in panel["options"]["series"] for axis in ("x", "y")}
    findings.that(matched == {"x": "Value #A", "y": "Value #B"} and set(matched.values()) == columns, f"{where}: its axes are {matched}")
    named = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
    findings.that(named <= columns, f"{where}: its overrides are for {named}")


def check_names(catalogue: promql.Catalogue, queries: list[tuple[str, str]], findings: Findings) -> None:
    for where, query in queries:
        bare = query.replace("$__rate_interval", RATE_INTERVAL)
        for problem in promql.problems(bare, catalogue, {"$backend", "$model"}):
            findings.that(False, f"{where}: {problem}: {query}")


def check_meaning(catalogue: promql.Catalogue, findings: Findings) -> None:
    """No panel mixes what differs in kind, or shows more than was chosen."""
    for _, dashboard in dashboards():
        for panel, query in [(panel, target["expr"]) for panel in panels(dashboard) for target in panel["targets"]]:
            where = f"{dashboard['uid']}: {panel['title']}"
            for selector in promql.selectors(query):
                labels = catalogue.metrics.get(re.match(r"[\w:]+", selector)[0], {})
                for label in MIXED & labels.keys():
                    findings.that(label in query, f"{where}: {selector} mixes every {label}")
                for variable in ("backend", "model") if panel["title"] not in OF_EVERYTHING else ():
                    chosen = variable not in labels or f'{variable}=~"${variable}"' in selector
                    findings.that(chosen, f"{where}: {selector} ignores the {variable} chosen")
                vantage = re.search(r'vantage="(\w+)"', selector)
                findings.that(vantage is None or f"vantage {vantage[1]}" in panel["description"],
                              f"{where}: {selector} has another vantage than the description")


def check_last_bounds(catalogue: promql.Catalogue, rules: list[dict], findings: Findings) -> None:
    """The bound that a rule takes for a histogram's last one is its last one."""
    seen = set()
    for rule in rules:
        if rule["name"] == "streamgauge:last_bucket:share":
            histogram = rule["labels"]["histogram"]
            seen.add(f"streamgauge_{histogram}")
            bound = re.search(r'le=~?"([\d.]+)', rule["query"])[1]
            last = catalogue.last_bound(f"streamgauge_{histogram}")
            findings.that(float(bound) == last, f"the last bound of {histogram} is {last:g}, and not {bound}")
            findings.that(rule["query"].count(f"streamgauge_{histogram}_") == 2, f"the rule for {histogram} reads another histogram")
    every = {name.removesuffix("_bucket") for name in catalogue.metrics if name.startswith("streamgauge_") and name.endswith("_bucket")}
    # The same observations as TTFT's, and those that a client's slowness is part of.
    left_out = {"streamgauge_time_to_first_token_by_prompt_seconds", "streamgauge_dwell_seconds"}
    findings.that(not left_out & seen, f"a rule looks at the last bucket of {left_out & seen}")
    for missing in every - seen - left_out:
        findings.that(False, f"no rule looks at the last bucket of {missing}")


def check_alerts(rules: list[dict], alerts: list[dict], findings: Findings) -> None:
    texts = {rule["name"]: " ".join(rule["annotations"].values()) for rule in rules if rule["type"] == "alerting"}
    titles = {dashboard["uid"]: {panel["title"] for panel in dashboard["panels"]} for _, dashboard in dashboards()}
    for name, text in texts.items():
        named = re.findall(r"streamgauge-[a-z]+", text)
        findings.that(bool(named) and titles.keys() >= set(named), f"{name}: its text names the dashboards {named}")
        for title in re.findall(r'"([^"]+)"', text):
            findings.that(any(title in titles.get(uid, ()) for uid in named), f"{name}: no panel or row of {named} is called {title!r}")
    active = {alert["labels"]["alertname"] for alert in alerts}
    findings.that(active == expected.ALERTS, f"the alerts {sorted(active)} are active, and not {sorted(expected.ALERTS)}")
    for alert in alerts:
        name, notes = alert["labels"]["alertname"], alert["annotations"]
        findings.that({"summary", "description"} <= notes.keys() and "severity" in alert["labels"], f"{name}: {notes}")
        for label in re.findall(r"\$labels\.(\w+)", texts[name]):
            findings.that(label in alert["labels"], f"{name}: its text names the label {label}, which it has not")
        for text in notes.values():
            findings.that("<no value>" not in text and "error" not in text.replace("inband_error", "").replace("error object", ""),
                          f"{name}: its text is broken: {text}")
