// The drawing of one request: its phases as segments, its token events as ticks, its long gaps marked.
//
// Invariant: nothing here keeps a row or touches the page beyond the canvas it is given.

// ── Definitions ─────────────────────────────────────────────────────────────────────────────────────────────────────

export const PHASES = {
  read_body: "request body read", dns: "name looked up", connect: "TCP connection made", tls: "TLS handshake",
  send: "request sent", wait: "sent, until the response head", queue: "queued in the engine", prefill: "prompt computed",
  first_token: "response head, until the first token", decode: "first token, until the last", tail: "after the last token",
};

// A gap is the time from one token event of a choice to the next of the same choice, per token that the later brings.
// It stands out when it is FACTOR times the row's median gap and at least MARGIN_MS longer. Gaps of events less than
// TOGETHER_MS apart leave the median, or it would be 0 where events come in batches.
export const STALL = { FACTOR: 4, MARGIN_MS: 10, TOGETHER_MS: 1 };

// Colour is never the only difference: each group has a sign of its own.
export const GROUPS = {
  ok: { sign: "●", long: "the reply was complete" },
  cancel: { sign: "◆", long: "the client left before the end" },
  unconfirmed: { sign: "■", long: "ended with [DONE] but no finish reason" },
  error: { sign: "▲", long: "any other end" },
};
const GROUP_OF = { ok: "ok", client_cancel: "cancel", client_cancel_before_token: "cancel", unconfirmed: "unconfirmed" };
export const groupOf = (outcome) => GROUP_OF[outcome] ?? "error";
// What the outcome's name leaves open.
export const outcomeNote = (outcome) => (outcome === "unconfirmed" ? GROUPS.unconfirmed.long : "");

// A row with what drawing it needs: instants in ms from its start, its median gap, and the gaps that stand out.
export function study(row) {
  const deltas = row.ticks_us ?? [];
  const ticks = new Float64Array(deltas.length);
  let at = 0;
  deltas.forEach((delta, i) => { ticks[i] = (at += delta) / 1000; });

  const gaps = [];
  for (let i = 0; i < ticks.length; i++) {
    const us = row.gaps_us ? row.gaps_us[i] : i > 0 ? deltas[i] : null;
    if (us == null) continue;
    gaps.push({ tick: i, from: ticks[i] - us / 1000, to: ticks[i], ms: us / 1000 / (row.tokens?.[i] || 1) });
  }
  const apart = gaps.filter(({ from, to }) => to - from >= STALL.TOGETHER_MS).map(({ ms }) => ms).sort((a, b) => a - b);
  const median = apart.length ? apart[apart.length >> 1] : null;
  const limit = median === null ? Infinity : Math.max(median * STALL.FACTOR, median + STALL.MARGIN_MS);
  const stalls = gaps.filter(({ ms }) => ms > limit);
  const longest = gaps.reduce((most, gap) => (most && most.ms >= gap.ms ? most : gap), null);
  return { row, ticks, median, stalls, longest };
}

// ── Instants and spans as text ──────────────────────────────────────────────────────────────────────────────────────

export const span = (ms) => (ms >= 60_000 ? `${+(ms / 60_000).toFixed(1)} min` : ms >= 1000 ? `${+(ms / 1000).toFixed(2)} s` : `${+ms.toFixed(1)} ms`);
const two = (n) => String(n).padStart(2, "0");
export function clock(ms, fraction) {
  const at = new Date(ms);
  const seconds = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return fraction ? `${seconds}.${String(at.getMilliseconds()).padStart(3, "0")}` : seconds;
}

// ── The time axis ───────────────────────────────────────────────────────────────────────────────────────────────────

const STEPS = [1, 2, 2.5, 5, 10];
const ENDS = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
function nice(value, among) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * among.find((step) => step * power >= value * 0.9999);
}

// from and to in ms: from each row's start, or by the wall clock.
// wanted: how much it shall show, 0 for what the rows need; nowMs: where it ends by the clock, at the earliest.
export function axisOf(shown, width, byClock, wanted, nowMs) {
  const longest = Math.max(1, ...shown.map(({ row }) => row.duration_ms));
  let [from, to] = [0, wanted || nice(longest, ENDS)];
  if (byClock) {
    const last = Math.max(...shown.map(({ row }) => row.started_ms + row.duration_ms));
    const first = Math.min(...shown.map(({ row }) => row.started_ms));
    to = Math.max(last, nowMs);
    // By itself it reaches back three times the longest row, so that overlap shows and no row becomes a dot.
    from = to - (wanted || Math.min(Math.max(longest * 3, 2000), Math.max(to - first, 1)));
  }
  const step = nice((to - from) / Math.max(2, Math.floor(width / 80)), STEPS);
  const marks = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step / 1000 && marks.length < 50; at += step) marks.push(at);
  return { byClock, width, from, to, step, marks, x: (ms) => ((ms - from) / (to - from)) * width };
}

function markLabel(axis, at) {
  if (!axis.byClock) return axis.to >= 2000 ? `${+(at / 1000).toFixed(2)} s` : `${+at.toFixed(2)} ms`;
  return axis.step < 1000 ? clock(at, true).slice(3, -1) : clock(at, false);
}

// ── Strips ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const STRIP = { height: 24, top: 5, bottom: 17 };
let ink = null;     // colours and patterns of the present theme

export function forgetInk() {
  ink = null;
  patterns.clear();
}

function readInk() {
  const style = getComputedStyle(document.documentElement);
  ink = new Proxy({}, { get: (seen, name) => (seen[name] ??= style.getPropertyValue(`--${name}`).trim()) });
}

