// The live page: reads finished requests from /live and draws each as a token strip.
//
// Invariants: whatever arrives, what is kept stays within the limits below, and the page is drawn at most once a frame.
// Strings from the data reach the page through textContent alone. What was not observed is shown as absent, never as 0.

import { PHASES, STALL, axisOf, clock, drawAxis, drawStrip, forgetInk, groupOf, span, study } from "./strips.js";

// ── Limits and definitions ──────────────────────────────────────────────────────────────────────────────────────────

const MAX_ROWS = 300;
// Of the rows kept. A held view may keep other rows than the store, so the page has at most twice as many.
const MAX_TICKS = 100_000;
const HOLD_AFTER_POINTING_MS = 2500;

const METRICS = [
  { key: "ttft_ms", name: "TTFT", unit: "ms", long: "time to first token" },
  { key: "itl_ms", name: "ITL", unit: "ms", long: "inter-token latency" },
  { key: "tpot_ms", name: "TPOT", unit: "ms", long: "time per output token" },
  { key: "tgs", name: "TGS", unit: "tok/s", long: "tokens per second of one request; higher is better" },
];

const WHY_ABSENT = {
  ttft_ms: "no token event", ttft_upstream_ms: "no token event", ttfa_ms: "no answer token",
  tpot_ms: "under two output tokens, number unknown, or several choices",
  tgs: "output tokens unknown, or several choices", stall_ms: "fewer than two token events",
  prompt_tokens: "not reported", output_tokens: "not reported and not counted", source: "no output tokens",
  backend: "not routed", model: "the request named none", model_served: "the reply named none",
  status: "no response head", tag: "no x-streamgauge-tag header", reused: "no upstream connection", choices: "none seen",
  stream: "not known",
};

// The column is narrow; the exact word stands in the title, the details and the downloads.
const SHORT_OUTCOMES = { client_cancel_before_token: "cancel, no token", client_cancel: "client cancel" };
const GROUP_SIGNS = { ok: "●", cancel: "◆", error: "▲" };

const $ = (id) => document.getElementById(id);

// ── What is kept ────────────────────────────────────────────────────────────────────────────────────────────────────

const state = {
  hello: null, connection: "connecting", paused: false,
  rows: [], ticks: 0, lastSeq: -1, checkRestart: false, skipped: 0, atMs: 0,
  view: [], viewSeq: -1, viewAtMs: 0, backends: null, current: null, pointingUntil: 0,
};

function forget() {
  Object.assign(state, { rows: [], ticks: 0, lastSeq: -1, skipped: 0, view: [], viewSeq: -1, current: null });
}

function takeRows(rows) {
  rows.sort((a, b) => a.seq - b.seq);
  if (state.checkRestart && rows.length) {
    // After a reconnect the server repeats what it still has. A restarted one counts from the start again.
    const known = new Map(state.rows.map((item) => [item.row.seq, item.row.started_ms]));
    const other = rows.some((row) => known.has(row.seq) && known.get(row.seq) !== row.started_ms);
    if (other || rows.at(-1).seq < state.lastSeq) forget();
    state.checkRestart = false;
  }
  for (const row of rows) {
    if (row.seq <= state.lastSeq) continue;
    state.lastSeq = row.seq;
    const item = study(row);
    state.rows.push(item);
    state.ticks += item.ticks.length;
  }
  let gone = 0;
  while (state.rows.length - gone > MAX_ROWS || (state.ticks > MAX_TICKS && state.rows.length - gone > 1)) {
    state.ticks -= state.rows[gone++].ticks.length;
  }
  state.rows.splice(0, gone);
}

// ── The stream of updates ───────────────────────────────────────────────────────────────────────────────────────────

function connect() {
  const source = new EventSource("/live");
  source.addEventListener("hello", (event) => {
    state.hello = JSON.parse(event.data);
    state.connection = "live";
    state.checkRestart = true;
    invalidate();
  });
  source.addEventListener("update", (event) => {
    const update = JSON.parse(event.data);
    state.atMs = update.at_ms;
    state.skipped += update.skipped ?? 0;
    if (update.rows) takeRows(update.rows);
    if (update.backends) state.backends = update.backends;
    invalidate();
  });
  source.addEventListener("error", () => {
    state.connection = "lost";
    // The browser reconnects by itself after a broken stream, not after a refusal.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
    invalidate();
  });
}

