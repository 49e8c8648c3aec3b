// Other settings, and what they would have decided about everything that passes the filter.

import { announce, byId, count, decisionBadge, el, fill, number, percent, plural, showError, sizes, streamEvents, time, ApiError }
  from "./base.js";

const TEXTS = ["signal", "rule", "profile"];

function valueOf({ name, value }) {
  if (name === "waves") return sizes(value);
  return TEXTS.includes(name) ? value : Number(value);
}

/** The settings that differ, as the service takes them; {} when nothing was filled in. */
export function changes() {
  const found = {};
  for (const field of byId("changes").querySelectorAll("[name]")) {
    if (field.value.trim() !== "") found[field.name] = valueOf(field);
  }
  return found;
}

/** Whether every field holds what it may; what does not is pointed at when `tell`. */
export function changesAreValid({ tell = false } = {}) {
  const { form } = byId("changes").querySelector("[name]");
  return tell ? form.reportValidity() : form.checkValidity();
}

/** Settings in words: "lambda 2, theta_sigma 0.5". */
export function changesInWords(values) {
  return Object.entries(values).map(([name, value]) => `${name} ${Array.isArray(value) && !value.length ? "none" : value}`).join(", ");
}

let running = null;

/** filterOf: what the filter says; passing: how many decisions that are; openLink: a link to one. */
export function setUpReplay({ filterOf, passing, openLink }) {
  byId("replay").addEventListener("submit", async (event) => {
    event.preventDefault();
    running?.abort();
    const mine = running = new AbortController();
    const values = changes();
    const body = { ...values, where: filterOf(), max_decisions: Number(byId("replay-most").value), stream: true };
    showError(byId("replay-error"), null);
    byId("replay-stop").hidden = false;
    const shown = resultView(values, openLink);
    fill(byId("replay-result"), shown.node);
    try {
      await streamEvents("v1/decisions/replay", body, { signal: mine.signal, onEvent: ({ event: name, data }) => {
        if (name === "progress" || name === "result") shown.update(JSON.parse(data), name === "result");
        else if (name === "error") throw errorOf(JSON.parse(data));
      } });
      if (!shown.complete()) throw new ApiError("The service ended before the replay did.", { code: "cut_off" });
    } catch (error) {
      if (error.name !== "AbortError") {
        showError(byId("replay-error"), error);
        if (!shown.complete()) fill(byId("replay-result"));
      } else if (mine === running) {
        shown.stopped();
      }
    } finally {
      if (mine === running) {
        byId("replay-stop").hidden = true;
        running = null;
      }
    }
  });
  byId("replay-stop").addEventListener("click", () => {
    running?.abort();
    byId("replay-start").focus();
  });
  byId("replay-most").addEventListener("change", () => labelStart(passing()));
}

function most() {
  return Number(byId("replay-most").value);
}

/** Say on the button how many decisions it is about. */
export function labelStart(total) {
  byId("replay-start").textContent = `Replay ${plural(Math.min(total, most()), "decision")}`;
  byId("replay-start").disabled = total === 0;
}

function errorOf(body) {
  const { message, code, param } = body.error;
  return new ApiError(message, { code, param });
}

function resultView(values, openLink) {
  const bar = el("progress", { class: "replay-progress", max: 1, value: 0, "aria-label": "Decisions replayed" });
  const state = el("p", { class: "small muted" }, "Counting\u2026");
  const figures = el("div", { class: "stack" });
  const node = el("div", { class: "stack" }, el("div", { class: "stack-small" }, bar, state), figures);
  let done = false;
  let last = null;
  return {
    node,
    complete: () => done,
    stopped() {
      state.textContent = last ? `Stopped after ${plural(last.num_decisions, "decision")}.` : "Stopped.";
      announce(state.textContent);
    },
    update(found, isResult) {
      last = found;
      done = isResult;
      bar.value = found.num_wanted ? found.num_decisions / found.num_wanted : 1;
      state.textContent = isResult ? finished(found)
        : `${count(found.num_decisions)} of ${plural(found.num_wanted, "decision")}`;
      if (found.num_decisions) fill(figures, replayFigures(found, values), isResult ? changedList(found, openLink) : null);
      if (isResult) {
        bar.hidden = true;
        announce(`Replay finished: ${count(found.num_changed)} of ${plural(found.num_decisions, "decision")} change.`);
      }
    },
  };
}

