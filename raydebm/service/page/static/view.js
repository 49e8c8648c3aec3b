// What both pages show of one decision: its answers, passes and candidates, and the form that reports an outcome.

import { NONE, announce, count, decisionBadge, el, fetchJson, fill, number, outcomeBadge, plural, showError, storedText, keepText }
  from "./base.js";

const TERMS = {
  base: "start: an average answer", votes: "share of candidates", authors: "number of authors", skill: "skill of its authors",
  energy: "its lowest energy", mean_energy: "its mean energy", members: "agreement of the adapters", penalty: "constraints",
  length: "brevity of its texts", energy_vote: "energy-weighted share", minus_energy: "its energy",
};

/** Two digits, or what keeps an estimate apart from 0 and 1, which are proofs. */
export function probability(value) {
  if (value === null || value === undefined) return NONE;
  if (value > 0 && value < 0.005) return "< 0.01";
  if (value < 1 && value >= 0.995) return "> 0.99";
  return value.toFixed(2);
}

// ---- sentences ------------------------------------------------------------------------------------------------------

/** "5 of 8 candidates from 3 models agree; every check holds (statements); right with probability 0.93."; null without a
 *  posterior or a selection. total: candidates of the pool. */
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

/** "Stopped after 8 of 32 samples: ..."; null where the decision was not sampled in waves. */
export function stopSentence({ stop_reason: reason, stop_words: words, num_planned: planned, num_samples: drawn, tokens_saved: tokens }) {
  if (!reason) return null;
  if (reason === "budget") return `Sampled ${count(drawn)} of ${plural(planned, "sample")} in waves: ${words}.`;
  return `Stopped after ${count(drawn)} of ${plural(planned, "sample")}: ${words}.${tokens ? ` About ${plural(tokens, "token")} saved.` : ""}`;
}

/** A guarantee about some things, as a paragraph with a badge; null without one. */
export function guaranteeNote(guarantee, things = "answers returned") {
  if (!guarantee) return null;
  const percentage = (share) => `${Number((100 * share).toPrecision(3))} %`;
  const statement = `at most ${percentage(guarantee.max_error)} of the ${things} are wrong, with confidence `
    + `${percentage(guarantee.confidence)} from ${plural(guarantee.problems, guarantee.outcomes ? "reported outcome" : "labelled problem")}`;
  const [kind, sign, word, rest] = guarantee.suspended
    ? ["violation", "!", "suspended", `The guarantee is suspended: ${guarantee.reason ?? "no reason is given"}`]
    : guarantee.certified ? ["accept", "\u2713", "certified", `Guaranteed: ${statement}`]
      : ["abstain", "\u2013", "not certified", `Nothing is guaranteed: ${guarantee.reason ?? "no reason is given"}`];
  return el("p", { class: "break" }, badge(kind, sign, word), ` ${rest}.`);
}

export function badge(kind, sign, word) {
  return el("span", { class: `badge badge-${kind}` }, el("span", { "aria-hidden": "true" }, sign), word);
}

