// What the page keeps of what it was told.
//
// Invariants: whatever arrives, what is kept stays within the limits below, and the page is drawn at most once a frame.

import { study } from "./strips.js";

const MAX_ROWS = 300;
// Of the rows kept. A held view may keep other rows than the store, so the page has at most twice as many.
const MAX_TICKS = 100_000;

export const state = {
  hello: null, connection: "connecting", refusal: "", paused: false,
  rows: [], ticks: 0, lastSeq: 0, reconnected: false, skipped: 0, atMs: 0,
  view: [], viewSeq: 0, viewAtMs: 0, backends: null, current: null, pointingUntil: 0,
};

// What was paused at is gone as well.
function forget() {
  Object.assign(state, {
    rows: [], ticks: 0, lastSeq: 0, skipped: 0, view: [], viewSeq: 0, backends: null, current: null, pointingUntil: 0, paused: false,
  });
}

// Another epoch is another process, which counts from the start again.
export function takeHello(hello) {
  if (state.hello && state.hello.epoch !== hello.epoch) forget();
  else state.reconnected = state.hello !== null;
  state.hello = hello;
  state.connection = "live";
}

export function takeUpdate(update) {
  state.atMs = update.at_ms;
  state.skipped += update.skipped ?? 0;
  takeRows(update.rows ?? []);
  if (update.backends) state.backends = update.backends;
}

function takeRows(rows) {
  rows.sort((a, b) => a.seq - b.seq);
  // After a reconnect the server repeats its newest; what lies between was missed.
  if (state.reconnected && rows.length) state.skipped += Math.max(0, rows[0].seq - state.lastSeq - 1);
  state.reconnected = false;
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

// ── One drawing a frame ─────────────────────────────────────────────────────────────────────────────────────────────

let frame = 0;
let draw = () => {};
export function drawWith(drawing) { draw = drawing; }
export function invalidate() {
  frame ||= requestAnimationFrame(() => { frame = 0; draw(); });
}
