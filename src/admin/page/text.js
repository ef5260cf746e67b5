// Words, numbers and nodes, as every part of the page writes them. What was not observed is shown as absent, never as 0.

export const WHY_ABSENT = {
  ttft_ms: "no token event", ttft_upstream_ms: "no token event", ttfa_ms: "no answer token",
  tpot_ms: "under two output tokens, number unknown, or several choices",
  tgs: "output tokens unknown, or several choices",
  stall_ms: "fewer than two token events, or one could not be read",
  prompt_tokens: "not reported and not counted", output_tokens: "not reported and not counted", source: "no output tokens",
  backend: "not routed", model: "the request named none", model_served: "the reply named none",
  status: "no response head", tag: "no x-streamgauge-tag header", reused: "no upstream connection", choices: "none seen",
  stream: "not known",
};

// Where the number of output tokens comes from.
export const SOURCES = {
  usage: "the number of tokens is what the upstream's usage reports",
  tokenizer: "the number of tokens is counted with the configured tokenizer",
  events: "the number of token events stands for the number of tokens",
};

// Whether an ITL's two instants are its events' own.
export const TIMINGS = {
  exact: "of events that arrived in reads of their own",
  coalesced: "of events that shared a read with another: bursts, whose gaps are 0 within and long between",
};

// apart: what is never mixed in one line.
export const METRICS = {
  ttft_ms: { name: "TTFT", unit: "ms", long: "time to first token" },
  itl_ms: { name: "ITL", unit: "ms", long: "inter-token latency", apart: TIMINGS },
  tpot_ms: { name: "TPOT", unit: "ms", long: "time per output token", apart: SOURCES },
  tgs: { name: "TGS", unit: "tok/s", long: "tokens per second of one request; higher is better", apart: SOURCES },
};

// ── Numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const decimals = (value) => (value >= 100 ? 0 : value >= 10 ? 1 : 2);
export const short = (value) => (value == null ? "–" : value.toFixed(decimals(Math.abs(value))));
export const [whole, thousandths] = [0, 3].map((digits) =>
  new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
export const exact = (value) => thousandths.format(value);

// ── Nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────────

export const $ = (id) => document.getElementById(id);

// Changes the text node that is there, since hundreds of new ones a second would be garbage to collect.
export function setText(node, text) {
  if (!node.firstChild) node.textContent = text;
  else if (node.firstChild.data !== text) node.firstChild.data = text;
}

// Strings from the data reach the page as text alone.
export function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function hiddenFromReaders(node) {
  node.setAttribute("aria-hidden", "true");
  return node;
}
