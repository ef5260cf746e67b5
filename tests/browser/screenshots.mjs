// Makes the README's two pictures, docs/live-light.png and docs/live-dark.png, from simulated models behind the real
// proxy. Run it through `tests/browser/run.sh screenshots`, on a machine that does nothing else: what it stalls, the
// pictures show. It takes five minutes, for the curves to have a past. The letters are the system's; the committed
// pictures were taken with Debian's fonts-noto-core.

import { mkdirSync, statSync } from "node:fs";

import { Stage, openBrowser, openPage, sleep, until } from "./harness.mjs";

const SECONDS = Number(process.env.SCREENSHOT_SECONDS ?? 305);
const SHAPE = { width: 1280, height: 960, scale: 1 };
const SETTLING_MS = 10_000;
const MOST_BYTES = 200_000;

// What people run side by side: short and long replies, one that thinks first, one that stalls, and what goes wrong.
const between = (low, high) => low + Math.random() * (high - low);
const KINDS = [
  { weight: 7, ask: () => ({ model: "sim-chat", sim: character(between(250, 480), between(28, 38), between(20, 70)) }) },
  { weight: 4, ask: () => ({ model: "sim-reasoner", sim: `${character(between(400, 800), between(34, 46), between(24, 50))},reasoning=${Math.round(between(6, 16))}` }) },
  { weight: 2, ask: () => ({ model: "sim-relay", tag: "batch", sim: `${character(between(250, 400), 30, 60)},events_per_write=4,reasoning=0` }) },
  { weight: 2, ask: () => ({ model: "sim-reasoner", sim: "script=pauses" }) },
  { weight: 0.5, ask: () => ({ model: "sim-chat", sim: "status=503" }) },
  { weight: 0.5, ask: () => ({ model: "sim-reasoner", sim: `${character(450, 40, 60)}`, leaveAfter: 2500 }) },
  { weight: 0.4, ask: () => ({ model: "sim-relay", sim: "ttft_ms=300,itl_ms=30,tokens=14,reasoning=0,end=truncate" }) },
];

function character(ttft, itl, tokens) {
  return `head_ms=${(ttft * between(0.15, 0.4)).toFixed(1)},ttft_ms=${ttft.toFixed(1)},itl_ms=${itl.toFixed(1)},tokens=${Math.round(tokens)}`;
}

function any() {
  let at = Math.random() * KINDS.reduce((sum, { weight }) => sum + weight, 0);
  return KINDS.find(({ weight }) => (at -= weight) < 0) ?? KINDS[0];
}

const stage = await Stage.open(process.env.STREAMGAUGE_BIN, { names: ["steady", "bursty"], second: "sim-r*", gone: false, proxyPort: 8484 });
const chrome = await openBrowser();

let running = true;
const users = Array.from({ length: 5 }, async (_, i) => {
  while (running) {
    await stage.chat(any().ask());
    await sleep(between(50, 500 + 200 * i));
  }
});
await sleep(SECONDS * 1000);

mkdirSync("docs", { recursive: true });
for (const scheme of ["light", "dark"]) {
  const page = await openPage(chrome.browser, stage, { scheme, ...SHAPE });
  await until("there are rows", async () => (await page.locator("#rows tr").count()) > 20);
  // Opening a page takes the processor from what is measured; the rows from then pass out of the picture.
  await sleep(SETTLING_MS);
  // A row that stalled is the one worth reading.
  await until("one is in sight", () => page.evaluate(() => {
    const row = [...document.querySelectorAll("#rows tr")].slice(1, 9).find(({ line }) => line.item.stalls.length > 1);
    row?.focus({ preventScroll: true });
    return row !== undefined;
  }));
  await until("its numbers are shown", () => page.isVisible("#details-body"));
  // Where the row was out of sight, the page has scrolled to it.
  await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
  const file = `docs/live-${scheme}.png`;
  await page.screenshot({ path: file });
  await page.context().close();
  const { size } = statSync(file);
  console.log(`${file}: ${size} bytes`);
  if (size > MOST_BYTES) process.exitCode = 1;
}
running = false;
await Promise.all(users);
await chrome.close();
await stage.close();
process.exit();
