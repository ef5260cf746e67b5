// What the signs mean: each by name, and in a sentence for whoever asks.

import { GROUPS, PHASES, STALL } from "./strips.js";
import { $, METRICS, element, hiddenFromReaders } from "./text.js";

const FACTOR = `${STALL.FACTOR} times the row's median gap`;

const ENTRIES = [
  ...Object.entries(PHASES).map(([name, long]) => ({ swatch: `swatch phase-${name}`, name: name.replaceAll("_", " "), long })),
  { swatch: "swatch mark-answer", name: "answer token", long: "a token event with answer text" },
  { swatch: "swatch mark-reasoning", name: "reasoning token", long: "a token event with reasoning text" },
  { swatch: "swatch mark-shared", name: "shared read", long: "this event arrived in one read with another" },
  { swatch: "swatch mark-longest", name: "longest gap", long: "the longest time from one token event to the next of the same choice; where an event brings several tokens, per token" },
  { swatch: "swatch phase-stall", name: `stall: over ${STALL.FACTOR}× the row's median gap`, long: `a gap over ${FACTOR} and ${STALL.MARGIN_MS} ms above it; gaps under ${STALL.TOGETHER_MS} ms leave the median` },
  { sign: "▸", name: "beyond the axis", long: "the request goes on to the right, or began further left" },
];

const WORDS = [
  ...Object.entries(GROUPS).map(([group, { sign, long }]) => ({ sign, swatch: `sign ${group}`, name: group, long })),
  { name: "~", long: "before a number of tokens: it is the number of token events, since neither usage nor a tokenizer gave one" },
  ...Object.values(METRICS).map(({ name, long }) => ({ name, long })),
];

function marked(tag, { swatch = "", sign = "", name }) {
  const node = element(tag);
  // Of words without a sign the place stays empty, so that all begin in one line.
  if (swatch || sign || tag === "dt") node.append(hiddenFromReaders(element("span", swatch, sign)));
  node.append(name);
  return node;
}

export function drawLegend() {
  $("legend-items").replaceChildren(...ENTRIES.map((entry) => marked("li", entry)));
  $("legend-words").replaceChildren(...[...ENTRIES, ...WORDS].map((entry) => {
    const pair = element("div");
    pair.append(marked("dt", entry), element("dd", "", entry.long));
    return pair;
  }));
}
