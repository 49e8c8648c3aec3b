// Two policies of a service: what the other one would have decided about a decision, and both side by side.

import { count, decisionBadge, el, fetchJson, fill, money, NONE, number, percent, plural } from "./base.js";
import { probability } from "./answers.js";
import { term } from "./glossary.js";

/** What the policy that did not answer would have decided; null where one policy decided. */
export function shadowCard({ policy_role: role, shadow }) {
  if (!role) return null;
  const answered = role === "canary" ? "The second policy answered, as a canary." : "The first policy answered.";
  return el("section", { class: "card stack-small" }, el("h2", {}, "The other policy, as a shadow"),
    el("p", { class: "muted" }, `${answered} ${shadow ? agreement(shadow) : "What the other one would have decided is not known: it failed, and the log says why."}`),
    shadow ? el("dl", { class: "facts" },
      fact("Decision", shadow.decision === "regenerate" ? `sample more; as it stands, ${shadow.as_it_stands}` : decisionBadge(shadow.decision)),
      fact("Answer", el("span", { class: "break" }, shadow.answer ?? NONE)),
      shadow.confidence === null ? null : fact("Confidence", probability(shadow.confidence)),
      shadow.stop_reason === null ? null : fact("Sampling ended", shadow.stop_reason),
      fact("Candidates", `${count(shadow.num_candidates)} in ${plural(shadow.num_passes, "pass", "passes")}`),
      fact("Cost", shadow.cost_usd === null ? "not reported" : money(shadow.cost_usd)),
      fact("Reason", el("span", { class: "break" }, shadow.reason)),
      fact("Policy", el("code", {}, shadow.version))) : null);
}

function agreement({ agrees, exact }) {
  const words = agrees === null ? "The other one would have sampled more, so its choice is not known."
    : agrees ? "The other one would have decided the same." : "The other one would have decided otherwise.";
  return exact ? words : `${words} A pass that it rests on answers feedback about another candidate.`;
}

/** One table of both policies for each task that has a trial, in `place`. Returns what reads them, also again, and says
 *  whether there is any. */
export function policyTables(place) {
  const parts = new Map(); // task -> its part of the place, which stays, so that a reader's focus does
  return async (signal) => {
    const trials = await trialsByTask(signal);
    for (const task of [...parts.keys()].filter((name) => !trials.has(name))) {
      parts.get(task).node.remove();
      parts.delete(task);
    }
    for (const [task, policies] of trials) {
      const figures = await comparison(task, policies, signal);
      if (!parts.has(task)) parts.set(task, addPart(place, task));
      showBoth(parts.get(task), policies, figures);
    }
    return trials.size > 0;
  };
}

/** Task -> both policies, of the tasks that have a trial. */
async function trialsByTask(signal) {
  const first = await fetchJson("v1/policies", { signal });
  const trials = new Map();
  for (const [index, task] of first.tasks.entries()) {
    const policies = index === 0 ? first : await fetchJson(`v1/policies?task=${encodeURIComponent(task)}`, { signal });
    if (policies.second) trials.set(task, policies);
  }
  return trials;
}

function addPart(place, task) {
  const words = el("p", { class: "muted" }), table = el("table");
  const node = el("div", { class: "stack-small" }, el("h3", {}, task), words,
    el("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": `Two policies of ${task}` }, table));
  place.append(node);
  return { node, words, table };
}

function showBoth({ words, table }, { first, second }, figures) {
  const role = second.percent > 0 ? `canary, ${number(second.percent)} %` : "shadow";
  const rows = [["first", first, figures?.first], [role, second, figures?.second]];
  fill(table,
    el("thead", {}, el("tr", {}, ["Policy", "Role"].map((name) => el("th", { scope: "col" }, term(name))),
      ["Answered by it", "Coverage", "Right", "Wrong", "Accuracy", "Candidates", "Cost per right answer"].map((name) =>
        el("th", { scope: "col", class: "number" }, term(name))))),
    el("tbody", {}, rows.map(([name, policy, own]) => el("tr", {},
      el("th", { scope: "row" }, el("code", {}, policy.version)), el("td", {}, name),
      cells(own).map((cell) => el("td", { class: "number" }, cell))))));
  words.textContent = figures ? inWords(figures) : "No decision of both policies is stored yet.";
}

function inWords(figures) {
  return `Both decided ${plural(figures.num_decisions, "problem")} and agree on ${figures.agreement === null ? NONE : percent(figures.agreement)}`
    + ` of the known choices; ${plural(figures.num_outcomes, "outcome judges", "outcomes judge")} both.`
    + (figures.right.p_value === null ? "" : ` Right answers: ${signed(figures.right.difference.value)}, p = ${number(figures.right.p_value)}.`);
}

/** Null while there is nothing to compare, or the key may not see it. */
async function comparison(task, { first, second }, signal) {
  const query = new URLSearchParams({ task, first: first.version, second: second.version });
  try {
    return await fetchJson(`v1/policies/comparison?${query}`, { signal });
  } catch (error) {
    if (error.status === 404 || error.status === 403) return null;
    throw error;
  }
}

function cells(figures) {
  if (!figures) return Array(7).fill(NONE);
  const accuracy = figures.accuracy === null ? NONE
    : `${percent(figures.accuracy)} (${percent(figures.accuracy_low)} to ${percent(figures.accuracy_high)})`;
  return [count(figures.decided), figures.coverage === null ? NONE : percent(figures.coverage), count(figures.right),
    count(figures.wrong), accuracy, figures.candidates === null ? NONE : number(figures.candidates),
    figures.cost_per_right_usd === null ? NONE : money(figures.cost_per_right_usd)];
}

function signed(share) {
  return `${share > 0 ? "+" : ""}${percent(share)}`;
}

function fact(name, value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}
