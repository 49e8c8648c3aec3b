// The decisions page: a list over stored decisions, figures over what passes the filter, and the views it leads to.
//
// What is shown stands in the address, so that it can be kept, shared and gone back to.

import { announce, byId, count, decisionBadge, duration, el, fetchJson, fill, money, number, outcomeBadge, percent, plural,
  showError, time } from "./base.js";
import { probability } from "./answers.js";
import { barChart, histogramBins } from "./bar_chart.js";
import { showDetails } from "./decisions_detail.js";
import { labelStart, setUpReplay } from "./decisions_replay.js";

const FILTERS = ["text", "decision", "outcome", "task", "generator", "since", "until", "min_sigma", "max_sigma", "violated",
  "num_passes", "problem_id", "request_id", "policy_id"];
const MORE = ["violated", "num_passes", "problem_id", "request_id", "policy_id"];
const TIMES = ["since", "until"];
const LAST_SORT = { sort: "time", descending: "true", limit: "50" };

const COLUMNS = [
  { name: "Compare", cell: compareBox, hidden: true },
  { name: "Time", sort: "time", cell: (row) => time(row.time) },
  { name: "Problem", cell: (row) => openLink(row), header: true },
  { name: "Task", cell: (row) => row.task, wide: true },
  { name: "Decision", cell: (row) => decisionBadge(row.decision) },
  { name: "Outcome", cell: (row) => outcomeBadge(row.outcome), wide: true },
  { name: "Answer", cell: (row) => el("span", { class: "list-answer" }, row.answer ?? "\u2013"), wide: true },
  { name: "Energy", sort: "energy", cell: (row) => number(row.energy, 2), numeric: true, wide: true },
  { name: "Confidence", sort: "confidence", cell: (row) => probability(row.confidence), numeric: true },
  { name: "Sigma", sort: "sigma", cell: (row) => number(row.sigma, 2), numeric: true, wide: true },
  { name: "Penalty", sort: "penalty", cell: (row) => number(row.penalty, 2), numeric: true, wide: true },
  { name: "Generator", cell: (row) => row.generator ?? "\u2013", wide: true },
  { name: "Candidates", sort: "num_candidates", cell: candidates, numeric: true, wide: true },
  { name: "Cost", sort: "cost_usd", cell: (row) => money(row.cost_usd), numeric: true, wide: true },
  { name: "Latency", sort: "latency_ms", cell: (row) => duration(row.latency_ms), numeric: true, wide: true },
];

let address = new URLSearchParams(location.search);
let chosen = []; // record ids to compare, at most two
let loading = null; // AbortController of what the list waits for
let stored = null; // overview of everything that passes
const charts = {
  times: barChart({ title: "Decisions over time", heading: "From" }),
  sigma: barChart({ title: "Sigma of the selected candidate", heading: "Sigma" }),
  energy: barChart({ title: "Energy of the selected candidate", heading: "Energy" }),
};

// ---- the address ------------------------------------------------------------------------------------------------------

/** What the filter says, as the service takes it. */
function filterOf(params) {
  const found = {};
  for (const name of FILTERS) {
    const value = params.get(name);
    if (value) found[name] = value;
  }
  return found;
}

function go(params, { replace = false } = {}) {
  const text = params.toString();
  const target = text ? `decisions?${text}` : "decisions";
  if (replace) history.replaceState(null, "", target); else history.pushState(null, "", target);
  show();
}

function without(params, ...names) {
  const found = new URLSearchParams(params);
  for (const name of names) found.delete(name);
  return found;
}

function withValue(params, changes) {
  const found = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) found.set(name, value);
  return found;
}

// ---- views ------------------------------------------------------------------------------------------------------------

async function show({ focus = true } = {}) {
  const before = address;
  address = new URLSearchParams(location.search);
  const ids = address.getAll("id").slice(0, 2);
  byId("list-view").hidden = ids.length > 0;
  byId("detail-view").hidden = ids.length === 0;
  placeChanges(ids.length > 0);
  if (ids.length > 0) {
    byId("back").href = `decisions?${without(address, "id")}`;
    await showDetails(ids);
    if (focus) byId("heading").focus({ preventScroll: false });
    return;
  }
  byId("heading").textContent = "Decisions";
  document.title = "Decisions · raydebm";
  fillFilter();
  const came = before.getAll("id")[0];
  await load();
  const link = came && document.querySelector(`a[data-record="${CSS.escape(came)}"]`);
  if (link) link.focus(); // back where one came from
}

/** The fields of other settings are one set, shown where they are used. */
function placeChanges(inDetail) {
  const fields = byId("changes");
  if (inDetail) byId("again").append(fields); else byId("replay").prepend(fields);
}

window.addEventListener("popstate", () => show());
byId("back").addEventListener("click", (event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(without(address, "id"));
});

// ---- the filter -------------------------------------------------------------------------------------------------------

const form = byId("filter");
let filled = null; // the filter that the fields were filled with: what is typed and not yet shown stays

