"""Cells of the paper's tables about scorers and pools of one generator and of several."""

from raydebm.evaluation.paper.paper_cells import (
    Absent,
    Answer,
    Context,
    Measured,
    by_energy_and_mu,
    by_mu_and_energy,
    no_pool,
)
from raydebm.evaluation.report.table_cells import points
from raydebm.evaluation.results.entries import OURS
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.study import StudyResults
from raydebm.evaluation.studies.transfer import TransferCell

_NO_SINGLE = "no scorer trained on one generator was given; a variant with one of the recipe's `generators` makes one"
_SINGLE_SINGLE, _SINGLE_MULTI, _MULTI_MULTI = (
    "Single-train, single-test",
    "Single-train, multi-test",
    "Multi-train, multi-test",
)


def single_multi(context: Context, row: str, column: str) -> Answer:
    """A scorer trained and tested on one generator, next to one on as many candidates of several.

    Without such a scorer, one generator's part of the pool, scored by the scorer of the whole pool.
    """
    single = context.on_one_generator(column)
    several = context.on_several_generators(column, size=None if single is None else single.overview.most)
    if several is None:
        return no_pool(column) if single is None else Absent("the pool has one generator only")
    if single is None:
        return _within_one_pool(several, row)
    remark = f"single: {_described(single)}, multi: {_described(several)}"
    if single.overview.most != several.overview.most:
        remark += "; not of one size, as the paper's are"
    if row != "Delta":
        return _ours(single if row.startswith("Single") else several, remark)
    for variants in context.variants:
        comparison = variants.comparison(single.name, several.name, "E")
        if comparison is not None and comparison.difference.value is not None:
            difference = -comparison.difference
            return Measured(f"{points(difference)} pp, n={difference.n}", difference, remark)
    values = [_by(study, OURS) for study in (several, single)]
    if any(value is None or value.value is None for value in values):
        return Absent("no label")
    one, other = (value.value or 0.0 for value in values if value is not None)
    return Measured(f"{100 * (one - other):+.1f} pp", None, f"{remark}; of two runs, not paired")


def _described(study: StudyResults) -> str:
    generators = study.overview.generators
    who = f"{len(generators)} generators" if len(generators) > 1 else next(iter(generators))
    return f"{study.name}, {who}, {study.overview.most} candidates"


def _by(study: StudyResults, selector: str) -> Estimate | None:
    row = study.evaluation.row(selector)
    return None if row is None else row.pass_at_1


def _ours(study: StudyResults, remark: str) -> Answer:
    return by_energy_and_mu(_by(study, OURS), _by(study, "mu only"), "no energies", remark=remark)


def _within_one_pool(study: StudyResults, row: str) -> Answer:
    singles = [kind for kind in study.pool_kinds if not kind.name.startswith("all generators")]
    weakest = min(singles, key=lambda kind: (kind.random.value is None, kind.random.value or 0.0))
    qwen = next((kind for kind in singles if "qwen" in kind.name.lower() and "7b" in kind.name.lower()), None)
    single = weakest if qwen is None else qwen
    which = f"{single.name} (the weakest on these problems)" if qwen is None else single.name
    remark = f"single: {which}, {single.n} candidates, scored by the same (mixed) scorer"
    if row == "Delta":
        if single.whole_minus.value is None:
            return Absent("no energies")
        shown = f"{100 * single.whole_minus.value:+.1f} pp"
        if single.mu_whole_minus.value is not None:
            shown += f"; by mu alone {100 * single.mu_whole_minus.value:+.1f} pp"
        return Measured(shown, single.whole_minus, f"{remark}; n={single.whole_minus.n} problems that it answered")
    kind = single if row.startswith("Single") else study.pool_kinds[-1]
    return by_energy_and_mu(kind.ours, kind.mu_only, "no energies", remark=remark)


def cross_pool(context: Context, row: str, column: str) -> Answer:
    """Scorers trained on one generator or on several, on pools of one generator or of several."""
    several, single, cell = _crossed(context, column)
    if several is None and single is None:
        return no_pool(column)
    if row.startswith(_MULTI_MULTI):
        return Absent("no pool of several generators was given") if several is None else _ours(several, several.name)
    if single is None:
        return Absent(_NO_SINGLE)
    if row.startswith(_SINGLE_SINGLE):
        return _ours(single, _described(single))
    if cell is None:
        return Absent(f"the pool of several generators was not scored by {single.name}")
    return by_mu_and_energy(cell.by_mu.pass_at_1, cell.by_energy.pass_at_1, remark=_described(single))


def _crossed(context: Context, column: str) -> tuple[StudyResults | None, StudyResults | None, TransferCell | None]:
    """A pool of several generators, a scorer of one generator, and the transfer cell between them if it was
    measured."""
    singles = context.singles_of(column)
    several = [study for study in context.studies_of(column) if len(study.overview.generators) > 1]
    for cell in (cell for transfer in context.transfers for cell in transfer.cells):
        source, target = context.study(cell.source.removesuffix(" (MB)")), context.study(cell.target)
        if source in singles and target in several:
            return target, source, cell
    return context.on_several_generators(column), context.on_one_generator(column), None
