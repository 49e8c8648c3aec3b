// Candidates as rows on two common axes: energy (mu, sigma, members, penalties) and sigma with the thresholds.

import { NONE, count, el, fill, money, number, plural, svg } from "./base.js";
import { evidenceSpans } from "./evidence.js";
import { ticks } from "./run_state.js";

const share = (value, [low, high]) => Math.min(100, Math.max(0, (100 * (value - low)) / (high - low)));
const at = (value, domain) => `${share(value, domain).toFixed(3)}%`;

/** The signs of the plots, explained once. */
export function legend(container, numMembers) {
  const sign = (words, ...marks) => el("span", { class: "legend-item" },
    svg("svg", { class: "chart", viewBox: "0 0 36 14", "aria-hidden": "true", focusable: "false" }, marks), words);
  const style = { opacity: "0.28" };
  fill(container,
    sign("mu \u00B1 sigma", svg("rect", { x: 4, y: 2, width: 28, height: 10, class: "bar-mu", css: style }),
      svg("line", { x1: 18, x2: 18, y1: 0, y2: 14, stroke: "var(--mark-mu)", "stroke-width": 3.5 })),
    sign(numMembers ? `the ${numMembers} adapters` : "each adapter", ...[6, 13, 20, 24, 31].map((x) => svg("line", { x1: x, x2: x, y1: 2, y2: 12, class: "member" }))),
    sign("lambda \u00B7 penalties, up to E", svg("rect", { x: 3, y: 4, width: 13, height: 6, class: "bar-penalty" }),
      svg("rect", { x: 17, y: 4, width: 9, height: 6, class: "bar-penalty" }), diamond(31, 7)),
    sign("theta_sigma", svg("line", { x1: 18, x2: 18, y1: 0, y2: 14, class: "threshold theta-sigma" })),
    sign("theta_abstain", svg("line", { x1: 18, x2: 18, y1: 0, y2: 14, class: "threshold" })));
}

function diamond(x, y) {
  return svg("path", { d: `M${x} ${y - 4.5}l4.5 4.5l-4.5 4.5l-4.5 -4.5z`, fill: "none", stroke: "var(--text)", "stroke-width": 1.5 });
}

/** The axes above the rows. */
export function axes(container, scale, policy) {
  fill(container, el("span", { class: "spacer" }),
    el("div", {}, el("div", { class: "axis-title" }, "energy (lower is better)"), energyAxis(scale.energy)),
    el("div", {}, el("div", { class: "axis-title" }, "sigma"), sigmaAxis(scale, policy)), el("span", { class: "spacer" }));
}

function energyAxis(domain) {
  const { values, digits } = ticks(domain, 6);
  return svg("svg", { class: "chart" }, svg("line", { class: "axis", x1: 0, x2: "100%", y1: "100%", y2: "100%" }),
    values.map((value) => [
      svg("line", { class: "axis", x1: at(value, domain), x2: at(value, domain), y1: 17, y2: 22 }),
      svg("text", { x: at(value, domain), y: 13, "text-anchor": anchor(share(value, domain)) }, number(value, digits)),
    ]));
}

/** The thresholds by name, each on a line of its own, because they may lie close together. */
function sigmaAxis(scale, policy) {
  return svg("svg", { class: "chart axis-sigma" }, svg("line", { class: "axis", x1: 0, x2: "100%", y1: "100%", y2: "100%" }),
    thetas(scale, policy).map(({ name, value, outside, kind }, index) => [
      svg("text", { x: at(value, scale.sigma), y: 11 + 13 * index, "text-anchor": anchor(share(value, scale.sigma), 30) },
        `${name} ${Number(value.toPrecision(4))}${outside ? " \u2192" : ""}`),
      outside ? null : svg("line", { class: kind, x1: at(value, scale.sigma), x2: at(value, scale.sigma), y1: 14 + 13 * index, y2: "100%" }),
    ]));
}

/** A text near an end of the axis grows away from it. */
function anchor(percentage, edge = 4) {
  return percentage < edge ? "start" : percentage > 100 - edge ? "end" : "middle";
}

function thetas(scale, policy) {
  return ["theta_sigma", "theta_abstain"].filter((name) => policy?.[name] !== undefined)
    .map((name) => ({ name, value: policy[name], outside: policy[name] > scale.sigma[1],
      kind: name === "theta_sigma" ? "threshold theta-sigma" : "threshold" }));
}

