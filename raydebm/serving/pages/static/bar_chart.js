// Stacked bars over a row of bins, as SVG of their own, with a table that says the same.

import { count, el, fill, svg } from "./base.js";

const HEIGHT = 150;
const LEFT = 40;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;
const MAX_LABEL_WIDTH = 72;
let numCharts = 0;

/** A figure that `update` fills, and fills again when its width changes. The table stays open meanwhile.
 *
 *  title: what the bars count. `heading`: the table's first column. */
export function barChart({ title, heading, unit = "decisions" }) {
  const id = `chart-${++numCharts}`;
  const drawing = el("div", { class: "bar-chart-drawing" });
  const summary = el("p", { class: "small muted" });
  const legend = el("p", { class: "chart-legend small", "aria-hidden": "true" });
  const body = el("tbody");
  const head = el("tr");
  const table = el("details", { class: "small no-print" },
    el("summary", {}, "As a table", el("span", { class: "visually-hidden" }, `: ${title}`)),
    el("div", { class: "table-scroll chart-table", tabindex: "0", role: "region", "aria-label": `Table: ${title}` },
      el("table", {}, el("thead", {}, head), body)));
  const node = el("figure", { class: "bar-chart" },
    el("figcaption", { class: "row-spread" }, el("strong", { id }, title), legend), drawing, summary, table);
  let shown = null;
  let width = 0;

  function draw() {
    if (!shown || width < 40) return;
    const { bins, series } = shown;
    fill(drawing, bins.length === 0 ? el("p", { class: "chart-empty muted small" }, shown.empty ?? "Nothing yet.")
      : picture({ ...shown, id, width, unit }));
    fill(legend, series.length < 2 ? null : series.map((each) =>
      el("span", { class: "chart-legend-entry" }, el("span", { class: `swatch swatch-${each.kind}` }), each.name)));
    fill(summary, shown.summary);
    fill(head, el("th", { scope: "col" }, heading),
      series.map((each) => el("th", { scope: "col", class: "number" }, each.name)));
    fill(body, bins.map((bin, place) => (series.some((each) => each.values[place])
      ? el("tr", {}, el("th", { scope: "row" }, bin.label),
        series.map((each) => el("td", { class: "number" }, format(shown, each.values[place]))))
      : null)));
  }

  new ResizeObserver(() => {
    const now = Math.floor(drawing.clientWidth);
    if (now !== width) {
      width = now;
      draw();
    }
  }).observe(drawing);

  /** data: `bins` [{label, tick}] in their order; `series` [{name, kind, values}] with one value a bin, drawn from the
   *  bottom up; `marks` [{at, label}] in bins from the left; `summary`, a sentence; `format` of a value. */
  return { node, update(data) { shown = data; width ||= Math.floor(drawing.clientWidth); draw(); } };
}

function format(shown, value) {
  return (shown.format ?? count)(value);
}

function picture({ id, bins, series, marks = [], summary, width, unit, format: words = count }) {
  const totals = bins.map((_, place) => series.reduce((sum, each) => sum + each.values[place], 0));
  const { top, step } = niceScale(Math.max(...totals), words === count);
  const inner = { width: width - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM };
  const x = (place) => LEFT + (inner.width * place) / bins.length;
  const y = (value) => TOP + inner.height * (1 - value / top);
  const grid = [];
  for (let value = 0; value <= top * 1.0001; value += step) {
    grid.push(svg("line", { class: value ? "grid" : "axis", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  }
  const gap = inner.width / bins.length > 5 ? 1 : 0;
  const bars = bins.map((bin, place) => {
    let below = 0;
    const parts = series.map((each) => {
      const value = each.values[place];
      if (!value) return null;
      below += value;
      // A single decision among thousands is still a line that can be seen.
      const height = Math.max(1.5, y(below - value) - y(below));
      return svg("rect", { class: `bar-${each.kind}`, x: x(place) + gap / 2, y: y(below - value) - height,
        width: Math.max(1, inner.width / bins.length - gap), height, fill: paint(each.kind, id) });
    });
    const told = series.map((each) => `${words(each.values[place])} ${each.name}`).join(", ");
    return svg("g", {}, svg("title", {}, `${bin.label}: ${told}`), parts,
      svg("rect", { class: "bar-target", x: x(place), y: TOP, width: inner.width / bins.length, height: inner.height }));
  });
  const every = Math.max(1, Math.ceil(bins.length / Math.max(1, Math.floor(inner.width / MAX_LABEL_WIDTH))));
  const ticks = bins.map((bin, place) => (place % every === 0 && bin.tick !== undefined
    ? svg("text", { x: Math.max(LEFT - 8, x(place)), y: HEIGHT - 6, "text-anchor": place ? "middle" : "start" }, bin.tick) : null));
  const lines = marks.filter((mark) => mark.at >= 0 && mark.at <= bins.length).map((mark, place) => [
    svg("line", { class: "threshold", x1: x(mark.at), x2: x(mark.at), y1: TOP, y2: TOP + inner.height }),
    svg("text", { class: "threshold-label", x: x(mark.at) + (mark.at > bins.length * 0.7 ? -4 : 4), y: TOP + 9 + 13 * place,
      "text-anchor": mark.at > bins.length * 0.7 ? "end" : "start" }, mark.label)]);
  return svg("svg", { class: "chart", role: "img", "aria-label": `${summary} Bars of ${unit}; the table has the numbers.`,
    width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` }, hatching(id), grid, bars, lines, ticks);
}

/** Abstentions and failures are hatched, so that bars do not rest on colour alone. */
function hatching(id) {
  return svg("defs", {}, ["abstain", "error"].map((kind) =>
    svg("pattern", { id: `${id}-${kind}`, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { class: `hatch-ground hatch-ground-${kind}`, width: 5, height: 5 }),
      svg("line", { class: `hatch-line hatch-line-${kind}`, x1: 0, y1: 0, x2: 0, y2: 5 }))));
}

function paint(kind, id) {
  return kind === "abstain" || kind === "error" ? `url(#${id}-${kind})` : null;
}

/** A round number at or above the largest value, and the step of its grid lines. */
function niceScale(most, whole) {
  const wanted = Math.max(most, whole ? 1 : 1e-9);
  const power = 10 ** Math.floor(Math.log10(wanted / 3));
  let step = power * [1, 2, 5, 10].find((factor) => power * factor >= wanted / 3 * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  return { top: step * Math.ceil(wanted / step - 1e-9), step };
}

/** 1500 -> 1.5k: what fits beside an axis. */
export function short(value) {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (value >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(3)));
}

/** Bins and marks of a histogram's edges. `thresholds`: [{value, label}]. */
export function histogramBins(edges, digits, thresholds = []) {
  const bins = edges.slice(0, -1).map((edge, place) => ({
    label: `${round(edge, digits)} to ${round(edges[place + 1], digits)}`, tick: round(edge, digits),
  }));
  const marks = thresholds.map(({ value, label }) => ({ at: place(edges, value), label })).filter((mark) => mark.at !== null);
  return { bins, marks };
}

function place(edges, value) {
  if (value < edges[0] || value > edges.at(-1)) return null;
  return (value - edges[0]) / (edges.at(-1) - edges[0]) * (edges.length - 1);
}

function round(value, digits) {
  return String(Number(value.toFixed(digits))).replace("-", "\u2212");
}
