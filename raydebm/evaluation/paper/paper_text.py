"""Figures stated in the paper's text, as cells."""

import re
from collections.abc import Callable

from raydebm.evaluation.paper.paper_cells import (
    Absent,
    Answer,
    Context,
    Measured,
    by_energy_and_mu,
    found_or,
    no_pool,
    without,
)
from raydebm.evaluation.paper.paper_measures import NO_REPAIR, calibration_error, repair_in
from raydebm.evaluation.report.document import points, with_interval
from raydebm.evaluation.results.entries import ALL_PASSES, OURS
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.generator_table import GeneratorRow
from raydebm.evaluation.studies.judges import VIOLATION
from raydebm.evaluation.studies.study import StudyResults

NO_KEY = Absent("judges and frontier models need an API key", "needs a key or GPU")


def text_claim(context: Context, row: str, column: str) -> Answer:
    """Figure stated in the paper's text. Row names have the form "task: figure"."""
    name, what = row.split(": ", 1)
    task, repaired = name.split(" (")[0], repair_in(name)
    if "DeBERTa" in name:
        study = context.study_with(task, "deberta")
        if study is None:
            return Absent(
                "no scorer with a DeBERTa-v3 backbone was given; its training needs a GPU", "needs a key or GPU"
            )
    elif repaired is not None:
        if not context.studies_of(task):
            return no_pool(task)
        studies = context.studies_of(task, repaired=repaired)
        if not studies:
            return Absent(NO_REPAIR[repaired])
        study = studies[0]
    else:
        study = context.study(task)
    if study is None:
        return no_pool(task)
    measure = next(measure for pattern, measure in _MEASURES if re.match(pattern, what))
    return measure(context, study, what)


_Claim = Callable[[Context, StudyResults, str], Answer]


def _pass_at_2(context: Context, study: StudyResults, what: str) -> Answer:
    row = next((each for each in study.evaluation.pass_at_n if each.n == 2), None)
    return Absent("no energies") if row is None else by_energy_and_mu(row.by_energy, row.by_mu, "no label")


def _zero_violation(context: Context, study: StudyResults, what: str) -> Answer:
    wanted = {"ours": OURS, "random": "random", "self-consistency": "majority vote"}[what.rsplit(", ", 1)[1]]
    selected = study.evaluation.row(wanted)
    return found_or(None if selected is None else selected.pass_at_1, without(wanted))


def _mean_violation(context: Context, study: StudyResults, what: str) -> Answer:
    wanted = "mu only" if "mu" in what else "constraint only"
    selected = study.evaluation.row(wanted)
    reason = "no violation score" if selected else without(wanted)
    return found_or(None if selected is None else selected.mean_violation, reason, plain=True)


def _two_terms(context: Context, study: StudyResults, what: str) -> Answer:
    terms = study.decomposition
    estimate = None if terms is None else terms.agree if "agree" in what else terms.neither
    return found_or(estimate, "the two terms do not both choose here")


def _rating(context: Context, study: StudyResults, what: str) -> Answer:
    rated = next((each for each in study.rated if "judge" in each.name.lower()), None)
    if rated is None:
        return NO_KEY
    return found_or(rated.oracle if "oracle" in what else rated.ours, "not rated", plain=True, remark=rated.name)


def _rank_correlation(context: Context, study: StudyResults, what: str) -> Answer:
    judges = [each for each in study.judges if "judge" in each.one.lower()]
    wanted = [
        each for each in judges if (each.other == VIOLATION if "violation" in what else "judge" in each.other.lower())
    ]
    if not wanted:
        return NO_KEY
    estimate = wanted[0].spearman
    if estimate.value is None:
        return Absent("constant scores")
    if "violation" in what:  # compared with minus the violation, so that higher is better for both
        estimate = -estimate
    return Measured(f"{estimate.value:.2f}", estimate)


def _fit(context: Context, study: StudyResults, what: str) -> Answer:
    fit = study.fit
    if fit is None:
        return Absent("not known without the run")
    if what.startswith("lowest"):
        return Measured(_range([f"{loss:.3g}" for loss in fit.losses])) if fit.losses else Absent("no validation")
    if what.startswith("epochs"):
        return Measured(_range([str(epochs) for epochs in fit.num_epochs]))
    return Measured(str(fit.num_usable if what.startswith("usable") else fit.num_pairs))


def _range(shown: list[str]) -> str:
    ends = sorted(set(shown), key=float)
    return ends[0] if len(ends) == 1 else f"{ends[0]}-{ends[-1]}"


def _all_correct(context: Context, study: StudyResults, what: str) -> Answer:
    return (
        Absent("not known without the run") if study.training is None else Measured(str(study.training.num_all_correct))
    )


def _ece(context: Context, study: StudyResults, what: str) -> Answer:
    return calibration_error(study)


def _sigma_by_transfer(context: Context, study: StudyResults, what: str) -> Answer:
    sources, targets = ("GSM8K (MB)", "GSM8K"), ("TP", "TravelPlanner")
    cells = [transfer.cell(one, other) for transfer in context.transfers for one in sources for other in targets]
    cell = next((cell for cell in cells if cell is not None), None)
    if cell is None:
        return Absent("GSM8K's scorer was not tried on TravelPlanner; `raydebm reproduce --transfer` does so")
    return found_or(cell.by_mu.sigma_auroc, "both outcomes are needed", plain=True)