/** One row, that can be brought up to date without losing focus or what is folded out. */
export class CandidateRow {
  constructor(id) {
    this.id = id;
    this.state = "";
    this.details = el("div", { class: "candidate-details", id: `details-${id}`, hidden: true });
    this.toggle = el("button", { type: "button", class: "button-quiet", "aria-expanded": "false",
      "aria-controls": `details-${id}`, on: { click: () => this.setOpen(this.details.hidden) } });
    this.who = el("div", { class: "candidate-who" });
    this.answer = el("div", { class: "candidate-answer" });
    this.energy = el("div", { class: "plot" });
    this.sigma = el("div", { class: "plot" });
    this.root = el("li", { class: "candidate" },
      el("div", { class: "candidate-main" }, el("div", {}, this.who, this.answer), this.energy, this.sigma, el("div", { class: "candidate-more" }, this.toggle)),
      this.details);
  }

  setOpen(isOpen) {
    this.details.hidden = !isOpen;
    this.toggle.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.fillDetails();
    this.nameToggle();
  }

  /** candidate: of run_state. rank: from 1, null where it has no energy. isSelected, scale, policy as they are now. */
  update(candidate, { rank, isSelected, scale, policy }) {
    const state = JSON.stringify([rank, isSelected, scale, policy, candidate]);
    if (state === this.state) return;
    this.state = state;
    Object.assign(this, { candidate, rank, policy });
    this.root.classList.toggle("is-selected", isSelected);
    const violations = candidate.body?.violations ?? [];
    fill(this.who, el("span", { class: "rank" }, rank === null ? NONE : `${rank}.`),
      el("strong", { class: "break" }, candidate.generator), el("span", {}, `pass ${candidate.pass}, #${candidate.sample}`),
      isSelected ? el("span", { class: "badge badge-plain" }, el("span", { "aria-hidden": "true" }, "\u2605"), "selected") : null,
      violations.length ? el("span", { class: "badge badge-violation" }, el("span", { "aria-hidden": "true" }, "!"), plural(violations.length, "violation")) : null);
    fill(this.answer, answerWords(candidate));
    this.drawEnergy(candidate, scale, policy);
    this.drawSigma(candidate, scale, policy);
    if (!this.details.hidden) this.fillDetails();
    this.nameToggle();
  }

  nameToggle() {
    fill(this.toggle, el("span", { "aria-hidden": "true" }, this.details.hidden ? "\u25B8" : "\u25BE"), "Details",
      el("span", { class: "visually-hidden" }, ` of ${this.candidate.generator}, pass ${this.candidate.pass}, #${this.candidate.sample}`));
  }

  drawEnergy({ body, failed }, scale, policy) {
    if (!body) return fill(this.energy, el("p", { class: "plot-words muted" }, failed ? "" : "is being checked and scored"));
    if (body.mu === null) return fill(this.energy, el("p", { class: "plot-words muted" }, "no energy"));
    const domain = scale.energy;
    const low = share(body.mu - body.sigma, domain), high = share(body.mu + body.sigma, domain);
    const marks = [
      ticks(domain, 6).values.map((value) => svg("line", { class: "grid", x1: at(value, domain), x2: at(value, domain), y1: 0, y2: "100%" })),
      svg("rect", { class: "range", x: `${low}%`, width: `${Math.max(0, high - low)}%`, y: 2, height: 17, rx: 2 }),
      body.members.map((energy) => svg("line", { class: "member", x1: at(energy, domain), x2: at(energy, domain), y1: 5, y2: 16 })),
      svg("line", { class: "mu", x1: at(body.mu, domain), x2: at(body.mu, domain), y1: 0, y2: 21 }),
      penaltyBars(body, policy, domain),
    ];
    const words = body.energy === null ? ["E = \u221E", ` ${body.error ?? "it cannot be selected"}`]
      : [`E ${number(body.energy)}`, ` = mu ${number(body.mu)} + ${number(policy?.lambda ?? 1, 2)} \u00B7 ${number(body.penalty, 2)}`];
    return fill(this.energy, svg("svg", { class: "chart", "aria-hidden": "true", focusable: "false" }, marks),
      el("div", { class: "plot-words" }, el("strong", {}, words[0]), el("span", { class: "muted" }, words[1])));
  }

  drawSigma({ body }, scale, policy) {
    if (!body || body.sigma === null) return fill(this.sigma);
    const domain = scale.sigma;
    const lines = thetas(scale, policy).filter(({ outside }) => !outside)
      .map(({ value, kind }) => svg("line", { class: kind, x1: at(value, domain), x2: at(value, domain), y1: 0, y2: "100%" }));
    return fill(this.sigma,
      svg("svg", { class: "chart", "aria-hidden": "true", focusable: "false" },
        svg("rect", { class: "bar-sigma", x: 0, y: 5, height: 11, width: at(body.sigma, domain), rx: 2 }), lines),
      el("div", { class: "plot-words" }, `sigma ${number(body.sigma)} `, el("span", { class: "muted zone" }, zone(body.sigma, policy))));
  }

