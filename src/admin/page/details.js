// The exact numbers of the row that is read.

import { rowInFocus, runOn } from "./rows.js";
import { state } from "./state.js";
import { GROUPS, PHASES, STALL, clock, groupOf, outcomeNote } from "./strips.js";
import { $, WHY_ABSENT, element, exact, hiddenFromReaders, thousandths, whole } from "./text.js";

let detailed = null;

export function drawDetails() {
  const item = state.current;
  if (item === detailed) return;
  // On a narrow screen the numbers cover a part of it, perhaps with the very row that asked for them.
  if (!detailed) requestAnimationFrame(() => rowInFocus()?.scrollIntoView({ block: "nearest" }));
  detailed = item;
  $("details-hint").hidden = item !== null;
  $("details-body").hidden = item === null;
  $("details").classList.toggle("filled", item !== null);
  if (!item) return;
  const { row } = item;
  const name = $("details-name");
  const sign = hiddenFromReaders(element("span", `sign ${groupOf(row.outcome)}`, GROUPS[groupOf(row.outcome)].sign));
  name.replaceChildren(sign, element("strong", "", row.outcome), ` ${row.model ?? "no model"}`);
  if (outcomeNote(row.outcome)) name.append(element("span", "about", outcomeNote(row.outcome)));

  facts("details-phases", row.phases.map(([phase, ms]) => {
    const swatch = hiddenFromReaders(element("span", `swatch phase-${phase}`));
    return [phase.replaceAll("_", " "), `${exact(ms)} ms`, `${((ms / (row.duration_ms || 1)) * 100).toFixed(1)} %`, swatch, PHASES[phase]];
  }));
  const fact = (label, key, unit = "") => {
    const value = row[key];
    if (value == null) return [label, null, WHY_ABSENT[key]];
    return [label, `${typeof value === "number" ? (unit ? thousandths : whole).format(value) : value}${unit}`, ""];
  };
  const noMedian = row.stall_ms == null ? WHY_ABSENT.stall_ms : `no gap of ${STALL.TOGETHER_MS} ms`;
  facts("details-intervals", [
    fact("TTFT, client", "ttft_ms", " ms"), fact("TTFT, upstream", "ttft_upstream_ms", " ms"), fact("TTFA", "ttfa_ms", " ms"),
    fact("TPOT", "tpot_ms", " ms"), fact("TGS", "tgs", " tok/s"),
    ["Median gap", item.median === null ? null : `${exact(item.median)} ms`, item.median === null ? noMedian : ""],
    row.stall_ms == null ? fact("Longest gap", "stall_ms") : ["Longest gap", `${exact(row.stall_ms)} ms`, whereLongest(item)],
    fact("Duration", "duration_ms", " ms"),
  ]);
  const reasoning = [...(row.kinds ?? "")].filter((kind) => kind === "r" || kind === "R").length;
  const shared = [...(row.kinds ?? "")].filter((kind) => kind === "A" || kind === "R").length;
  const events = [reasoning && `${reasoning} reasoning`, shared && `${shared} shared a read`, row.ticks_lost && `${row.ticks_lost} not drawn`, item.stalls.length && `${item.stalls.length} stalls`];
  facts("details-rest", [
    ["Prompt tokens", row.prompt_tokens == null ? null : whole.format(row.prompt_tokens), row.prompt_tokens == null ? WHY_ABSENT.prompt_tokens : `source:\u00a0${row.prompt_source}`],
    ["Output tokens", row.output_tokens == null ? null : whole.format(row.output_tokens), row.output_tokens == null ? WHY_ABSENT.output_tokens : `source:\u00a0${row.source}`],
    ["Token events", String(row.token_events), events.filter(Boolean).join(", ")],
    fact("Choices", "choices"), fact("Status", "status"),
    ["Operation", row.operation, row.stream === null ? "" : row.stream ? "streamed" : "not streamed"],
    fact("Backend", "backend"), fact("Model served", "model_served"), fact("Tag", "tag"),
    ["Connection", row.reused == null ? null : row.reused ? "reused" : "new", row.reused == null ? WHY_ABSENT.reused : ""],
    ["Started", clock(row.started_ms, true), `request ${row.seq}`],
    ["Anomalies", row.anomalies?.length ? row.anomalies.map(([kind, n]) => `${kind} × ${n}`).join(", ") : "none", ""],
  ]);
}

// Events beyond what was kept may have had a longer one.
function whereLongest({ row, longest }) {
  if (!longest || Math.abs(longest.ms - row.stall_ms) > 0.01) return "";
  const tokens = row.tokens?.[longest.tick] > 1 ? `, of ${row.tokens[longest.tick]}\u00a0tokens` : "";
  return `before event\u00a0${longest.tick + 1}${tokens}`;
}

function facts(id, entries) {
  $(id).replaceChildren(...entries.map(([label, value, note, swatch, title]) => {
    const row = element("tr");
    const head = element("th");
    head.scope = "row";
    if (title) head.title = title;
    head.append(...(swatch ? [swatch] : []), label);
    row.append(head, element("td", value === null ? "absent" : "", value ?? "–"), element("td", "about", note));
    return row;
  }));
}

$("close").addEventListener("click", () => { state.current = null; runOn(); });