// ── One drawing a frame ─────────────────────────────────────────────────────────────────────────────────────────────

let frame = 0;
function invalidate() {
  frame ||= requestAnimationFrame(() => { frame = 0; draw(); });
}

const rowInFocus = () => document.activeElement?.closest?.("#rows tr") ?? null;
// While someone reads a row, rows do not move away from under the pointer or the focus.
const held = () => rowInFocus() !== null || performance.now() < state.pointingUntil;

function draw() {
  if (!state.paused && !held()) {
    state.view = state.rows.slice().reverse();
    state.viewSeq = state.lastSeq;
    state.viewAtMs = state.atMs;
  }
  const any = state.rows.length > 0 || state.view.length > 0;
  $("empty").hidden = any;
  $("requests").hidden = !any;
  drawHeader();
  if (!state.paused) drawCards();
  if (!any) return;
  drawFilters();
  const shown = state.view.filter(passes);
  drawCount(shown);
  drawRows(shown);
  drawStrips(shown);
  drawDetails();
}

// Changes the text node that is there, since hundreds of new ones a second would be garbage to collect.
function setText(node, text) {
  if (!node.firstChild) node.textContent = text;
  else if (node.firstChild.data !== text) node.firstChild.data = text;
}

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// ── Numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const decimals = (value) => (value >= 100 ? 0 : value >= 10 ? 1 : 2);
const short = (value) => (value == null ? "–" : value.toFixed(decimals(Math.abs(value))));
const [whole, thousandths] = [0, 3].map((digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const exact = (value) => thousandths.format(value);
// ── Header and empty state ──────────────────────────────────────────────────────────────────────────────────────────

const STATES = { connecting: "connecting", live: "live", lost: "connection lost, retrying" };

function drawHeader() {
  const name = state.paused ? "paused" : state.connection;
  $("state").dataset.state = name;
  setText($("state-text"), STATES[name] ?? name);
  setText($("pause"), state.paused ? "Resume" : "Pause");
  $("pause").setAttribute("aria-pressed", String(state.paused));
  if (!state.hello) return;
  setText($("version"), state.hello.version);
  setText($("base-url"), baseUrl());
  setText($("env-line"), `OPENAI_BASE_URL=${baseUrl()}`);
  $("base").hidden = $("empty").hidden === false;
  setText($("window"), `percentiles of the last ${state.hello.window_s} s; curves of the last ${span(state.hello.slots * state.hello.slot_s * 1000)}: p50, and shaded up to p95`);
}

// A listener on every address has none to offer; the one this page came from is known to work.
function baseUrl() {
  const [, host, port] = /^(.*):(\d+)$/.exec(state.hello.listen) ?? [null, state.hello.listen, ""];
  const anywhere = host === "0.0.0.0" || host === "[::]";
  return `http://${anywhere ? location.hostname : host}${port && `:${port}`}/v1`;
}

$("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText($("env-line").textContent);
    $("copy").textContent = "Copied";
  } catch {
    // Pages served over plain HTTP from elsewhere than loopback have no clipboard.
    getSelection().selectAllChildren($("env-line"));
    $("copy").textContent = "Selected";
  }
  setTimeout(() => { $("copy").textContent = "Copy"; }, 2000);
});

$("pause").addEventListener("click", () => { state.paused = !state.paused; invalidate(); });

// ── Cards: one per backend ──────────────────────────────────────────────────────────────────────────────────────────

const cards = new Map();

function drawCards() {
  const backends = state.backends ?? [];
  $("backends").hidden = !backends.length;
  const names = new Set(backends.map((backend) => backend.name));
  for (const [name, card] of cards) {
    if (!names.has(name)) { card.root.remove(); cards.delete(name); }
  }
  for (const backend of backends) {
    if (!cards.has(backend.name)) cards.set(backend.name, makeCard(backend));
    fillCard(cards.get(backend.name), backend);
  }
}

