// The distinct answers of a pool, each with its probability and the evidence for it; and the confidence in one sentence.

import { NONE, count, el, number, plural, svg } from "./base.js";

const TERMS = {
  base: "start: an average answer", votes: "share of candidates", authors: "number of authors", skill: "skill of its authors",
  energy: "its lowest energy", mean_energy: "its mean energy", members: "agreement of the adapters", penalty: "constraints",
  length: "brevity of its texts", energy_vote: "energy-weighted share", minus_energy: "its energy",
};

/** "5 of 8 candidates from 3 models agree; every check holds (statements); right with probability 0.93."; null without a
 *  posterior or a selection. decision: a body with confidence and answers, and, where known, checks and constraints. total:
 *  candidates of the pool. */
export function confidenceSentence({ confidence, answers, checks, constraints }, total) {
  const first = answers?.[0];
  if (!first || confidence === null || confidence === undefined) return null;
  const agree = `${count(first.num_candidates)} of ${plural(total, "candidate")} from ${plural(first.authors.length, "model")}`
    + ` ${first.num_candidates === 1 ? "gives this answer" : "agree"}`;
  if (first.proof === true) return `${agree}; an exact constraint proves it right.`;
  if (first.proof === false) return `${agree}; an exact constraint refutes it.`;
  return `${[agree, checksInWords(checks, constraints), `right with probability ${probability(confidence)}`].filter(Boolean).join("; ")}.`;
}

/** "every check holds (a, b)", or which do not; null where nothing was checked. */
export function checksInWords(checks, constraints) {
  if (!checks?.length) return null;
  const words = (names) => names.map((name) => name.replaceAll("_", " ")).join(", ");
  const broken = checks.filter((name) => name in (constraints ?? {}));
  if (!broken.length) return `every check holds (${words(checks)})`;
  return `${count(broken.length)} of ${plural(checks.length, "check")} ${broken.length === 1 ? "does" : "do"} not hold (${words(broken)})`;
}

/** "Stopped after 8 of 32 samples: ..."; null where the pass or the decision was not sampled in waves. */
export function stopSentence({ stop_reason: reason, stop_words: words, num_planned: planned, num_samples: drawn, tokens_saved: tokens }) {
  if (!reason) return null;
  if (reason === "budget") return `Sampled ${count(drawn)} of ${plural(planned, "sample")} in waves: ${words}.`;
  return `Stopped after ${count(drawn)} of ${plural(planned, "sample")}: ${words}.${tokens ? ` About ${plural(tokens, "token")} saved.` : ""}`;
}

/** What is promised, as a paragraph with a badge; null where nothing is. */
export function guaranteeNote(guarantee) {
  if (!guarantee) return null;
  const promise = `at most ${percentage(guarantee.max_error)} of the answers given out are wrong, with confidence `
    + `${percentage(guarantee.confidence)} from ${plural(guarantee.problems, guarantee.outcomes ? "reported outcome" : "labelled problem")}`;
  const [kind, sign, word, rest] = guarantee.suspended
    ? ["violation", "!", "suspended", `The promise is not claimed at present: ${guarantee.reason ?? "no reason is given"}`]
    : guarantee.certified ? ["accept", "\u2713", "certified", `Promised: ${promise}`]
      : ["abstain", "\u2013", "not certified", `Nothing is promised: ${guarantee.reason ?? "no reason is given"}`];
  return el("p", { class: "guarantee break" },
    el("span", { class: `badge badge-${kind}` }, el("span", { "aria-hidden": "true" }, sign), word), ` ${rest}.`);
}

/** The answers in the order of the service: the selected one first. candidates: bodies of the pool. */
export function answerList(answers, candidates) {
  const byId = new Map(candidates.map((candidate) => [candidate.candidate_id, candidate]));
  const domain = evidenceDomain(answers);
  return el("ol", { class: "plain-list stack-small answers" }, answers.map((answer, place) =>
    answerCard(answer, answer.candidate_ids.map((id) => byId.get(id)).filter(Boolean), place === 0, domain)));
}