function fillFilter() {
  byId("page-size").value = address.get("limit") ?? LAST_SORT.limit;
  const wanted = JSON.stringify(filterOf(address));
  if (wanted === filled) return;
  filled = wanted;
  for (const name of FILTERS) {
    const value = address.get(name) ?? "";
    form.elements[name].value = TIMES.includes(name) ? localTime(value) : value;
  }
  if (MORE.some((name) => address.get(name))) byId("more-filters").open = true;
}

/** An instant in the reader's own zone, as the field takes it. */
function localTime(iso) {
  const found = new Date(iso);
  if (!iso || Number.isNaN(found.getTime())) return "";
  return new Date(found.getTime() - 60_000 * found.getTimezoneOffset()).toISOString().slice(0, 19);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const found = without(address, ...FILTERS, "offset");
  for (const name of FILTERS) {
    const value = form.elements[name].value.trim();
    if (value) found.set(name, TIMES.includes(name) ? new Date(value).toISOString() : value);
  }
  go(found);
});
for (const name of ["decision", "outcome", "violated"]) form.elements[name].addEventListener("change", () => form.requestSubmit());
byId("filter-reset").addEventListener("click", () => {
  filled = null;
  go(without(address, ...FILTERS, "offset"));
});

// ---- list and figures -------------------------------------------------------------------------------------------------

async function load() {
  loading?.abort();
  const mine = loading = new AbortController();
  const where = new URLSearchParams(filterOf(address));
  const query = new URLSearchParams(where);
  for (const [name, value] of Object.entries(LAST_SORT)) query.set(name, address.get(name) ?? value);
  if (address.get("offset")) query.set("offset", address.get("offset"));
  byId("list").setAttribute("aria-busy", "true");
  try {
    const [page, overview] = await Promise.all([
      fetchJson(`v1/decisions?${query}`, { signal: mine.signal }),
      fetchJson(`v1/decisions/overview?${where}`, { signal: mine.signal }),
    ]);
    showError(byId("page-error"), null);
    stored = overview;
    showList(page);
    showOverview(overview);
    announce(`${plural(page.total, "decision")} pass the filter`);
  } catch (error) {
    if (error.name !== "AbortError") showError(byId("page-error"), error);
  } finally {
    if (mine === loading) byId("list").removeAttribute("aria-busy");
  }
}

function showList(page) {
  const table = byId("list");
  const sort = address.get("sort") ?? LAST_SORT.sort;
  const descending = (address.get("descending") ?? LAST_SORT.descending) === "true";
  fill(table.tHead, el("tr", {}, COLUMNS.map((column) => headerCell(column, sort, descending))));
  fill(table.tBodies[0], page.data.length ? page.data.map(line) : el("tr", {},
    el("td", { colspan: COLUMNS.length, class: "muted" }, page.total ? "There are no more decisions." : emptyWords())));
  const last = page.offset + page.data.length;
  byId("list-count").textContent = page.data.length
    ? `${count(page.offset + 1)} to ${count(last)} of ${count(page.total)}` : `none of ${count(page.total)}`;
  byId("previous").disabled = page.offset === 0;
  byId("next").disabled = last >= page.total;
  byId("next").dataset.offset = last;
  byId("previous").dataset.offset = Math.max(0, page.offset - Number(byId("page-size").value));
  showChosen();
}

function emptyWords() {
  return Object.keys(filterOf(address)).length
    ? "No decision passes this filter."
    : "Nothing is stored yet. Decisions appear a few seconds after they are made.";
}

function headerCell(column, sort, descending) {
  const props = { scope: "col", class: classes(column) };
  if (!column.sort) return el("th", props, column.hidden ? el("span", { class: "visually-hidden" }, column.name) : column.name);
  const active = column.sort === sort;
  if (active) props["aria-sort"] = descending ? "descending" : "ascending";
  const sign = active ? (descending ? "\u25BC" : "\u25B2") : "\u25BE";
  return el("th", props, el("button", {
    type: "button", dataset: { sort: column.sort }, class: active ? "sort-active" : null,
    on: { click: () => sortBy(column.sort, active ? !descending : true) },
  }, column.name, el("span", { "aria-hidden": "true", class: "sort-sign" }, sign)));
}

async function sortBy(sort, descending) {
  history.replaceState(null, "", `decisions?${withValue(without(address, "offset"), { sort, descending })}`);
  await show({ focus: false });
  document.querySelector(`th button[data-sort="${sort}"]`)?.focus();
}

function classes(column) {
  return [column.numeric && "number", column.wide && "wide-only"].filter(Boolean).join(" ") || null;
}

function line(row) {
  return el("tr", {}, COLUMNS.map((column) =>
    el(column.header ? "th" : "td", { class: classes(column), scope: column.header ? "row" : null }, column.cell(row))));
}

function openLink(row) {
  const target = withValue(without(address, "id"), { id: row.record_id });
  return el("a", { href: `decisions?${target}`, class: "title-link", dataset: { record: row.record_id },
    on: { click: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      go(target);
    } } }, row.title || "(no text)");
}

