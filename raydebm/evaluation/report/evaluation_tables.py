"""Tables of an evaluation and the sentences of its opening, shared by Markdown, HTML and the terminal."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from raydebm.evaluation.certainty.confidence import CHOSEN, CheckedGuarantee, DecisionStudy, FieldStudy
from raydebm.evaluation.certainty.reliability import Reliability
from raydebm.evaluation.report.document import (
    Cell,
    Table,
    decimal,
    ece_cells,
    facts_table,
    number,
    percent,
    points,
    table_of,
    with_interval,
)
from raydebm.evaluation.results.energy_metrics import EnsembleTheory
from raydebm.evaluation.results.entries import ALL_PASSES, ANSWERED, VOTE, DifficultyRow, DimensionTable, SelectorRow
from raydebm.evaluation.results.evaluation import Evaluation, TextsRead
from raydebm.evaluation.results.selector_costs import has_prices
from raydebm.evaluation.selectors import PAPER_RULE, SINGLE_SHOT
from raydebm.evaluation.stats.intervals import NOTHING
from raydebm.evaluation.stats.significance import Comparison, p_text
from raydebm.generators.tally import SavedSamples

NOT_RECORDED = "not recorded"
_LEFT_OUT = (
    "Unlabeled: problems left out because the choice has no label, or because the selector chose nothing (a judge "
    "without scores, for example)."
)
_NOT_EXPLAINED = "an interval without 0 is a difference that resampling the problems does not explain"


def tables(evaluation: Evaluation) -> list[Table]:
    study = evaluation.decision
    all_tables = [
        selector_table(evaluation),
        *([] if study is None else [_guarantee_table(study), _profile_table(study)]),
        *([] if evaluation.dimensions is None else [_dimension_table(evaluation.dimensions)]),
        *([] if evaluation.loop is None else [loop_table(evaluation)]),
        comparison_table(evaluation.violation_comparisons, what="violation avoided"),
        comparison_table(evaluation.comparisons),
        *_field_tables(evaluation.fields),
        *_trust_tables(evaluation),
        *([texts_table(evaluation.texts_read)] if evaluation.adapters else []),
        energy_table(evaluation),
        *([] if evaluation.theory is None else [_theory_table(evaluation.theory)]),
        _difficulty_table(evaluation),
        cost_table(evaluation),
    ]
    return [table for table in all_tables if table.rows]


def selector_table(evaluation: Evaluation) -> Table:
    """One row per selector, the rule to use first. If the task has violation scores, their mean is before pass@1."""
    continuous = evaluation.is_continuous
    if continuous:
        caption = (
            "Mean violation score of the chosen candidates, 0 to 1, lower is better. Gap closed, in mean violation: 0 "
            f"is random choice, 100 the oracle, which takes the lowest score. This minus {PAPER_RULE}: difference on "
            f"the same problems, above 0 where {PAPER_RULE} violates less; {_NOT_EXPLAINED}. pass@1: share of problems "
            f"whose choice counts as correct. {_LEFT_OUT}"
        )
    else:
        caption = (
            "Share of problems whose chosen candidate is correct. Gap closed: 0 is random choice, 100 the oracle. "
            f"{PAPER_RULE} minus this: difference in points on the same problems; {_NOT_EXPLAINED}. {_LEFT_OUT}"
        )
    columns: dict[str, Callable[[SelectorRow], Cell]] = {
        "pass@1 %": lambda row: row.pass_at_1,
        "gap closed %": lambda row: row.gap_closed,
        f"{PAPER_RULE} minus this": lambda row: "" if row.name == PAPER_RULE else points(row.paper_minus),
        "n": lambda row: row.pass_at_1.n,
    }
    if continuous:
        columns = {
            "mean violation": lambda row: number(row.mean_violation),
            "gap closed %": lambda row: row.violation_gap_closed,
            f"this minus {PAPER_RULE}": lambda row: (
                "" if row.name == PAPER_RULE else number(row.violation_avoided, signed=True)
            ),
            "pass@1 %": lambda row: row.pass_at_1,
            "n": lambda row: row.mean_violation.n,
        }
    columns = {
        "selector": lambda row: shown(row.name, evaluation),
        **columns,
        "unlabeled": lambda row: row.num_unlabeled,
    }
    used = used_row(evaluation)
    return table_of("Selectors", caption, ordered_rows(evaluation), columns, emphasised=lambda row: row is used)


def main_table(evaluation: Evaluation) -> Table:
    """Main selectors, narrow enough for a terminal."""
    continuous = evaluation.is_continuous

    def worth(row: SelectorRow) -> Cell:
        return number(row.mean_violation) if continuous else row.pass_at_1

    used = used_row(evaluation)
    return table_of(
        f"{evaluation.title}: selectors on {evaluation.counts.problems} test problems",
        "95 % intervals in brackets. Gap closed: 0 is random choice, 100 the oracle.",
        main_rows(evaluation),
        {
            "selector": lambda row: shown(row.name, evaluation),
            "mean violation [95 %]" if continuous else "pass@1 % [95 %]": worth,
            "gap closed % [95 %]": lambda row: row.violation_gap_closed if continuous else row.gap_closed,
            "n": lambda row: (row.mean_violation if continuous else row.pass_at_1).n,
        },
        emphasised=lambda row: row is used,
    )


def energy_table(evaluation: Evaluation) -> Table:
    """Quality of the order of a problem's candidates by each energy."""
    return table_of(
        "Energies",
        "How well each energy orders the candidates of a problem, averaged over problems. Pair accuracy and energy "
        "gap use the problems with correct and incorrect candidates, tau-b those whose labels or violation scores "
        "differ. Pair accuracy and tau-b: higher is better, chance is 50 % and 0. Energy gap: mean energy of "
        "incorrect minus that of correct candidates.",
        evaluation.energies,
        {
            "energy": lambda row: row.name,
            "pair accuracy %": lambda row: row.pair_accuracy,
            "n of pairs": lambda row: row.pair_accuracy.n,
            "Kendall tau-b": lambda row: number(row.kendall_tau_b),
            "n of tau-b": lambda row: row.kendall_tau_b.n,
            "energy gap": lambda row: number(row.energy_gap),
            "n of gap": lambda row: row.energy_gap.n,
        },
        emphasised=lambda row: row.name == "E",
    )


