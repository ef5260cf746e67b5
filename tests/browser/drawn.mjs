// What is drawn on the first row's strip, and what should be.

export const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

// Which of these gaps stand out, as the legend says it. A gap may be unknown.
export function standOut(gaps) {
  const middle = median(gaps.filter((gap) => gap >= 1));
  return [...gaps.keys()].filter((i) => gaps[i] > Math.max(4 * middle, middle + 10));
}

// How much of each of these spans, in ms, has the colour of a stall in the first row's strip.
export function orange(page, spans) {
  return page.evaluate((spans) => {
    const { canvas } = document.querySelector("#rows tr").line;
    const [, number, unit] = /0 to ([\d.]+) (ms|s)$/.exec(document.querySelector("#axis").getAttribute("aria-label"));
    const reach = Number(number) * (unit === "s" ? 1000 : 1);
    return spans.map((span) => {
      const [left, right] = span.map((ms) => Math.round((ms / reach) * canvas.width));
      const { data } = canvas.getContext("2d").getImageData(left, 11 * devicePixelRatio, right - left, 1);
      let hits = 0;
      for (let i = 0; i < data.length; i += 4) hits += data[i] - data[i + 2] > 100;
      return hits / (right - left);
    });
  }, spans);
}

// Where answer tokens are drawn, as shares of the strip's width, and how many ms that width is. The pixels right above
// the phases are dark only where an answer token is.
export async function answerColumns(page) {
  const [columns, axis] = await page.evaluate(() => {
    const canvas = document.querySelector("#rows canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 4 * devicePixelRatio, canvas.width, 1);
    const dark = [];
    for (let x = 0; x < canvas.width; x++) {
      const covered = data[4 * x + 3] / 255;
      if (covered > 0.35 && data[4 * x] < 120) dark.push((x + 0.5) / canvas.width);
    }
    return [dark, document.querySelector("#axis").getAttribute("aria-label")];
  });
  const [, number, unit] = /0 to ([\d.]+) (ms|s)$/.exec(axis);
  return { columns, reach: Number(number) * (unit === "s" ? 1000 : 1) };
}
