// The ask page: a form, the events of one request, its answer.

import { ApiError, announce, byId, count, decisionBadge, duration, el, fetchJson, fill, money, number, plural, showError, streamEvents }
  from "./base.js";
import { answerList, badge, candidateRows, checksInWords, confidenceSentence, facts, fieldTable, guaranteeNote, outcomeForm, passList, place,
  probability, stopSentence } from "./view.js";

const SETTINGS = {
  lambda: "lambda, weight of constraints", tau_accept: "tau_accept, accept from", tau_answer: "tau_answer, refuse below",
  theta_sigma: "theta_sigma, accept up to", theta_abstain: "theta_abstain, refuse above", max_passes: "passes at most",
  num_samples: "candidates of each generator", num_regenerate: "candidates of later passes", budget: "candidates in all",
  deadline_ms: "deadline in ms", max_usd: "US dollars", seed: "seed",
};
const WHOLE = ["max_passes", "num_samples", "num_regenerate", "budget", "deadline_ms", "seed"];

let options = null;
let sample = null;
let run = null;
let abort = null;

// ---- the form -------------------------------------------------------------------------------------------------------

async function setUp() {
  byId("ask-form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  byId("ask-form").addEventListener("input", formChanged);
  byId("curl-details").addEventListener("toggle", formChanged);
  byId("stop").addEventListener("click", () => abort?.abort());
  byId("sample").addEventListener("click", showSample);
  byId("problem").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); }
  });
  fill(byId("settings"), Object.entries(SETTINGS).map(([name, words]) => el("div", { class: "field" }, el("label", { for: name }, words),
    el("input", { id: name, name, type: "number", min: name === "seed" ? null : 0, step: WHOLE.includes(name) ? 1 : "any" }))));
  try {
    options = await fetchJson("v1/options");
  } catch (error) {
    showError(byId("form-error"), error);
    return;
  }
  fill(byId("task"), options.tasks.map((name) => el("option", { value: name }, name)));
  fill(byId("policy"), el("option", { value: "" }, "calibrated"),
    Object.keys(options.named_policies).map((name) => el("option", { value: name }, name)));
  fill(byId("generators"), options.generators.map((name) => el("label", { class: "choice" },
    el("input", { type: "checkbox", name: "generators", value: name, checked: true }), name)));
  byId("problem").maxLength = options.limits.max_problem_chars;
  byId("max_passes").max = options.limits.max_passes;
  byId("num_samples").max = options.limits.max_samples;
  byId("num_regenerate").max = options.limits.max_regenerate;
  byId("sample").hidden = options.num_problems === 0;
  formChanged();
}

function formChanged() {
  if (!options) return;
  const served = { ...options.policies[byId("task").value], seed: options.seed, ...options.named_policies[byId("policy").value] };
  const offered = options.generators_of[byId("task").value] ?? [];
  for (const name of Object.keys(SETTINGS)) byId(name).placeholder = served[name] ?? "as served";
  for (const box of boxes()) box.closest("label").hidden = !offered.includes(box.value);
  for (const field of document.querySelectorAll("[aria-invalid]")) accept(field);
  const changed = Object.keys(overrides()).length;
  byId("changed").textContent = changed ? `${changed} changed` : "";
  byId("problem-note").textContent = !sample ? "" : asked().problem_id ? `Problem ${asked().problem_id} of the test split.`
    : "Changed: sent as a text of its own.";
  const json = JSON.stringify({ ...requestBody(), stream: false }, null, 2).replaceAll("'", "'\\''");
  byId("curl").textContent = `curl ${new URL("v1/triage", document.baseURI).href} \\\n  -H "Content-Type: application/json" \\\n`
    + `  -H "Authorization: Bearer $RAYDEBM_KEY" \\\n  -d '${json}'`;
}

function boxes() {
  return [...document.querySelectorAll("input[name='generators']")];
}

/** What the form changes: only fields that are filled in. */
function overrides() {
  const found = {};
  for (const name of Object.keys(SETTINGS)) if (byId(name).value.trim() !== "") found[name] = Number(byId(name).value);
  if (byId("policy").value) found.policy = byId("policy").value;
  const shown = boxes().filter((box) => !box.closest("label").hidden);
  const chosen = shown.filter((box) => box.checked);
  if (chosen.length && chosen.length < shown.length) found.generators = chosen.map((box) => box.value);
  return found;
}