def _theory_table(theory: EnsembleTheory) -> Table:
    return facts_table(
        "Ensemble theory",
        "Accuracy that averaging correlated adapters can reach (Gaussian approximation of a majority vote), and the "
        "measured one. The closer rho is to 1, the less a further adapter adds.",
        (
            ("adapters (K)", theory.num_adapters),
            ("pairs", theory.num_pairs),
            ("q, one adapter ranks a pair correctly, %", theory.q),
            ("rho, correlation of two adapters", number(theory.rho)),
            ("P(K, q, rho) predicted, %", decimal(theory.predicted, 1, scale=100)),
            ("its limit for K to infinity, %", decimal(theory.ceiling, 1, scale=100)),
            ("measured for the ensemble mean, %", theory.measured),
        ),
    )


def rule_in_words(policy: Mapping[str, Any]) -> str:
    """Rule of the loop in words, with the thresholds that it uses.

    Args:
        policy: ``Evaluation.policy``.
    """
    if policy["rule"] == "posterior":
        return (
            f"the posterior's rule, profile {policy['profile']}, tau_accept {policy['tau_accept']:g}, "
            f"tau_answer {policy['tau_answer']:g}"
        )
    return (
        f"the paper's rule, lambda {policy['lambda']:g}, theta_sigma {policy['theta_sigma']:g}, "
        f"theta_abstain {policy['theta_abstain']:g}, signal {policy['signal']}"
    )


