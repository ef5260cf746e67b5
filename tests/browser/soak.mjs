// Sustained traffic, and the memory of both sides. Flat means: over the last third the median of what is kept is not
// above that of the second third by more than the tolerance. The first third fills the bounded stores.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";

import { sleep } from "./harness.mjs";

const RATE = 200;           // requests a second
const MOST_SAMPLES = 60;
const FEWEST_SAMPLES = 9;
const LONG_MINUTES = 5;     // from then on nearly all of the rate is demanded
const CHARACTER = "ttft_ms=20,itl_ms=5,tokens=8";

// What may be added between the medians of two thirds.
const TOLERANCE = {
  "tab heap, MiB": { share: 0.02, more: 0.25 },
  "tab buffers, MiB": { share: 0.25, more: 8 },    // the canvases in sight among them, which come and go
  "tab process, MiB": { share: 0.05, more: 16 },
  "server, MiB": { share: 0.05, more: 4 },
  "DOM nodes": { share: 0.1, more: 2000 },
  "listeners": { share: 0, more: 10 },
};
// 300 rows of about 20 nodes, text included, the cards and the rest; again as much until the collector has been.
const MOST_DOM_NODES = 20_000;

export async function soak({ stage, chrome, page, minutes }) {
  const client = await page.context().newCDPSession(page);
  await client.send("HeapProfiler.enable");
  const seconds = minutes * 60;
  const load = new Load(stage);
  const samples = [];
  const began = performance.now();
  // The tab's own work is measured first, while no sample collects its garbage.
  await client.send("Performance.enable", { timeDomain: "threadTicks" });
  await sleep(seconds * 100);
  const workAtFirst = await work(client);
  await sleep(seconds * 150);
  const share = (await work(client) - workAtFirst) / (seconds * 0.15);
  // Collecting garbage takes its time, so samples come as often as they can and the clock ends the soak.
  for (let at = 0; at < seconds || samples.length < FEWEST_SAMPLES; ) {
    await sleep(Math.max(200, (seconds * 1000) / MOST_SAMPLES));
    samples.push(await sample(client, chrome.pid, stage.proxy.pid));
    at = (performance.now() - began) / 1000;
  }
  const took = (performance.now() - began) / 1000;
  const { sent, finished } = await load.stop();

  const third = samples.length / 3;
  console.log(`        ${sent} requests in ${took.toFixed(0)} s, ${(finished / took).toFixed(0)} finished a second; ${await page.textContent("#count")}; the tab took ${(share * 100).toFixed(0)} % of a core`);
  const grown = [];
  for (const [name, tolerance] of Object.entries(TOLERANCE)) {
    const [first, second, last] = [0, 1, 2].map((n) => median(samples.slice(Math.floor(n * third), Math.floor((n + 1) * third)).map((taken) => taken[name])));
    console.log(`        ${name}: ${[first, second, last].map((value) => +value.toFixed(2)).join(" → ")} (medians of the thirds)`);
    if (last > second * (1 + tolerance.share) + tolerance.more) grown.push(`${name} grew from ${second} to ${last}`);
  }
  assert.deepEqual(grown, []);
  const nodes = Math.max(...samples.map((taken) => taken["DOM nodes"]));
  assert.ok(nodes < MOST_DOM_NODES, `${nodes} DOM nodes`);
  // Else it was no load to speak of. In a short soak a slow machine may fall behind, not stand still.
  const wanted = RATE * took * (minutes >= LONG_MINUTES ? 0.9 : 0.25);
  assert.ok(sent > wanted && finished > Math.max(sent * 0.9, wanted), `only ${finished} of ${sent} requests finished in ${took.toFixed(0)} s; ${wanted.toFixed(0)} are wanted`);
}

// Requests on a schedule of their own, not waiting for one another, except that at most 400 are open.
class Load {
  constructor(stage) {
    Object.assign(this, { stage, sent: 0, finished: 0, open: new Set(), due: performance.now() });
    this.timer = setInterval(() => this.catchUp(), 20);
  }

  catchUp() {
    for (; this.due < performance.now(); this.due += 1000 / RATE) {
      if (this.open.size >= 400) continue;
      const kind = this.sent++ % 10;
      const request = this.stage.chat({
        model: kind % 3 ? "gpt-x" : "r-1", tag: kind === 4 ? "soak" : undefined, sim: kind === 7 ? "status=503" : CHARACTER,
      }).then(() => { this.finished++; this.open.delete(request); });
      this.open.add(request);
    }
  }

  async stop() {
    clearInterval(this.timer);
    await Promise.all(this.open);
    return this;
  }
}

// CPU seconds of the tab's main thread.
async function work(client) {
  const { metrics } = await client.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "TaskDuration").value;
}

async function sample(client, browserPid, serverPid) {
  await client.send("HeapProfiler.collectGarbage");
  const { usedSize, embedderHeapUsedSize = 0, backingStorageSize = 0 } = await client.send("Runtime.getHeapUsage");
  const { nodes, jsEventListeners } = await client.send("Memory.getDOMCounters");
  return {
    "tab heap, MiB": usedSize / 2 ** 20,
    "tab buffers, MiB": (embedderHeapUsedSize + backingStorageSize) / 2 ** 20,
    "tab process, MiB": rendererPids(browserPid).reduce((sum, pid) => sum + residentMib(pid), 0),
    "server, MiB": residentMib(serverPid),
    "DOM nodes": nodes,
    "listeners": jsEventListeners,
  };
}

function residentMib(pid) {
  try {
    return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1024;
  } catch {
    return 0;   // it ended between listing and reading
  }
}

// The browser's descendants that render pages.
function rendererPids(root) {
  const parents = new Map();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    } catch { /* it ended */ }
  }
  const below = (pid) => { for (let at = pid; at; at = parents.get(at)) if (at === root) return true; return false; };
  return [...parents.keys()].filter((pid) => {
    try {
      return below(pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--type=renderer");
    } catch {
      return false;
    }
  });
}

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
