// One stored decision with everything, or two side by side; and what other settings would have made of them.

import { announce, byId, count, decisionBadge, duration, el, fetchJson, fill, money, NONE, number, outcomeBadge, plural, showError,
  time } from "./base.js";
import { answerList, confidenceSentence, guaranteeNote, probability, stopSentence } from "./answers.js";
import { CandidateRow, axes, legend } from "./candidate_rows.js";
import { changes, changesAreValid, changesInWords } from "./decisions_replay.js";
import { passCards } from "./pass_cards.js";
import { finish, newRun, ranked, scales, selectedId } from "./run_state.js";

let shown = []; // {record, again, view} of what is open
let loading = null;
let waiting = null;

/** Load and show these decisions. */
export async function showDetails(ids) {
  loading?.abort();
  const mine = loading = new AbortController();
  byId("heading").textContent = ids.length > 1 ? "Two decisions" : "One decision";
  document.title = `${byId("heading").textContent} · raydebm`;
  fill(byId("details"), el("p", { class: "muted" }, "Loading\u2026"));
  showError(byId("page-error"), null);
  try {
    const records = await Promise.all(ids.map((id) =>
      fetchJson(`v1/decisions/${encodeURIComponent(id)}`, { signal: mine.signal })));
    shown = records.map((record, place) => decisionView(record, records.length > 1 ? "AB"[place] : null));
    fill(byId("details"), el("div", { class: "stack" },
      records.length > 1 ? comparison(records) : null,
      el("div", { class: records.length > 1 ? "side-by-side" : null }, shown.map((each) => each.node))));
    await decideAgain();
  } catch (error) {
    if (error.name === "AbortError") return;
    shown = [];
    fill(byId("details"));
    showError(byId("page-error"), error);
  }
}

byId("again").addEventListener("submit", (event) => {
  event.preventDefault();
  if (changesAreValid({ tell: true })) decideAgain();
});
byId("again").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(decideAgain, 250);
});

let asking = null;

async function decideAgain() {
  asking?.abort();
  const mine = asking = new AbortController();
  const values = changes();
  if (!changesAreValid()) return;
  showError(byId("again-error"), null);
  if (Object.keys(values).length === 0) {
    for (const each of shown) each.showAgain(null);
    return;
  }
  try {
    const found = await Promise.all(shown.map(({ record }) =>
      fetchJson(`v1/decisions/${record.record_id}/replay`, { body: values, signal: mine.signal })));
    found.forEach((again, place) => shown[place].showAgain(again, values));
    announce(found.map((again, place) =>
      `${found.length > 1 ? `${"AB"[place]}: ` : ""}${{ true: "changes", false: "does not change", null: "cannot be known" }[again.changed]}, ${again.decision}`).join("; "));
  } catch (error) {
    if (error.name === "AbortError") return;
    for (const each of shown) each.showAgain(null);
    showError(byId("again-error"), error);
  }
}

// ---- one decision -------------------------------------------------------------------------------------------------------

function decisionView(record, letter) {
  const again = el("div", { class: "again" });
  const pool = candidatePool(record);
  const confidence = confidenceSentence(record, record.num_candidates);
  const node = el("article", { class: "stack decision", "aria-labelledby": `title-${record.record_id}` },
    el("section", { class: "card stack-small" },
      el("div", { class: "row" }, letter ? el("span", { class: "letter" }, letter) : null, decisionBadge(record.decision),
        el("span", { class: "muted small" }, time(record.time), ` · ${record.task}`)),
      el("h2", { id: `title-${record.record_id}`, class: "break" }, titleOf(record)),
      confidence ? el("p", { class: "confidence" }, confidence) : null,
      stopSentence(record) ? el("p", { class: "muted" }, stopSentence(record)) : null,
      guaranteeNote(record.guarantee),
      el("p", { class: "break" }, sentence(record.reason)),
      again,
      facts(record)),
    el("section", { class: "card stack-small" }, el("h2", {}, "Problem"),
      el("div", { class: "text-block long-text", tabindex: "0", role: "group", "aria-label": "Problem" }, record.problem.prompt),
      record.problem.scored_prompt === null ? null
        : folded("What the ensemble read", el("div", { class: "text-block" }, record.problem.scored_prompt)),
      jsonDetails("Problem data", record.problem.data)),
    record.answers.length ? el("section", { class: "stack-small" }, el("h2", {}, "Answers, and the evidence for each"),
      answerList(record.answers, record.candidates)) : null,
    el("section", { class: "stack-small" }, el("h2", {}, "Passes"), el("ol", { class: "plain-list stack-small" }, passCards(runOf(record, null)))),
    el("section", { class: "stack-small" }, el("h2", {}, "Candidates, the lowest energy first"), pool.node),
    record.outcomes.length ? el("section", { class: "card stack-small" }, el("h2", {}, "Outcomes, the newest first"), outcomes(record)) : null,
    el("section", { class: "card stack-small" }, el("h2", {}, "Settings and versions"),
      el("dl", { class: "facts" }, pairs({ ...settings(record.policy), seed: record.seed }), pairs(record.versions)),
      jsonDetails("Fitted posterior", record.policy.posterior ?? {}),
      jsonDetails("What the request changed", record.request)));
  pool.update(null);
  return {
    record, node,
    showAgain(found, values) {
      fill(again, found ? againNotice(found, values) : null);
      pool.update(found);
    },
  };
}

