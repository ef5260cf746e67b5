// What the browser checks stand on: simulated upstreams, the proxy, requests, and a browser. All on loopback, on free
// ports; every process that was started is ended, whatever happens.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

const modules = createRequire(path.resolve(process.env.BROWSER_MODULES ?? "target/browser", "package.json"));
const { chromium } = modules("playwright-core");
const axeSource = readFileSync(modules.resolve("axe-core/axe.min.js"), "utf8");

// Only what is broken makes a check wait for it.
export const PATIENCE_MS = 30_000;

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Asks again until the answer is truthy.
export async function until(what, ask, patience = PATIENCE_MS) {
  const deadline = Date.now() + patience;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > deadline) throw new Error(`still not so after ${patience / 1000} s: ${what}`);
    await sleep(50);
  }
}

// ── Processes ──

const started = new Set();

function start(command, args, options) {
  const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"], ...options });
  started.add(child);
  child.tail = "";
  child.stderr?.on("data", (text) => { child.tail = (child.tail + text).slice(-4000); });
  child.on("error", (error) => { child.tail += error; });
  child.on("exit", () => started.delete(child));
  return child;
}

async function stop(child) {
  if (!started.has(child)) return;
  const left = new Promise((done) => child.once("exit", done));
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), 5000);
  await left;
  clearTimeout(timer);
}

process.on("exit", () => { for (const child of started) child.kill("SIGKILL"); });
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

