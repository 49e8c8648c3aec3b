"""Results of the loop over a set of problems: answers, abstentions, and effects of later passes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.decision.groups import Bools, Floats
from raydebm.decision.table import PoolTable, correct_of, violation_of
from raydebm.errors import PoolError
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.records import Decision, Label, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveSavings:
    """Samples saved by the stopping rule of ``triage.waves`` in the loop's passes."""

    num_passes: int
    """Passes sampled in waves."""
    num_ended_early: int
    num_samples: int
    """Samples not requested."""
    sample_share: float
    """Share of the planned samples not requested."""
    token_share: float | None
    """Share of the tokens saved, including prompts. A sample that was not requested counts as the mean of its pass.
    None if no candidate of a pass that ended early has token counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSummary:
    """Summary of the loop: decisions, coverage, accuracy."""

    num_problems: int
    coverage: Estimate
    """Share of problems answered."""
    answered: Estimate
    """Share correct among answered, labelled problems."""
    first: Estimate
    """Share of selections after the first pass that are correct, including problems where the loop abstains or
    continues."""
    regenerated: Estimate
    """Share of problems with a later pass."""
    num_failed_passes: int
    """Problems whose last pass has no candidates, so the decision is based on earlier ones."""
    num_adopted: int
    """Problems whose selection is from a later pass."""
    num_fixed: int
    """Selections changed from incorrect to correct by a later pass."""
    num_broken: int
    """Selections changed from correct to incorrect by a later pass."""
    num_abstained_correct: int
    """Abstentions with a correct selection (cost of abstaining)."""
    num_abstained_incorrect: int
    """Abstentions with an incorrect selection or none (benefit of abstaining)."""
    num_unlabeled: int
    """Answered problems without a label for the answer."""
    waves: WaveSavings | None = None
    """None if no pass was sampled in waves."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutcomeValues:
    """Result of the loop by problem, in the order of the pools."""

    accepted: Bools
    regenerated: Bools
    pass_failed: Bools
    """Whether the last pass has no candidates."""
    adopted: Bools
    """Whether the selection is from a later pass."""
    first: Floats
    """Correctness of the first pass's selection: 1, 0, or NaN for unlabeled."""
    final: Floats
    """Correctness of the last selection, including problems where the loop abstains."""
    violation: Floats
    """Violation score of the last selection. NaN if it has none."""


def outcome_values(pools: PoolTable, outcomes: Sequence[Outcome], *, labels: Mapping[str, Label]) -> OutcomeValues:
    """Look up the labels of the outcomes. Without a selection, see ``PoolTable.correct_of_nothing``.

    Raises:
        PoolError: a pool's problem has no outcome.
    """
    by_problem = {outcome.problem.problem_id: outcome for outcome in outcomes}
    absent = [problem.problem_id for problem in pools.problems if problem.problem_id not in by_problem]
    if absent:
        raise PoolError(f"{len(absent)} problems have no outcome of the loop, the first is {absent[0]!r}")
    pool_outcomes = [by_problem[problem.problem_id] for problem in pools.problems]
    last = [None if outcome.best is None else outcome.best.candidate.candidate_id for outcome in pool_outcomes]
    return OutcomeValues(
        accepted=np.array([outcome.decision is Decision.ACCEPT for outcome in pool_outcomes]),
        regenerated=np.array([len(outcome.passes) > 1 for outcome in pool_outcomes]),
        pass_failed=np.array(
            [outcome.passes[-1].num_failed == outcome.passes[-1].num_requested for outcome in pool_outcomes]
        ),
        adopted=np.array(
            [outcome.best is not None and outcome.best.candidate.pass_index > 1 for outcome in pool_outcomes],
            dtype=bool,
        ),
        first=_labels_of(
            [outcome.passes[0].selected for outcome in pool_outcomes], labels, correct_of, pools.correct_of_nothing()
        ),
        final=_labels_of(last, labels, correct_of, pools.correct_of_nothing()),
        violation=_labels_of(last, labels, violation_of, pools.violation_of_nothing()),
    )


def summarise_loop(results: OutcomeValues, bootstrap: Bootstrap) -> LoopSummary:
    """Counts and shares with intervals."""
    accepted, first, final = results.accepted, results.first, results.final
    return LoopSummary(
        num_problems=len(accepted),
        coverage=bootstrap.proportion(accepted.astype(float)),
        answered=bootstrap.proportion(np.where(accepted, final, math.nan)),
        first=bootstrap.proportion(first),
        regenerated=bootstrap.proportion(results.regenerated.astype(float)),
        num_failed_passes=int(results.pass_failed.sum()),
        num_adopted=int(results.adopted.sum()),
        num_fixed=int(((first == 0) & (final == 1)).sum()),
        num_broken=int(((first == 1) & (final == 0)).sum()),
        num_abstained_correct=int((~accepted & (final == 1)).sum()),
        num_abstained_incorrect=int((~accepted & (final == 0)).sum()),
        num_unlabeled=int((accepted & np.isnan(final)).sum()),
    )


def wave_savings(outcomes: Sequence[Outcome]) -> WaveSavings | None:
    """Samples saved by waves in all passes. None if no pass was sampled in waves."""
    stops = [
        (outcome, record.pass_index, record.stop) for outcome in outcomes for record in outcome.passes if record.stop
    ]
    if not stops:
        return None
    num_saved = sum(stop.num_saved for _, _, stop in stops)
    unknown = any(stop.num_saved and stop.tokens_saved is None for _, _, stop in stops)
    saved = sum(stop.tokens_saved or 0 for _, _, stop in stops)
    used = sum(_tokens_of_pass(outcome, pass_index) for outcome, pass_index, _ in stops)
    return WaveSavings(
        num_passes=len(stops),
        num_ended_early=sum(stop.num_saved > 0 for _, _, stop in stops),
        num_samples=num_saved,
        sample_share=num_saved / sum(stop.num_planned for _, _, stop in stops),
        token_share=None if unknown or saved + used == 0 else saved / (saved + used),
    )


def _tokens_of_pass(outcome: Outcome, pass_index: int) -> int:
    """Prompt and completion tokens of the candidates of a pass with token counts."""
    drawn = [scored.candidate for scored in outcome.pool if scored.candidate.pass_index == pass_index]
    return sum((candidate.prompt_tokens or 0) + (candidate.completion_tokens or 0) for candidate in drawn)


def _labels_of(
    chosen: Sequence[str | None],
    labels: Mapping[str, Label],
    value_of: Callable[[Label | None], float],
    nothing: Floats,
) -> Floats:
    """Value of each selected candidate's label, shape (P,); ``nothing`` without a selection."""
    values = zip(chosen, nothing.tolist(), strict=True)
    return np.array([none if name is None else value_of(labels.get(name)) for name, none in values], dtype=np.float64)
