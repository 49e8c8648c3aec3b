// The review queue: abstentions without an outcome, judged one by one.

import { announce, byId, count, decisionBadge, el, fetchJson, fill, number, outcomeBadge, plural, showError, time } from "./base.js";
import { reviewerKept, keepReviewer } from "./reviewer.js";

const PAGE = 10;

let oldest = null; // time of the last decision on the page
let loading = null;

// ---- who reviews ------------------------------------------------------------------------------------------------------

const reviewer = byId("reviewer");
const by = byId("by");
by.value = reviewerKept();
by.addEventListener("change", () => keepReviewer(by.value.trim()));
reviewer.addEventListener("submit", (event) => event.preventDefault());

/** The name; null where it is missing, which the field then says. */
function reviewerName() {
  by.value = by.value.trim();
  return reviewer.reportValidity() ? by.value : null;
}

// ---- the queue --------------------------------------------------------------------------------------------------------

/** Show the newest ones, or `older` ones below those that are shown: by time, for what comes meanwhile moves all places. */
async function load({ older = false } = {}) {
  loading?.abort();
  const mine = loading = new AbortController();
  byId("queue").setAttribute("aria-busy", "true");
  try {
    const query = new URLSearchParams({ decision: "abstain", outcome: "none", limit: PAGE, ...(older ? { until: oldest } : {}) });
    const page = await fetchJson(`v1/decisions?${query}`, { signal: mine.signal });
    const records = await Promise.all(page.data.map((row) =>
      fetchJson(`v1/decisions/${encodeURIComponent(row.record_id)}`, { signal: mine.signal })));
    showError(byId("page-error"), null);
    const total = page.total + (older ? waiting() : 0);
    if (!older) fill(byId("queue"));
    byId("queue").append(...records.map(reviewCard));
    oldest = page.data.at(-1)?.time ?? oldest;
    byId("older").hidden = page.data.length >= page.total;
    byId("count").textContent = total
      ? `${plural(total, "abstention")} without an outcome` : "Every stored abstention has an outcome.";
    announce(byId("count").textContent);
    if (older) byId("queue").querySelector(`[data-record="${CSS.escape(records[0]?.record_id ?? "")}"] h2`)?.focus();
  } catch (error) {
    if (error.name !== "AbortError") showError(byId("page-error"), error);
  } finally {
    if (mine === loading) byId("queue").removeAttribute("aria-busy");
  }
}

/** How many on the page still wait: what is older comes on top of them. */
function waiting() {
  return byId("queue").querySelectorAll("li[data-waiting]").length;
}

byId("refresh").addEventListener("click", () => load());
byId("older").addEventListener("click", () => load({ older: true }));

// ---- one decision -----------------------------------------------------------------------------------------------------

function reviewCard(record) {
  const id = record.record_id;
  const best = record.candidates.find((candidate) => candidate.candidate_id === record.selected) ?? null;
  const error = el("div");
  const answer = el("input", { id: `answer-${id}`, maxlength: "64000", spellcheck: "false",
    "aria-describedby": `answer-hint-${id}` });
  const form = el("form", { class: "review-form", autocomplete: "off" },
    el("div", { class: "field" }, el("label", { for: `answer-${id}` }, "Correct answer, if you know it"), answer,
      el("p", { class: "hint break", id: `answer-hint-${id}` },
        best ? `Written like ${best.answer ?? "the answers of this task"}` : "Written as the task reads answers.")),
    el("div", { class: "button-row" },
      best ? el("button", { type: "button", on: { click: () => report(true) } }, "Right", about(record)) : null,
      el("button", { type: "button", on: { click: () => report(false) } }, best ? "Wrong" : "None was right", about(record))));
  const done = el("div", { hidden: true });
  const node = el("li", { class: "card stack-small", dataset: { record: id, waiting: "" } },
    el("div", { class: "row" }, decisionBadge(record.decision), el("span", { class: "muted small" }, time(record.time), ` · ${record.task}`),
      el("a", { class: "small", href: `decisions?id=${encodeURIComponent(id)}` }, "Open the decision", about(record))),
    el("h2", { tabindex: "-1", class: "break" }, record.title || "(no text)"),
    el("div", { class: "review-problem text-block", tabindex: "0", role: "group", "aria-label": "Problem" }, record.problem.prompt),
    best ? bestAnswer(best) : el("p", {}, "Nothing could be selected from the candidates."),
    el("p", { class: "muted small break" }, `Refused because ${record.reason}.`),
    form, error, done);

  async function report(correct) {
    const name = reviewerName();
    if (name === null) return;
    const body = { correct, by: name };
    if (answer.value.trim()) body.answer = answer.value.trim();
    setDisabled(true);
    try {
      const receipt = await fetchJson(`v1/decisions/${encodeURIComponent(id)}/outcome`, { body });
      showError(error, null);
      showDone(receipt);
    } catch (failure) {
      showError(error, failure);
    } finally {
      setDisabled(false);
    }
  }

  function setDisabled(isDisabled) {
    for (const button of form.querySelectorAll("button")) button.disabled = isDisabled;
  }

  function showDone(receipt) {
    form.hidden = true;
    done.hidden = false;
    delete node.dataset.waiting;
    fill(done, el("p", { class: "row" }, outcomeBadge(receipt.outcome), "Stored. ",
      el("button", { type: "button", class: "button-quiet", on: { click: change } }, "Change", about(record))));
    announce(`Stored as ${receipt.outcome}`);
    (nextWaiting(node)?.querySelector("h2") ?? done.querySelector("button")).focus();
  }

  function change() {
    form.hidden = false;
    done.hidden = true;
    form.querySelector("input").focus();
  }

  return node;
}

function nextWaiting(node) {
  let next = node.nextElementSibling;
  while (next && !("waiting" in next.dataset)) next = next.nextElementSibling;
  return next;
}

/** For who hears the buttons one after the other. */
function about(record) {
  return el("span", { class: "visually-hidden" }, `: ${record.title || "(no text)"}`);
}

function bestAnswer(best) {
  return [
    el("p", { class: "break" }, "Best candidate, by ", el("strong", {}, best.generator), ": ",
      el("span", { class: "review-answer" }, best.answer ?? "no answer"), " ",
      el("span", { class: "muted small" }, `E ${number(best.energy, 2)}, sigma ${number(best.sigma, 2)}`
        + (best.violations.length ? `, ${count(best.violations.length)} violated` : ""))),
    el("details", {}, el("summary", {}, "Its whole text"),
      el("div", { class: "review-problem text-block", tabindex: "0", role: "group", "aria-label": "Text of the candidate" },
        best.text ?? best.error ?? "no text")),
  ];
}

load();
