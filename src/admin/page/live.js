// The live page: reads finished requests from /live and draws each as a token strip.

import { drawCards } from "./cards.js";
import { drawDetails } from "./details.js";
import "./downloads.js";
import { connect } from "./feed.js";
import { drawFilters, passes } from "./filters.js";
import { drawLegend } from "./legend.js";
import { drawCount, drawRows, drawStrips, held } from "./rows.js";
import { drawWith, invalidate, state } from "./state.js";
import { span } from "./strips.js";
import { $, setText } from "./text.js";

function draw() {
  if (!state.paused && !held()) {
    state.view = state.rows.slice().reverse();
    state.viewSeq = state.lastSeq;
    state.viewAtMs = state.atMs;
  }
  const any = state.rows.length > 0 || state.view.length > 0;
  $("empty").hidden = any || !state.hello;
  $("requests").hidden = !any;
  drawHeader();
  if (!state.paused) drawCards();
  drawFilters();
  const shown = state.view.filter(passes);
  drawCount(shown);
  drawRows(shown);
  drawStrips(shown);
  drawDetails();
}

// ── Header and empty state ──────────────────────────────────────────────────────────────────────────────────────────

const STATES = { connecting: "connecting", live: "live", lost: "connection lost, retrying", paused: "paused" };

function drawHeader() {
  // A lost connection matters more; the button still shows the pause.
  const name = state.paused && state.connection === "live" ? "paused" : state.connection;
  $("state").dataset.state = name;
  setText($("state-text"), STATES[name] ?? state.refusal);
  $("pause").setAttribute("aria-pressed", String(state.paused));
  if (!state.hello) return;
  setText($("version"), state.hello.version);
  setText($("base-url"), baseUrl());
  setText($("env-line"), `OPENAI_BASE_URL=${baseUrl()}`);
  $("base").hidden = $("empty").hidden === false;
  const { window_s, slots, slot_s } = state.hello;
  const recently = window_s === 60 ? "minute" : span(window_s * 1000);
  const course = span(slots * slot_s * 1000);
  setText($("window"), `of requests that ended in the last ${recently}; curves of the last ${course}: p50, and shaded up to p95`);
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

// ── Begin ───────────────────────────────────────────────────────────────────────────────────────────────────────────

drawWith(draw);
drawLegend();
$("legend").open = matchMedia("(min-width: 45rem)").matches;
draw();
connect();