/** The problem as it is sent: with the sample's own fields while its text is untouched, so that it is the same problem. */
function asked() {
  const text = byId("problem").value;
  return sample !== null && text === sample.problem.prompt && byId("task").value === sample.task ? sample.problem : text;
}

function requestBody() {
  return { task: byId("task").value, problem: asked(), ...overrides(), return_candidates: true, stream: true };
}

async function showSample() {
  try {
    sample = await fetchJson("v1/problems");
  } catch (error) {
    showError(byId("form-error"), error);
    return;
  }
  showError(byId("form-error"), null);
  byId("task").value = sample.task;
  byId("problem").value = sample.problem.prompt;
  formChanged();
  announce(`Problem ${sample.index + 1} of ${sample.total} is in the form.`);
}

function formIsValid() {
  if (byId("problem").value.trim() === "") { refuse("problem", "The problem is empty: type one, or take a sample."); return false; }
  const invalid = Object.keys(SETTINGS).find((name) => !byId(name).checkValidity());
  if (invalid) refuse(invalid, byId(invalid).validationMessage);
  return invalid === undefined;
}

/** Say what is wrong at the field itself, and lead there. */
function refuse(name, message, error = null) {
  showError(byId("form-error"), error);
  const field = byId(name);
  if (field.closest("details")) field.closest("details").open = true;
  accept(field);
  field.after(el("p", { class: "field-error", id: `${name}-error` }, message));
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-errormessage", `${name}-error`);
  field.focus();
  if (!error) announce(message);
}

function accept(field) {
  document.getElementById(field.getAttribute("aria-errormessage"))?.remove();
  field.removeAttribute("aria-invalid");
  field.removeAttribute("aria-errormessage");
}

// ---- asking ---------------------------------------------------------------------------------------------------------

async function ask() {
  if (run?.phase === "running" || !formIsValid()) return;
  abort = new AbortController();
  const mine = run = { phase: "running", startedAt: performance.now(), passes: [], candidates: new Map(), nodes: new Map(), result: null };
  showError(byId("form-error"), null);
  for (const id of ["decision-card", "answers-section", "passes-section", "candidates-section", "empty"]) byId(id).hidden = true;
  fill(byId("candidates"));
  byId("ask").setAttribute("aria-disabled", "true"); // a disabled button would lose the focus that is on it
  byId("stop").hidden = false;
  byId("progress-card").hidden = false;
  announce("Asked. Candidates are being drawn.");
  tick(mine);
  try {
    await streamEvents("v1/triage", requestBody(), { signal: abort.signal, onEvent: (event) => takeEvent(mine, event) });
    if (mine.phase === "running") throw new ApiError("The answer broke off before it was complete.", { code: "cut_off" });
  } catch (error) {
    fail(mine, error);
  }
  byId("ask").removeAttribute("aria-disabled");
  if (document.activeElement === byId("stop")) byId("ask").focus();
  byId("stop").hidden = true;
  draw();
}

function takeEvent(mine, { event, data }) {
  if (mine.phase !== "running" || !data || data === "[DONE]") return;
  const value = JSON.parse(data);
  if (event === "raydebm.progress") takeProgress(mine, value);
  else if (event === "raydebm.result") {
    Object.assign(mine, { phase: "done", result: value, passes: value.passes });
    for (const body of value.candidates) mine.candidates.set(body.candidate_id, body);
    const what = value.decision === "accept" ? `Accepted: ${value.answer ?? value.text}.` : "Abstained: no answer is given.";
    announce(`${what} ${confidenceSentence(value, value.candidates.length) ?? ""} ${value.reason}`.slice(0, 500));
    draw();
  } else if (event === "raydebm.error") throw new ApiError(value.error.message, value.error);
}

function takeProgress(mine, event) {
  if (event.event === "pass") {
    mine.passes.push({ pass_index: event.pass, num_requested: event.requested });
    announce(`Pass ${event.pass}: ${plural(event.requested, "candidate")} asked.`);
  } else if (event.event === "candidate") {
    mine.candidates.set(event.candidate_id, { ...event, pass_index: event.pass, energy: null, mu: null, sigma: null, violations: [] });
  } else if (event.event === "scored") mine.candidates.set(event.candidate.candidate_id, event.candidate);
  else if (event.event === "decision") {
    Object.assign(mine.passes.find((pass) => pass.pass_index === event.pass_index) ?? {}, event);
    announce(`Pass ${event.pass_index} ended: ${event.decision}.`);
  }
}

