// The decisions page: a list over stored decisions, and one of them with everything. The address holds what is shown.

import { NONE, announce, byId, count, decisionBadge, duration, el, fetchJson, fill, money, number, outcomeBadge, plural, showError, time }
  from "./base.js";
import { answerList, candidateRows, confidenceSentence, facts, fieldTable, guaranteeNote, outcomeForm, passList, probability, stopSentence }
  from "./view.js";

const FILTERS = ["text", "decision", "outcome", "task", "generator", "since", "until", "policy_id", "request_id"];
const TIMES = ["since", "until"];
const PAGE = 50;
const COLUMNS = [
  { name: "Time", sort: "time", cell: (row) => time(row.time) },
  { name: "Problem", cell: openLink, header: true },
  { name: "Task", cell: (row) => row.task, wide: true },
  { name: "Decision", cell: (row) => decisionBadge(row.decision) },
  { name: "Outcome", cell: (row) => outcomeBadge(row.outcome), wide: true },
  { name: "Answer", cell: (row) => el("span", { class: "list-answer" }, row.answer ?? NONE), wide: true },
  { name: "Confidence", sort: "confidence", cell: (row) => probability(row.confidence), numeric: true },
  { name: "Sigma", sort: "sigma", cell: (row) => number(row.sigma, 2), numeric: true, wide: true },
  { name: "Generator", cell: (row) => row.generator ?? NONE, wide: true },
  { name: "Cost", sort: "cost_usd", cell: (row) => money(row.cost_usd), numeric: true, wide: true },
  { name: "Latency", sort: "latency_ms", cell: (row) => duration(row.latency_ms), numeric: true, wide: true },
];
const form = byId("filter");

let address = new URLSearchParams(location.search);
let loading = null; // AbortController of what the page waits for

// ---- the address ----------------------------------------------------------------------------------------------------

function changed(changes) {
  const found = new URLSearchParams(address);
  for (const [name, value] of Object.entries(changes)) if (value) found.set(name, value); else found.delete(name);
  return `decisions?${found}`;
}

function go(changes) {
  history.pushState(null, "", changed(changes));
  show();
}

async function show() {
  const before = address.get("id");
  address = new URLSearchParams(location.search);
  const id = address.get("id");
  loading?.abort();
  loading = new AbortController();
  byId("list-view").hidden = id !== null;
  byId("detail-view").hidden = id === null;
  byId("heading").textContent = id === null ? "Decisions" : "One decision";
  document.title = `${byId("heading").textContent} · raydebm`;
  showError(byId("page-error"), null);
  try {
    if (id === null) await showList(loading.signal); else await showOne(id, loading.signal);
  } catch (error) {
    if (error.name !== "AbortError") showError(byId("page-error"), error);
    return;
  }
  if (id !== null) byId("heading").focus();
  else if (before) document.querySelector(`a[data-record="${CSS.escape(before)}"]`)?.focus(); // back where one came from
}

window.addEventListener("popstate", show);
byId("back").addEventListener("click", (event) => { event.preventDefault(); go({ id: null }); });
byId("to-review").addEventListener("click", () => go({ ...none(), decision: "abstain", outcome: "none" }));
byId("filter-reset").addEventListener("click", () => go(none()));
byId("previous").addEventListener("click", () => go({ offset: Math.max(0, Number(address.get("offset")) - PAGE) }));
byId("next").addEventListener("click", () => go({ offset: Number(address.get("offset")) + PAGE }));
for (const name of ["decision", "outcome"]) form.elements[name].addEventListener("change", () => form.requestSubmit());
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const value = (name) => form.elements[name].value.trim();
  go({ ...none(), ...Object.fromEntries(FILTERS.map((name) =>
    [name, value(name) && TIMES.includes(name) ? new Date(value(name)).toISOString() : value(name)])) });
});

function none() {
  return { ...Object.fromEntries(FILTERS.map((name) => [name, null])), offset: null };
}

// ---- the list -------------------------------------------------------------------------------------------------------

async function showList(signal) {
  const query = new URLSearchParams({ limit: PAGE });
  for (const name of [...FILTERS, "sort", "descending", "offset"]) if (address.get(name)) query.set(name, address.get(name));
  for (const name of FILTERS) form.elements[name].value = shownValue(name);
  const page = await fetchJson(`v1/decisions?${query}`, { signal });
  const sort = address.get("sort") ?? "time", descending = (address.get("descending") ?? "true") === "true";
  fill(byId("list").tHead, el("tr", {}, COLUMNS.map((column) => headerCell(column, sort, descending))));
  fill(byId("list").tBodies[0], page.data.length ? page.data.map((row) => el("tr", {}, COLUMNS.map((column) =>
    el(column.header ? "th" : "td", { class: classes(column), scope: column.header ? "row" : null }, column.cell(row)))))
    : el("tr", {}, el("td", { colspan: COLUMNS.length, class: "muted" }, page.total ? "There are no more decisions."
      : FILTERS.some((name) => address.get(name)) ? "No decision passes this filter."
        : "Nothing is stored yet. Decisions appear a few seconds after they are made.")));
  const last = page.offset + page.data.length;
  byId("list-count").textContent = page.data.length
    ? `${count(page.offset + 1)} to ${count(last)} of ${count(page.total)}` : `none of ${count(page.total)}`;
  byId("previous").disabled = page.offset === 0;
  byId("next").disabled = last >= page.total;
  announce(`${plural(page.total, "decision")} pass the filter`);
}