function answerCard(answer, candidates, isSelected, domain) {
  return el("li", { class: `card answer-card${isSelected ? " is-selected" : ""}` },
    el("div", { class: "row-spread" },
      el("h3", { class: "answer-text text-block" }, answer.answer ?? NONE),
      el("div", { class: "row" }, isSelected ? badge("plain", "\u2605", "selected") : null, proofBadge(answer.proof),
        el("strong", { class: "number" }, `p ${probability(answer.probability)}`))),
    el("div", { class: "progress", "aria-hidden": "true" }, el("span", { css: { width: `${100 * answer.probability}%` } })),
    el("p", { class: "small break" }, `${plural(answer.num_candidates, "candidate")} from ${plural(answer.authors.length, "model")}: ${answer.authors.join(", ")}`),
    answer.proof === null ? waterfall(answer, domain)
      : el("p", { class: "small muted" }, "A fact, not an estimate: no evidence is weighed."),
    candidates.length ? el("details", { class: "small" },
      el("summary", {}, plural(candidates.length, "candidate"), el("span", { class: "visually-hidden" }, ` with the answer ${answer.answer ?? NONE}`)),
      el("ul", {}, candidates.map((found) => el("li", { class: "break" },
        `${found.generator}, pass ${found.pass_index}, #${found.sample_index}: E ${number(found.energy)}, sigma ${number(found.sigma)}`)))) : null);
}

function badge(kind, sign, word) {
  return el("span", { class: `badge badge-${kind}` }, el("span", { "aria-hidden": "true" }, sign), word);
}

function proofBadge(proof) {
  if (proof === null) return null;
  return proof ? badge("accept", "\u2713", "proven") : badge("violation", "\u2717", "refuted");
}

// ---- evidence -------------------------------------------------------------------------------------------------------

/** Steps of a waterfall: `{name, value, from, to}`, the base first, then the largest; they add up to the log-odds. */
export function steps(evidence) {
  const { base = 0, ...terms } = evidence;
  const ordered = [["base", base], ...Object.entries(terms).sort(([, a], [, b]) => Math.abs(b) - Math.abs(a))];
  let from = 0;
  return ordered.map(([name, value]) => {
    const step = { name, value, from, to: from + value };
    from = step.to;
    return step;
  });
}

/** From the lowest to the highest log-odds on the way of any answer, 0 included, so that all share one axis. */
function evidenceDomain(answers) {
  const ends = answers.flatMap(({ evidence }) => steps(evidence).map(({ to }) => to));
  const low = Math.min(0, ...ends), high = Math.max(0, ...ends);
  const pad = Math.max((high - low) * 0.03, 0.05);
  return [low - pad, high + pad];
}

/** A table whose numbers say what its bars show. */
function waterfall({ evidence, answer, probability: value }, domain) {
  const found = steps(evidence);
  const total = found.length ? found[found.length - 1].to : 0;
  const row = (words, bar, text, kind = null) => el("tr", { class: kind }, el("th", { scope: "row" }, words),
    el("td", { class: "waterfall-plot" }, bar), el("td", { class: "number" }, text));
  return el("table", { class: "waterfall" },
    el("caption", { class: "visually-hidden" }, `Evidence for ${answer ?? NONE} in log-odds; probability ${probability(value)}`),
    el("thead", { class: "visually-hidden" }, el("tr", {}, ["Term", "Bar", "Log-odds"].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {},
      found.map(({ name, value: added, from, to }) => row(TERMS[name] ?? name.replace(/^score:/, "score by "), plot(domain, from, to, added < 0 ? "against" : "for"), signed(added))),
      row("log-odds in all", plot(domain, 0, total, "total"), signed(total), "waterfall-total")));
}

function plot(domain, from, to, kind) {
  const at = (value) => (100 * (value - domain[0])) / (domain[1] - domain[0]);
  const left = Math.min(at(from), at(to));
  return svg("svg", { class: "chart", "aria-hidden": "true", focusable: "false" },
    svg("line", { class: "axis", x1: `${at(0)}%`, x2: `${at(0)}%`, y1: 0, y2: "100%" }),
    svg("rect", { class: `evidence-${kind}`, x: `${left}%`, width: `${Math.max(0.4, Math.abs(at(to) - at(from)))}%`, y: 3, height: 10, rx: 1 }));
}

function signed(value) {
  return `${value > 0 ? "+" : ""}${number(value, 2)}`;
}

/** Two digits, or what keeps an estimate apart from 0 and 1, which are proofs. */
export function probability(value) {
  if (value === null || value === undefined) return NONE;
  if (value > 0 && value < 0.005) return "< 0.01";
  if (value < 1 && value >= 0.995) return "> 0.99";
  return value.toFixed(2);
}

function percentage(share) {
  return `${Number((100 * share).toPrecision(3))} %`;
}
