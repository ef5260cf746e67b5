// Which rows are shown, and how they are aligned.

import { invalidate, state } from "./state.js";
import { $ } from "./text.js";

export const tools = $("tools");
const FILTERS = ["backend", "model", "outcome", "tag"];
const NONE = "none";
const filterKey = (value) => (value == null ? NONE : `=${value}`);

export function passes({ row }) {
  return FILTERS.every((key) => !tools[key].value || tools[key].value === filterKey(row[key]));
}

// Choices are the values of the rows at hand; a chosen one stays although its last row has gone.
export function drawFilters() {
  for (const key of FILTERS) {
    const select = tools[key];
    const values = [...new Set(state.view.map(({ row }) => filterKey(row[key])))].sort();
    if (select.value && !values.includes(select.value)) values.push(select.value);
    const wanted = ["", ...values];
    if (wanted.length === select.options.length && wanted.every((value, i) => value === select.options[i].value)) continue;
    const chosen = select.value;
    select.replaceChildren(...wanted.map((value) => new Option(value === "" ? "all" : value === NONE ? "(none)" : value.slice(1), value)));
    select.value = chosen;
  }
}

tools.addEventListener("change", invalidate);
tools.addEventListener("submit", (event) => event.preventDefault());
// The fields have their new values only after the event.
tools.addEventListener("reset", () => setTimeout(invalidate));