function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "";
}

function pairs(values) {
  return Object.entries(values).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value === null ? NONE : String(value))]);
}

/** The settings of a policy, without what was fitted and promised. */
function settings({ posterior, prices, guarantee, ...others }) {
  return others;
}

function facts(record) {
  const selected = record.candidates.find((candidate) => candidate.candidate_id === record.selected);
  return el("dl", { class: "facts" },
    fact("Answer", selected ? el("span", { class: "break" }, record.answer ?? NONE) : "nothing could be selected"),
    selected ? fact("Written by", record.generator ?? selected.generator) : null,
    record.confidence === null ? null : fact("Confidence", probability(record.confidence)),
    fact("Energy", numbers([["E", record.energy], ["mu", record.mu], ["sigma", record.sigma], ["penalty", record.penalty]])),
    fact("Signal", `${number(record.signal)} (theta_sigma ${record.policy.theta_sigma}, theta_abstain ${record.policy.theta_abstain})`),
    fact("Candidates", `${count(record.num_candidates)}${record.num_failed ? `, ${count(record.num_failed)} failed` : ""} in ${plural(record.num_passes, "pass", "passes")}`),
    fact("Tokens", `${count(record.prompt_tokens)} read, ${count(record.completion_tokens)} written`),
    fact("Cost", record.cost_usd === null ? "not reported" : money(record.cost_usd)),
    fact("Latency", `${duration(record.latency_ms)}${stages(record.stages_ms)}`),
    record.outcome ? fact("Outcome", outcomeBadge(record.outcome)) : null,
    fact("Policy id", el("code", {}, record.policy_id)),
    fact("Request", el("code", { class: "break" }, record.request_id)),
    fact("Problem id", el("code", { class: "break" }, record.problem_id)));
}

function outcomes(record) {
  return el("ul", { class: "plain-list stack-small" }, [...record.outcomes].reverse().map((each) =>
    el("li", { class: "break" }, outcomeBadge(each.outcome), ` by ${each.by}, `, time(each.time),
      each.current ? null : el("span", { class: "muted" }, " (replaced)"),
      each.answer === null ? null : el("div", { class: "text-block" }, `Correct answer: ${each.answer}`),
      each.note === null ? null : el("div", { class: "text-block muted" }, each.note))));
}