function hatch(context, colour, ground) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.fillStyle = ground;
  brush.fillRect(0, 0, 6, 6);
  brush.strokeStyle = colour;
  brush.lineWidth = 2;
  brush.beginPath();
  for (const shift of [-6, 0, 6]) { brush.moveTo(shift - 1, 7); brush.lineTo(shift + 7, -1); }
  brush.stroke();
  return context.createPattern(tile, "repeat");
}

const patterns = new Map();
function fillOf(context, phase) {
  if (phase !== "queue" && phase !== "stall") return ink[`phase-${phase}`];
  if (!patterns.has(phase)) patterns.set(phase, hatch(context, ink[`phase-${phase}`], ink[`phase-${phase}-ground`]));
  return patterns.get(phase);
}

// A canvas' context in CSS pixels, cleared.
function sized(canvas, width, height) {
  if (!ink) readInk();
  const [w, h] = [Math.round(width * devicePixelRatio), Math.round(height * devicePixelRatio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d");
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

export function drawAxis(canvas, axis) {
  const context = sized(canvas, axis.width, 20);
  context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  for (const at of axis.marks) {
    const label = markLabel(axis, at);
    const x = axis.x(at);
    const width = context.measureText(label).width;
    context.fillStyle = ink.rule;
    context.fillRect(Math.min(Math.round(x), axis.width - 1), 14, 1, 6);
    context.fillStyle = ink.muted;
    context.fillText(label, Math.max(0, Math.min(x - width / 2, axis.width - width)), 7);
  }
  const ends = axis.byClock ? `${clock(axis.from, true)} to ${clock(axis.to, true)}` : `0 to ${span(axis.to)}`;
  canvas.setAttribute("aria-label", `time axis, ${ends}`);
}

export function drawStrip(canvas, item, axis) {
  const context = sized(canvas, axis.width, STRIP.height);
  const { row, ticks } = item;
  const { top, bottom, height } = STRIP;
  const origin = axis.byClock ? row.started_ms : 0;
  const x = (ms) => axis.x(origin + ms);

  context.fillStyle = ink.grid;
  for (const at of axis.marks) context.fillRect(Math.min(Math.round(axis.x(at)), axis.width - 1), 0, 1, height);

  let at = 0;
  for (const [phase, ms] of row.phases) {
    const [left, right] = [x(at), x((at += ms))];
    if (right < 0 || left > axis.width || right - left < 0.3) continue;
    context.fillStyle = fillOf(context, phase);
    // Half a pixel between phases, where there is room for it.
    context.fillRect(left, top, right - left - (right - left > 3 ? 0.5 : 0), bottom - top);
  }
  drawGaps(context, item, x);
  drawTicks(context, row.kinds ?? "", ticks, x, axis.width);
  drawEnd(context, row, x(0), x(row.duration_ms), axis.width);
}

function drawGaps(context, { stalls, longest }, x) {
  const { top, bottom } = STRIP;
  context.fillStyle = fillOf(context, "stall");
  for (const { from, to } of stalls) context.fillRect(x(from), top, x(to) - x(from), bottom - top);
  if (!longest) return;
  context.fillStyle = stalls.includes(longest) ? ink["phase-stall"] : ink.control;
  context.fillRect(x(longest.from), bottom + 3, Math.max(x(longest.to) - x(longest.from), 2), 2);
}

// Answer tokens are tall, reasoning tokens half as tall, and a dot on top says that the event shared its read. Where
// many fall on one pixel they grow darker, so that the pace still shows.
function drawTicks(context, kinds, ticks, x, width) {
  const { top, bottom } = STRIP;
  const columns = new Map();
  for (let i = 0; i < ticks.length; i++) {
    const column = Math.round(x(ticks[i]) * 2) / 2;
    if (column < 0 || column > width) continue;
    const seen = columns.get(column) ?? { count: 0, answer: false, shared: false };
    seen.count++;
    seen.answer ||= kinds[i] === "a" || kinds[i] === "A";
    seen.shared ||= kinds[i] === "A" || kinds[i] === "R";
    columns.set(column, seen);
  }
  const crowded = columns.size > 1 && ticks.length > 1 && (x(ticks.at(-1)) - x(ticks[0])) / columns.size < 2.2;
  for (const [column, { count, answer, shared }] of columns) {
    context.globalAlpha = crowded ? Math.min(1, 0.4 + 0.12 * count) : 1;
    context.fillStyle = answer ? ink.tick : ink["tick-reasoning"];
    context.fillRect(column, answer ? top - 1 : top + 5, 1, bottom - top + 1 - (answer ? 0 : 5));
    if (shared) context.fillRect(column - 0.5, top - 4, 2, 2);
  }
  context.globalAlpha = 1;
}

const CORNERS = {
  cancel: [[0, -5], [5, 0], [0, 5], [-5, 0]], unconfirmed: [[-4, -4], [4, -4], [4, 4], [-4, 4]], error: [[0, -5], [5, 4], [-5, 4]],
};

function drawEnd(context, row, begin, end, width) {
  const { top, bottom } = STRIP;
  const middle = (top + bottom) / 2;
  const arrow = (tip, back) => {
    context.beginPath();
    context.moveTo(tip, middle);
    context.lineTo(back, middle - 5);
    context.lineTo(back, middle + 5);
    context.fill();
  };
  context.fillStyle = ink.muted;
  if (begin < -0.5) arrow(0, 6);
  if (end > width + 0.5) return arrow(width, width - 6);
  const group = groupOf(row.outcome);
  if (group === "ok") return;
  // The same signs as in the outcome column.
  const at = Math.min(end + 7, width - 5);
  context.fillStyle = ink[`sign-${group}`];
  context.beginPath();
  for (const [dx, dy] of CORNERS[group]) context.lineTo(at + dx, middle + dy);
  context.fill();
}
