// One card per backend: its counts, its percentiles, and their course.

import { state } from "./state.js";
import { $, METRICS, element, exact, setText, short } from "./text.js";

const SHARES = ["p50", "p95", "p99"];

const cards = new Map();

export function drawCards() {
  const backends = state.backends ?? [];
  $("backends").hidden = !backends.length;
  const names = new Set(backends.map((backend) => backend.name));
  for (const [name, card] of cards) {
    if (!names.has(name)) { card.root.remove(); cards.delete(name); }
  }
  for (const backend of backends) {
    if (!cards.has(backend.name)) cards.set(backend.name, makeCard(backend));
    fillCard(cards.get(backend.name), backend);
  }
}

function makeCard(backend) {
  const root = element("article", "card");
  const title = element("h3", "", backend.name);
  title.append(" ", element("small", "", backend.kind));
  const load = element("p", "load");
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const text of ["", ...SHARES, "over time"]) {
    const cell = element(text ? "th" : "td", text === "over time" ? "spark-head" : "", text);
    if (text) cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  root.append(title, load, table);
  $("cards").append(root);
  return { root, load, body, lines: [] };
}

// One line per metric; where it is of several kinds, one for each that was seen: they never mix.
function coursesOf(backend) {
  return Object.entries(METRICS).flatMap(([key, { apart }]) => {
    if (!apart) return [{ key, kind: "", course: backend[key] }];
    const seen = Object.keys(apart).filter((kind) => backend[key]?.[kind]);
    return seen.length ? seen.map((kind) => ({ key, kind, course: backend[key][kind] })) : [{ key, kind: "", course: null }];
  });
}

function makeLine(body, { key, kind }) {
  const { name, unit, long, apart } = METRICS[key];
  const row = body.insertRow();
  const head = element("th");
  head.scope = "row";
  const abbr = element("abbr", "", name);
  abbr.title = kind ? `${long}; ${apart[kind]}` : long;
  head.append(abbr, " ", element("small", "", kind ? `${unit} · ${kind}` : unit));
  const numbers = SHARES.map((share) => element("td", share));
  const spark = makeSpark();
  const cell = element("td", "spark");
  cell.append(spark.root, spark.top);
  row.append(head, ...numbers, cell);
  return { key, kind, numbers, spark };
}

function fillCard(card, backend) {
  const { in_flight, requests, ok, unconfirmed, errors, cancels } = backend;
  const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  const counts = [ok && `${ok} ok`, unconfirmed && `${unconfirmed} unconfirmed`, errors && plural(errors, "error"), cancels && `${cancels} cancelled`];
  setText(card.load, [`${in_flight} in flight`, plural(requests, "request"), ...counts].filter(Boolean).join(" · "));
  const courses = coursesOf(backend);
  const same = courses.length === card.lines.length && courses.every(({ key, kind }, i) => card.lines[i].key === key && card.lines[i].kind === kind);
  if (!same) {
    card.body.replaceChildren();
    card.lines = courses.map((course) => makeLine(card.body, course));
  }
  courses.forEach(({ key, kind, course }, i) => {
    const { numbers, spark } = card.lines[i];
    const { name, unit } = METRICS[key];
    SHARES.forEach((share, j) => {
      const value = course?.[share];
      setText(numbers[j], short(value));
      numbers[j].title = value == null ? "nothing observed in this time" : `${exact(value)} ${unit}, ${course.count} observed`;
    });
    fillSpark(spark, course?.spark ?? [], kind ? `${name}, ${kind},` : name, unit);
  });
}

const SVG = "http://www.w3.org/2000/svg";

function makeSpark() {
  const root = document.createElementNS(SVG, "svg");
  root.setAttribute("role", "img");
  root.setAttribute("preserveAspectRatio", "none");
  const [band, line] = ["spark-band", "spark-line"].map((name) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", name);
    root.append(path);
    return path;
  });
  return { root, band, line, top: element("span", "spark-top") };
}

// Above the curve is room for the number at its top. Steps, one per slot, since a slot's percentile holds for all of it.
// A slot without observations stays a gap.
function fillSpark(spark, slots, name, unit) {
  const top = Math.max(0, ...slots.map((slot) => slot?.[1] ?? 0));
  const y = (value) => (40 - (value / (top || 1)) * 27).toFixed(1);
  let line = "", band = "";
  for (let i = 0; i < slots.length; i++) {
    if (!slots[i]) continue;
    const begin = i;
    let upper = "", lower = "";
    for (; slots[i]; i++) {
      line += `${i === begin ? `M${i}` : "V"}${i === begin ? " " : ""}${y(slots[i][0])}H${i + 1}`;
      upper += `${i === begin ? "" : "V"}${y(slots[i][1])}H${i + 1}`;
      lower = `V${y(slots[i][0])}H${i}${lower}`;
    }
    band += `M${begin} ${upper}${lower}Z`;
  }
  spark.root.setAttribute("viewBox", `0 0 ${slots.length || 1} 41`);
  spark.line.setAttribute("d", line);
  spark.band.setAttribute("d", band);
  setText(spark.top, top ? short(top) : "");
  const last = slots.findLast((slot) => slot);
  spark.root.setAttribute("aria-label", last ? `${name} curve, 0 to ${short(top)} ${unit}; latest p50 ${short(last[0])}, p95 ${short(last[1])}` : `${name} curve, nothing observed`);
}
