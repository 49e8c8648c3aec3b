"""Value of every selector on every problem, with the rows and comparisons computed from it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np

from raydebm.decision.groups import Bools, Floats
from raydebm.decision.policy import Policy
from raydebm.decision.table import PoolTable
from raydebm.evaluation.results.outcomes import OutcomeValues
from raydebm.evaluation.selectors import SINGLE_SHOT, Selector, expected, values_of
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.stats.significance import Comparison, compare, distinct
from raydebm.records import Problem

OURS = "ours"
VOTE, WEIGHTED_VOTE = "majority vote", "energy-weighted vote"
ALL_PASSES = "ours, all passes"
ANSWERED = "ours, answered only"
BY_DIFFICULTY = ("random", "greedy", "majority vote", OURS, ALL_PASSES, "oracle")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorRow:
    """Results of one selector."""

    name: str
    group: str
    description: str
    pass_at_1: Estimate
    """Expected share correct, over problems with a labelled choice."""
    gap_closed: Estimate
    """(selector - random) / (oracle - random) on the same problems; 0 is random, 1 the oracle."""
    ours_minus: Estimate
    """Ours minus this selector, paired by problem."""
    mean_violation: Estimate
    """Mean violation in [0, 1], lower is better. No value if the task has no violation scores."""
    violation_avoided: Estimate
    """Mean violation of this selector minus that of ours, paired by problem. Above 0, ours violates less."""
    violation_gap_closed: Estimate
    """(random - selector) / (random - oracle) in mean violation, on the same problems."""
    num_unlabeled: int
    """Problems excluded because the choice has no label or the rule does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifficultyRow:
    difficulty: str
    num_problems: int
    pass_at_1: dict[str, Estimate]
    """pass@1 by selector."""
    mean_violation: dict[str, Estimate]
    """Mean violation by selector. Empty if the task has no violation scores."""
    num_choices: tuple[int, ...] = ()
    """Distinct numbers of choices in the problems."""
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
    """Evaluate a selector on every pool."""
    values = values_of(selector, pools)
    return SelectorEntry(
        name=selector.name,
        group=selector.group,
        description=selector.description,
        correct=values.correct,
        violation=values.violation,
        unlabeled=np.isnan(values.correct),
    )


def _pairs_of(entries: Sequence[SelectorEntry]) -> list[tuple[str, str]]:
    ours = [(OURS, entry.name) for entry in entries if entry.group not in ("ours", "bound")]
    rivals = [VOTE, OURS, *(entry.name for entry in entries if entry.name.startswith("best generator"))]
    decided = [(name, rival) for name in ("chosen profile", "posterior") for rival in rivals]
    return distinct([*ours, (ALL_PASSES, OURS), (WEIGHTED_VOTE, VOTE), *decided])


def comparisons(entries: Sequence[SelectorEntry], bootstrap: Bootstrap, seed: int) -> list[Comparison]:
    """Comparisons in pass@1: ours against every other selector, and the energy vote against the plain vote."""
    values = {entry.name: entry.correct for entry in entries}
    return compare(values, _pairs_of(entries), bootstrap=bootstrap, seed=seed)


def violation_comparisons(entries: Sequence[SelectorEntry], bootstrap: Bootstrap, seed: int) -> list[Comparison]:
    """Comparisons in violation avoided. Empty if the task has no violation scores."""
    avoided = {entry.name: 1 - entry.violation for entry in entries if not np.isnan(entry.violation).all()}
    return compare(avoided, _pairs_of(entries), bootstrap=bootstrap, seed=seed)


