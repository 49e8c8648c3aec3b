// The live page: what the ingress replicas saw lately, read again every few seconds.
//
// Each replica counts for itself and a request reaches any one of them, so the page keeps the newest figures of each and
// shows their sum.

import { byId, count, duration, el, fetchJson, fill, money, NONE, number, percent, plural, showError, time } from "./base.js";
import { barChart, histogramBins } from "./bar_chart.js";
import { addUp, histogram, percentile, sum, timeline } from "./live_figures.js";

const EVERY_MS = 3000;
const HEALTH_EVERY_MS = 15_000;
/** A replica that did not answer for so long is gone, or there are very many. */
const FORGET_MS = 90_000;

const replicas = new Map(); // name -> {figures, at}
let health = null;
let healthError = null;
let healthAt = -Infinity;
let paused = false;
let timer = null;
let asking = null;
let told = null;

const charts = {
  requests: barChart({ title: "Requests", heading: "From", unit: "requests" }),
  decisions: barChart({ title: "Decisions", heading: "From" }),
  tokens: barChart({ title: "Tokens", heading: "From", unit: "tokens" }),
  load: barChart({ title: "Most requests at once", heading: "From", unit: "requests" }),
  sigma: barChart({ title: "Sigma", heading: "Sigma" }),
  energy: barChart({ title: "Energy", heading: "Energy" }),
};
fill(byId("time-charts"), charts.requests.node, charts.decisions.node, charts.tokens.node, charts.load.node);
fill(byId("spread-charts"), charts.sigma.node, charts.energy.node);

// ---- reading --------------------------------------------------------------------------------------------------------

async function refresh() {
  clearTimeout(timer);
  asking?.abort();
  const mine = asking = new AbortController();
  const windowS = Number(byId("window").value);
  try {
    const figures = await fetchJson(`v1/live?window_s=${windowS}`, { signal: mine.signal });
    const now = performance.now();
    replicas.set(figures.replica, { figures, at: now });
    for (const [name, known] of replicas) {
      if (now - known.at > FORGET_MS || known.figures.window_s !== windowS) replicas.delete(name);
    }
    if (now - healthAt > HEALTH_EVERY_MS) await readHealth(mine.signal, now);
    tell(null);
    show(figures);
  } catch (error) {
    if (error.name === "AbortError") return;
    tell(error);
  }
  if (mine === asking && !paused && !document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

/** The same trouble is announced once, not every three seconds. */
function tell(error) {
  if (told === (error?.message ?? null)) return;
  told = error?.message ?? null;
  showError(byId("live-error"), error);
}

async function readHealth(signal, now) {
  healthAt = now;
  try {
    health = await fetchJson("health", { signal });
    healthError = null;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    healthError = error;
  }
}

byId("window").addEventListener("change", refresh);
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
  if (paused) clearTimeout(timer); else refresh();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer); else if (!paused) refresh();
});

// ---- showing --------------------------------------------------------------------------------------------------------

function show(figures) {
  const total = addUp([...replicas.values()].map((known) => known.figures));
  fill(byId("live-state"), "As of ", time(figures.now), ", read again every 3 seconds while this page is open.");
  byId("live-whose").textContent = replicas.size > 1
    ? `Sum over the ${count(replicas.size)} ingress replicas that answered lately; each counts since it started.`
    : `Figures of ingress replica ${figures.replica}, since ${time(figures.started).textContent}.`;
  const line = timeline(total.bins, Date.parse(figures.now) / 1000, figures.window_s, figures.bin_s);
  showTiles(total, line.rows, figures.window_s);
  showTimes(line);
  showSpreads(total);
  showTables(total);
  showParts(total);
}

function tile(name, value, small) {
  return el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value, small ? [" ", el("span", { class: "small" }, small)] : null));
}

function showTiles(total, rows, windowS) {
  const of = (name) => sum(rows.map((row) => row[name]));
  const requests = of("requests"), accepted = of("accepted"), decided = accepted + of("abstained");
  const latencies = total.stages.get("total") ?? new Map();
  const scorer = health?.scorer;
  fill(byId("tiles"),
    tile("Requests", count(requests), `${number(60 * requests / windowS, 1)} a minute`),
    tile("Server errors", count(of("server_errors")), of("refused") ? `${count(of("refused"))} refused` : null),
    tile("Decisions", count(decided), of("undecided") ? `${count(of("undecided"))} failed` : null),
    tile("Accepted", decided ? percent(accepted / decided) : NONE),
    tile("Decided in", duration(percentile(latencies, 0.5)), latencies.size ? `95 %: ${duration(percentile(latencies, 0.95))}` : null),
    tile("Running now", count(total.running), `${count(total.waiting)} waiting`),
    tile("Tokens", count(of("prompt_tokens") + of("completion_tokens")), `${count(of("completion_tokens"))} written`),
    tile("Cost", money(of("cost_usd"))),
    tile("Requests a scoring batch", scorer?.batches ? number(scorer.calls / scorer.batches, 2) : NONE,
      scorer?.batches ? "since the scorer started" : null));
}