def loop_table(evaluation: Evaluation) -> Table:
    """Effects of the loop's passes and abstentions."""
    loop, policy = evaluation.loop, evaluation.policy
    passes = "One pass" if policy["max_passes"] == 1 else f"Up to {policy['max_passes']} passes"
    facts: list[tuple[str, Cell]] = []
    if loop is not None:
        last, answered = evaluation.row(ALL_PASSES), evaluation.row(ANSWERED)
        facts = [
            ("answered, %", loop.coverage),
            ("correct among answered, %", loop.answered),
            ("correct after the first pass, no abstention, %", loop.first),
        ]
        if last is not None:
            facts.append(("correct after all passes, no abstention, %", last.pass_at_1))
        if answered is not None and answered.mean_violation.value is not None:
            facts.append(("mean violation of the answers", number(answered.mean_violation)))
        facts += [
            ("a later pass was asked for, %", loop.regenerated),
            ("problems whose last pass failed entirely", loop.num_failed_passes),
            ("selections taken from a later pass", loop.num_adopted),
            ("turned from incorrect to correct", loop.num_fixed),
            ("turned from correct to incorrect", loop.num_broken),
            ("abstained, selection incorrect or none", loop.num_abstained_incorrect),
            ("abstained, selection correct", loop.num_abstained_correct),
            ("answered without a label", loop.num_unlabeled),
        ]
    problems = 0 if loop is None else loop.num_problems
    return facts_table("Triage", f"{passes} over {problems} problems, decided by {rule_in_words(policy)}.", facts)


def _difficulty_table(evaluation: Evaluation) -> Table:
    continuous = evaluation.is_continuous
    names = list(dict.fromkeys(name for row in evaluation.difficulties for name in row.pass_at_1))

    def of(name: str) -> Callable[[DifficultyRow], Cell]:
        return lambda row: number(row.mean_violation.get(name, NOTHING)) if continuous else row.pass_at_1[name]

    return table_of(
        "By difficulty",
        f"{'Mean violation (lower is better)' if continuous else 'pass@1 in %'} with its 95 % interval, per group of "
        "problems.",
        evaluation.difficulties,
        {
            "group": lambda row: row.difficulty,
            "problems": lambda row: row.num_problems,
            **{name: of(name) for name in names},
        },
    )


def _dimension_table(parts: DimensionTable) -> Table:
    return Table(
        title="Parts of the violation",
        caption=f"Mean of each part over the chosen candidates with its 95 % interval, lower is better; from "
        f"{parts.source}. A part that is high for every selector is right in no candidate; a part that is low only for "
        "the oracle is not recognised by the selectors.",
        headers=("part", *parts.selectors),
        rows=tuple((name, *map(number, values)) for name, values in parts.rows),
    )


def cost_table(evaluation: Evaluation) -> Table:
    """Cost of each selector per problem, cheapest first; those without a price last."""
    continuous = evaluation.is_continuous

    return table_of(
        "Cost",
        "Candidates and scores that a selector needs per problem (the ensemble's energies of a candidate count as one "
        "score), and US dollars per 1,000 problems where all prices are known (candidates and judges as billed). A "
        "selector that takes one candidate without a comparison pays for one, every other for the whole pool. On the "
        "front: no other selector is as cheap and as good."
        + ("" if has_prices(evaluation.costs) else " No price is known, so the numbers of candidates and scores count.")
        + ("" if evaluation.saved is None else f" {_saved_in_words(evaluation.saved)}"),
        sorted(evaluation.costs, key=lambda row: math.inf if row.usd.value is None else row.usd.value),
        {
            "selector": lambda row: shown(row.name, evaluation),
            "mean violation" if continuous else "pass@1 %": lambda row: number(row.worth) if continuous else row.worth,
            "candidates": lambda row: decimal(row.num_candidates, 1),
            "scores": lambda row: decimal(row.num_scores, 1),
            "$ per 1,000": lambda row: with_interval(row.usd, scale=1000, digits=2),
            "front": lambda row: "yes" if row.is_on_front else "",
        },
        emphasised=lambda row: row.is_on_front,
    )


