// The ask page: a request, its events, its answer.

import { ApiError, NONE, announce, byId, count, decisionBadge, duration, el, fill, money, number, plural, showError,
  streamEvents, svg } from "./base.js";
import { formIsValid, refuseField, requestBody, setUpForm, storesDecisions } from "./ask_form.js";
import { answerList, checksInWords, confidenceSentence, guaranteeNote, probability, stopSentence } from "./answers.js";
import { CandidateRow, axes, legend } from "./candidate_rows.js";
import { term } from "./glossary.js";
import { outcomeForm } from "./outcome_buttons.js";
import { passCards } from "./pass_cards.js";
import { finish, newRun, ranked, scales, selectedId, takeIn } from "./run_state.js";

let run = null;
let abort = null;
let rows = new Map();
let isDue = false;
let passesShown = "";
let recordLink = null;
let decided = null; // the result that the decision card shows

// ---- asking ---------------------------------------------------------------------------------------------------------

async function ask() {
  if (run?.phase === "running") return;
  if (!formIsValid()) return;
  begin();
  const mine = run;
  try {
    await streamEvents("v1/triage", requestBody(), { signal: abort.signal, onEvent: (event) => takeEvent(mine, event) });
    if (mine.phase === "running") throw new ApiError("The answer broke off before it was complete.", { code: "cut_off" });
  } catch (error) {
    fail(mine, error);
  }
}

function begin() {
  abort = new AbortController();
  run = newRun(performance.now());
  rows = new Map();
  showError(byId("form-error"), null);
  for (const id of ["decision-card", "answers-section", "passes-section", "candidates-section", "record-card", "empty"]) byId(id).hidden = true;
  fill(byId("candidates"));
  byId("progress-card").hidden = false;
  byId("ask").setAttribute("aria-disabled", "true"); // a disabled button would lose the focus that is on it
  byId("stop").hidden = false;
  byId("results").setAttribute("aria-busy", "true");
  announce("Asked. Candidates are being drawn.");
  tick();
  redraw();
  if (!window.matchMedia("(min-width: 64rem)").matches) byId("progress-card").scrollIntoView({ block: "start" });
}

function takeEvent(mine, { event, data }) {
  if (mine !== run || mine.phase !== "running" || !data || data === "[DONE]") return;
  const value = JSON.parse(data);
  if (event === "raydebm.progress") {
    takeIn(mine, value);
    tell(mine, value);
    redraw();
  } else if (event === "raydebm.result") {
    finish(mine, value, performance.now());
    end();
    announce(decisionWords(value));
  } else if (event === "raydebm.error") {
    const { message, code, param } = value.error;
    throw new ApiError(message, { code, param, requestId: mine.start?.request_id });
  }
}

function fail(mine, error) {
  if (mine !== run) return;
  const isStopped = error.name === "AbortError";
  Object.assign(mine, { phase: isStopped ? "stopped" : "failed", error, endedAt: performance.now() });
  abort?.abort(); // a stream that failed halfway is left, and the service ends its work
  end();
  if (isStopped) { announce("Stopped."); return; }
  const param = (error.param ?? "").replace(/^.*\./, "").replace(/^lambda_$/, "lambda");
  const field = document.getElementById(param);
  if (field?.form === byId("ask-form")) refuseField(param, error.message, error); else showError(byId("form-error"), error);
}

function end() {
  byId("ask").removeAttribute("aria-disabled");
  if (document.activeElement === byId("stop")) byId("ask").focus();
  byId("stop").hidden = true;
  byId("results").removeAttribute("aria-busy");
  redraw();
}

// ---- telling --------------------------------------------------------------------------------------------------------

let toldAt = 0;

/** To screen readers: each pass and decision, and how many have arrived, at most every three seconds. */
function tell(mine, event) {
  if (event.event === "pass") announce(`Pass ${event.pass}: ${plural(event.requested, "candidate")} asked.`);
  else if (event.event === "decision") announce(`Pass ${event.pass_index} ended: ${event.decision}.`);
  else if (event.event === "candidate" && performance.now() - toldAt > 3000) {
    toldAt = performance.now();
    announce(`${event.done} of ${event.total} candidates of pass ${event.pass} have arrived.`);
  }
}