function candidates(row) {
  const words = row.num_passes > 1 ? `${count(row.num_candidates)} in ${count(row.num_passes)} passes` : count(row.num_candidates);
  return row.num_failed ? [words, el("br"), el("span", { class: "muted" }, `${count(row.num_failed)} failed`)] : words;
}

function compareBox(row) {
  return el("input", {
    type: "checkbox", checked: chosen.includes(row.record_id), "aria-label": `Compare: ${row.title}`,
    dataset: { choose: row.record_id },
    on: { change: (event) => {
      chosen = chosen.filter((id) => id !== row.record_id);
      if (event.target.checked) chosen = [...chosen, row.record_id].slice(-2);
      showChosen();
    } },
  });
}

function showChosen() {
  for (const box of document.querySelectorAll("input[data-choose]")) box.checked = chosen.includes(box.dataset.choose);
  byId("compare").disabled = chosen.length !== 2;
  byId("compare").textContent = chosen.length === 1 ? "Compare with one more" : "Compare two";
}

byId("compare").addEventListener("click", () => {
  const found = without(address, "id");
  for (const id of chosen) found.append("id", id);
  go(found);
});
byId("refresh").addEventListener("click", () => load());
for (const name of ["previous", "next"]) {
  byId(name).addEventListener("click", async () => {
    go(withValue(address, { offset: byId(name).dataset.offset }));
    byId("list-title").focus();
  });
}
byId("page-size").addEventListener("change", (event) =>
  go(withValue(without(address, "offset"), { limit: event.target.value }), { replace: true }));

function tile(name, value, small) {
  return el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value, small ? [" ", el("span", { class: "small" }, small)] : null));
}

function showOverview(found) {
  suggest("known-tasks", found.tasks);
  suggest("known-generators", found.generators);
  labelStart(found.total);
  const share = found.total ? found.accepted / found.total : null;
  fill(byId("overview-tiles"),
    tile("Decisions", count(found.total)),
    tile("Accepted", percent(share), found.total ? `${count(found.total - found.accepted)} abstained` : null),
    tile("Outcomes", count(found.right + found.wrong), found.right + found.wrong ? `${count(found.wrong)} wrong` : null),
    tile("Candidates each", found.total ? number(found.candidates / found.total, 1) : "\u2013",
      found.failed ? `${percent(found.failed / found.candidates)} failed` : null),
    tile("Tokens", count(found.prompt_tokens + found.completion_tokens), found.total ? `${count(found.completion_tokens)} written` : null),
    tile("Cost", money(found.cost_usd)),
    tile("Latency", duration(found.latency_p50_ms), found.total ? `95 %: ${duration(found.latency_p95_ms)}` : null));
  const both = (bars) => [{ name: "accepted", kind: "accept", values: bars?.accept ?? [] },
    { name: "abstained", kind: "abstain", values: bars?.abstain ?? [] }];
  charts.times.update({ bins: timeBins(found.times), series: both(found.times),
    summary: found.total ? span(found) : "", empty: "No decision passes." });
  for (const name of ["sigma", "energy"]) {
    const bars = found[name];
    charts[name].update({ bins: bars ? histogramBins(bars.edges, 4).bins : [], series: both(bars),
      summary: bars ? spread(bars) : "", empty: "No candidate was selected." });
  }
  if (!byId("overview-charts").hasChildNodes()) {
    fill(byId("overview-charts"), charts.times.node, charts.sigma.node, charts.energy.node);
  }
}

function suggest(id, shares) {
  fill(byId(id), shares.map((share) => el("option", { value: share.name })));
}

function span(found) {
  const words = (iso) => time(iso).textContent;
  return found.total === 1 ? words(found.first) : `${words(found.first)} to ${words(found.last)}.`;
}

function timeBins(times) {
  if (!times) return [];
  const starts = times.edges.slice(0, -1).map((edge) => new Date(edge));
  const days = new Date(times.edges.at(-1)) - starts[0] > 2 * 86_400_000;
  const clockChars = starts.length > 1 && starts[1] - starts[0] < 60_000 ? 8 : 5; // with seconds, or without
  return starts.map((start) => ({
    label: time(start.toISOString()).textContent,
    tick: days ? start.toLocaleDateString("sv-SE").slice(5) : start.toLocaleTimeString("sv-SE").slice(0, clockChars),
  }));
}

function spread(bars) {
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const outside = [bars.below ? `${count(bars.below)} below` : null, bars.above ? `${count(bars.above)} above` : null].filter(Boolean);
  return `${count(total(bars.accept))} accepted, ${count(total(bars.abstain))} abstained`
    + `${outside.length ? `; ${outside.join(" and ")} what is drawn` : ""}.`;
}

// ---- start ------------------------------------------------------------------------------------------------------------

setUpReplay({ filterOf: () => filterOf(address), passing: () => stored?.total ?? 0, openLink });
show({ focus: false });