def _saved_in_words(saved: SavedSamples) -> str:
    tokens = "an unknown share" if saved.token_share is None else f"about {100 * saved.token_share:.0f} %"
    return (
        f"Sampling in waves ended {saved.num_settled:,} of {saved.num_problems:,} problems early, over all splits: "
        f"{saved.num_samples:,} candidates ({100 * saved.sample_share:.0f} %) were never sampled, which saved {tokens} "
        "of the completion tokens."
    )


def texts_table(rows: Sequence[TextsRead]) -> Table:
    """Truncation of the scorer's inputs, by split. A single row says so if it was not recorded."""

    def share(count: int | None, row: TextsRead) -> str:
        return NOT_RECORDED if count is None else f"{100 * count / row.num_candidates:.1f}"

    unknown = TextsRead(split="all", num_candidates=0, without_problem=None, problem_cut=None, answer_cut=None)
    return table_of(
        "What the scorer read",
        "Shares in % of the scored candidates of the first pass: nothing of the problem was read, a part of the "
        "problem was read, a part of the answer was read. Texts are cut where problem and answer together are "
        "longer than the scorer's context.",
        rows or (unknown,),
        {
            "split": lambda row: row.split,
            "candidates": lambda row: row.num_candidates or "-",
            "no problem": lambda row: share(row.without_problem, row),
            "problem in part": lambda row: share(row.problem_cut, row),
            "answer in part": lambda row: share(row.answer_cut, row),
        },
    )


# ---- certainty -------------------------------------------------------------------------------------------------------


def comparison_table(comparisons: Sequence[Comparison], *, what: str = "pass@1") -> Table:
    """Paired tests of selectors, in words and numbers."""
    right = what == "pass@1"
    more = ("only the first", "only the second") if right else ("sum of gains", "sum of losses")
    counted = (
        "expected number of problems that only one of the two gets right"
        if right
        else "sums over problems of the violation that only the first avoids, and that only the second avoids"
    )
    return table_of(
        f"Paired tests, {what}",
        f"Difference in {what} on the same problems, in percentage points with its 95 % bootstrap interval; "
        f"{counted}; two-sided p by the exact McNemar test "
        "where both are right or wrong on every problem, else by 10,000 sign-flip permutations; Holm: corrected "
        "for all comparisons of this table.",
        comparisons,
        {
            "comparison": lambda row: f"{row.one} - {row.other}",
            "difference": lambda row: points(row.difference),
            more[0]: lambda row: decimal(row.only_one, 1),
            more[1]: lambda row: decimal(row.only_other, 1),
            "n": lambda row: row.difference.n,
            "test": lambda row: row.test,
            "p": lambda row: p_text(row.p_value),
            "p, Holm": lambda row: p_text(row.p_holm),
        },
    )


def _trust_tables(evaluation: Evaluation) -> list[Table]:
    trust, decision = evaluation.trust, evaluation.decision
    if trust is None:
        return []
    what = "1 - violation" if evaluation.is_continuous else "accuracy"
    signals = table_of(
        "Signals of certainty",
        "How well each signal tells correct selections from incorrect ones: AUROC (50 % is chance), and "
        f"{what} when the least certain fifth is not answered, with the gain over answering everything. The confidence "
        "is tested on the profile's selections, the other signals on those by energy. "
        f"Learned certainty is fitted on {trust.fitted_on}.",
        [*([] if decision is None else [decision.confidence]), *trust.signals],
        {
            "signal": lambda row: row.name,
            "AUROC %": lambda row: row.auroc,
            f"{what} % at 80 %": lambda row: row.accuracy_at_80,
            "gain": lambda row: points(row.gain_at_80),
            "n": lambda row: row.auroc.n,
        },
        emphasised=lambda row: decision is not None and row is decision.confidence,
    )
    stated = [*([] if decision is None else [decision.reliability]), *trust.reliabilities]
    return [signals, reliability_table("Calibration", stated)]


