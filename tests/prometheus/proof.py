"""Runs every query of every panel, variable, rule and alert against a real Prometheus that scraped real traffic.

Arguments: the binary. Each query must return data that the traffic produced, may name only what exists, and TTFT p50 as
a dashboard shows it must agree with the simulation's own log.
"""

import pathlib
import signal
import sys
import tempfile
import time

import expected
import promql
from answers import Answers, check_ttft, stat_wrong
from api import Prometheus
from checks import Findings, check_alerts, check_files, check_last_bounds, check_meaning, check_names
from loopback import answers, free_ports, get, make_certificates, patiently, running, wait_for
from shipped import ROOT, dashboards, panels, queries_at_hand
from traffic import Traffic

TRAFFIC = 60.0  # seconds
SETTLED = 25.0  # seconds of traffic that no query looks at: $__rate_interval, and a start
SCRIPTS = ROOT / "tests/prometheus/oddities.toml"
SHAPE = ROOT / "tests/llama/fixtures/gqa_tied"

CONFIG = """\
[server]
listen = "127.0.0.1:{listen}"
admin = "127.0.0.1:{admin}"
threads = 2

[records]
enabled = false

[backend.steady]
base_url = "http://127.0.0.1:{steady}"

[backend.secure]
base_url = "https://localhost:{secure}"
ca_file = "{ca}"

[backend.odd]
base_url = "http://127.0.0.1:{odd}"

[backend.counted]
base_url = "http://127.0.0.1:{odd}"
tokenizer = "{tokenizer}"

[backend.slow]
base_url = "http://127.0.0.1:{odd}"

[backend.short]
base_url = "http://127.0.0.1:{odd}"
head_timeout_ms = 200
idle_timeout_ms = 200

[backend.many]
base_url = "http://127.0.0.1:{odd}"
max_models = 1

[backend.gone]
base_url = "http://127.0.0.1:{gone}"

# Random weights; a prompt's bytes are its tokens. Two slots for four clients, so that some wait.
[backend.local]
kind = "llama"
model = "{shape}"
load = "dummy"
device = "cpu"
max_sequences = 2

[[slo]]
name = "interactive"
ttft_ms = 450
tpot_ms = 40

[[slo]]
name = "server"
ttft_ms = 2000
tpot_ms = 200

# Within which the engine's replies are on any machine.
[[slo]]
name = "patient"
ttft_ms = 60000
tpot_ms = 20000

[[route]]
model = "llama-2-*"
backend = "local"
"""
ROUTES = "".join(
    f'\n[[route]]\nmodel = "{name}-model"\nbackend = "{name}"\n'
    for name in ("steady", "secure", "odd", "counted", "slow", "short", "gone")
) + '\n[[route]]\nmodel = "*"\nbackend = "many"\n'

# A tokenizer to which every word is a token.
WORDS = """{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}}"""


def prometheus_config(admin: int, folder: pathlib.Path) -> pathlib.Path:
    """The shipped configuration and rules, looking here and every second."""
    text = (ROOT / "config/prometheus.yml").read_text()
    for shipped, here in [('"streamgauge:9464"', f'"127.0.0.1:{admin}"'), ("scrape_interval: 5s", "scrape_interval: 1s"),
                          ("evaluation_interval: 15s", "evaluation_interval: 1s")]:
        assert text.count(shipped) == 1, f"config/prometheus.yml: {shipped} is not there once"
        text = text.replace(shipped, here)
    (folder / "rules.yml").write_text((ROOT / "config/rules.yml").read_text())
    (folder / "prometheus.yml").write_text(text)
    return folder / "prometheus.yml"


def main() -> None:
    binary = sys.argv[1]
    # So that the processes end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    findings = Findings()
    check_files(findings)
    findings.tell()
    with tempfile.TemporaryDirectory() as name:
        run(binary, pathlib.Path(name), findings)
    findings.tell()
    print(f"{findings.queries} queries, and each had its data")