function freePort(wanted = 0) {
  return new Promise((done, fail) => {
    const server = net.createServer();
    server.once("error", (error) => (wanted ? done(freePort()) : fail(error)));
    server.listen(wanted, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

const answers = (url) => new Promise((done) => {
  http.get(url, (reply) => { reply.resume(); done(reply.statusCode === 200); }).on("error", () => done(false));
});

// Replies step by step: how long to wait, how often, and for which choices there is a token then.
const token = (choices) => choices.map((index) => String.raw`data: {\"choices\":[{\"index\":${index},\"delta\":{\"content\":\"x\"}}]}\n\n`).join("");
const finish = (choices) => choices.map((index) => String.raw`data: {\"choices\":[{\"index\":${index},\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n`).join("");
const script = (name, steps, end) => [
  ...steps.map(([wait, repeat, choices = [0]]) => `[[script.${name}.step]]\nwait_ms = ${wait}\nrepeat = ${repeat}\nsend = "${token(choices)}"\n`),
  `[[script.${name}.step]]\nsend = "${end}data: [DONE]\\n\\n"\n`,
].join("\n");
const SCRIPTS = [
  // Two stalls of 250 ms among gaps of 15 ms.
  script("stalls", [[180, 1], [15, 11], [265, 1], [15, 9], [265, 1], [15, 7]], finish([0])),
  // Choice 1 pauses for 300 ms while choice 0 goes on.
  script("crossing", [[100, 1, [0, 1]], [15, 6, [0, 1]], [15, 19], [15, 8, [0, 1]]], finish([0, 1])),
  script("unfinished", [[30, 4]], ""),
  // For the pictures.
  script("pauses", [[280, 1], [30, 10], [520, 1], [30, 8], [440, 1], [30, 6]], finish([0])),
].join("\n");

// Two simulated upstreams, `steady` (models by default) and `reasoner` (models r*), one that nobody listens at (models
// gone*), and the proxy before them. `proxyPort` is where it listens if that is free; `second` the models of the second.
export class Stage {
  static async open(binary, { names = ["steady", "reasoner"], gone = true, second = "r*", proxyPort } = {}) {
    const stage = new Stage();
    stage.binary = binary;
    stage.folder = mkdtempSync(path.join(tmpdir(), "streamgauge-browser-"));
    process.on("exit", () => rmSync(stage.folder, { recursive: true, force: true }));
    const [steady, reasoner, nobody, listen, admin] = await Promise.all([0, 0, 0, proxyPort, 0].map(freePort));
    Object.assign(stage, { listen: `127.0.0.1:${listen}`, admin: `127.0.0.1:${admin}` });
    stage.logs = names.map((name) => path.join(stage.folder, `${name}.jsonl`));
    const scripts = path.join(stage.folder, "scripts.toml");
    writeFileSync(scripts, SCRIPTS);
    const sim = (port, log, ...more) => start(binary, ["sim", "--listen", `127.0.0.1:${port}`, "--log", log, "--script", scripts, ...more]);
    stage.sims = [
      sim(steady, stage.logs[0], "--ttft-ms", "80", "--itl-ms", "12", "--tokens", "16"),
      sim(reasoner, stage.logs[1], "--ttft-ms", "160", "--itl-ms", "20", "--tokens", "24", "--reasoning", "8"),
    ];
    stage.config = path.join(stage.folder, "streamgauge.toml");
    writeFileSync(stage.config, `
[server]
listen = "${stage.listen}"
admin = "${stage.admin}"
[records]
enabled = false
[backend.${names[0]}]
base_url = "http://127.0.0.1:${steady}"
[backend.${names[1]}]
base_url = "http://127.0.0.1:${reasoner}"
${gone ? `[backend.gone]
base_url = "http://127.0.0.1:${nobody}"
[[route]]
model = "gone*"
backend = "gone"` : ""}
[[route]]
model = "${second}"
backend = "${names[1]}"
[[route]]
model = "*"
backend = "${names[0]}"
`);
    for (const port of [steady, reasoner]) await stage.ready(stage.sims[port === steady ? 0 : 1], `http://127.0.0.1:${port}/health`);
    await stage.serve();
    return stage;
  }

  async serve() {
    // A key in the environment would change nothing here, but nothing of it belongs into a check.
    this.proxy = start(this.binary, ["serve", "--config", this.config], { env: { PATH: process.env.PATH, STREAMGAUGE_LOG: "warn" } });
    await this.ready(this.proxy, `http://${this.admin}/readyz`);
  }

  async ready(child, url) {
    await until(`${url} answers`, async () => {
      if (!started.has(child)) throw new Error(`${child.spawnargs.join(" ")} ended: ${child.tail}`);
      return answers(url);
    });
  }

  stopProxy() { return stop(this.proxy); }

  // Another proxy before the same upstreams.
  async beside() {
    const [listen, admin] = (await Promise.all([0, 0].map(freePort))).map((port) => `127.0.0.1:${port}`);
    const config = path.join(this.folder, "beside.toml");
    writeFileSync(config, readFileSync(this.config, "utf8").replace(this.listen, listen).replace(this.admin, admin));
    this.other = start(this.binary, ["serve", "--config", config], { env: { PATH: process.env.PATH, STREAMGAUGE_LOG: "warn" } });
    await this.ready(this.other, `http://${admin}/readyz`);
    return { listen, admin };
  }

  async close() {
    await Promise.all([this.proxy, this.other, ...this.sims].map(stop));
  }

  // What the simulations sent for the request of this name, in the order of sending.
  truth(name) {
    return this.logs.flatMap((log) => readFileSync(log, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line)))
      .filter((entry) => entry.request === name);
  }

  agent = new http.Agent({ keepAlive: true, maxSockets: 256 });

  // One chat completion; resolves when it is over, however it ends. The client leaves after so many bytes, or when the
  // signal says so.
  chat({ model = "gpt-x", sim = "", tag, n, listen = this.listen, leaveAfter, signal } = {}) {
    return new Promise((done) => {
      const body = JSON.stringify({ model, n, stream: true, stream_options: { include_usage: true }, messages: [{ role: "user", content: "how long is a coastline" }] });
      const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
      if (sim) headers["x-sim"] = sim;
      if (tag) headers["x-streamgauge-tag"] = tag;
      const over = (status) => done(status ?? 0);
      const request = http.request(`http://${listen}/v1/chat/completions`, { method: "POST", agent: this.agent, headers, signal }, (reply) => {
        let bytes = 0;
        reply.on("data", (data) => {
          bytes += data.length;
          if (leaveAfter !== undefined && bytes > leaveAfter) request.destroy();
        });
        reply.on("close", () => over(reply.statusCode));
        reply.on("error", () => {});
      });
      request.on("error", () => over());
      request.end(body);
    });
  }
}

// A port of its own before an admin listener, which can be exchanged or taken away under the pages that came here.
export class Relay {
  #open = new Set();
  #target = null;
  #host = null;

  async open() {
    const server = net.createServer((near) => this.#join(near));
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    this.address = `127.0.0.1:${server.address().port}`;
  }

  #join(near) {
    near.on("error", () => {});
    if (!this.#target) return near.destroy();
    const host = this.#host;
    const far = net.connect(Number(this.#target.split(":")[1]), "127.0.0.1");
    for (const [one, other] of [[near, far], [far, near]]) {
      this.#open.add(one);
      one.on("error", () => {});
      one.on("close", () => { this.#open.delete(one); other.destroy(); });
    }
    near.on("data", (data) => far.write(host ? data.toString("latin1").replace(/^host: .*$/im, `host: ${host}`) : data));
    far.pipe(near);
  }

  // Requests go to this listener from now on, under the name of this host; with none they are cut at once.
  lead(target, host = null) {
    this.#target = target;
    this.#host = host;
    for (const socket of this.#open) socket.destroy();
  }
}

// ── The browser ──

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export async function openBrowser() {
  const server = await chromium.launchServer({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
  const browser = await chromium.connect(server.wsEndpoint());
  return { browser, pid: server.process().pid, close: async () => { await browser.close(); await server.close(); } };
}

// A tab on the live page, with everything it complained about in `page.complaints`.
export async function openPage(browser, stage, { scheme = "light", width = 1600, height = 1000, scale = 1, address = stage.admin, hidden = false } = {}) {
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height }, deviceScaleFactor: scale, acceptDownloads: true });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.complaints = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) page.complaints.push(`console: ${message.text()}`); });
  page.on("pageerror", (error) => page.complaints.push(`uncaught: ${error.stack}`));
  page.on("requestfailed", (request) => page.complaints.push(`failed: ${request.url()} ${request.failure()?.errorText}`));
  await page.addInitScript(() => document.addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`)));
  if (hidden) await page.addInitScript(() => Object.defineProperty(document, "hidden", { configurable: true, get: () => true }));
  // For work on the page without building: its files from this folder, under the product's headers.
  const files = process.env.STREAMGAUGE_PAGE;
  if (files) await page.route(/\/([a-z]+\.(js|css))?$/, (route) => serveFrom(files, stage, route));
  await page.goto(`http://${address}/`);
  return page;
}

const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8" };

async function serveFrom(folder, stage, route) {
  const name = new URL(route.request().url()).pathname.slice(1) || "index.html";
  const { headers } = await fetch(`http://${stage.admin}/`);
  const policy = headers.get("content-security-policy");
  await route.fulfill({ body: readFileSync(path.join(folder, name)), headers: { "content-type": TYPES[name.split(".")[1]], "content-security-policy": policy } });
}

// ── What is asked of a page ──

export const rowCount = (page) => page.locator("#rows tr").count();
export const seqs = (page) => page.locator("#rows tr").evaluateAll((rows) => rows.map((row) => Number(row.dataset.seq)));
export const waitForRows = (n, page) => until(`${n} rows are shown`, async () => (await rowCount(page)) >= n);

export async function noSeriousFault(tab, what) {
  await tab.evaluate(axeSource);
  const { violations, passes } = await tab.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  assert.ok(passes.length > 10, `axe looked at too little of ${what}: ${passes.length} rules passed`);
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join("; ").slice(0, 600)}`), [], what);
}

export async function noSidewaysScroll(tab, what) {
  const [content, view] = await tab.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= view, `${what} is ${content} px wide in a view of ${view}`);
}
