// The list of requests: table rows that are used again, a canvas in each, and how they are walked.

import { tools } from "./filters.js";
import { invalidate, state } from "./state.js";
import { GROUPS, axisOf, drawAxis, drawStrip, forgetInk, groupOf, outcomeNote } from "./strips.js";
import { $, WHY_ABSENT, element, exact, hiddenFromReaders, setText, short } from "./text.js";

const HOLD_AFTER_POINTING_MS = 2500;

// The column is narrow; the exact word stands in the details and the downloads.
const SHORT_OUTCOMES = { client_cancel_before_token: "cancel, no token", client_cancel: "client cancel" };

export const rowInFocus = () => document.activeElement?.closest?.("#rows tr") ?? null;
// While someone reads a row, rows do not move away from under the pointer or the focus.
export const held = () => rowInFocus() !== null || performance.now() < state.pointingUntil;
export const shownRows = () => [...$("rows").children].map((tr) => tr.line.item.row);

export function drawCount(shown) {
  const filtered = shown.length === state.view.length ? "" : ` of ${state.view.length}`;
  const skipped = state.skipped ? ` · +${state.skipped} not shown: too many at once, or while the page was hidden or not connected` : "";
  const fresh = state.lastSeq - state.viewSeq;
  setText($("count"), `newest ${shown.length}${filtered} finished${skipped}${state.paused ? ` · paused, ${fresh} new` : ""}`);
  $("none").hidden = shown.length > 0;
  $("resume").hidden = state.paused || !held();
  if (!$("resume").hidden) setText($("resume"), `held while you read, ${fresh} new: run on`);
}

// ── Rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────

const lines = new Map(); // row.seq → the table row that shows it
const spare = [];
const nearby = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const line = target.line;
    line.visible = isIntersecting;
    line.drawn = null;
    // A canvas out of sight gives its pixels back.
    if (!isIntersecting) line.canvas.width = line.canvas.height = 0;
  }
  invalidate();
}, { rootMargin: "300px 0px" });

function makeLine() {
  const tr = element("tr");
  tr.setAttribute("role", "row");
  tr.tabIndex = -1;
  const cells = {};
  for (const name of ["outcome", "name", "strip", "ttft", "tpot", "tokens", "total"]) {
    cells[name] = element("td", `c-${name}${["outcome", "name", "strip"].includes(name) ? "" : " c-num"}`);
    cells[name].setAttribute("role", "gridcell");
    tr.append(cells[name]);
  }
  const [sign, outcome, model, backend] = ["sign", "", "model", "backend"].map((name) => element("span", name));
  const canvas = element("canvas");
  hiddenFromReaders(sign);
  canvas.setAttribute("role", "img");
  cells.outcome.append(sign, outcome);
  cells.name.append(model, " ", backend);
  cells.strip.append(canvas);
  const line = { tr, cells, sign, outcome, model, backend, canvas, item: null, visible: false, drawn: null };
  tr.line = line;
  return line;
}

function fillLine(line, item) {
  const { row } = item;
  line.item = item;
  line.drawn = null;
  line.tr.dataset.seq = row.seq;
  line.tr.dataset.group = groupOf(row.outcome);
  line.tr.dataset.outcome = row.outcome;
  setText(line.sign, GROUPS[groupOf(row.outcome)].sign);
  setText(line.outcome, SHORT_OUTCOMES[row.outcome] ?? row.outcome.replaceAll("_", " "));
  line.cells.outcome.title = outcomeNote(row.outcome) || row.outcome;
  setText(line.model, row.model ?? "–");
  // Named once where the two are one word.
  setText(line.backend, row.backend === row.model ? "" : row.backend ?? "–");
  line.cells.name.title = `${row.model ?? WHY_ABSENT.model} · ${row.backend ?? WHY_ABSENT.backend}`;
  for (const [cell, key] of [["ttft", "ttft_ms"], ["tpot", "tpot_ms"], ["tokens", "output_tokens"], ["total", "duration_ms"]]) {
    const value = row[key];
    const counted = value != null && key === "output_tokens";
    setText(line.cells[cell], counted ? `${row.source === "events" ? "~" : ""}${value}` : short(value));
    line.cells[cell].title = value == null ? `absent: ${WHY_ABSENT[key]}` : counted ? `from ${row.source}` : `${exact(value)} ms`;
  }
  line.canvas.setAttribute("aria-label", describe(item));
}