def run(binary: str, folder: pathlib.Path, findings: Findings) -> None:
    make_certificates(folder)
    names = ["listen", "admin", "steady", "secure", "odd", "gone", "web"]
    ports, log = dict(zip(names, free_ports(len(names)), strict=True)), folder / "truth.jsonl"
    web = ports["web"]
    config = folder / "streamgauge.toml"
    (folder / "tokenizer.json").write_text(WORDS)
    files = {"ca": folder / "ca.pem", "tokenizer": folder / "tokenizer.json", "shape": SHAPE}
    config.write_text(CONFIG.format(**ports, **files) + ROUTES)

    def sim(name: str, *more: str):
        command = [binary, "sim", "--listen", f"127.0.0.1:{ports[name]}", *more]
        # TLS cannot be asked without its certificate; that it says where it listens is enough.
        said = lambda: "sim listens on" in (folder / f"sim-{name}.log").read_text()
        return running(f"sim-{name}", command, said, folder)

    with (
        sim("steady", "--log", str(log)),
        sim("odd", "--script", str(SCRIPTS)),
        sim("secure", "--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")),
        running("streamgauge", [binary, "serve", "--config", str(config)],
                lambda: answers(f"http://127.0.0.1:{ports['admin']}/readyz"), folder),
        running("prometheus", ["prometheus", f"--config.file={prometheus_config(ports['admin'], folder)}",
                               f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{web}"],
                lambda: answers(f"http://127.0.0.1:{web}/-/ready"), folder),
    ):
        prometheus = Prometheus(web)
        wait_for("the first scrape", lambda: prometheus.instant("up == 1", time.time()))
        traffic = Traffic(ports["listen"])
        began = time.time()
        traffic.start()
        try:
            while time.time() < began + TRAFFIC and not traffic.problems:
                time.sleep(0.2)
            end, end_ns = time.time(), time.monotonic_ns()
        finally:
            traffic.stop()
        assert not traffic.problems, traffic.problems
        exposition = get(f"http://127.0.0.1:{ports['admin']}/metrics")
        print("requests made:", traffic.counts)

        rules = prometheus.rules()
        recorded = {name: [series["metric"] for series in prometheus.instant(name, end)]
                    for name in {rule["name"] for rule in rules if rule["type"] == "recording"}}
        catalogue = promql.Catalogue(exposition, recorded)
        check_operations(prometheus, end, findings)
        ask(Answers(prometheus, began + SETTLED, end, findings), catalogue, rules, findings)
        patiently(lambda: {alert["labels"]["alertname"] for alert in prometheus.alerts()} >= expected.ALERTS)
        check_alerts(rules, prometheus.alerts(), findings)
        stats = [panel for _, dashboard in dashboards() for panel in panels(dashboard) if panel["type"] == "stat"]
        patiently(lambda: not any(stat_wrong(prometheus, panel, time.time()) for panel in stats))
        for panel in stats:
            wrong = stat_wrong(prometheus, panel, time.time())
            findings.that(not wrong, wrong)
        print(check_ttft(prometheus, catalogue, log, end, end_ns, int(TRAFFIC - SETTLED), findings))


def check_operations(prometheus: Prometheus, end: float, findings: Findings) -> None:
    """Each dialect is measured under its own name."""
    for name in expected.BY_OPERATION:
        series = prometheus.instant(f'sum by (operation) (streamgauge_{name}{{backend="secure"}}) > 0', end)
        seen = {one["metric"]["operation"] for one in series}
        findings.that(seen == expected.OPERATIONS, f"{name} has the operations {sorted(seen)}")


def ask(asked: Answers, catalogue: promql.Catalogue, rules: list[dict], findings: Findings) -> None:
    """Every query, first read and then asked."""
    shown = [(dashboard["uid"], panel) for _, dashboard in dashboards() for panel in panels(dashboard)]
    queries = [(rule["name"], rule["query"]) for rule in rules]
    queries += [("dashboards/README.md", query) for query in queries_at_hand()]
    queries += [(f"{uid}: {panel['title']}", target["expr"]) for uid, panel in shown for target in panel["targets"]]
    check_names(catalogue, queries, findings)
    check_meaning(catalogue, findings)
    check_last_bounds(catalogue, rules, findings)
    for _, dashboard in dashboards():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                asked.variable(dashboard["uid"], variable)
    for uid, panel in shown:
        asked.panel(uid, panel)
    for rule in rules:
        asked.rule(rule)
    for query in queries_at_hand():
        asked.at_hand(query)
    for query in sorted({query for _, query in queries}):
        asked.selectors(query)


if __name__ == "__main__":
    main()