function showTimes({ width, rows }) {
  const clock = (at) => new Date(1000 * at).toLocaleTimeString("sv-SE");
  const bins = rows.map((row) => ({ label: clock(row.at), tick: clock(row.at).slice(0, 5) }));
  const of = (read) => rows.map(read);
  const per = width === 60 ? "a minute" : `${width} seconds`;
  const update = (chart, series, what, format) => chart.update({ bins, series, format,
    summary: `${(format ?? count)(sum(series.flatMap((each) => each.values)))} ${what}; a bar is ${per}.` });
  update(charts.requests, [
    { name: "answered", kind: "ok", values: of((row) => row.requests - row.refused - row.server_errors) },
    { name: "refused", kind: "refused", values: of((row) => row.refused) },
    { name: "server errors", kind: "error", values: of((row) => row.server_errors) }], "requests");
  update(charts.decisions, [{ name: "accepted", kind: "accept", values: of((row) => row.accepted) },
    { name: "abstained", kind: "abstain", values: of((row) => row.abstained) }], "decisions");
  update(charts.tokens, [{ name: "written", kind: "plain", values: of((row) => row.completion_tokens) },
    { name: "read", kind: "second", values: of((row) => row.prompt_tokens) }], "tokens");
  charts.load.update({ bins, series: [{ name: "running", kind: "plain", values: of((row) => row.running) },
    { name: "waiting", kind: "abstain", values: of((row) => row.waiting) }],
  summary: `At most ${count(Math.max(...rows.map((row) => row.running)))} ran and ${count(Math.max(...rows.map((row) => row.waiting)))} waited; a bar is ${per}.` });
}

function showSpreads(total) {
  const policy = Object.values(health?.policies ?? {})[0];
  const thresholds = policy ? [{ value: policy.theta_sigma, label: "theta_sigma" }, { value: policy.theta_abstain, label: "theta_abstain" }] : [];
  for (const name of ["sigma", "energy"]) {
    const bars = histogram(total[name]);
    const shown = bars ? histogramBins(bars.edges, 3, name === "sigma" ? thresholds : []) : { bins: [] };
    charts[name].update({ ...shown, empty: "No candidate was selected.",
      series: [{ name: "accepted", kind: "accept", values: bars?.accept ?? [] }, { name: "abstained", kind: "abstain", values: bars?.abstain ?? [] }],
      summary: bars ? `${count(sum(bars.accept))} accepted, ${count(sum(bars.abstain))} abstained.` : "" });
  }
}

function table(id, columns, rows, empty) {
  fill(byId(id),
    el("thead", {}, el("tr", {}, columns.map(([name, numeric]) => el("th", { scope: "col", class: numeric ? "number" : null }, name)))),
    el("tbody", {}, rows.length ? rows.map((cells) => el("tr", {}, cells.map((cell, place) => (place === 0
      ? el("th", { scope: "row", class: "break" }, cell)
      : el("td", { class: columns[place][1] ? "number" : null }, cell)))))
      : el("tr", {}, el("td", { colspan: columns.length, class: "muted" }, empty))));
}

const STAGES = { generate: "generate", check: "check constraints", score: "score", total: "whole decision" };

function showTables(total) {
  const stages = [...total.stages].sort(([left], [right]) => order(left) - order(right));
  table("stages", [["Stage"], ["Decisions", true], ["Median", true], ["95 %", true]], stages.map(([stage, counts]) =>
    [STAGES[stage] ?? stage, count(sum(counts.values())), duration(percentile(counts, 0.5)), duration(percentile(counts, 0.95))]),
  "No decision in this time.");
  const routes = [...total.routes].sort(([, left], [, right]) => sum(right.counts.values()) - sum(left.counts.values()));
  table("routes", [["Route"], ["Requests", true], ["By status"], ["Median", true], ["95 %", true]], routes.map(([route, { statuses, counts }]) =>
    [el("code", {}, route), count(sum(counts.values())), [...statuses].sort().map(([status, n]) => `${status}: ${count(n)}`).join(", "),
      duration(percentile(counts, 0.5)), duration(percentile(counts, 0.95))]), "No request in this time.");
  table("generators", [["Generator"], ["Candidates", true], ["Failed", true], ["Tokens written", true], ["Cost", true]],
    [...total.generators.values()].map((each) => [each.generator, count(each.written + each.failed), failed(each),
      count(each.completion_tokens), money(each.cost_usd)]), "No candidate in this time.");
  const violations = [...total.violations].sort(([, left], [, right]) => right - left);
  table("violations", [["Constraint"], ["Selected candidates that violate it", true]],
    violations.map(([name, n]) => [name, count(n)]), "None in this time.");
}

function order(stage) {
  const found = Object.keys(STAGES).indexOf(stage);
  return found < 0 ? 2.5 : found;
}

function failed(each) {
  return each.failed ? `${count(each.failed)} (${percent(each.failed / (each.written + each.failed), 0)})` : "0";
}

function showParts(total) {
  const { writer } = total;
  const scorer = health?.scorer;
  fill(byId("parts"),
    healthError ? el("p", { class: "notice notice-error" }, `Not ready: ${healthError.message}`) : null,
    (health?.warnings ?? []).map((words) => el("p", { class: "notice notice-warning" }, words)),
    writer?.errors.length ? el("p", { class: "notice notice-error" }, `Decisions cannot be stored: ${writer.errors[0]}`) : null,
    el("dl", { class: "facts" },
      fact("Generators", (health?.generators ?? []).join(", ") || NONE),
      fact("Scorer", scorer ? `${plural(scorer.adapters.length, "adapter")}; ${plural(scorer.calls, "call")} in ${plural(scorer.batches, "batch", "batches")}, of the replica that answered` : NONE),
      fact("Stored decisions", writer ? `${count(writer.written)} written, ${count(writer.waiting)} waiting, ${count(writer.dropped)} dropped` : "none are stored"),
      fact("Passes", [...total.passes].map(([passes, n]) => `${passes}: ${plural(n, "decision")}`).join(", ") || NONE),
      Object.entries(health?.versions ?? {}).map(([name, value]) => fact(name, value))));
}

function fact(name, value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

refresh();