function decisionWords(result) {
  const what = result.decision === "accept" ? `Accepted: ${result.answer ?? result.text}.` : "Abstained: no answer is given.";
  return [what, confidenceSentence(result, result.candidates.length), result.reason].filter(Boolean).join(" ").slice(0, 500);
}

// ---- drawing --------------------------------------------------------------------------------------------------------

/** Draw at most ten times a second, however many events come. */
function redraw() {
  if (isDue) return;
  isDue = true;
  setTimeout(() => { isDue = false; draw(); }, 100);
}

function tick() {
  if (run?.phase !== "running") return;
  showTime();
  setTimeout(tick, 250);
}

function showTime() {
  const state = { running: "running", done: "done", failed: "failed", stopped: "stopped" }[run.phase];
  byId("progress-words").textContent = `${state} \u00B7 ${duration((run.endedAt ?? performance.now()) - run.startedAt)}`;
}

function draw() {
  if (!run) return;
  showTime();
  fill(byId("progress-passes"), run.passes.length ? run.passes.map(passProgress) : el("p", { class: "muted" }, "waiting for its turn"));
  drawCandidates();
  const hasPasses = run.passes.some((pass) => pass.decision) && (run.passes.length > 1 || run.phase !== "running");
  byId("passes-section").hidden = !hasPasses;
  const state = JSON.stringify([run.phase, run.passes]);
  if (hasPasses && state !== passesShown) fill(byId("passes"), passCards(run)); // what a reader has folded out stays so
  passesShown = state;
  if (run.result) { drawDecision(run.result); drawAnswers(run.result); drawRecord(run.result); }
}

function passProgress(pass) {
  const candidates = [...run.candidates.values()].filter((found) => found.pass === pass.index);
  const names = [...new Set([...Object.keys(pass.generators), ...candidates.map((found) => found.generator), ...Object.keys(pass.overBudget)])];
  return el("div", { class: "pass-progress" }, el("strong", { class: "small" }, `Pass ${pass.index}`),
    el("div", {}, names.map((name) => generatorProgress(name, pass, candidates.filter((found) => found.generator === name)))));
}

function generatorProgress(name, pass, candidates) {
  const total = pass.generators[name] ?? candidates.length;
  const skipped = pass.overBudget[name] ?? 0;
  const failed = candidates.filter((found) => found.failed && !found.late).length;
  const late = candidates.filter((found) => found.late).length;
  const words = [`${candidates.length} of ${total}`, failed ? `${failed} failed` : null, late ? `${late} late` : null,
    skipped ? `${skipped} over budget` : null].filter(Boolean).join(", ");
  const kinds = candidates.map((found) => (found.failed ? "failed" : found.body ? "scored" : "written")).sort();
  const slots = [...kinds, ...Array(Math.max(0, total - kinds.length)).fill("waiting"), ...Array(skipped).fill("skipped")];
  return el("div", { class: "generator-progress" }, el("span", { class: "generator-name" }, name),
    el("span", { class: "slots", "aria-hidden": "true" }, slots.slice(0, 128).map((kind) => el("span", { class: `slot slot-${kind}` }))),
    el("span", { class: "muted number" }, words));
}

function drawCandidates() {
  const found = ranked(run);
  byId("candidates-section").hidden = found.length === 0;
  if (!found.length) return;
  const policy = run.result?.policy ?? run.start?.policy ?? null;
  const scale = scales(run, policy);
  const selected = selectedId(run);
  const scored = found.filter(({ body }) => body && body.mu !== null);
  byId("candidates-count").textContent = `${plural(found.length, "candidate")}, ${count(scored.length)} scored`;
  legend(byId("legend"), scored[0]?.body.members.length);
  axes(byId("axes"), scale, policy);
  const list = byId("candidates");
  const focused = document.activeElement;
  found.forEach((candidate, index) => {
    let row = rows.get(candidate.id);
    if (!row) { row = new CandidateRow(candidate.id); rows.set(candidate.id, row); }
    const rank = candidate.body?.energy === null || !candidate.body ? null : index + 1;
    row.update(candidate, { rank, isSelected: candidate.id === selected, scale, policy });
    if (list.children[index] !== row.root) list.insertBefore(row.root, list.children[index] ?? null);
  });
  if (focused !== document.activeElement && list.contains(focused)) focused.focus({ preventScroll: true });
}