function fail(mine, error) {
  mine.phase = error.name === "AbortError" ? "stopped" : "failed";
  abort.abort(); // a stream that failed halfway is left, and the service ends its work
  if (mine.phase === "stopped") { announce("Stopped."); return; }
  const param = (error.param ?? "").replace(/^.*\./, "").replace(/^lambda_$/, "lambda");
  if (param in SETTINGS || param === "problem") refuse(param, error.message, error); else showError(byId("form-error"), error);
}

// ---- drawing --------------------------------------------------------------------------------------------------------

/** Draw a few times a second, however many events come. */
function tick(mine) {
  if (mine.phase !== "running") return;
  draw();
  setTimeout(() => tick(mine), 150);
}

function draw() {
  const candidates = [...run.candidates.values()];
  const asked_ = run.passes.reduce((sum, pass) => sum + pass.num_requested, 0);
  const scored = candidates.filter((body) => body.mu !== null).length;
  byId("progress-words").textContent = `${run.phase} \u00B7 ${duration(run.result?.latency_ms ?? performance.now() - run.startedAt)} \u00B7 `
    + `${count(candidates.length)} of ${plural(asked_, "candidate")}, ${count(scored)} scored`;
  byId("candidates-section").hidden = candidates.length === 0;
  place(byId("candidates"), candidateRows(candidates, run.result?.candidate?.candidate_id ?? null, run.nodes));
  byId("passes-section").hidden = !run.passes.some((pass) => pass.decision);
  fill(byId("passes"), passList(run.passes));
  if (run.result && run.result !== run.shown) drawDecision(run.shown = run.result);
}

function drawDecision(result) {
  const accepted = result.decision === "accept";
  const best = result.candidate;
  const checked = checksInWords(result.checks, result.constraints);
  const troubled = result.generators.filter((found) => found.failed || found.over_budget);
  const card = byId("decision-card");
  card.hidden = false;
  card.className = `card is-${result.decision}`;
  fill(byId("decision"),
    el("div", { class: "row" }, decisionBadge(result.decision),
      accepted && result.violations.length ? badge("violation", "!", `with ${plural(result.violations.length, "violation")}`) : null,
      el("span", { class: "muted small" }, `${result.task} \u00B7 ${plural(result.num_passes, "pass", "passes")}`)),
    accepted ? el("p", { class: "answer", tabindex: "0" }, result.answer ?? result.text) : null,
    el("p", { class: "confidence" }, confidenceSentence(result, result.candidates.length) ?? checked),
    result.record_id && best ? outcomeForm(result.record_id, best.answer ?? "") : null,
    stopSentence(result) ? el("p", { class: "muted" }, stopSentence(result)) : null,
    guaranteeNote(result.guarantee), fieldTable(result),
    el("h3", {}, accepted ? "Why it was accepted" : "Why no answer is given"), el("p", { class: "text-block" }, result.reason),
    !accepted && best ? el("p", { class: "muted break" }, `The candidate it would have been: ${best.answer ?? "\u2013"}`) : null,
    troubled.length ? el("ul", { class: "notice notice-warning small" }, troubled.map((found) => el("li", {},
      `${found.name}: ${found.failed} of ${found.asked} failed${found.over_budget ? `, ${found.over_budget} over budget` : ""}`
      + `${found.error ? `; ${found.error}` : ""}`))) : null,
    facts([["confidence", probability(result.confidence)], ["E", number(result.energy)], ["sigma", number(result.sigma)],
      ["penalty", number(result.penalty)], ["tokens", count(result.usage.total_tokens)], ["cost", money(result.cost_usd)],
      ["time", duration(result.latency_ms)], ["request", result.request_id], ["problem", result.problem_id],
      ["policy", Object.entries(result.policy).map(([name, value]) => `${name} ${value}`).join(", ")],
      ["versions", Object.entries(result.versions).map(([name, value]) => `${name} ${value}`).join(", ")]]),
    el("div", { class: "row" },
      el("a", { download: `${result.request_id}.json`, href: `data:application/json;charset=utf-8,${encodeURIComponent(JSON.stringify(result, null, 2))}` },
        "Download the full record"),
      result.record_id ? el("a", { href: `decisions?id=${encodeURIComponent(result.record_id)}` }, "The stored decision") : null));
  byId("answers-section").hidden = result.answers.length === 0;
  fill(byId("answers"), answerList(result.answers));
  if (!window.matchMedia("(min-width: 64rem)").matches) card.scrollIntoView({ block: "start" });
}

setUp();
