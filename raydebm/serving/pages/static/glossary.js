// One line per word, as docs/glossary.md has them; shown where the pointer rests on a word.

import { el } from "./base.js";

const WORDS = {
  confidence: "Probability that the selected answer is right",
  E: "mu + lambda E_constraint; lower is better",
  mu: "Mean energy over the adapters; lower is better",
  sigma: "Standard deviation of the energies over the adapters",
  E_constraint: "Weighted sum of the penalties of violated constraints, at least 0",
  Coverage: "Share of problems that are answered",
  Accuracy: "Share of right ones among the answers with a reported outcome, with its 95 % interval",
  "Cost per right answer": "Mean cost of a decision, divided by the share of decisions that are answered rightly",
  Policy: "Rule, profile, thresholds, lambda and limits by which a decision is made",
};

/** The word, with its line of the glossary where it has one. */
export function term(word) {
  return word in WORDS ? el("abbr", { title: WORDS[word] }, word) : word;
}