function drawDecision(result) {
  const card = byId("decision-card");
  if (decided === result) return; // what a reader has typed about it stays
  decided = result;
  card.hidden = false;
  card.classList.toggle("is-accept", result.decision === "accept");
  card.classList.toggle("is-abstain", result.decision === "abstain");
  const accepted = result.decision === "accept";
  const best = result.candidate;
  const sentence = confidenceSentence(result, result.candidates.length);
  const checked = checksInWords(result.checks, result.constraints);
  fill(byId("decision"),
    el("div", { class: "decision-head" }, decisionBadge(result.decision),
      accepted && result.violations.length ? el("span", { class: "badge badge-violation" }, el("span", { "aria-hidden": "true" }, "!"),
        `with ${plural(result.violations.length, "violation")}`) : null,
      el("span", { class: "muted small" }, `${result.task} \u00B7 ${plural(result.num_passes, "pass", "passes")}`)),
    accepted ? el("div", {}, el("h3", { class: "visually-hidden" }, "Answer"), el("p", { class: "answer", tabindex: "0" }, result.answer ?? result.text)) : null,
    sentence || checked ? el("p", { class: "confidence" }, sentence ?? `${checked[0].toUpperCase()}${checked.slice(1)}.`) : null,
    accepted || best ? outcomeForm(result) : null,
    stopSentence(result) ? el("p", { class: "muted" }, stopSentence(result)) : null,
    guaranteeNote(result.guarantee),
    el("div", {}, el("h3", {}, accepted ? "Why it was accepted" : "Why no answer is given"), el("p", { class: "reason text-block" }, result.reason)),
    best?.sigma === null || !best || result.policy.rule === "posterior" ? null : gate(result),
    !accepted && best ? el("p", { class: "muted" }, "The candidate it would have been: ", el("span", { class: "break" }, best.answer ?? NONE)) : null,
    el("dl", { class: "tiles" }, [
      ...(result.confidence === null ? [] : [["confidence", probability(result.confidence)]]),
      ["E", number(result.energy)], ["mu", number(result.mu)], ["sigma", number(result.sigma)],
      ["E_constraint", number(result.penalty, 2)], ["tokens", count(result.usage.total_tokens)], ["cost", money(result.cost_usd)],
      ["time", duration(result.latency_ms)],
    ].map(([name, value]) => el("div", { class: "tile" }, el("dt", {}, term(name)), el("dd", {}, value)))),
    generatorNotes(result));
  if (!window.matchMedia("(min-width: 64rem)").matches) card.scrollIntoView({ block: "start" });
}

function drawAnswers(result) {
  byId("answers-section").hidden = result.answers.length === 0;
  fill(byId("answers"), answerList(result.answers, result.candidates));
}

