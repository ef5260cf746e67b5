"""The series that each panel must show of the traffic, by the labels that tell them apart.

A series must have a finite value other than zero; with ZERO, it must be there and be zero all the time; with CALM, it must
be there and be zero at times, for a slow machine may make the rest. `{}` is any series. Every query of a panel must return
all of the panel's series.
"""

from traffic import ANOMALIES, OUTCOMES, PROMPTS

ZERO = {"=": "0"}
CALM = {"=": "0 at times"}


def of(label: str, *values: str) -> list[dict[str, str]]:
    return [{label: value} for value in values]


def backends(*names: str, **more: str) -> list[dict[str, str]]:
    return [{"backend": name, **more} for name in names]


STREAMING = backends("steady", "secure", "local")
COUNTED = [*backends("steady", "secure", "local", source="usage"), *backends("steady", source="events"),
           *backends("counted", source="tokenizer")]
BY_PROMPT = [{"backend": name, "prompt": prompt} for name in ("steady", "secure", "counted") for prompt in PROMPTS]
UNKNOWN_PROMPT = backends("steady", prompt="unknown")
PHASES = ["read_body", "dns", "connect", "tls", "send", "wait", "queue", "prefill", "first_token", "decode", "tail"]
OBJECTIVES = [*backends("steady", slo="interactive"), *backends("steady", slo="server"), *backends("local", slo="patient"),
              *backends("slow", slo="interactive", **ZERO), *backends("slow", slo="server", **ZERO)]

PANELS = {
    "streamgauge-overview": {
        "Requests": [{}],
        "In flight": [{}],
        "Error share": [{}],
        "TTFT p95, client": [{}],
        "Throughput": of("source", "usage", "events", "tokenizer"),
        "Objectives met": of("slo", "interactive", "server", "patient"),
        "Requests by outcome": of("outcome", *OUTCOMES),
        "In flight by backend": [*STREAMING, *backends("slow", "short")],
        "Throughput by backend and source": COUNTED,
        "Token events, live": STREAMING,
        "TTFT of the backend (vantage upstream)": STREAMING,
        "TTFT for the client (vantage client)": STREAMING,
        "ITL": STREAMING,
        "TPOT": COUNTED,
        "TTFT distribution (vantage upstream)": of("le", "0.1", "0.45", "+Inf"),
        "Stalls": [*STREAMING, *backends("slow")],
        "Error share by backend": [*backends("odd", "short", "gone", "none"), *backends("steady", "slow", **ZERO)],
        "Cancel share by backend": [*backends("odd"), *backends("steady", **ZERO)],
        "Objectives met by backend": OBJECTIVES,
    },
    "streamgauge-compare": {
        "In flight": STREAMING,
        "Throughput": COUNTED,
        "TTFT p50": STREAMING,
        "TPOT p50": COUNTED,
        "Throughput against in flight": STREAMING,
        "TTFT against in flight": STREAMING,
        "TTFT p50 by prompt length": [*BY_PROMPT, *UNKNOWN_PROMPT, *backends("local")],
        "TTFT p95 by prompt length": [*BY_PROMPT, *UNKNOWN_PROMPT, *backends("local")],
        "TPOT p50 by prompt length": [*BY_PROMPT, *UNKNOWN_PROMPT, *backends("local")],
        "TPOT p95 by prompt length": [*BY_PROMPT, *UNKNOWN_PROMPT, *backends("local")],
        "TGS": COUNTED,
        "ITL": STREAMING,
        "TTFA p50 and p95": STREAMING,
        "Duration p50 and p95": STREAMING,
        "Prompt tokens": [*STREAMING, *backends("counted", source="tokenizer")],
        "Output tokens": COUNTED,
        "Ended ok": [*STREAMING, *backends("odd"), *backends("gone", "short", **ZERO)],
    },
    "streamgauge-anatomy": {
        "Mean duration by phase": of("phase", *PHASES),
        "Phase p95": of("phase", *PHASES),
        "Mean duration by backend": [{**one, "stream": "true"} for one in STREAMING] + backends("steady", "local", stream="false"),
        "Time to headers and to the first event, p50": STREAMING,
        "Connections: requests that opened one": backends("secure", "odd", "gone"),
        "Stalls": [*STREAMING, *backends("slow")],
        "Share of streams that stall": [*backends("slow"), *backends("secure", **CALM)],
        "Anomalies by kind": of("kind", *ANOMALIES),
        "Dwell": STREAMING,
        "Events per read": backends("steady", "secure", "odd"),
        "Coalesced share": [*backends("secure", "odd"), *backends("local", **ZERO)],
        "ITL, coalesced": backends("secure", "odd"),
        "Timestamps by source": of("source", "user", "engine"),
        "Label overflow": [{}],
        "Books": [ZERO],
        "Engine step": backends("local"),
        "Batch size": backends("local"),
        "Prefill": backends("local"),
        "KV slots in use": backends("local"),
        "Queue": backends("local"),
    },
}

# What must have been measured of streams in every dialect, and the dialects' names.
BY_OPERATION = ["requests_total", "token_events_total", "tokens_total", "time_to_first_token_seconds_count",
                "inter_token_latency_seconds_count", "time_per_output_token_seconds_count"]
OPERATIONS = {"chat", "completion", "responses", "messages"}

# The values that a dashboard's variable must offer.
VARIABLES = {
    "backend": {"steady", "secure", "local", "odd", "counted", "slow", "short", "gone", "many", "none"},
    "model": {"steady-model", "secure-model", "counted-model", "llama-2-tiny", "model-0", "other", "none"},
}

# What rules record of the traffic, and of which traffic; TTFT above 160 s, for one, nobody waits for.
RULES_ZERO = {"streamgauge:unaccounted_requests", "StreamgaugeBooksUnbalanced"}
LAST_BUCKETS_FILLED = {"output_tokens_per_second"}
# What single values show when the traffic has ended: none of what is about requests, and nothing per second.
IDLE_ABSENT = {"Error share", "TTFT p95, client", "Objectives met"}
# Alerts whose cause the traffic brings, at any speed of the machine. Most are pending: their `for` is longer than the test.
ALERTS = {"StreamgaugeTtftHigh", "StreamgaugeStalls", "StreamgaugeBrokenReplies", "StreamgaugeLastBucket", "StreamgaugeLabelOverflow"}
