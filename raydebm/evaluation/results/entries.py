"""Values of every selector and of the loop on every problem, and the rows and comparisons computed from them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydebm.decision.policy import Policy
from raydebm.decision.table import Bools, Floats, PoolTable, correct_of, violation_of
from raydebm.errors import PoolError
from raydebm.evaluation.selectors import BEST_GENERATOR, PAPER_RULE, SINGLE_SHOT, Selector, expected, values_of
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.stats.significance import Comparison, compare, distinct
from raydebm.records import Decision, Label, Outcome, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSummary:
    """Summary of the loop: decisions, coverage, accuracy."""

    num_problems: int
    coverage: Estimate
    answered: Estimate
    """Share correct among answered, labelled problems."""
    first: Estimate
    """Share of selections after the first pass that are correct, including problems where the loop abstains or
    continues."""
    regenerated: Estimate
    num_failed_passes: int
    """Problems whose last pass has no candidates, so the decision is based on earlier passes."""
    num_adopted: int
    """Problems whose selection is from a later pass."""
    num_fixed: int
    num_broken: int
    num_abstained_correct: int
    """Abstentions with a correct selection (cost of abstaining)."""
    num_abstained_incorrect: int
    """Abstentions with an incorrect selection or none (benefit of abstaining)."""
    num_unlabeled: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutcomeValues:
    """Result of the loop by problem, in the order of the pools."""

    outcomes: Sequence[Outcome]
    accepted: Bools
    first: Floats
    """Correctness of the first pass's selection: 1, 0, or NaN for unlabeled."""
    final: Floats
    """Correctness of the last selection, including problems where the loop abstains."""
    violation: Floats
    """Violation score of the last selection. NaN if it has none."""


def outcome_values(pools: PoolTable, outcomes: Sequence[Outcome], *, labels: Mapping[str, Label]) -> OutcomeValues:
    """Look up the labels of the outcomes. ``PoolTable.correct_of_nothing`` is used where nothing was selected.

    Raises:
        PoolError: a pool's problem has no outcome.
    """
    by_problem = {outcome.problem.problem_id: outcome for outcome in outcomes}
    absent = [problem.problem_id for problem in pools.problems if problem.problem_id not in by_problem]
    if absent:
        raise PoolError(f"{len(absent)} problems have no outcome of the loop, such as {absent[0]!r}; decide them first")
    in_order = [by_problem[problem.problem_id] for problem in pools.problems]
    first = [outcome.passes[0].selected for outcome in in_order]
    last = [None if outcome.best is None else outcome.best.candidate.candidate_id for outcome in in_order]
    return OutcomeValues(
        outcomes=in_order,
        accepted=np.array([outcome.decision is Decision.ACCEPT for outcome in in_order]),
        first=_labels_of(first, labels, correct_of, pools.correct_of_nothing()),
        final=_labels_of(last, labels, correct_of, pools.correct_of_nothing()),
        violation=_labels_of(last, labels, violation_of, pools.violation_of_nothing()),
    )


def summarise_loop(results: OutcomeValues, bootstrap: Bootstrap) -> LoopSummary:
    accepted, first, final = results.accepted, results.first, results.final
    num_passes = np.array([len(outcome.passes) for outcome in results.outcomes])
    last_passes = [outcome.passes[-1] for outcome in results.outcomes]
    best = [outcome.best for outcome in results.outcomes]
    return LoopSummary(
        num_problems=len(accepted),
        coverage=bootstrap.proportion(accepted.astype(float)),
        answered=bootstrap.proportion(np.where(accepted, final, math.nan)),
        first=bootstrap.proportion(first),
        regenerated=bootstrap.proportion((num_passes > 1).astype(float)),
        num_failed_passes=sum(record.num_failed == record.num_requested for record in last_passes),
        num_adopted=sum(scored is not None and scored.candidate.pass_index > 1 for scored in best),
        num_fixed=int(((first == 0) & (final == 1)).sum()),
        num_broken=int(((first == 1) & (final == 0)).sum()),
        num_abstained_correct=int((~accepted & (final == 1)).sum()),
        num_abstained_incorrect=int((~accepted & (final == 0)).sum()),
        num_unlabeled=int((accepted & np.isnan(final)).sum()),
    )


def _labels_of(
    chosen: Sequence[str | None],
    labels: Mapping[str, Label],
    value_of: Callable[[Label | None], float],
    nothing: Floats,
) -> Floats:
    """Value of each selected candidate's label, shape (P,); ``nothing`` without a selection."""
    values = zip(chosen, nothing.tolist(), strict=True)
    return np.array([none if name is None else value_of(labels.get(name)) for name, none in values], dtype=np.float64)