function makeCard(backend) {
  const root = element("article", "card");
  const title = element("h3", "", backend.name);
  title.append(" ", element("small", "", backend.kind));
  const load = element("p", "load");
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const text of ["", "p50", "p95", "p99", "over time"]) {
    const cell = element(text ? "th" : "td", text === "over time" ? "spark-head" : "", text);
    if (text) cell.scope = "col";
    head.append(cell);
  }
  const lines = METRICS.map((metric) => {
    const row = table.createTBody().insertRow();
    const name = element("th");
    name.scope = "row";
    const abbr = element("abbr", "", metric.name);
    abbr.title = metric.long;
    name.append(abbr, " ", element("small", "", metric.unit));
    const numbers = ["p50", "p95", "p99"].map((key) => element("td", key));
    const spark = makeSpark();
    const cell = element("td", "spark");
    cell.append(spark.root, spark.top);
    row.append(name, ...numbers, cell);
    return { metric, numbers, spark };
  });
  root.append(title, load, table);
  $("cards").append(root);
  return { root, load, lines };
}

function fillCard(card, backend) {
  const part = (n, word) => (n ? ` · ${n} ${word}` : "");
  setText(card.load, `${backend.in_flight} in flight · ${backend.requests} requests${part(backend.ok, "ok")}${part(backend.errors, backend.errors === 1 ? "error" : "errors")}${part(backend.cancels, "cancelled")}`);
  card.root.classList.toggle("has-errors", backend.errors > 0);
  for (const { metric, numbers, spark } of card.lines) {
    const seen = backend[metric.key];
    ["p50", "p95", "p99"].forEach((key, i) => {
      setText(numbers[i], short(seen?.[key]));
      numbers[i].title = seen?.[key] == null ? "nothing observed in this time" : `${exact(seen[key])} ${metric.unit}, ${seen.count} observed`;
    });
    fillSpark(spark, seen?.spark ?? [], metric);
  }
}

const SVG = "http://www.w3.org/2000/svg";

function makeSpark() {
  const root = document.createElementNS(SVG, "svg");
  root.setAttribute("role", "img");
  root.setAttribute("preserveAspectRatio", "none");
  const [band, line] = ["spark-band", "spark-line"].map((name) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", name);
    root.append(path);
    return path;
  });
  return { root, band, line, top: element("span", "spark-top") };
}

// Above the curve is room for the number at its top. Steps, one per slot, since a slot's percentile holds for all of it. A slot without observations stays a gap.
function fillSpark(spark, slots, metric) {
  const top = Math.max(0, ...slots.map((slot) => slot?.[1] ?? 0));
  const y = (value) => (40 - (value / (top || 1)) * 27).toFixed(1);
  let line = "", band = "";
  for (let i = 0; i < slots.length; i++) {
    if (!slots[i]) continue;
    const begin = i;
    let upper = "", lower = "";
    for (; slots[i]; i++) {
      line += `${i === begin ? `M${i}` : "V"}${i === begin ? " " : ""}${y(slots[i][0])}H${i + 1}`;
      upper += `${i === begin ? "" : "V"}${y(slots[i][1])}H${i + 1}`;
      lower = `V${y(slots[i][0])}H${i}${lower}`;
    }
    band += `M${begin} ${upper}${lower}Z`;
  }
  spark.root.setAttribute("viewBox", `0 0 ${slots.length || 1} 41`);
  spark.line.setAttribute("d", line);
  spark.band.setAttribute("d", band);
  setText(spark.top, top ? short(top) : "");
  const last = slots.findLast((slot) => slot);
  spark.root.setAttribute("aria-label", last ? `${metric.name} curve, 0 to ${short(top)} ${metric.unit}; latest p50 ${short(last[0])}, p95 ${short(last[1])}` : `${metric.name} curve, nothing observed`);
}

// ── Filters ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const tools = $("tools");
const FILTERS = ["backend", "model", "outcome", "tag"];
const NONE = "none";
const filterKey = (value) => (value == null ? NONE : `=${value}`);

function passes({ row }) {
  return FILTERS.every((key) => !tools[key].value || tools[key].value === filterKey(row[key]));
}

// Choices are the values of the rows at hand; a chosen one stays although its last row has gone.
function drawFilters() {
  for (const key of FILTERS) {
    const select = tools[key];
    const values = [...new Set(state.view.map(({ row }) => filterKey(row[key])))].sort();
    if (select.value && !values.includes(select.value)) values.push(select.value);
    const wanted = ["", ...values];
    if (wanted.length === select.options.length && wanted.every((value, i) => value === select.options[i].value)) continue;
    const chosen = select.value;
    select.replaceChildren(...wanted.map((value) => new Option(value === "" ? "all" : value === NONE ? "(none)" : value.slice(1), value)));
    select.value = chosen;
  }
}