function shownValue(name) {
  const value = address.get(name) ?? "";
  if (!TIMES.includes(name) || Number.isNaN(Date.parse(value))) return value;
  const found = new Date(value); // the reader's own zone, as the field takes it
  return new Date(found.getTime() - 60_000 * found.getTimezoneOffset()).toISOString().slice(0, 19);
}

function headerCell(column, sort, descending) {
  const active = column.sort === sort;
  const props = { scope: "col", class: classes(column), "aria-sort": active ? (descending ? "descending" : "ascending") : null };
  if (!column.sort) return el("th", props, column.name);
  return el("th", props, el("button", { type: "button", on: { click: () => go({ sort: column.sort, descending: active ? String(!descending) : "true", offset: null }) } },
    column.name, el("span", { "aria-hidden": "true" }, active ? (descending ? "\u25BC" : "\u25B2") : "\u25BE")));
}

function classes(column) {
  return [column.numeric && "number", column.wide && "wide-only"].filter(Boolean).join(" ") || null;
}

function openLink(row) {
  return el("a", { href: changed({ id: row.record_id }), class: "break", dataset: { record: row.record_id },
    on: { click: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      go({ id: row.record_id });
    } } }, row.title || "(no text)");
}

// ---- one decision ---------------------------------------------------------------------------------------------------

async function showOne(id, signal) {
  fill(byId("details"), el("p", { class: "muted" }, "Loading\u2026"));
  const record = await fetchJson(`v1/decisions/${encodeURIComponent(id)}`, { signal }).catch((error) => {
    fill(byId("details"));
    throw error;
  });
  const best = record.candidates.find((candidate) => candidate.candidate_id === record.selected) ?? null;
  const words = [confidenceSentence(record, record.num_candidates), stopSentence(record), `${record.reason}.`].filter(Boolean);
  const { posterior, prices, guarantee, fields, field_guarantee, ...settings } = record.policy;
  const values = (found) => Object.entries(found).map(([name, value]) => [name, String(value ?? NONE)]);
  fill(byId("details"),
    el("section", { class: "card stack-small" },
      el("div", { class: "row" }, decisionBadge(record.decision), record.outcome ? outcomeBadge(record.outcome) : null,
        el("span", { class: "muted small" }, time(record.time), ` · ${record.task}`)),
      el("h2", { class: "break" }, record.title || "(no text)"),
      el("p", { class: "answer" }, best ? record.answer ?? "no answer" : "nothing could be selected"),
      words.map((each) => el("p", { class: "break" }, each)), guaranteeNote(record.guarantee), fieldTable(record),
      outcomeForm(record.record_id, best ? best.answer ?? "" : null), outcomes(record),
      facts([["written by", record.generator], ["confidence", probability(record.confidence)], ["E", number(record.energy)],
        ["mu", number(record.mu)], ["sigma", number(record.sigma)], ["penalty", number(record.penalty)], ["signal", number(record.signal)],
        ["candidates", `${count(record.num_candidates)}, ${count(record.num_failed)} failed`],
        ["tokens", `${count(record.prompt_tokens)} read, ${count(record.completion_tokens)} written`], ["cost", money(record.cost_usd)],
        ["latency", duration(record.latency_ms)], ["request", record.request_id], ["problem id", record.problem_id]])),
    el("section", { class: "card stack-small" }, el("h2", {}, "Problem"),
      el("div", { class: "candidate-text text-block", tabindex: "0", role: "group", "aria-label": "Problem" }, record.problem.prompt)),
    record.answers.length ? el("section", { class: "stack-small" }, el("h2", {}, "Answers, and the evidence for each"), answerList(record.answers)) : null,
    el("section", { class: "stack-small" }, el("h2", {}, "Passes"), el("ol", { class: "plain-list stack-small" }, passList(record.passes))),
    el("section", { class: "stack-small" }, el("h2", {}, "Candidates, best first"),
      el("ol", { class: "card plain-list" }, candidateRows(record.candidates, record.selected))),
    el("section", { class: "card stack-small" }, el("h2", {}, "Settings and versions"),
      facts([["policy id", record.policy_id], ...values(settings), ["seed", String(record.seed)], ...values(record.versions),
        ["request", JSON.stringify(record.request)]])));
}

function outcomes(record) {
  return el("ul", { class: "plain-list small" }, [...record.outcomes].reverse().map((each) => el("li", { class: "break" },
    outcomeBadge(each.outcome), ` by ${each.by}, `, time(each.time), each.current ? "" : " (replaced)",
    each.answer === null ? "" : `; correct answer: ${each.answer}`, each.note === null ? "" : `; ${each.note}`)));
}

show();