function finished(found) {
  if (!found.num_decisions) return "No decision passes the filter.";
  const cut = found.num_passing > found.num_decisions
    ? `the newest ${count(found.num_decisions)} of the ${count(found.num_passing)} that pass the filter`
    : plural(found.num_decisions, "decision");
  return `Replayed ${cut} in ${number(found.seconds, 1)} s.`;
}

function replayFigures(found, values) {
  const total = found.num_decisions;
  const words = changesInWords(values);
  const low = found.accepted_at_least / total;
  const high = found.accepted_at_most / total;
  return [
    el("p", { class: "replay-headline" },
      el("strong", {}, `${count(found.num_changed)} of ${count(total)} change`), ` (${percent(found.num_changed / total)})`,
      words ? ` with ${words}` : " with nothing changed",
      found.num_unknown ? `; ${count(found.num_unknown)} cannot be known, because a pass would be drawn that nobody drew` : "", "."),
    el("div", { class: "replay-tables" },
      el("div", { class: "table-scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, ["", "recorded", "again"].map((name, place) =>
          el("th", { scope: "col", class: place ? "number" : null }, name || el("span", { class: "visually-hidden" }, "Figure"))))),
        el("tbody", {},
          row("Coverage (share accepted)", percent(found.accepted_before / total),
            low === high ? percent(low) : `${percent(low)} to ${percent(high)}`),
          row("Accepted", count(found.accepted_before), low === high ? count(found.accepted_at_least)
            : `${count(found.accepted_at_least)} to ${count(found.accepted_at_most)}`),
          row("Candidates each", number(found.candidates_before / total, 2), number(found.candidates_after / total, 2))))),
      el("div", { class: "table-scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "From what to what"),
          el("th", { scope: "col", class: "number" }, "decisions"), el("th", { scope: "col", class: "number" }, "share"))),
        el("tbody", {}, moveRows(found))))),
    found.num_inexact ? el("p", { class: "notice notice-warning small" },
      `${count(found.num_inexact)} rest on a recorded pass that answered feedback about another candidate than would have been selected.`) : null,
  ];
}

function row(name, before, after) {
  return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "number" }, before), el("td", { class: "number" }, after));
}

function moveRows(found) {
  return found.moves.flatMap(({ recorded, again, decisions }) => {
    if (recorded !== "accept" || again !== "accept" || !found.num_other_answer) return [move(found, recorded, again, decisions)];
    return [move(found, recorded, again, decisions - found.num_other_answer, "the same answer"),
      move(found, recorded, again, found.num_other_answer, "another answer")];
  });
}

function move(found, recorded, again, decisions, note) {
  const words = again === "regenerate" ? "a pass that nobody drew" : note;
  return el("tr", {}, el("th", { scope: "row" }, decisionBadge(recorded), el("span", {}, " \u2192 "), decisionBadge(again),
    words ? el("span", { class: "small muted" }, ` ${words}`) : null),
    el("td", { class: "number" }, count(decisions)), el("td", { class: "number" }, percent(decisions / found.num_decisions)));
}

function changedList(found, openLink) {
  if (!found.changed.length) return null;
  const more = found.num_changed - found.changed.length;
  return el("div", { class: "stack-small" },
    el("h3", {}, more > 0 ? `The newest ${count(found.changed.length)} that change` : "What changes"),
    el("div", { class: "table-scroll changed-list", tabindex: "0", role: "region", "aria-label": "Decisions that change" }, el("table", {},
      el("thead", {}, el("tr", {}, ["Time", "Problem", "Recorded", "Again"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, found.changed.map((each) => el("tr", {}, el("td", {}, time(each.time)),
        el("th", { scope: "row" }, openLink(each)), el("td", {}, decisionBadge(each.decision)),
        el("td", {}, decisionBadge(each.again),
          each.decision === each.again ? el("span", { class: "small muted" }, " another answer") : null)))))));
}