tools.addEventListener("change", invalidate);
tools.addEventListener("submit", (event) => event.preventDefault());
// The fields have their new values only after the event.
tools.addEventListener("reset", () => setTimeout(invalidate));

function drawCount(shown) {
  const filtered = shown.length === state.view.length ? "" : ` of ${state.view.length}`;
  const skipped = state.skipped ? ` · +${state.skipped} not shown: too many at once` : "";
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
  const [sign, outcome, model, backend, canvas] = [element("span", "sign"), element("span"), element("span", "model"), element("span", "backend"), element("canvas")];
  sign.setAttribute("aria-hidden", "true");
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
  setText(line.sign, GROUP_SIGNS[groupOf(row.outcome)]);
  setText(line.outcome, SHORT_OUTCOMES[row.outcome] ?? row.outcome.replaceAll("_", " "));
  line.cells.outcome.title = row.outcome;
  setText(line.model, row.model ?? "–");
  setText(line.backend, row.backend ?? "–");
  line.cells.name.title = `${row.model ?? WHY_ABSENT.model} · ${row.backend ?? WHY_ABSENT.backend}`;
  for (const [cell, key] of [["ttft", "ttft_ms"], ["tpot", "tpot_ms"], ["tokens", "output_tokens"], ["total", "duration_ms"]]) {
    const value = row[key];
    setText(line.cells[cell], value != null && key === "output_tokens" ? String(value) : short(value));
    line.cells[cell].title = value == null ? `absent: ${WHY_ABSENT[key]}` : key === "output_tokens" ? `from ${row.source}` : `${exact(value)} ms`;
  }
  line.canvas.setAttribute("aria-label", describe(item));
}

function describe({ row, stalls }) {
  const phases = row.phases.map(([name, ms]) => `${name.replaceAll("_", " ")} ${short(ms)}`).join(", ");
  const stall = row.stall_ms == null ? "" : `; longest gap ${short(row.stall_ms)} ms${stalls.length ? `, ${stalls.length} far above the median` : ""}`;
  return `phases in ms: ${phases || "none"}; ${row.token_events} token events${stall}`;
}

