// The stream of updates.

import { invalidate, state, takeHello, takeUpdate } from "./state.js";

const RETRY_MS = 3000;
const LONGEST_REFUSAL = 300;

let source = null;

// A page nobody sees listens to nothing: a browser has few connections to one host. What it misses is counted.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else if (source?.readyState === EventSource.CLOSED) connect();
});

export function connect() {
  if (document.hidden || (source && source.readyState !== EventSource.CLOSED)) return;
  source = new EventSource("/live");
  const take = (name, taking) => source.addEventListener(name, (event) => { taking(JSON.parse(event.data)); invalidate(); });
  take("hello", takeHello);
  take("update", takeUpdate);
  source.addEventListener("error", async () => {
    // The browser reconnects by itself after a broken stream, not after a refusal.
    if (source.readyState === EventSource.CLOSED) {
      setTimeout(connect, RETRY_MS);
      state.refusal = await refusal();
    } else {
      state.refusal = "";
    }
    state.connection = state.refusal ? "refused" : "lost";
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