function describe({ row, stalls }) {
  const phases = row.phases.map(([name, ms]) => `${name.replaceAll("_", " ")} ${short(ms)}`).join(", ");
  const stall = row.stall_ms == null ? "" : `; longest gap ${short(row.stall_ms)} ms${stalls.length ? `, ${stalls.length} far above the median` : ""}`;
  return `phases in ms: ${phases || "none"}; ${row.token_events} token events${stall}`;
}

export function drawRows(shown) {
  const keep = new Set(shown.map(({ row }) => row.seq));
  for (const [seq, line] of lines) {
    if (keep.has(seq)) continue;
    lines.delete(seq);
    nearby.unobserve(line.tr);
    line.tr.remove();
    line.visible = false;
    line.canvas.width = line.canvas.height = 0;
    line.item = null;
    spare.push(line);
  }
  const body = $("rows");
  let next = body.firstChild;
  for (const [index, item] of shown.entries()) {
    let line = lines.get(item.row.seq);
    if (!line) {
      line = spare.pop() ?? makeLine();
      lines.set(item.row.seq, line);
    }
    if (line.item !== item) fillLine(line, item);
    if (line.tr === next) next = next.nextSibling;
    else {
      body.insertBefore(line.tr, next);
      nearby.observe(line.tr);
      // The observer tells a frame later; the newest rows would be blank until then.
      line.visible ||= index < 40;
    }
  }
  // One row is in the tab order: the one being read, else the newest.
  const entry = rowInFocus() ?? lines.get(state.current?.row.seq)?.tr ?? body.firstChild;
  for (const { tr, item } of lines.values()) {
    const index = tr === entry ? 0 : -1;
    if (tr.tabIndex !== index) tr.tabIndex = index;
    const selected = String(item === state.current);
    if (tr.getAttribute("aria-selected") !== selected) tr.setAttribute("aria-selected", selected);
  }
}

// ── Strips ──────────────────────────────────────────────────────────────────────────────────────────────────────────

let stripWidth = 0;
let axisDrawn = null;

export function drawStrips(shown) {
  if (!stripWidth || !shown.length) return;
  const nowMs = state.paused || held() ? 0 : state.viewAtMs;
  const axis = axisOf(shown, stripWidth, tools.align.value === "clock", +tools.span.value, nowMs);
  const key = [axis.byClock, axis.from, axis.to, stripWidth, devicePixelRatio].join();
  if (axisDrawn !== key) drawAxis($("axis"), axis);
  axisDrawn = key;
  for (const line of lines.values()) {
    if (!line.visible || line.drawn === key) continue;
    line.drawn = key;
    drawStrip(line.canvas, line.item, axis);
  }
}

new ResizeObserver(([entry]) => { stripWidth = Math.floor(entry.contentRect.width); invalidate(); }).observe($("axis").parentElement);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  forgetInk();
  for (const line of lines.values()) line.drawn = null;
  axisDrawn = null;
  invalidate();
});

// ── Reading a row: pointer and keyboard ─────────────────────────────────────────────────────────────────────────────

function look(tr) {
  state.current = tr.line.item;
  invalidate();
}

let letGo = 0;
$("rows").addEventListener("pointermove", (event) => {
  const tr = event.target.closest("tr");
  if (!tr) return;
  state.pointingUntil = performance.now() + HOLD_AFTER_POINTING_MS;
  clearTimeout(letGo);
  letGo = setTimeout(invalidate, HOLD_AFTER_POINTING_MS + 20);
  look(tr);
});
$("rows").addEventListener("pointerleave", () => { state.pointingUntil = 0; invalidate(); });
$("rows").addEventListener("focusin", (event) => look(event.target.closest("tr")));
$("rows").addEventListener("focusout", invalidate);

export function runOn() {
  rowInFocus()?.blur();
  state.pointingUntil = 0;
  invalidate();
}
$("resume").addEventListener("click", runOn);

$("rows").addEventListener("keydown", (event) => {
  const rows = [...$("rows").children];
  const at = rows.indexOf(rowInFocus());
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1, PageDown: at + 10, PageUp: at - 10 }[event.key];
  if (event.key === "Escape") runOn();
  if (to === undefined || at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  rows[Math.max(0, Math.min(to, rows.length - 1))].focus();
});
