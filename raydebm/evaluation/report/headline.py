"""Headline of an evaluation: three sentences, and the main selectors."""

from collections.abc import Sequence
from dataclasses import replace

from raydebm.evaluation.certainty.confidence import CHOSEN, DecisionStudy
from raydebm.evaluation.report.document import number, percent, with_interval
from raydebm.evaluation.results.entries import ALL_PASSES, ANSWERED, OURS, VOTE, SelectorRow
from raydebm.evaluation.results.evaluation import Evaluation, TextsRead
from raydebm.evaluation.selectors import SINGLE_SHOT

MAIN_SELECTORS = (
    "random",
    VOTE,
    "best generator",
    "best generator (chosen in hindsight)",
    "mu only",
    "constraint only",
    OURS,
    CHOSEN,
    ALL_PASSES,
    ANSWERED,
    "oracle",
)


MUCH = 0.1
"""Share of candidates scored without their problem above which a report warns."""


def main_rows(evaluation: Evaluation) -> list[SelectorRow]:
    """At most eleven rows: the main selectors present, and the best outside scorer before the oracle.

    The best outside scorer is chosen by test labels, so its name states the number of scorers.
    """
    rows = [row for name in MAIN_SELECTORS if (row := evaluation.row(name)) is not None]
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


def sentences(evaluation: Evaluation) -> tuple[str, ...]:
    """Optional warning, then the selection rule, its quality, and the guarantee."""
    return (
        *unread_problems(evaluation.texts_read),
        _choice(evaluation),
        _quality(evaluation),
        _promised(evaluation.decision),
    )


def unread_problems(rows: Sequence[TextsRead]) -> tuple[str, ...]:
    """At most one warning, about splits in which more than ``MUCH`` of the candidates were scored without their
    problem."""
    much = [
        f"{100 * row.without_problem / row.num_candidates:.0f} % of the {row.num_candidates} candidates of {row.split}"
        for row in rows
        if row.without_problem is not None and row.without_problem > MUCH * row.num_candidates
    ]
    if not much:
        return ()
    return (
        f"Warning: of {' and '.join(much)} the scorer read nothing of the problem, so that their energies judge an "
        "answer alone; raise scorer.max_length, or name a backbone with a longer context, and train again.",
    )


def _choice(evaluation: Evaluation) -> str:
    decision, policy = evaluation.decision, evaluation.policy
    if decision is None:
        return (
            f"The paper's rule decides: lowest mu + {policy['lambda']:g} E_constraint, accepted up to a sigma of "
            f"{policy['theta_sigma']:g} and refused above {policy['theta_abstain']:g}."
        )
    on = f"on {decision.num_labelled} labelled problems outside the test"
    replaced = [test for test in decision.tests if test.replaced]
    if replaced:
        last = replaced[-1]
        return (
            f"Recommended profile: {decision.profile}; {on} it won {last.wins} and lost {last.losses} of the problems "
            f"on which it differs from {last.incumbent} (p = {last.p_value:.2g})."
        )
    if not decision.tests:
        return f"Profile: {decision.profile}, as the recipe says."
    nearest = min(decision.tests, key=lambda test: test.p_value)
    return (
        f"Recommended profile: {decision.profile}; {on} no other profile is shown to be better (nearest: "
        f"{nearest.challenger}, {nearest.wins} won, {nearest.losses} lost, p = {nearest.p_value:.2g})."
    )


def _quality(evaluation: Evaluation) -> str:
    row = evaluation.row(CHOSEN) or evaluation.row(OURS)
    if row is None:
        return "There are no energies, so that nothing of ours could choose."
    rivals = [(name, evaluation.row(name)) for name in ("random", VOTE, OURS, "oracle") if name != row.name]
    known = [(name, rival) for name, rival in rivals if rival is not None]
    if evaluation.is_continuous:
        others = ", ".join(f"{name} {number(rival.mean_violation).split(' ')[0]}" for name, rival in known)
        worth = f"violates {number(row.mean_violation)} in the mean"
    else:
        others = ", ".join(f"{name} {percent(rival.pass_at_1)}" for name, rival in known)
        worth = f"is correct on {with_interval(row.pass_at_1)} %"
    return f"On {evaluation.counts.problems} test problems its selection {worth} ({others}){_loop(evaluation)}."


def _loop(evaluation: Evaluation) -> str:
    loop = evaluation.loop
    if loop is None or loop.answered.value is None:
        return ""
    return (
        f"; with all passes it answers {with_interval(loop.coverage)} % of them, and {with_interval(loop.answered)} % "
        "of these answers are correct"
    )


def _promised(decision: DecisionStudy | None) -> str:
    if decision is None:
        return "No posterior was fitted, so nothing may be promised."
    certified = [row for row in decision.promises if row.certified]
    if not certified:
        more = [row.more_problems for row in decision.promises if row.more_problems is not None]
        hint = f"; about {min(more)} more labelled problems would do for the largest error" if more else ""
        return f"Nothing may be promised with {decision.num_labelled} labelled problems{hint}."
    parts: list[str] = []
    most = -1
    for row in sorted(certified, key=lambda row: row.max_error):
        coverage = round(100 * row.coverage)
        if coverage > most:  # skip a larger error without a higher coverage
            parts.append(f"an error of at most {100 * row.max_error:g} % at coverage {coverage} %")
            most = coverage
    return f"With confidence {certified[0].confidence:g} may be promised: {', or '.join(parts)}."
