"""Several trainings of one run: what is left of a result when the split, the pairs and the adapters are drawn again.

In:   each training's value of every selector on every problem.
Out:  one row per selector, with two spreads that must not be mixed up: the interval says what other problems would
      change, the standard deviation over seeds what another training would change.
Does not know: how a training was made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.errors import PoolError
from raydebm.evaluation.report.evaluation_tables import texts_table
from raydebm.evaluation.report.table_cells import Table, number, percent, points, with_interval
from raydebm.evaluation.report.trust_tables import comparison_table
from raydebm.evaluation.results.entries import OURS, VOTE, VOTES
from raydebm.evaluation.results.texts_read import TextsRead, joined_texts
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, Floats, mean_of_known
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.stats.significance import Comparison, compare
from raydebm.evaluation.trainings.seed_signals import SeedSignal, seed_signals, signal_table
from raydebm.evaluation.trainings.training_values import SelectorValues, Training


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRow:
    """One selector over all trainings."""

    name: str
    group: str
    pass_at_1: Estimate
    """Mean over problems of a problem's mean over the trainings that have a value for it."""
    by_seed: tuple[float | None, ...]
    """pass@1 of each training; mean violation where the task has one."""
    sd: float | None
    """Standard deviation of ``by_seed`` (ddof=1); None with fewer than two values."""
    gap_closed: Estimate
    """(selector - random) / (oracle - random): in mean violation where the task has one, else in pass@1."""
    ours_minus: Estimate
    """Ours minus this selector in pass@1, paired by problem and training; where the task has one, violation avoided by
    ours."""
    mean_violation: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSummary(JsonResults):
    title: str
    task: str
    seeds: tuple[int, ...]
    num_problems: int
    """Distinct test problems."""
    rows: tuple[SeedRow, ...]
    comparisons: tuple[Comparison, ...]
    """Paired tests over problems of the means over trainings: ours against the others, votes with energies against
    the plain one."""
    sigma_auroc: tuple[float | None, ...]
    """One value per training."""
    within_generator: tuple[float | None, ...]
    """Mean over generators of the AUROC of -mu for correct among one generator's answers, of each training."""
    screens: tuple[str, ...]
    """What the confounding screen says of each training."""
    signals: tuple[SeedSignal, ...]
    texts_read: tuple[TextsRead, ...] = ()
    """What the scorers read of their texts, by split, over all trainings."""

    @property
    def is_continuous(self) -> bool:
        """Whether labels have a violation score."""
        return any(row.mean_violation.value is not None for row in self.rows)

    def row(self, name: str) -> SeedRow | None:
        """The row of a selector; None where no training has it."""
        return next((row for row in self.rows if row.name == name), None)


def summarise_seeds(
    trainings: Sequence[Training], *, title: str, task: str, num_bootstrap: int, seed: int = 0
) -> SeedSummary:
    """One row for each selector that every training has.

    Raises:
        PoolError: fewer than two trainings, or two of one seed.
    """
    seeds = [training.seed for training in trainings]
    if len(seeds) < 2 or len(set(seeds)) < len(seeds):
        raise PoolError(f"a summary over seeds needs two or more trainings of different seeds, got {seeds}")
    values = SelectorValues.of(trainings)
    bootstrap = Bootstrap.of(len(values.problem_ids), num_bootstrap=num_bootstrap, seed=seed)
    facts = [training.facts for training in trainings if training.facts is not None]
    return SeedSummary(
        title=title,
        task=task,
        seeds=tuple(seeds),
        num_problems=len(values.problem_ids),
        rows=tuple(seed_rows(values, bootstrap)),
        comparisons=tuple(compare(values.judged, standard_pairs(values.groups), bootstrap=bootstrap, seed=seed)),
        sigma_auroc=tuple(each.sigma_auroc for each in facts),
        within_generator=tuple(each.within_generator for each in facts),
        screens=tuple(each.screen for each in facts),
        signals=seed_signals(trainings, values, bootstrap=bootstrap),
        texts_read=joined_texts(training.texts_read for training in trainings),
    )


def seed_rows(values: SelectorValues, bootstrap: Bootstrap) -> list[SeedRow]:
    """One row per selector. ``bootstrap``: resamples of the problems of ``values``."""
    judged = values.judged
    ours = judged.get(OURS, np.full(values.shape, math.nan))
    return [
        SeedRow(
            name=name,
            group=group,
            pass_at_1=bootstrap.proportion(mean_of_known(values.correct[name])),
            by_seed=(
                by_seed := tuple(
                    mean_or_none(row) for row in (values.violation if values.continuous else values.correct)[name]
                )
            ),
            sd=sample_deviation(by_seed),
            gap_closed=_gap_closed(judged, name, bootstrap),
            ours_minus=bootstrap.mean(mean_of_known(ours - judged[name])),
            mean_violation=bootstrap.mean(mean_of_known(values.violation[name])),
        )
        for name, group in values.groups.items()
    ]


def standard_pairs(groups: Mapping[str, str]) -> list[tuple[str, str]]:
    """Ours against the others, votes with energies against the plain one. ``groups``: of each selector."""
    ours = [(OURS, name) for name, group in groups.items() if OURS in groups and group not in ("ours", "bound")]
    votes = [(name, VOTE) for name in VOTES if {name, VOTE} <= {*groups}]
    return [*ours, *votes]