def _unsolvable(context: Context, study: StudyResults, what: str) -> Answer:
    solvable = study.overview.solvable
    if solvable.value is None or solvable.low is None or solvable.high is None:
        return Absent("no label")
    return found_or(
        Estimate(value=1 - solvable.value, low=1 - solvable.high, high=1 - solvable.low, n=solvable.n), "no label"
    )


def _frontier(context: Context, study: StudyResults, what: str) -> Answer:
    return NO_KEY


def _favourite(study: StudyResults) -> GeneratorRow | None:
    picked = [row for row in study.generators if row.picked_of_all.value is not None]
    return max(picked, key=lambda row: row.picked_of_all.value or 0.0) if len(picked) > 1 else None


def _always_the_favourite(context: Context, study: StudyResults, what: str) -> Answer:
    favourite = _favourite(study)
    row = None if favourite is None else study.evaluation.row(f"generator {favourite.name}")
    if favourite is None or row is None:
        return Absent("needs energies and two generators")
    if what.startswith("always"):
        return found_or(row.pass_at_1, "no label", remark=favourite.name)
    if row.ours_minus.value is None:
        return Absent("no label")
    return Measured(f"{points(row.ours_minus)} pp", row.ours_minus, favourite.name)


def _gap_between(context: Context, study: StudyResults, what: str) -> Answer:
    means = {row.name: row.mu_correct.value for row in study.generators if row.mu_correct.value is not None}
    if len(means) < 2:
        return Absent("needs correct, scored candidates of two generators")
    low, high = min(means, key=lambda name: means[name] or 0.0), max(means, key=lambda name: means[name] or 0.0)
    return Measured(f"{(means[high] or 0.0) - (means[low] or 0.0):.2f}", None, f"{low} to {high}")


def _change_by_repair(context: Context, study: StudyResults, what: str) -> Answer:
    group = what.removeprefix("change on ").removesuffix(" problems")
    before = context.before_repair("TACO")
    if before is None or before.repaired:
        return Absent(NO_REPAIR[False])
    rows = [
        next((row for row in each.evaluation.difficulties if row.difficulty.upper() == group), None)
        for each in (before, study)
    ]
    if None in rows:
        return Absent(f"the pool has no group {group!r}")
    values = [row.pass_at_1[OURS].value for row in rows if row is not None and OURS in row.pass_at_1]
    if len(values) < 2 or values[0] is None or values[1] is None:
        return Absent("no label")
    n = min(row.num_problems for row in rows if row is not None)
    return Measured(f"{100 * (values[1] - values[0]):+.1f} pp, n={n}", None, "of two scorers, not paired")


def _change_by_passes(context: Context, study: StudyResults, what: str) -> Answer:
    single = context.on_one_generator("K&K")
    if single is None:
        return Absent("no run on the candidates of one generator was given")
    first, last = map(int, re.findall(r"\d+", what))
    changes = []
    for row in single.evaluation.difficulties:
        people = re.match(r"(\d+) people", row.difficulty)
        once, twice = (row.pass_at_1.get(name) for name in (OURS, ALL_PASSES))
        if people and first <= int(people[1]) <= last and once and twice and once.value is not None:
            changes.append(100 * ((twice.value or 0.0) - once.value))
    if not changes:
        return Absent(without(ALL_PASSES))
    return Measured(f"{min(changes):+.1f} to {max(changes):+.1f} pp", None, single.name)


_MISSING = {
    "wrong answers": "not known without the run",
    "change of mu": "no style swap was made; it needs generators that rewrite answers",
    "share of the parameters": "in the repair's own report (`raydebm confounding --repair`)",
    "gap within a generator": "needs correct and incorrect candidates of the same generators",
}
_NO_ABLATION = "the ablation of style was not made; `raydebm reproduce --confounding` does so"


def _finding(context: Context, study: StudyResults, what: str) -> Answer:
    """Figure of the confounding report or of the labels, by name."""
    estimate = study.findings.get(what)
    if estimate is None or estimate.value is None:
        reasons = (_MISSING[key] for key in _MISSING if what.startswith(key) and not what.endswith("without style"))
        return Absent(next(reasons, _NO_ABLATION if "," in what else "no energies"))
    if what.startswith(("wrong answers", "share", "pass@1")):
        return Measured(f"{with_interval(estimate)}, n={estimate.n}", estimate)
    if what.startswith(("selections", "wrong selections")):
        return Measured(f"{estimate.value:g} of {estimate.n}", None)
    return found_or(estimate, "no value", plain=True)


_MEASURES: tuple[tuple[str, _Claim], ...] = (
    ("pass@2", _pass_at_2),
    ("zero-violation", _zero_violation),
    ("mean violation", _mean_violation),
    ("the two terms|the pick", _two_terms),
    ("judge's rating", _rating),
    ("two judges|judge and", _rank_correlation),
    ("usable|pairs|lowest|epochs", _fit),
    ("training problems with correct", _all_correct),
    ("ECE", _ece),
    ("sigma-AUROC on", _sigma_by_transfer),
    ("problems without", _unsolvable),
    ("connectivity", _frontier),
    ("always|ours minus", _always_the_favourite),
    ("gap between generators$", _gap_between),
    ("change on", _change_by_repair),
    ("change by two passes", _change_by_passes),
    ("", _finding),
)
"""Measures by the beginning of the row name. The first match is used."""
