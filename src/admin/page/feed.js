// The stream of updates.

import { invalidate, state, takeHello, takeUpdate } from "./state.js";

const RETRY_MS = 3000;
const LONGEST_REFUSAL = 300;

let source = null;
let retry = 0;

// A page nobody sees listens to nothing: a browser has few connections to one host. What it misses is counted.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return connect();
  clearTimeout(retry);
  source?.close();
});

export function connect() {
  clearTimeout(retry);
  if (document.hidden || (source && source.readyState !== EventSource.CLOSED)) return;
  const mine = (source = new EventSource("/live"));
  const take = (name, taking) => mine.addEventListener(name, (event) => { taking(JSON.parse(event.data)); invalidate(); });
  take("hello", takeHello);
  take("update", takeUpdate);
  mine.addEventListener("error", async () => {
    // The browser reconnects by itself after a broken stream, not after a refusal.
    let reason = "";
    if (mine.readyState === EventSource.CLOSED) {
      clearTimeout(retry);
      retry = setTimeout(connect, RETRY_MS);
      reason = await refusal();
      // Another attempt may have begun meanwhile, and been taken.
      if (source !== mine) return;
    }
    state.refusal = reason;
    state.connection = reason ? "refused" : "lost";
    invalidate();
  });
}

// An event source does not say why it was refused; the same request made otherwise does.
async function refusal() {
  const request = new AbortController();
  try {
    const reply = await fetch("/live", { signal: request.signal, cache: "no-store" });
    return reply.ok ? "" : (await reply.text()).trim().slice(0, LONGEST_REFUSAL) || `refused with status ${reply.status}`;
  } catch {
    return "";
  } finally {
    // Were it accepted now, it would be a stream without end.
    request.abort();
  }
}
