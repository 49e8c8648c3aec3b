"""Opening of an evaluation's report: what to use, the decision in five facts, and the main selectors."""

from collections.abc import Sequence
from dataclasses import replace

from raydebm.evaluation.certainty.confidence import CHOSEN, DecisionStudy
from raydebm.evaluation.report.document import number, percent, with_interval
from raydebm.evaluation.results.entries import ALL_PASSES, ANSWERED, VOTE, SelectorRow
from raydebm.evaluation.results.evaluation import Evaluation, TextsRead
from raydebm.evaluation.selectors import PAPER_RULE, SINGLE_SHOT

MAIN_SELECTORS = (
    "random", VOTE, "best generator", "best generator (chosen in hindsight)", "mu only", "constraint only", PAPER_RULE,
    ALL_PASSES, ANSWERED, "oracle",
)  # fmt: skip
MUCH = 0.1
"""Share of candidates scored without their problem above which a report warns."""


def used_row(evaluation: Evaluation) -> SelectorRow | None:
    """Row of the rule to use: the chosen profile, else the paper's rule. None without energies."""
    return evaluation.row(CHOSEN) or evaluation.row(PAPER_RULE)


def shown(name: str, evaluation: Evaluation) -> str:
    """Name of a selector in tables and figures. The chosen profile has its own."""
    if name == CHOSEN and evaluation.decision is not None:
        return f"{evaluation.decision.profile} (chosen profile)"
    return name


def ordered_rows(evaluation: Evaluation) -> list[SelectorRow]:
    """All rows, with the rule to use first."""
    used = used_row(evaluation)
    return [*([] if used is None else [used]), *(row for row in evaluation.rows if row is not used)]


def main_rows(evaluation: Evaluation) -> list[SelectorRow]:
    """At most eleven rows: the rule to use, then the main selectors, with the best outside scorer before the oracle.

    The best outside scorer is chosen by test labels, so its name states the number of scorers.
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
    """The decision: share answered, right among them, refused, guaranteed, and the cost."""
    loop, answered = evaluation.loop, evaluation.row(ANSWERED)
    decided: list[tuple[str, str]] = []
    if loop is not None and loop.coverage.value is not None:
        decided.append(("answered", f"{with_interval(loop.coverage)} % of {loop.num_problems} test problems"))
        if answered is not None and answered.mean_violation.value is not None:
            decided.append(("violation of these answers", f"{number(answered.mean_violation)} in the mean"))
        else:
            decided.append(("right among them", f"{with_interval(loop.answered)} %"))
        refused = f"{100 * (1 - loop.coverage.value):.1f} %"
        if loop.num_abstained_incorrect + loop.num_abstained_correct:
            refused += f": {loop.num_abstained_incorrect} wrong selections and {loop.num_abstained_correct} right ones"
        decided.append(("refused", refused))
    return (*decided, ("guaranteed", _guaranteed(evaluation.decision)), ("cost", _cost(evaluation)))


def _guaranteed(decision: DecisionStudy | None) -> str:
    if decision is None:
        return "nothing, because no posterior was fitted"
    certified = [row for row in decision.promises if row.certified]
    if not certified:
        more = [row.more_problems for row in decision.promises if row.more_problems is not None]
        hint = f"; about {min(more)} more labelled problems would do for the largest error" if more else ""
        return f"nothing, with {decision.num_labelled} labelled problems{hint}"
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
    """Optional warning, then the test that chose the profile, and its quality without refusing."""
    return (*unread_problems(evaluation.texts_read), *_choice(evaluation.decision), *_quality(evaluation))


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
        worth = f"violate {number(row.mean_violation)} in the mean"
    else:
        others = ", ".join(f"{name} {percent(rival.pass_at_1)}" for name, rival in known)
        worth = f"are right on {with_interval(row.pass_at_1)} %"
    return (f"After one pass and without refusing, its selections {worth} ({others}).",)