function fact(name, value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

function numbers(found) {
  return found.map(([name, value]) => `${name} ${number(value)}`).join(" · ");
}

function stages(stagesMs) {
  const found = Object.entries(stagesMs).map(([stage, ms]) => `${stage} ${duration(ms)}`);
  return found.length ? ` (${found.join(", ")})` : "";
}

/** The beginning of the problem that the record keeps as its title; says where it is cut. */
function titleOf(record) {
  const whole = record.problem.prompt.trim().split(/\s+/).join(" ");
  return `${record.title}${whole.length > record.title.length ? "\u2026" : ""}` || "(no text)";
}

function folded(title, ...children) {
  return el("details", {}, el("summary", {}, title), children);
}

function jsonDetails(title, value) {
  if (Object.keys(value).length === 0) return null;
  return folded(title, el("pre", { class: "text-block small" }, JSON.stringify(value, null, 2)));
}

function againNotice(found, values) {
  const unknown = found.decision === "regenerate";
  return el("div", { class: `notice ${found.changed || unknown ? "notice-warning" : ""}`, role: "status" },
    el("p", {}, `With ${changesInWords(values)}: `, decisionBadge(found.decision), " ",
      el("strong", {}, unknown ? "A pass would be drawn that is not recorded." : found.changed
        ? (found.decision === found.recorded ? "Another answer." : "This decision changes.") : "Nothing changes.")),
    el("p", { class: "small break" }, sentence(found.reason),
      unknown ? ` If that pass could not be drawn: ${found.as_it_stands}.` : "",
      found.same_answer ? "" : ` The answer would be ${found.answer ?? "none"}, by ${found.generator ?? "nobody"}.`,
      ` ${plural(found.num_candidates, "candidate")} in ${plural(found.num_passes, "pass", "passes")}.`,
      found.exact ? "" : " A recorded pass stands in for one about another candidate."));
}

// ---- candidates ---------------------------------------------------------------------------------------------------------

/** The pool on common axes. `update(again)`: as other settings would see it; null: as it was decided. */
function candidatePool(record) {
  const rows = new Map(record.candidates.map((candidate) => [candidate.candidate_id, new CandidateRow(`${record.record_id}-${candidate.candidate_id}`)]));
  const axesNode = el("div", { class: "axes", "aria-hidden": "true" });
  const signs = el("div", { class: "legend", "aria-hidden": "true" });
  const list = el("ol", { class: "plain-list" });
  const node = el("div", { class: "card candidates" }, signs, axesNode, list);
  legend(signs, record.candidates.find((candidate) => candidate.members)?.members.length ?? 0);
  function update(again) {
    const run = runOf(record, again);
    const policy = again?.policy ?? record.policy;
    const scale = scales(run, policy);
    axes(axesNode, scale, policy);
    const order = ranked(run);
    order.forEach((candidate, place) => rows.get(candidate.id).update(candidate, {
      rank: (candidate.body?.energy ?? null) === null ? null : place + 1,
      isSelected: candidate.id === selectedId(run), scale, policy }));
    const nodes = order.map((candidate) => rows.get(candidate.id).root);
    if (nodes.some((row, place) => row !== list.children[place])) fill(list, nodes);
  }
  return { node, update };
}

/** A stored decision as a finished run of the ask page. */
function runOf(record, again) {
  const candidates = record.candidates.map((candidate) => (again
    ? { ...candidate, energy: again.energies[candidate.candidate_id] ?? null } : candidate));
  const selected = again ? again.selected : record.selected;
  return finish(newRun(0), { ...record, candidates,
    candidate: candidates.find((candidate) => candidate.candidate_id === selected) ?? null }, 0);
}

// ---- two decisions ------------------------------------------------------------------------------------------------------

function comparison(records) {
  const lines = [
    ["Decision", (record) => record.decision], ["Outcome", (record) => record.outcome ?? NONE], ["Problem", titleOf], ["Task", (record) => record.task],
    ["Answer", (record) => record.answer ?? NONE], ["Written by", (record) => record.generator ?? NONE],
    ["Confidence", (record) => probability(record.confidence)], ["Energy", (record) => number(record.energy)], ["mu", (record) => number(record.mu)], ["sigma", (record) => number(record.sigma)],
    ["Penalty", (record) => number(record.penalty)], ["Passes", (record) => count(record.num_passes)],
    ["Candidates", (record) => count(record.num_candidates)], ["Tokens written", (record) => count(record.completion_tokens)],
    ["Cost", (record) => money(record.cost_usd)], ["Latency", (record) => duration(record.latency_ms)],
    ["Policy id", (record) => record.policy_id ?? NONE],
    ...named(records, (record) => settings(record.policy)), ...named(records, (record) => record.versions, "version of "),
  ];
  return el("section", { class: "card stack-small", "aria-labelledby": "comparison-title" },
    el("h2", { id: "comparison-title" }, "Compared"),
    el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-labelledby": "comparison-title" },
      el("table", { class: "comparison" }, el("thead", {}, el("tr", {}, ["", "A", "B", ""].map((name, place) =>
        el("th", { scope: "col" }, name || el("span", { class: "visually-hidden" }, place ? "Differs" : "What"))))),
        el("tbody", {}, lines.map(([name, read]) => {
          const [left, right] = records.map(read);
          const differs = left !== right;
          return el("tr", { class: differs ? "differs" : null }, el("th", { scope: "row" }, name),
            el("td", { class: "break" }, left), el("td", { class: "break" }, right),
            el("td", { class: "small" }, differs ? "\u2260 differs" : ""));
        })))));
}

/** Lines for the entries of an object that `read` gives for a record, only where the two differ. */
function named(records, read, prefix = "") {
  const names = new Set(records.flatMap((record) => Object.keys(read(record))));
  return [...names].filter((name) => read(records[0])[name] !== read(records[1])[name])
    .map((name) => [`${prefix}${name}`, (record) => String(read(record)[name] ?? NONE)]);
}