def _field_tables(study: FieldStudy | None) -> list[Table]:
    if study is None:
        return []
    fields = table_of(
        "Fields of structured answers",
        f"Fields of the selected answers. Those with a confidence below tau_field {study.tau_field:.3g} are flagged; "
        "intervals are over problems.",
        study.rows,
        {
            "field": lambda row: row.kind,
            "fields": lambda row: row.num,
            "right %": lambda row: row.right,
            "mean confidence %": lambda row: decimal(row.confidence, 1, scale=100),
            "not flagged %": lambda row: row.shown,
            "wrong among these %": lambda row: row.error,
            "AUROC %": lambda row: row.auroc,
        },
        emphasised=lambda row: row is study.rows[0],
    )
    return [fields, reliability_table("Calibration of fields", [study.reliability])]


def reliability_table(title: str, rows: Sequence[Reliability]) -> Table:
    """Calibration of probabilities."""
    return table_of(
        title,
        "Expected calibration error (ECE) in ten bins of equal mass; the ECE that a perfectly calibrated probability "
        "would have on as many problems (mean, and its 95 % upper limit); Brier score (lower is better); and "
        "the Brier score of always stating the mean, which a useful probability beats.",
        rows,
        {
            "probability": lambda row: row.name,
            "that": lambda row: row.event,
            "ECE": lambda row: ece_cells(row.ece)[0],
            "if perfect": lambda row: ece_cells(row.ece)[1],
            "Brier": lambda row: number(row.brier),
            "Brier of the mean": lambda row: decimal(row.base_brier),
            "n": lambda row: row.ece.n,
        },
    )


def _guarantee_table(study: DecisionStudy) -> Table:
    def threshold(row: CheckedGuarantee) -> str:
        if row.certified:
            return decimal(row.tau)
        more = "" if row.more_problems is None else f", {row.more_problems} more problems would probably do"
        return f"not certified{more}"

    def if_certified(cell: Callable[[CheckedGuarantee], str]) -> Callable[[CheckedGuarantee], str]:
        return lambda row: cell(row) if row.certified else "-"

    return table_of(
        "Possible guarantees",
        "For each error: the lowest certified threshold of confidence (learn-then-test, exact binomial; "
        "betting for violation scores), the share of the labelled problems that it answers, and coverage and error "
        "on the test problems at this threshold.",
        study.promises,
        {
            "error at most": lambda row: f"{100 * row.max_error:g} %",
            "threshold": threshold,
            "coverage %": if_certified(lambda row: decimal(row.coverage, 1, scale=100)),
            "upper bound %": if_certified(lambda row: decimal(row.upper_bound, 1, scale=100)),
            "problems": lambda row: row.problems,
            "test coverage %": if_certified(lambda row: percent(row.test_coverage)),
            "test error %": if_certified(lambda row: with_interval(row.test_error)),
        },
    )


def _profile_table(study: DecisionStudy) -> Table:
    return table_of(
        "Choice of the profile",
        "Exact paired tests on labelled problems outside the test, each decided by a posterior that did not see "
        "it. A challenger replaces the incumbent only where p is small enough (docs/evaluation.md).",
        study.tests,
        {
            "challenger": lambda test: test.challenger,
            "incumbent": lambda test: test.incumbent,
            "won": lambda test: str(test.wins),
            "lost": lambda test: str(test.losses),
            "p": lambda test: f"{test.p_value:.3g}",
            "replaced": lambda test: "yes" if test.replaced else "no",
        },
    )


