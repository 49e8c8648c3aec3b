// The form of the ask page: its fields, the sample problems, and the request that they make.

import { ApiError, announce, byId, count, el, fetchJson, fill, plural, showError, sizes } from "./base.js";

const NUMBERS = ["lambda", "theta_sigma", "theta_abstain", "max_passes", "num_samples", "num_regenerate", "seed", "budget",
  "deadline_ms", "max_usd", "tau_accept", "tau_answer", "epsilon", "eta"];
const FIELDS = [...NUMBERS, "waves"];
const SIGNALS = { selected: "sigma of the selected candidate", pool_mean: "mean sigma of all candidates",
  equation: "sigma of the selected candidate, refusing at once above theta_abstain" };
const RULES = { posterior: "probability that the answer is right", paper: "sigma, as in the paper" };
const PROFILES = { vote: "the answer with the most candidates", best_author: "the most skilled author's answer",
  energy: "the lowest energy", energy_vote: "energy-weighted vote", posterior: "the most probable answer" };
/** Fields with a few values, and these in words. */
const CHOICES = { signal: SIGNALS, rule: RULES, profile: PROFILES };

let options = null;
let sample = null;

/** Fill the form with what the service offers; `submit` is called when it is sent. */
export async function setUpForm(submit) {
  byId("ask-form").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  byId("ask-form").addEventListener("input", formChanged);
  byId("policy-reset").addEventListener("click", emptyFields);
  byId("curl-details").addEventListener("toggle", showCurl);
  byId("problem").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); }
  });
  byId("sample-random").addEventListener("click", () => showSample(null));
  byId("sample-previous").addEventListener("click", () => step(-1));
  byId("sample-next").addEventListener("click", () => step(1));
  byId("sample-index").addEventListener("change", () => step(0));
  byId("sample-index").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); step(0); }
  });
  try {
    options = await fetchJson("v1/options");
    showOptions();
  } catch (error) {
    showError(byId("form-error"), error);
  }
}

function showOptions() {
  fill(byId("task"), options.tasks.map((name) => el("option", { value: name }, name)));
  const names = Object.keys(options.named_policies);
  fill(byId("policy"), el("option", { value: "" }, "calibrated"), names.map((name) => el("option", { value: name }, name)));
  byId("profile-field").hidden = names.length === 0;
  for (const [name, values] of Object.entries(CHOICES)) {
    fill(byId(name), el("option", { value: "" }), Object.entries(values).map(([value, words]) => el("option", { value }, words)));
  }
  fill(byId("generators"), options.generators.map((name) => el("label", { class: "choice" },
    el("input", { type: "checkbox", name: "generators", value: name, checked: true }),
    el("span", { class: "break" }, name, el("span", { class: "muted small" }, ` \u00B7 ${plural(options.num_samples[name] ?? 0, "candidate")}`)))));
  const { limits } = options;
  byId("problem").maxLength = limits.max_problem_chars;
  byId("max_passes").max = limits.max_passes;
  byId("num_samples").max = limits.max_samples;
  byId("num_regenerate").max = limits.max_regenerate;
  byId("sample-fields").hidden = options.num_problems === 0;
  byId("sample-total").textContent = `of ${count(options.num_problems)}`;
  byId("sample-index").max = options.num_problems;
  formChanged();
}

/** What holds where the form leaves it open: the calibrated policy of the task with the named one on it. */
function served() {
  const task = byId("task").value;
  const changes = options.named_policies[byId("policy").value] ?? {};
  const counts = new Set(Object.values(options.num_samples));
  return { ...options.policies[task], seed: options.seed, num_samples: counts.size === 1 ? [...counts][0] : "as the recipe says", ...changes };
}

/** Which generators answer can be chosen for a task; none while it is open which task the problem belongs to. */
function showGenerators() {
  const offered = options.generators_of[byId("task").value] ?? [];
  for (const box of document.querySelectorAll("input[name='generators']")) box.closest("label").hidden = !offered.includes(box.value);
  byId("generator-fields").hidden = offered.length === 0;
}

function formChanged() {
  if (!options) return;
  const values = served();
  showGenerators();
  for (const name of NUMBERS) byId(name).placeholder = values[name] ?? "no limit";
  byId("waves").placeholder = values.waves?.length ? values.waves.join(",") : "none";
  for (const [name, words] of Object.entries(CHOICES)) byId(name).options[0].textContent = `${words[values[name]]} (as served)`;
  const changed = Object.keys(overrides()).length;
  byId("policy-changes").hidden = changed === 0;
  byId("policy-changes").textContent = `${changed} changed`;
  const known = asked().problem_id;
  byId("problem-note").textContent = sample && known
    ? `Problem ${known}${sample.problem.difficulty ? `, ${sample.problem.difficulty}` : ""}. Its gold answer stays on the server.`
    : sample ? "Changed: sent as a text of its own." : "";
  for (const field of document.querySelectorAll("[aria-invalid]")) accept(field);
  showCurl();
}