function drawRows(shown) {
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

function drawStrips(shown) {
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

// ── Legend ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function drawLegend() {
  const entries = [
    ...Object.entries(PHASES).map(([name, long]) => [`swatch phase-${name}`, name, long]),
    ["swatch mark-answer", "answer token", "a token event with answer text"],
    ["swatch mark-reasoning", "reasoning token", "a token event with reasoning text"],
    ["swatch mark-shared", "shared read", "this event arrived in one read with another"],
    ["swatch mark-longest", "longest gap", "the longest time between two token events"],
    ["swatch phase-stall", `stall: over ${STALL.FACTOR}× the row's median gap`, `a gap over ${STALL.FACTOR} times the row's median gap and ${STALL.MARGIN_MS} ms above it; gaps under ${STALL.TOGETHER_MS} ms leave the median`],
    ["", "beyond the axis", "the request goes on to the right, or began further left", "▸"],
  ];
  $("legend-items").replaceChildren(...entries.map(([swatch, name, long, sign = ""]) => {
    const item = element("li");
    item.title = long;
    const mark = element("span", swatch, sign);
    mark.setAttribute("aria-hidden", "true");
    item.append(mark, name.replaceAll("_", " "));
    return item;
  }));
}

// ── Exact numbers of one row ────────────────────────────────────────────────────────────────────────────────────────

let detailed = null;

function drawDetails() {
  const item = state.current;
  if (item === detailed) return;
  // On a narrow screen the numbers cover a part of it, perhaps with the very row that asked for them.
  if (!detailed) requestAnimationFrame(() => rowInFocus()?.scrollIntoView({ block: "nearest" }));
  detailed = item;
  $("details-hint").hidden = item !== null;
  $("details-body").hidden = item === null;
  $("details").classList.toggle("filled", item !== null);
  if (!item) return;
  const { row, ticks } = item;
  const name = $("details-name");
  const sign = element("span", `sign ${groupOf(row.outcome)}`, GROUP_SIGNS[groupOf(row.outcome)]);
  sign.setAttribute("aria-hidden", "true");
  name.replaceChildren(sign, element("strong", "", row.outcome), ` ${row.model ?? "no model"}`);

  facts("details-phases", row.phases.map(([phase, ms]) => {
    const swatch = element("span", `swatch phase-${phase}`);
    swatch.setAttribute("aria-hidden", "true");
    return [phase.replaceAll("_", " "), `${exact(ms)} ms`, `${((ms / (row.duration_ms || 1)) * 100).toFixed(1)} %`, swatch, PHASES[phase]];
  }));
  const fact = (label, key, unit = "") => [label, row[key] == null ? null : `${typeof row[key] === "number" ? (unit ? thousandths : whole).format(row[key]) : row[key]}${unit}`, row[key] == null ? WHY_ABSENT[key] : ""];
  const after = row.choices === 1 && item.longest >= 0 ? `after event\u00a0${item.longest + 1}` : "";
  facts("details-intervals", [
    fact("TTFT, client", "ttft_ms", " ms"), fact("TTFT, upstream", "ttft_upstream_ms", " ms"), fact("TTFA", "ttfa_ms", " ms"),
    fact("TPOT", "tpot_ms", " ms"), fact("TGS", "tgs", " tok/s"),
    ["Median gap", item.median === null ? null : `${exact(item.median)} ms`, item.median === null ? `no gap of ${STALL.TOGETHER_MS} ms` : ""],
    row.stall_ms == null ? fact("Longest gap", "stall_ms") : ["Longest gap", `${exact(row.stall_ms)} ms`, after],
    fact("Duration", "duration_ms", " ms"),
  ]);
  const reasoning = [...(row.kinds ?? "")].filter((kind) => kind === "r" || kind === "R").length;
  const shared = [...(row.kinds ?? "")].filter((kind) => kind === "A" || kind === "R").length;
  const events = [reasoning && `${reasoning} reasoning`, shared && `${shared} shared a read`, row.ticks_lost && `${row.ticks_lost} not drawn`, item.stalls.length && `${item.stalls.length} stalls`];
  facts("details-rest", [
    fact("Prompt tokens", "prompt_tokens"),
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

function runOn() {
  rowInFocus()?.blur();
  state.pointingUntil = 0;
  invalidate();
}
$("resume").addEventListener("click", runOn);
$("close").addEventListener("click", () => { state.current = null; runOn(); });

$("rows").addEventListener("keydown", (event) => {
  const rows = [...$("rows").children];
  const at = rows.indexOf(rowInFocus());
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1, PageDown: at + 10, PageUp: at - 10 }[event.key];
  if (event.key === "Escape") runOn();
  if (to === undefined || at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  rows[Math.max(0, Math.min(to, rows.length - 1))].focus();
});

// ── Downloads: exactly the shown rows ───────────────────────────────────────────────────────────────────────────────

const SCALARS = ["seq", "started", "started_ms", "backend", "model", "model_served", "operation", "stream", "outcome", "status", "tag", "reused",
  "duration_ms", "ttft_ms", "ttft_upstream_ms", "ttfa_ms", "tpot_ms", "tgs", "stall_ms", "prompt_tokens", "output_tokens", "source",
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
  const safe = /^[\s]*[=+\-@|%]|^[\t\r\n]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function offer(id, type, write) {
  $(id).addEventListener("click", (event) => {
    const rows = [...$("rows").children].map((tr) => tr.line.item.row);
    const url = URL.createObjectURL(new Blob([write(rows)], { type }));
    event.currentTarget.href = url;
    // The download has begun by then; without this every file would stay in memory.
    setTimeout(() => { URL.revokeObjectURL(url); $(id).href = "#requests"; }, 10_000);
  });
}
offer("save-json", "application/json", (rows) => JSON.stringify(rows, null, 1));
offer("save-csv", "text/csv", csv);

// ── Begin ───────────────────────────────────────────────────────────────────────────────────────────────────────────

drawLegend();
$("legend").open = matchMedia("(min-width: 45rem)").matches;
draw();
connect();