MAIN_SELECTORS = (
    "random", VOTE, "best generator", "best generator (chosen in hindsight)", "mu only", "constraint only", PAPER_RULE,
    ALL_PASSES, ANSWERED, "oracle",
)  # fmt: skip
MAX_UNREAD = 0.1
"""A report warns if more than this share of a split's candidates was scored without the problem."""


def used_row(evaluation: Evaluation) -> SelectorRow | None:
    """Row of the rule to use: the chosen profile, else the paper's rule. None if there is neither."""
    return evaluation.row(CHOSEN) or evaluation.row(PAPER_RULE)


def shown(name: str, evaluation: Evaluation) -> str:
    """Name of a selector in tables and figures. The chosen profile is shown by its own name."""
    if name == CHOSEN and evaluation.decision is not None:
        return f"{evaluation.decision.profile} (chosen profile)"
    return name


def ordered_rows(evaluation: Evaluation) -> list[SelectorRow]:
    """All rows, with the rule to use first."""
    used = used_row(evaluation)
    return [*([] if used is None else [used]), *(row for row in evaluation.rows if row is not used)]


def main_rows(evaluation: Evaluation) -> list[SelectorRow]:
    """At most eleven rows: the rule to use, then the main selectors, with the best baseline before the oracle.

    The best baseline is chosen by test labels, so its name states the number of baselines.
    """
    rows = [row for row in ordered_rows(evaluation) if row is used_row(evaluation)]
    rows += [row for name in MAIN_SELECTORS if (row := evaluation.row(name)) is not None and row not in rows]
    scorers = [row for row in evaluation.rows if row.group == "external" and not row.name.startswith(SINGLE_SHOT)]
    if scorers:
        best = max(scorers, key=lambda row: _worth(row, continuous=evaluation.is_continuous))
        hindsight = f"{best.name} (best of {len(scorers)}, in hindsight)"
        rows.insert(-1, best if len(scorers) == 1 else replace(best, name=hindsight))
    return rows


def _worth(row: SelectorRow, *, continuous: bool) -> float:
    """Worth of a row, higher is better. A selector without a value is last."""
    value = row.mean_violation.value if continuous else row.pass_at_1.value
    return float("-inf") if value is None else -value if continuous else value


def lead(evaluation: Evaluation) -> str:
    """Advice in one sentence: the rule to use."""
    decision, policy = evaluation.decision, evaluation.policy
    if decision is not None:
        return f"Use the profile {decision.profile}."
    if used_row(evaluation) is None:
        return "Nothing to use: no candidate has energies."
    return (
        f"Use {PAPER_RULE}: lowest mu + {policy['lambda']:g} E_constraint, accepted up to a sigma of "
        f"{policy['theta_sigma']:g} and refused above {policy['theta_abstain']:g}."
    )


def facts(evaluation: Evaluation) -> tuple[tuple[str, str], ...]:
    """(name, value) pairs: the shares answered, right among these and refused, possible guarantees, and the cost."""
    loop, answered = evaluation.loop, evaluation.row(ANSWERED)
    decided: list[tuple[str, str]] = []
    if loop is not None and loop.coverage.value is not None:
        decided.append(("answered", f"{with_interval(loop.coverage)} % of {loop.num_problems} test problems"))
        if answered is not None and answered.mean_violation.value is not None:
            decided.append(("mean violation of these answers", number(answered.mean_violation)))
        else:
            decided.append(("right among them", f"{with_interval(loop.answered)} %"))
        refused = f"{100 * (1 - loop.coverage.value):.1f} %"
        wrong, right = loop.num_abstained_incorrect, loop.num_abstained_correct
        if wrong + right:
            refused += f": {wrong} wrong or missing selections and {right} right ones"
        decided.append(("refused", refused))
    return (*decided, ("can be guaranteed", _guaranteed(evaluation.decision)), ("cost", _cost(evaluation)))


