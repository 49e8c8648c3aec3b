// What each pass was told, what was decided after it, and what it changed.

import { NONE, decisionBadge, el, number, plural } from "./base.js";
import { wordDiff } from "./evidence.js";

/** One card for each pass of a run (run_state). */
export function passCards(run) {
  const last = run.passes.length - 1;
  return run.passes.map((pass, index) => passCard(run, pass, index === 0 ? null : run.passes[index - 1], index === last));
}

function passCard(run, pass, before, isLast) {
  const { decision } = pass;
  const failed = decision?.num_failed ?? [...run.candidates.values()].filter((found) => found.pass === pass.index && found.failed).length;
  return el("li", { class: "card pass" },
    el("div", { class: "row-spread" },
      el("h3", {}, `Pass ${pass.index}`, el("span", { class: "muted small" }, ` \u00B7 ${plural(pass.requested, "candidate")} asked${failed ? `, ${failed} failed` : ""}`)),
      decision ? decisionBadge(decision.decision) : el("span", { class: "muted small" }, "running")),
    reasonOf(run, pass, isLast),
    before ? changes(run, before, pass) : null,
    decision?.feedback ? [el("h4", {}, `What pass ${pass.index + 1} was told`), el("blockquote", { class: "text-block" }, decision.feedback)] : null,
    decision?.decision === "regenerate" && !decision.feedback ? el("p", { class: "muted" }, "There was no candidate to comment on; the first question is asked again.") : null);
}

function reasonOf(run, pass, isLast) {
  const reason = pass.reason ?? (isLast ? run.result?.reason : null);
  return reason ? el("p", { class: "reason text-block" }, reason) : null;
}

/** What this pass changed against the one before: the selection, its numbers, its violations, its words. */
function changes(run, before, pass) {
  if (!pass.decision || !before.decision) return null;
  const old = run.candidates.get(before.decision.selected) ?? null;
  const now = run.candidates.get(pass.decision.selected) ?? null;
  const heading = el("h4", {}, "What it changed");
  if (!now?.body) return [heading, el("p", {}, "Nothing: still no candidate can be selected.")];
  if (!old?.body) return [heading, el("p", {}, "Now a candidate can be selected."), numbers(null, now.body)];
  if (old.id === now.id) return [heading, el("p", {}, "Nothing: the selected candidate is the same; none of the new ones has a lower E.")];
  return [heading, el("div", { class: "change" }, numbers(old.body, now.body), violations(old.body, now.body), words(old, now))];
}

function numbers(old, now) {
  const row = (name, digits = 3) => el("tr", {}, el("th", { scope: "row" }, name),
    el("td", { class: "number" }, old ? number(old[KEYS[name]], digits) : NONE), el("td", { class: "number" }, number(now[KEYS[name]], digits)),
    el("td", { class: "number" }, old && old[KEYS[name]] !== null ? signed(now[KEYS[name]] - old[KEYS[name]], digits) : NONE));
  return el("div", { class: "table-scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ["selected", "before", "after", "change"].map((name, index) => el("th", { scope: "col", class: index ? "number" : null }, name)))),
    el("tbody", {}, row("E"), row("mu"), row("sigma"), row("E_constraint", 2))));
}

const KEYS = { E: "energy", mu: "mu", sigma: "sigma", E_constraint: "penalty" };

function signed(value, digits) {
  const text = number(value, digits);
  return value > 0 ? `+${text}` : text;
}

function violations(old, now) {
  const key = (found) => `${found.constraint}\n${found.message}`;
  const before = new Map(old.violations.map((found) => [key(found), found]));
  const after = new Map(now.violations.map((found) => [key(found), found]));
  const item = (sign, found) => el("li", {}, el("strong", {}, sign), el("span", { class: "text-block" }, `${found.constraint}: ${found.message}`));
  const items = [
    ...[...before].filter(([name]) => !after.has(name)).map(([, found]) => item("\u2713 mended", found)),
    ...[...after].filter(([name]) => !before.has(name)).map(([, found]) => item("! new", found)),
    ...[...after].filter(([name]) => before.has(name)).map(([, found]) => item("= still", found)),
  ];
  return items.length ? el("ul", { class: "sign-list" }, items) : null;
}

/** The texts where there are any, else the answers. */
function words(old, now) {
  const [before, after] = old.text !== null && now.text !== null ? [old.text, now.text] : [old.body.answer ?? "", now.body.answer ?? ""];
  if (before === after) return el("p", { class: "muted" }, "Its words are the same.");
  const parts = wordDiff(before, after);
  if (!parts) return el("p", { class: "muted" }, "The texts are too long to compare word by word.");
  const tags = { same: "span", gone: "del", new: "ins" };
  return el("details", {}, el("summary", {}, "Its words, before and after"),
    el("p", { class: "diff text-block" }, parts.map((part) => el(tags[part.kind], {}, part.text))));
}