def mean_or_none(values: Floats) -> float | None:
    """Mean of what is not NaN; None without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def sample_deviation(values: Sequence[float | None]) -> float | None:
    """Standard deviation (ddof=1) of the known values; None with fewer than two."""
    known = [value for value in values if value is not None]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None


def _gap_closed(judged: Mapping[str, Floats], name: str, bootstrap: Bootstrap) -> Estimate:
    """The problems of each training on which all three have a value."""
    chance, bound, own = judged["random"], judged["oracle"], judged[name]
    unknown = np.isnan(own + chance + bound)
    gained, possible = (np.where(unknown, math.nan, values - chance) for values in (own, bound))
    return bootstrap.ratio(mean_of_known(gained), mean_of_known(possible))


# ---- tables --------------------------------------------------------------------------------------------------------


def seed_tables(summary: SeedSummary) -> list[Table]:
    """The summary's tables in the order of the report."""
    tables = [_selector_table(summary), _seed_table(summary)]
    if summary.signals:
        tables.append(signal_table(summary.signals, summary.seeds, continuous=summary.is_continuous))
    if summary.comparisons:
        tables.append(
            comparison_table(summary.comparisons, what="violation avoided" if summary.is_continuous else "pass@1")
        )
    return [*tables, texts_table(summary.texts_read)]


def _selector_table(summary: SeedSummary) -> Table:
    return selector_table(
        summary.rows,
        [row.sd for row in summary.rows],
        spread="sd over seeds",
        caption=(
            f"Means over {len(summary.seeds)} trainings (seeds {', '.join(map(str, summary.seeds))}) on "
            f"{summary.num_problems} problems. The interval resamples problems; the standard deviation is over "
            "trainings, zero for rules that use no training."
        ),
        continuous=summary.is_continuous,
    )


def selector_table(
    rows: Sequence[SeedRow], deviations: Sequence[float | None], *, spread: str, caption: str, continuous: bool
) -> Table:
    """One row per selector.

    Args:
        deviations: standard deviation of each row; ``spread`` is its header.
        caption: how the means came about.
        continuous: the task has a violation score.
    """
    what = "mean violation" if continuous else "pass@1 %"
    headers = ["selector", what, "95 % interval", spread, "gap closed %", "ours minus it", "n"]
    if continuous:
        headers.insert(3, "pass@1 %")
    unit = "violation avoided by ours" if continuous else "percentage points"
    return Table(
        title="Selectors",
        caption=f"{caption} Gap closed: 0 is random choice, 100 the oracle. Ours minus it: {unit}, paired by problem.",
        headers=tuple(headers),
        rows=tuple(_selector_cells(row, sd, continuous) for row, sd in zip(rows, deviations, strict=True)),
        emphasised=tuple(index for index, row in enumerate(rows) if row.group == "ours"),
    )


def _selector_cells(row: SeedRow, sd: float | None, continuous: bool) -> tuple[str, ...]:
    deviation = "-" if sd is None else f"{sd:.3f}" if continuous else f"{100 * sd:.1f}"
    if continuous:
        value, _, interval = number(row.mean_violation).partition(" ")
        cells = [row.name, value, interval or "-", with_interval(row.pass_at_1), deviation]
    else:
        _, _, interval = with_interval(row.pass_at_1).partition(" ")
        cells = [row.name, percent(row.pass_at_1), interval or "-", deviation]
    estimate = row.mean_violation if continuous else row.pass_at_1
    ours = number(row.ours_minus, signed=True) if continuous else points(row.ours_minus)
    return (*cells, with_interval(row.gap_closed), "" if row.name == OURS else ours, str(estimate.n))


def _seed_table(summary: SeedSummary) -> Table:
    what, scale, digits = ("mean violation", 1.0, 3) if summary.is_continuous else ("pass@1 %", 100.0, 1)

    def cells(name: str, values: Sequence[float | None], *, scale: float, digits: int) -> tuple[str, ...]:
        return (name, *("-" if value is None else f"{scale * value:.{digits}f}" for value in values))

    rows = [
        cells(f"{what}, {row.name}", row.by_seed, scale=scale, digits=digits)
        for row in summary.rows
        if row.group in ("ours", "bound", "adapter", "ablation") or row.name in ("random", VOTE)
    ]
    if summary.sigma_auroc:
        rows.append(cells("AUROC of -sigma", summary.sigma_auroc, scale=1, digits=3))
    if summary.within_generator:
        rows.append(cells("AUROC of -mu within one generator", summary.within_generator, scale=1, digits=3))
    if summary.screens:
        rows.append(("confounding screen", *summary.screens))
    return Table(
        title="Training by training",
        caption=(
            "Each training alone. AUROC of -sigma above 0.5: a low sigma signals a correct selection. AUROC of "
            "-mu within one generator ranks answers of the same author only, so that knowing the author cannot help."
        ),
        headers=("what", *(f"seed {seed}" for seed in summary.seeds)),
        rows=tuple(rows),
    )