def _guaranteed(decision: DecisionStudy | None) -> str:
    if decision is None:
        return "nothing, because no posterior was fitted"
    certified = [row for row in decision.promises if row.certified]
    if not certified:
        more = [(row.more_problems, row.max_error) for row in decision.promises if row.more_problems is not None]
        nothing = f"nothing, with {decision.num_labelled} labelled problems"
        if not more:
            return nothing
        fewest, error = min(more)
        return f"{nothing}; about {fewest} more would do for an error of at most {100 * error:g} %"
    parts: list[str] = []
    most = -1
    for row in sorted(certified, key=lambda row: row.max_error):
        coverage = round(100 * row.coverage)
        if coverage > most:  # skip a larger error without a higher coverage
            parts.append(f"an error of at most {100 * row.max_error:g} % where {coverage} % are answered")
            most = coverage
    return f"{', or '.join(parts)}; with confidence {certified[0].confidence:g}"


def _cost(evaluation: Evaluation) -> str:
    used = used_row(evaluation)
    row = next((row for row in evaluation.costs if used is not None and row.name == used.name), None)
    each = "" if row is None or row.usd.value is None else f"an answer ${row.usd.value:.2g}"
    if evaluation.paid_usd is None:
        return f"{each} at recorded prices" if each else "no prices are known"
    return f"this run cost ${evaluation.paid_usd:,.2f}{', ' if each else ''}{each}"


def sentences(evaluation: Evaluation) -> tuple[str, ...]:
    """Warning if there is one, then the test that chose the profile, and its quality without refusals."""
    return (*unread_problems(evaluation.texts_read), *_choice(evaluation.decision), *_quality(evaluation))


def unread_problems(rows: Sequence[TextsRead]) -> tuple[str, ...]:
    """At most one warning, about splits in which more than ``MAX_UNREAD`` of the candidates were scored without their
    problem."""
    much = [
        f"{100 * row.without_problem / row.num_candidates:.0f} % of the {row.num_candidates} candidates of {row.split}"
        for row in rows
        if row.without_problem is not None and row.without_problem > MAX_UNREAD * row.num_candidates
    ]
    if not much:
        return ()
    return (
        f"Warning: the scorer read nothing of the problem for {' and '.join(much)}, so their energies judge the "
        "answer alone; raise scorer.max_length, or name a backbone with a longer context, and train again.",
    )


def _choice(decision: DecisionStudy | None) -> tuple[str, ...]:
    if decision is None:
        return ()
    if not decision.tests:
        return (f"The recipe names the profile {decision.profile}.",)
    on = f"on {decision.num_labelled} labelled problems outside the test"
    replaced = [test for test in decision.tests if test.replaced]
    if replaced:
        last = replaced[-1]
        return (
            f"The profile {decision.profile} was chosen {on}: it won {last.wins} and lost {last.losses} of the "
            f"problems on which it differs from {last.incumbent} (p = {last.p_value:.2g}).",
        )
    nearest = min(decision.tests, key=lambda test: test.p_value)
    return (
        f"The profile {decision.profile} was chosen {on}: no other is shown to be better (nearest: "
        f"{nearest.challenger}, {nearest.wins} won, {nearest.losses} lost, p = {nearest.p_value:.2g}).",
    )


def _quality(evaluation: Evaluation) -> tuple[str, ...]:
    row = used_row(evaluation)
    if row is None:
        return ()
    rivals = [(name, evaluation.row(name)) for name in ("random", VOTE, PAPER_RULE, "oracle") if name != row.name]
    known = [(name, rival) for name, rival in rivals if rival is not None]
    if evaluation.is_continuous:
        others = ", ".join(f"{name} {number(rival.mean_violation).split(' ')[0]}" for name, rival in known)
        worth = f"have a mean violation of {number(row.mean_violation)}"
    else:
        others = ", ".join(f"{name} {percent(rival.pass_at_1)}" for name, rival in known)
        worth = f"are right on {with_interval(row.pass_at_1)} %"
    return (f"After one pass and without refusing, its selections {worth} ({others}).",)