VOTE, WEIGHTED_VOTE = "majority vote", "energy-weighted vote"
ALL_PASSES = "all passes"
ANSWERED = "all passes, answered only"
BY_DIFFICULTY = ("random", "greedy", "majority vote", PAPER_RULE, ALL_PASSES, "oracle")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorRow:
    name: str
    group: str
    description: str
    pass_at_1: Estimate
    """Expected share correct, over problems with a labelled choice."""
    gap_closed: Estimate
    """(selector - random) / (oracle - random) on the same problems; 0 is random, 1 the oracle."""
    paper_minus: Estimate
    mean_violation: Estimate
    """Mean violation in [0, 1], lower is better. No value if the task has no violation scores."""
    violation_avoided: Estimate
    """Mean violation minus that of the paper's rule, paired by problem. Positive if the paper's rule violates less."""
    violation_gap_closed: Estimate
    """(random - selector) / (random - oracle) in mean violation, on the same problems."""
    num_unlabeled: int
    """Problems excluded because the choice has no label or the rule does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifficultyRow:
    difficulty: str
    num_problems: int
    pass_at_1: dict[str, Estimate]
    mean_violation: dict[str, Estimate]
    """Mean violation by selector. Empty if the task has no violation scores."""
    num_choices: tuple[int, ...] = ()
    guess: float | None = None
    """Probability that a random choice is right. None if some problem has no choices."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelectorEntry:
    """Selector or loop, with its value on each problem."""

    name: str
    group: str
    description: str
    correct: Floats
    violation: Floats
    unlabeled: Bools
    """Problems excluded because the choice has no label."""


def entry_of(selector: Selector, pools: PoolTable) -> SelectorEntry:
    values = values_of(selector, pools)
    return SelectorEntry(
        name=selector.name,
        group=selector.group,
        description=selector.description,
        correct=values.correct,
        violation=values.violation,
        unlabeled=np.isnan(values.correct),
    )


def compared_pairs(groups: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names to compare: the paper's rule with the others, the loop's selection after all passes with that of the first,
    the energy vote with the plain vote, and each selector of the decision with its rivals.

    Args:
        groups: Group of each selector.
    """
    rule = [(PAPER_RULE, name) for name, group in groups.items() if group not in ("paper", "loop", "bound")]
    rivals = [VOTE, PAPER_RULE, *(name for name in groups if name.startswith(BEST_GENERATOR))]
    decided = [(name, rival) for name in ("chosen profile", "posterior") for rival in rivals]
    return distinct([*rule, (ALL_PASSES, PAPER_RULE), (WEIGHTED_VOTE, VOTE), *decided])


def comparisons(
    entries: Sequence[SelectorEntry], bootstrap: Bootstrap, seed: int, *, in_violation: bool = False
) -> list[Comparison]:
    """Comparisons in pass@1, or in violation avoided: the paper's rule with every other selector, the energy vote with
    the plain one, and the decision's selectors with their rivals. Comparisons in violation are empty without violation
    scores."""
    values = {
        entry.name: 1 - entry.violation if in_violation else entry.correct
        for entry in entries
        if not (in_violation and np.isnan(entry.violation).all())
    }
    return compare(
        values, compared_pairs({entry.name: entry.group for entry in entries}), bootstrap=bootstrap, seed=seed
    )


def loop_entries(results: OutcomeValues, policy: Policy) -> list[SelectorEntry]:
    """The loop's answers, with and without abstentions, as entries like the selectors."""
    entries = [
        SelectorEntry(
            name=ANSWERED,
            group="loop",
            description="the loop's answers; problems it abstains on are left out, so n is smaller",
            correct=np.where(results.accepted, results.final, math.nan),
            violation=np.where(results.accepted, results.violation, math.nan),
            unlabeled=results.accepted & np.isnan(results.final),
        )
    ]
    if policy.max_passes > 1:
        every_pass = SelectorEntry(
            name=ALL_PASSES,
            group="loop",
            description=f"the loop's selection after up to {policy.max_passes} passes, also where it abstains",
            correct=results.final,
            violation=results.violation,
            unlabeled=np.isnan(results.final),
        )
        entries.insert(0, every_pass)
    return entries


def selector_rows(entries: Sequence[SelectorEntry], bootstrap: Bootstrap) -> list[SelectorRow]:
    """Intervals and gap closed for every entry, in order."""
    by_name = {entry.name: entry.correct for entry in entries}
    chance, bound = by_name["random"], by_name["oracle"]
    violated = {entry.name: entry.violation for entry in entries}
    damage, least = violated["random"], violated["oracle"]
    rule, rule_violated = (table.get(PAPER_RULE, np.full(len(chance), math.nan)) for table in (by_name, violated))
    correct, violation = [entry.correct for entry in entries], [entry.violation for entry in entries]
    columns = zip(
        entries,
        bootstrap.proportions(correct),
        bootstrap.ratios([_gap(values - chance, bound - chance) for values in correct]),
        bootstrap.means([rule - values for values in correct]),
        bootstrap.means(violation),
        bootstrap.means([values - rule_violated for values in violation]),
        bootstrap.ratios([_gap(damage - values, damage - least) for values in violation]),
        strict=True,
    )
    return [
        SelectorRow(
            name=entry.name,
            group=entry.group,
            description=entry.description,
            pass_at_1=pass_at_1,
            gap_closed=gap_closed,
            paper_minus=paper_minus,
            mean_violation=mean_violation,
            violation_avoided=avoided,
            violation_gap_closed=violation_gap_closed,
            num_unlabeled=int(entry.unlabeled.sum()),
        )
        for entry, pass_at_1, gap_closed, paper_minus, mean_violation, avoided, violation_gap_closed in columns
    ]


def _gap(closed: Floats, whole: Floats) -> tuple[Floats, Floats]:
    """Gap closed and whole gap, on problems where both are known."""
    unknown = np.isnan(closed + whole)
    return np.where(unknown, math.nan, closed), np.where(unknown, math.nan, whole)


def difficulties(
    problems: Sequence[Problem], entries: Sequence[SelectorEntry], bootstrap: Bootstrap
) -> list[DifficultyRow]:
    """Values of the main selectors by group of difficulty. Empty if there is only one group."""
    shown = [entry for entry in entries if entry.name in BY_DIFFICULTY or entry.name.startswith(SINGLE_SHOT)]
    violated = [entry for entry in shown if not np.isnan(entry.violation).all()]
    groups = np.array([problem.difficulty for problem in problems])
    names = sorted({str(group) for group in groups}, key=_natural)
    if len(names) < 2:
        return []
    rows = []
    for group in names:
        inside = groups == group
        num_choices, guess = _choices([problem for problem, own in zip(problems, inside, strict=True) if own])
        right = {
            entry.name: bootstrap.proportion(np.where(groups == group, entry.correct, math.nan)) for entry in shown
        }
        rows.append(
            DifficultyRow(
                difficulty=group or "(none)",
                num_problems=int(inside.sum()),
                pass_at_1=right,
                mean_violation={
                    entry.name: bootstrap.mean(np.where(inside, entry.violation, math.nan)) for entry in violated
                },
                num_choices=num_choices,
                guess=guess,
            )
        )
    return rows


def _choices(problems: Sequence[Problem]) -> tuple[tuple[int, ...], float | None]:
    """Numbers of choices from ``data["choices"]``, and the probability of guessing if all problems have such a list."""
    counts = [len(choices) for problem in problems if isinstance(choices := problem.data.get("choices"), list | tuple)]
    known = len(counts) == len(problems) and 0 not in counts
    guess = math.fsum(1 / count for count in counts) / len(counts) if known else None
    return tuple(sorted(set(counts))), guess


LEVELS = ("easy", "medium", "medium_hard", "hard", "very_hard")


def _natural(text: str) -> tuple[float, float, str]:
    """Sort key by the first number ("10 people" after "9 people"), and for named levels from easy to very hard."""
    number = re.search(r"\d+", text)
    level = text.lower().replace(" ", "_").replace("-", "_")
    return (
        float(number.group()) if number else math.inf,
        float(LEVELS.index(level)) if level in LEVELS else math.inf,
        text,
    )


Source = Literal["labels", "constraint penalties of parsed candidates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionTable:
    """Mean value per part and selector, lower is better. Where a selector selects nothing, parts of labels count as 1,
    as in its mean violation."""

    source: Source
    selectors: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Estimate, ...]], ...]
    """Rows (part, one estimate per selector)."""