  fillDetails() {
    const { body, text, error } = this.candidate;
    const violations = body?.violations ?? [];
    const spans = text === null ? [] : evidenceSpans(text, body?.answer ?? null, violations);
    fill(this.details,
      text === null
        ? el("p", { class: "candidate-text text-block" }, error ?? body?.error ?? "no text yet")
        : el("div", {}, el("div", { class: "candidate-text text-block", tabindex: "0", role: "group", "aria-label": "Text of the candidate" }, marked(text, spans)),
          spans.length ? el("p", { class: "hint" }, "Marked: what the messages of the violations quote.") : null),
      el("div", { class: "stack-small" },
        violations.length ? violationList(violations, spans, this.policy?.lambda ?? 1) : null,
        body?.error ? el("p", { class: "notice notice-warning small" }, body.error) : null,
        facts(this.candidate)));
  }
}

function zone(sigma, policy) {
  if (!policy) return "";
  if (sigma <= policy.theta_sigma) return "\u2264 theta_sigma";
  return sigma <= policy.theta_abstain ? "> theta_sigma" : "> theta_abstain";
}

function answerWords({ body, failed, error, late, text }) {
  if (failed) return [el("span", { class: "warning-sign" }, late ? "late: " : "failed: "), error ?? "no text"];
  if (!body) return el("span", { class: "muted" }, (text ?? "written").slice(0, 300));
  return body.answer === null ? el("span", { class: "warning-sign" }, "no answer found") : body.answer.slice(0, 600);
}

/** From mu to E, one piece for each constraint. */
function penaltyBars(body, policy, domain) {
  if (body.energy === null) return null;
  let from = body.mu;
  const pieces = [];
  for (const [, weighted] of byConstraint(body.violations, policy?.lambda ?? 1)) {
    const left = share(from, domain), right = share(from + weighted, domain);
    pieces.push(svg("rect", { class: "bar-penalty", x: `${left}%`, width: `${Math.max(0.4, right - left - 0.3)}%`, y: 26, height: 8, rx: 1 }));
    from += weighted;
  }
  const end = at(body.energy, domain);
  return [pieces, svg("svg", { x: end, y: 30, overflow: "visible", width: 1, height: 1 }, svg("path", { class: "total", d: "M0 -5l5 5l-5 5l-5 -5z" }))];
}

function byConstraint(violations, lambda) {
  const totals = new Map();
  for (const found of violations) totals.set(found.constraint, (totals.get(found.constraint) ?? 0) + lambda * found.weight * found.penalty);
  return totals;
}

function violationList(violations, spans, lambda) {
  const marks = new Set(spans.flatMap((span) => span.violations));
  const largest = Math.max(...violations.map((found) => found.weight * found.penalty), 1e-9);
  return [el("h3", {}, plural(violations.length, "violation")),
    el("ul", { class: "violations" }, violations.map((found, index) => {
      const weighted = found.weight * found.penalty;
      return el("li", { class: "violation" },
        el("div", {}, el("strong", {}, marks.has(index) ? `${index + 1} ` : "", found.constraint), " ",
          el("span", { class: "muted number" }, `${number(found.penalty, 2)} \u00B7 weight ${number(found.weight, 2)} \u00B7 lambda ${number(lambda, 2)} = ${number(lambda * weighted, 2)}`)),
        el("div", { class: "text-block" }, found.message),
        el("div", { class: "violation-bar", css: { width: `${(100 * weighted) / largest}%` }, "aria-hidden": "true" }));
    }))];
}

/** The text with its marked places; text nodes only. */
export function marked(text, spans) {
  const parts = [];
  let done = 0;
  for (const span of spans) {
    parts.push(text.slice(done, span.start), el("mark", {}, text.slice(span.start, span.end),
      el("sup", {}, span.violations.map((index) => index + 1).join(","), el("span", { class: "visually-hidden" }, " (number of the violation)"))));
    done = span.end;
  }
  parts.push(text.slice(done));
  return parts;
}

function facts({ body, id }) {
  if (!body) return null;
  const rows = [["answer", body.answer ?? NONE],
    ["adapters", body.members ? body.members.map((energy) => number(energy)).join(", ") : NONE],
    ["read by the ensemble", body.num_tokens === null ? NONE : `${count(body.num_tokens)} tokens${body.num_truncated ? `, ${count(body.num_truncated)} of the problem cut` : ""}`],
    ["written", body.completion_tokens === null ? NONE : plural(body.completion_tokens, "token")],
    ["cost", money(body.cost_usd)], ["id", id]];
  return el("dl", { class: "facts" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