/** The gating sigma against both thresholds. */
function gate(result) {
  const { theta_sigma: accept, theta_abstain: refuse } = result.policy;
  const record = result.passes[result.passes.length - 1];
  const { sigma } = result.candidate;
  const signal = record.signal ?? sigma;
  const isMean = result.policy.signal === "pool_mean";
  const widest = Math.max(sigma, signal);
  // Beyond ten times sigma a threshold is a text at the end of the axis, else sigma would be a point at its beginning.
  const high = (refuse <= 10 * widest || refuse <= 0.1 ? Math.max(refuse, widest) : accept <= 10 * widest ? Math.max(accept, widest) : widest) * 1.2 || 1;
  const at = (value) => `${Math.min(100, (100 * value) / high).toFixed(2)}%`;
  const label = (value, words, y, kind = null) => svg("text", { x: at(value), y, class: kind, "text-anchor": value / high > 0.75 ? "end" : value / high < 0.12 ? "start" : "middle" }, words);
  const a = Math.min(accept, high), r = Math.min(refuse, high);
  const theta = (value, name, y) => (value > high
    ? svg("text", { x: "100%", y, "text-anchor": "end" }, `${name} ${value} \u2192`)
    : [svg("line", { class: name === "theta_sigma" ? "threshold theta-sigma" : "threshold", x1: at(value), x2: at(value), y1: 18, y2: 46 }), label(value, `${name} ${Number(value.toPrecision(4))}`, y)]);
  const needle = (value, words, y) => [svg("line", { class: "needle", x1: at(value), x2: at(value), y1: 16, y2: 46 }), label(value, words, y, "strong")];
  return el("div", { class: "gate" }, svg("svg", { class: "chart", role: "img",
    "aria-label": `sigma ${number(sigma)} of the selected candidate; theta_sigma ${accept}, theta_abstain ${refuse}` },
  svg("rect", { class: "zone-accept", x: 0, y: 22, height: 20, width: at(a) }),
  svg("rect", { class: "zone-between", x: at(a), y: 22, height: 20, width: `${Math.max(0, ((r - a) / high) * 100)}%` }),
  svg("rect", { class: "zone-abstain", x: at(r), y: 22, height: 20, width: `${Math.max(0, ((high - r) / high) * 100)}%` }),
  svg("line", { class: "axis", x1: 0, x2: "100%", y1: 42, y2: 42 }),
  theta(accept, "theta_sigma", 57), theta(refuse, "theta_abstain", 69),
  needle(isMean ? signal : sigma, isMean ? `mean sigma ${number(signal)}` : `sigma ${number(sigma)}`, 11),
  isMean ? svg("line", { class: "member", x1: at(sigma), x2: at(sigma), y1: 20, y2: 44 }) : null),
  isMean ? el("p", { class: "hint" }, `The thin line is the selected candidate's sigma, ${number(sigma)}; theta_abstain is compared with it.`) : null);
}

function generatorNotes(result) {
  const troubled = result.generators.filter((found) => found.failed || found.over_budget);
  if (!troubled.length) return null;
  return el("div", { class: "notice notice-warning" }, el("h3", {}, "Generators that were left out"), el("ul", {}, troubled.map((found) => el("li", { class: "small" },
    el("strong", {}, found.name), `: ${found.failed} of ${found.asked} failed${found.late ? `, ${found.late} of them late` : ""}`,
    found.over_budget ? `, ${found.over_budget} not asked (over budget)` : "", found.error ? `; ${found.error}` : ""))));
}

function drawRecord(result) {
  byId("record-card").hidden = false;
  if (recordLink) URL.revokeObjectURL(recordLink);
  recordLink = URL.createObjectURL(new Blob([JSON.stringify(result, null, 2)], { type: "application/json" }));
  const facts = [["request", result.request_id], ["problem", result.problem_id], ["seed", result.seed],
    ["policy", Object.entries(result.policy).map(([name, value]) => `${name} ${value}`).join(", ")],
    ["stages", Object.entries(result.stages_ms).map(([name, ms]) => `${name} ${duration(ms)}`).join(", ")],
    ["versions", Object.entries(result.versions).map(([name, value]) => `${name} ${value}`).join(", ")]];
  fill(byId("record"), el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("p", {}, el("a", { href: recordLink, download: `${result.request_id}.json` }, "Download the full record (JSON)")),
    storesDecisions() ? el("p", {}, "Stored decisions: ", decisionsLink("this one", { request_id: result.request_id }), " \u00B7 ",
      decisionsLink("all about this problem", { problem_id: result.problem_id })) : null);
}

function decisionsLink(words, query) {
  return el("a", { href: `./decisions?${new URLSearchParams(query)}` }, words);
}

byId("stop").addEventListener("click", () => abort?.abort());
setUpForm(ask);