export function facts(values) {
  return el("dl", { class: "facts" }, values.filter(([, value]) => value !== null)
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// ---- answers --------------------------------------------------------------------------------------------------------

/** Distinct answers in the order of the service, the selected one first, each with its evidence in log-odds. */
export function answerList(answers) {
  return el("ol", { class: "plain-list stack-small" }, answers.map((answer, place) =>
    el("li", { class: `card stack-small answer-card${place ? "" : " is-selected"}` },
      el("div", { class: "row-spread" },
        el("h3", { class: "answer-text text-block" }, answer.answer ?? NONE),
        el("div", { class: "row" }, place ? null : badge("plain", "\u2605", "selected"),
          answer.proof === null ? null : answer.proof ? badge("accept", "\u2713", "proven") : badge("violation", "\u2717", "refuted"),
          el("strong", { class: "number" }, `p ${probability(answer.probability)}`))),
      el("p", { class: "small break" },
        `${plural(answer.num_candidates, "candidate")} from ${plural(answer.authors.length, "model")}: ${answer.authors.join(", ")}`),
      answer.proof === null ? evidence(answer) : null)));
}

function evidence({ answer, evidence: { base = 0, ...terms } }) {
  const rows = [["base", base], ...Object.entries(terms).sort(([, a], [, b]) => Math.abs(b) - Math.abs(a))];
  const signed = (value) => `${value > 0 ? "+" : ""}${number(value, 2)}`;
  const row = (words, value) => el("tr", {}, el("th", { scope: "row" }, words), el("td", { class: "number" }, signed(value)));
  return el("details", { class: "small" },
    el("summary", {}, "Evidence in log-odds", el("span", { class: "visually-hidden" }, ` for ${answer ?? NONE}`)),
    el("table", { class: "evidence" }, el("tbody", {},
      rows.map(([name, value]) => row(TERMS[name] ?? name.replace(/^score:/, "score by "), value)),
      row("log-odds in all", rows.reduce((sum, [, value]) => sum + value, 0)))));
}

// ---- fields ---------------------------------------------------------------------------------------------------------

/** Fields of a structured answer, tinted by confidence, those to review first; null where there are none. */
export function fieldTable({ fields, review, field_guarantee: guarantee }) {
  if (!fields?.length) return null;
  const flagged = new Set(review);
  const text = (value, missing) => (missing ? "missing" : JSON.stringify(value));
  const tint = (field) => (flagged.has(field.path) ? "low" : field.confidence < 0.99 ? "middle" : "high");
  const row = (field) => el("tr", { class: `field-${tint(field)}` },
    el("th", { scope: "row", class: "break" }, field.path),
    el("td", { class: "break" }, text(field.value, field.is_missing),
      flagged.has(field.path) ? [" ", badge("violation", "!", "review")] : null,
      field.runner_up_confidence === null ? null
        : el("p", { class: "small muted" }, `or ${text(field.runner_up)}, p ${probability(field.runner_up_confidence)}`)),
    el("td", { class: "number" }, probability(field.confidence)), el("td", { class: "number" }, count(field.num_candidates)));
  const head = ["field", "value", "p", "candidates"].map((name) => el("th", { scope: "col" }, name));
  const ordered = [...fields].sort((a, b) => flagged.has(b.path) - flagged.has(a.path));
  return el("details", { class: "small", open: review.length > 0 },
    el("summary", {}, `${plural(fields.length, "field")}, ${count(review.length)} to review`),
    guaranteeNote(guarantee, "fields that are not flagged"),
    el("table", { class: "fields" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, ordered.map(row))));
}

// ---- passes and candidates ------------------------------------------------------------------------------------------

/** passes: bodies of passes; one that still runs has no decision. */
export function passList(passes) {
  return passes.map((pass) => el("li", { class: "card stack-small pass" },
    el("div", { class: "row-spread" },
      el("h3", {}, `Pass ${pass.pass_index} `, el("span", { class: "muted small" },
        `${plural(pass.num_requested, "candidate")} asked${pass.num_failed ? `, ${pass.num_failed} failed` : ""}`)),
      pass.decision ? decisionBadge(pass.decision) : el("span", { class: "muted small" }, "running")),
    pass.feedback ? [el("h4", {}, `What pass ${pass.pass_index + 1} was told`),
      el("blockquote", { class: "text-block" }, pass.feedback)] : null));
}

/** Best first: by energy, then mu, then pass, then id, as the service selects; then what has no energy. */
export function ranked(candidates) {
  const order = (a, b) => (a < b ? -1 : Number(a > b));
  return [...candidates].sort((a, b) => (a.energy === null) - (b.energy === null) || a.energy - b.energy || a.mu - b.mu
    || a.pass_index - b.pass_index || order(a.candidate_id, b.candidate_id));
}

/** Rows of candidates, in their order; `nodes` keeps them from one call to the next, so that what is open stays open. */
export function candidateRows(candidates, selected, nodes = new Map()) {
  return ranked(candidates).map((body, place) => {
    const state = JSON.stringify([body, place, selected]);
    let node = nodes.get(body.candidate_id);
    if (!node) nodes.set(body.candidate_id, node = el("li", { class: "candidate" }, el("details", {}, el("summary"), el("div", { class: "stack-small" }))));
    if (node.dataset.state === state) return node;
    node.dataset.state = state;
    node.classList.toggle("is-selected", body.candidate_id === selected);
    const [summary, inside] = node.firstChild.children;
    const rank = el("span", { class: "rank" }, body.energy === null ? NONE : `${place + 1}.`);
    fill(summary, rank, " ", el("strong", { class: "break" }, body.generator), ` pass ${body.pass_index}, #${body.sample_index} `,
      body.candidate_id === selected ? badge("plain", "\u2605", "selected") : null,
      body.violations.length ? badge("violation", "!", plural(body.violations.length, "violation")) : null,
      el("span", { class: "number" }, ` E ${number(body.energy)} \u00B7 sigma ${number(body.sigma)}`),
      el("span", { class: "candidate-answer" }, body.answer ?? body.error ?? "\u2026"));
    fill(inside,
      el("ul", { class: "plain-list" }, body.violations.map((found) => el("li", { class: "violation text-block" },
        `${found.constraint}, ${number(found.weight, 2)} \u00B7 ${number(found.penalty, 2)}: ${found.message}`))),
      el("div", { class: "candidate-text text-block", tabindex: "0", role: "group", "aria-label": `Text of ${body.generator}` },
        body.text ?? body.error ?? "no text"),
      facts([["mu", number(body.mu)], ["penalty", number(body.penalty)],
        ["adapters", (body.members ?? []).map((energy) => number(energy)).join(", ") || NONE],
        ["error", body.error], ["id", body.candidate_id]]));
    return node;
  });
}

/** Put rows into a list whose rows may have the focus, moving as few as possible. */
export function place(list, rows) {
  rows.forEach((row, index) => {
    if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
  });
  while (list.children.length > rows.length) list.lastChild.remove();
}

// ---- outcomes -------------------------------------------------------------------------------------------------------

const REVIEWER = "raydebm-reviewer";

/** "Was it right?": reports the outcome of a stored decision. example: an answer as the task writes it, or null where
 *  nothing was selected, so that nothing can be right. */
export function outcomeForm(recordId, example) {
  const by = el("input", { id: "outcome-by", maxlength: "100", required: "", autocomplete: "off", value: storedText(REVIEWER) });
  const answer = el("input", { id: "outcome-answer", maxlength: "64000", spellcheck: "false", placeholder: example ?? "" });
  const error = el("div"), done = el("p", { class: "row", hidden: true });
  const button = (words, correct) => el("button", { type: "button", on: { click: () => report(correct) } }, words);
  const form = el("form", { class: "row", autocomplete: "off", on: { submit: (event) => event.preventDefault() } },
    el("strong", {}, "Was it right?"),
    el("div", { class: "field" }, el("label", { for: "outcome-by" }, "Your name"), by),
    el("div", { class: "field" }, el("label", { for: "outcome-answer" }, "Correct answer, if you know it"), answer),
    example === null ? button("None was right", false) : [button("Right", true), button("Wrong", false)]);

  async function report(correct) {
    if (!form.reportValidity()) return;
    keepText(REVIEWER, by.value.trim());
    const body = { correct, by: by.value.trim(), ...(answer.value.trim() ? { answer: answer.value.trim() } : {}) };
    const buttons = [...form.querySelectorAll("button")];
    for (const each of buttons) each.disabled = true;
    try {
      const receipt = await fetchJson(`v1/decisions/${encodeURIComponent(recordId)}/outcome`, { body });
      showError(error, null);
      done.hidden = false;
      fill(done, outcomeBadge(receipt.outcome), "Stored.");
      announce(`Stored as ${receipt.outcome}`);
    } catch (failure) {
      showError(error, failure);
    } finally {
      for (const each of buttons) each.disabled = false;
    }
  }

  return el("div", { class: "stack-small outcome-form" }, form, error, done);
}