def dimension_table(pools: PoolTable, selectors: Sequence[Selector], bootstrap: Bootstrap) -> DimensionTable | None:
    """Build the table. None if no candidate has a part and none breaks a constraint."""
    source: Source = "labels" if pools.dimensions else "constraint penalties of parsed candidates"
    parts = {id(among): _parts(among, source) for among in (pools, pools.greedy) if among is not None}
    names = list(dict.fromkeys(name for columns in parts.values() for name in columns))
    if source != "labels":
        names.sort()
    if not names:
        return None
    has_values = {name: np.zeros(pools.num_pools, dtype=bool) for name in names}
    for among in filter(None, (pools, pools.greedy)):
        for name, column in parts[id(among)].items():
            has_values[name] |= among.any(~np.isnan(column))
    values: dict[str, list[Estimate]] = {name: [] for name in names}
    for selector in selectors:
        among, weights = selector.choices(pools)
        own = parts[id(among)]
        of_nothing = 1.0 if source == "labels" and not selector.partial_cover else math.nan
        for name in names:
            chosen = expected(among, weights, own[name]) if name in own else np.full(pools.num_pools, math.nan)
            is_empty = has_values[name] & (among.total(weights) == 0)
            values[name].append(bootstrap.mean(np.where(is_empty, of_nothing, chosen)))
    return DimensionTable(
        source=source,
        selectors=tuple(selector.name for selector in selectors),
        rows=tuple((name, tuple(values[name])) for name in names),
    )


def _parts(pools: PoolTable, source: Source) -> Mapping[str, Floats]:
    """Parts of the label by name, or the penalty by constraint, shape (R,) each: 0 if satisfied, NaN if the candidate
    does not parse."""
    if source == "labels":
        return pools.dimensions
    return {name: np.where(pools.parsed, np.nan_to_num(column), math.nan) for name, column in pools.broken.items()}
