// Downloads of exactly the shown rows.

import { shownRows } from "./rows.js";
import { PHASES } from "./strips.js";
import { $ } from "./text.js";

const SCALARS = ["seq", "started", "started_ms", "backend", "model", "model_served", "operation", "stream", "outcome", "status", "tag", "reused",
  "duration_ms", "ttft_ms", "ttft_upstream_ms", "ttfa_ms", "tpot_ms", "tgs", "stall_ms", "prompt_tokens", "prompt_source", "output_tokens", "source",
  "token_events", "choices", "ticks_lost"];

function csv(rows) {
  const records = rows.map((row) => {
    const phases = Object.fromEntries(row.phases);
    const all = { ...row, started: new Date(row.started_ms).toISOString() };
    return [...SCALARS.map((key) => all[key]), ...Object.keys(PHASES).map((name) => phases[name]), (row.anomalies ?? []).map(([kind, n]) => `${kind}=${n}`).join(" ")];
  });
  const head = [...SCALARS, ...Object.keys(PHASES).map((name) => `phase_${name}_ms`), "anomalies"];
  return [head, ...records].map((record) => record.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

// A name that a spreadsheet would run as a formula is led by an apostrophe.
function csvCell(value) {
  if (value == null) return "";
  if (typeof value !== "string") return String(value);
  const safe = /^\s*[=+\-@|%＝＋－＠]|^[\t\r\n]/.test(value) ? `'${value}` : value;
  return /[",;\t\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function offer(id, name, type, write) {
  $(id).addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([write(shownRows())], { type }));
    link.download = name;
    link.click();
    // The download has begun by then; without this every file would stay in memory.
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
}
offer("save-json", "streamgauge.json", "application/json", (rows) => JSON.stringify(rows, null, 1));
offer("save-csv", "streamgauge.csv", "text/csv", csv);
