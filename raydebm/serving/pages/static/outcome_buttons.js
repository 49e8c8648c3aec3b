// "Was it right?": two buttons that report the outcome of a decision that was just made.

import { announce, el, fetchJson, fill, outcomeBadge, showError } from "./base.js";
import { reviewerKept, keepReviewer } from "./reviewer.js";

/** A form about one stored decision; null where it is not stored, or where nothing was selected. */
export function outcomeForm({ record_id: id, candidate }) {
  if (!id || !candidate) return null;
  const by = el("input", { id: "outcome-by", maxlength: "100", required: "", autocomplete: "off", value: reviewerKept() });
  const error = el("div"), done = el("p", { class: "row", hidden: true });
  const button = (words, correct) => el("button", { type: "button", on: { click: () => report(correct) } }, words);
  const form = el("form", { class: "outcome-form", autocomplete: "off", on: { submit: (event) => event.preventDefault() } },
    el("strong", {}, "Was it right?"), el("label", { class: "small", for: "outcome-by" }, "Your name"), by,
    button("Right", true), button("Wrong", false));

  async function report(correct) {
    if (!form.reportValidity()) return;
    keepReviewer(by.value.trim());
    const buttons = [...form.querySelectorAll("button")];
    for (const each of buttons) each.disabled = true;
    try {
      const receipt = await fetchJson(`v1/decisions/${encodeURIComponent(id)}/outcome`, { body: { correct, by: by.value.trim() } });
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

  return el("div", { class: "stack-small" }, form, error, done);
}