def loop_entries(results: OutcomeValues, policy: Policy) -> list[SelectorEntry]:
    """The loop's answers, with and without abstentions, as entries like the selectors."""
    entries = [
        SelectorEntry(
            name=ANSWERED,
            group="ours",
            description="the loop's answers; problems it abstains on are left out, so n is smaller",
            correct=np.where(results.accepted, results.final, math.nan),
            violation=np.where(results.accepted, results.violation, math.nan),
            unlabeled=results.accepted & np.isnan(results.final),
        )
    ]
    if policy.max_passes > 1:
        every_pass = SelectorEntry(
            name=ALL_PASSES,
            group="ours",
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
    ours, ours_violated = (table.get(OURS, np.full(len(chance), math.nan)) for table in (by_name, violated))
    correct, violation = [entry.correct for entry in entries], [entry.violation for entry in entries]
    columns = zip(
        entries,
        bootstrap.proportions(correct),
        bootstrap.ratios([_gap(values - chance, bound - chance) for values in correct]),
        bootstrap.means([ours - values for values in correct]),
        bootstrap.means(violation),
        bootstrap.means([values - ours_violated for values in violation]),
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
            ours_minus=ours_minus,
            mean_violation=mean_violation,
            violation_avoided=avoided,
            violation_gap_closed=violation_gap_closed,
            num_unlabeled=int(entry.unlabeled.sum()),
        )
        for entry, pass_at_1, gap_closed, ours_minus, mean_violation, avoided, violation_gap_closed in columns
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
    return [
        DifficultyRow(
            difficulty=group or "(none)",
            num_problems=int((groups == group).sum()),
            pass_at_1={
                entry.name: bootstrap.proportion(np.where(groups == group, entry.correct, math.nan)) for entry in shown
            },
            mean_violation={
                entry.name: bootstrap.mean(np.where(groups == group, entry.violation, math.nan)) for entry in violated
            },
            **_choices([problem for problem, name in zip(problems, groups, strict=True) if name == group]),
        )
        for group in names
    ]


class _Choices(TypedDict):
    num_choices: tuple[int, ...]
    guess: float | None


def _choices(problems: Sequence[Problem]) -> _Choices:
    """Numbers of choices from ``data["choices"]``, if all problems have such a list."""
    counts = [len(choices) for problem in problems if isinstance(choices := problem.data.get("choices"), list | tuple)]
    if len(counts) < len(problems) or 0 in counts:
        return {"num_choices": tuple(sorted(set(counts))), "guess": None}
    return {"num_choices": tuple(sorted(set(counts))), "guess": math.fsum(1 / count for count in counts) / len(counts)}


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
    """Mean value per part and selector, lower is better. For the labels' parts, a rule without a selection has 1, as in
    its mean violation."""

    source: Source
    selectors: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Estimate, ...]], ...]
    """Rows (part, one estimate per selector)."""


def dimension_table(pools: PoolTable, selectors: Sequence[Selector], bootstrap: Bootstrap) -> DimensionTable | None:
    """Build the table. None if no candidate has a part and none breaks a constraint."""
    source: Source = "labels" if pools.dimensions else "constraint penalties of parsed candidates"
    parts = _labelled_parts if source == "labels" else _penalties
    columns, of_greedy = parts(pools), {} if pools.greedy is None else parts(pools.greedy)
    names = list(dict.fromkeys([*columns, *of_greedy]))
    if source != "labels":
        names.sort()
    if not names:
        return None
    greedy = pools if pools.greedy is None else pools.greedy
    has_values = {
        name: (pools.any(~np.isnan(columns[name])) if name in columns else False)
        | (greedy.any(~np.isnan(of_greedy[name])) if name in of_greedy else False)
        for name in names
    }
    values: dict[str, list[Estimate]] = {name: [] for name in names}
    for selector in selectors:
        among, weights = selector.choices(pools)
        own = of_greedy if among is pools.greedy else columns
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


def _labelled_parts(pools: PoolTable) -> Mapping[str, Floats]:
    return pools.dimensions


def _penalties(pools: PoolTable) -> Mapping[str, Floats]:
    """Penalty by constraint, shape (R,): 0 if satisfied, NaN if the candidate does not parse."""
    return {name: np.where(pools.parsed, np.nan_to_num(column), math.nan) for name, column in pools.broken.items()}