function emptyFields() {
  for (const name of [...FIELDS, ...Object.keys(CHOICES), "policy"]) byId(name).value = "";
  for (const box of document.querySelectorAll("input[name='generators']")) box.checked = true;
  formChanged();
}

function generatorBoxes() {
  return [...document.querySelectorAll("label:not([hidden]) > input[name='generators']")];
}

/** What the form changes of the policy; only fields that are filled in. */
function overrides() {
  const found = {};
  for (const name of NUMBERS) {
    const { value } = byId(name);
    if (value.trim() !== "") found[name] = Number(value);
  }
  if (byId("waves").value.trim() !== "") found.waves = sizes(byId("waves").value);
  for (const name of [...Object.keys(CHOICES), "policy"]) if (byId(name).value) found[name] = byId(name).value;
  const boxes = generatorBoxes();
  const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
  if (chosen.length < boxes.length) found.generators = chosen;
  return found;
}

/** The problem as it is sent: with the sample's own fields while its text is untouched, so that it is the same problem. */
function asked() {
  const text = byId("problem").value;
  const isSample = sample !== null && text === sample.problem.prompt && byId("task").value === sample.task;
  return isSample ? sample.problem : text;
}

/** What the form asks for. */
export function requestBody() {
  const task = byId("task").value;
  return { ...(task ? { task } : {}), problem: asked(), ...overrides(), return_candidates: true, stream: true };
}

function showCurl() {
  if (!byId("curl-details").open) return;
  const body = { ...requestBody(), stream: false };
  const address = new URL("v1/triage", document.baseURI).href;
  const json = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  byId("curl").textContent = `curl ${address} \\\n  -H "Content-Type: application/json" \\\n  -H "Authorization: Bearer $RAYDEBM_KEY" \\\n  -d '${json}'`;
}

// ---- sample problems ------------------------------------------------------------------------------------------------

async function showSample(index) {
  try {
    sample = await fetchJson(index === null ? "v1/problems" : `v1/problems?index=${index}`);
  } catch (error) {
    showError(byId("form-error"), error);
    return;
  }
  showError(byId("form-error"), null);
  byId("task").value = sample.task;
  byId("problem").value = sample.problem.prompt;
  byId("sample-index").value = sample.index + 1;
  formChanged();
  announce(`Problem ${sample.index + 1} of ${sample.total} is in the form.`);
}

function step(by) {
  const total = options?.num_problems ?? 0;
  const shown = Number(byId("sample-index").value) || (by > 0 ? 0 : 1);
  const index = by === 0 ? Math.min(Math.max(Math.trunc(shown), 1), total) - 1 : (shown - 1 + by + total) % total;
  return showSample(index);
}

// ---- what is wrong --------------------------------------------------------------------------------------------------

/** Whether every field holds what it may; the first that does not is pointed at. */
export function formIsValid() {
  if (byId("problem").value.trim() === "") { refuseField("problem", "The problem is empty: type one, or take a sample."); return false; }
  if (generatorBoxes().length && !generatorBoxes().some((box) => box.checked)) {
    byId("policy-details").open = true;
    showError(byId("form-error"), new ApiError("No generator is chosen: tick at least one."));
    generatorBoxes()[0].focus();
    return false;
  }
  const invalid = FIELDS.find((name) => !byId(name).checkValidity());
  if (invalid) refuseField(invalid, byId(invalid).validationMessage);
  return invalid === undefined;
}

/** Whether the service keeps its decisions. */
export function storesDecisions() {
  return Boolean(options?.stores_decisions);
}

/** Say what is wrong at the field itself, and lead there. */
export function refuseField(name, message, error = null) {
  showError(byId("form-error"), error);
  const field = byId(name);
  if (field.closest("details")) field.closest("details").open = true;
  accept(field);
  const id = `${name}-error`;
  field.after(el("p", { class: "field-error", id }, message));
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-errormessage", id);
  field.focus();
  if (!error) announce(message);
}

function accept(field) {
  document.getElementById(field.getAttribute("aria-errormessage"))?.remove();
  field.removeAttribute("aria-invalid");
  field.removeAttribute("aria-errormessage");
}
