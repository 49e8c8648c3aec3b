"""The paper's tables with measured values next to the published ones.

Each cell is *measured*, *not measurable* with the given pools (with the reason), *needs a key or GPU*, or *not
applicable* if the paper has no value either. Measured values are only from ``StudyResults`` and ``Transfer``.
"""

from collections.abc import Sequence
from dataclasses import replace

from raydebm.config import Recipe
from raydebm.evaluation.paper.paper_cells import (
    REPAIRED_COLUMNS,
    Absent,
    Answer,
    Cell,
    Context,
    Measure,
    Measured,
    PublishedTable,
    ReproducedTable,
    Status,
    by_energy_and_mu,
    found_or,
    no_pool,
    paper,
    without,
)
from raydebm.evaluation.paper.paper_measures import (
    NO_REPAIR,
    by_generator,
    by_group,
    calibration_error,
    cross_pool,
    dimension,
    example,
    is_model_of,
    other_groups,
    overview,
    repair_in,
    screen,
    single_multi,
    single_shot,
    text_claim,
    transferred,
)
from raydebm.evaluation.report.document import number, points
from raydebm.evaluation.report.evaluation_tables import rule_in_words
from raydebm.evaluation.results.entries import ALL_PASSES, SelectorRow
from raydebm.evaluation.selectors import PAPER_RULE, SINGLE_SHOT
from raydebm.evaluation.studies.scorers import Transfer, VariantStudy
from raydebm.evaluation.studies.sizes import MU_ONLY
from raydebm.evaluation.studies.study import StudyResults


def reproduced_tables(
    studies: Sequence[StudyResults], transfers: Sequence[Transfer] = (), variants: Sequence[VariantStudy] = ()
) -> list[ReproducedTable]:
    """Every table of results of the paper, in order of its sections."""
    context = Context(studies, transfers, variants)
    return [_table(context, published, MEASURES[label]) for label, published in paper().tables.items()]


def _table(context: Context, published: PublishedTable, measure: Measure) -> ReproducedTable:
    columns = published.columns
    rows = tuple(name for name, _ in published.rows)
    if set(paper().benchmarks) <= set(columns):
        columns = (*columns, *context.extra_columns())
    if published.label == "tab:main_results":
        rows = (*rows, *OWN_ROWS)
    if published.label in _BY_GROUP:
        rows = (*rows, *other_groups(context, _ONE_TASK[published.label], rows))
    return ReproducedTable(
        label=published.label,
        title=published.title,
        note=_note(context, published, columns),
        columns=columns,
        rows=tuple(
            (row, tuple(_cell(published.cell(row, column), measure(context, row, column)) for column in columns))
            for row in rows
        ),
    )


_SWEEPS = ("tab:full_k_sweep", "tab:full_pool")
"""Tables whose published figures are from a scorer before its repair."""
_ONE_TASK = {
    "tab:taco_difficulty": "TACO",
    "tab:kk_difficulty": "K&K",
    "tab:musr_subsets": "MuSR",
    "tab:tp_perdim": "TravelPlanner",
}
"""Tables about one task, with selectors as columns."""
_BY_GROUP = ("tab:taco_difficulty", "tab:kk_difficulty", "tab:musr_subsets")
"""Tables whose rows are groups of problems."""


def _note(context: Context, published: PublishedTable, columns: Sequence[str]) -> str:
    """The paper's note, and the pool, scorer and E_constraint of each column here."""
    is_sweep = published.label in _SWEEPS
    study_of = context.before_repair if is_sweep else context.study
    names = [_ONE_TASK[published.label]] if published.label in _ONE_TASK else columns
    if is_sweep:
        names = [name.removesuffix(" EBM").removesuffix(" Random") for name in names]
    measured = [
        f"{name}: {study.name}{_stand_in(name, study)}, scorer on {study.backbone or 'an unnamed backbone'}"
        f"{_unlike(name, study, is_sweep=is_sweep)}{_constraint_in_words(name, study)}"
        for name in dict.fromkeys(names)
        if (study := study_of(name)) is not None
    ]
    return " ".join(filter(None, (published.note, f"Measured here: {'; '.join(measured)}." if measured else "")))


def _stand_in(column: str, study: StudyResults) -> str:
    fits_by_default = column == study.name or column not in paper().tasks or paper().fits(column, study.data) == 0
    return "" if fits_by_default else f" ({study.data} stands in, no candidates of {column} were given)"


def _unlike(column: str, study: StudyResults, *, is_sweep: bool) -> str:
    is_repaired_there = column in REPAIRED_COLUMNS and not is_sweep
    if is_repaired_there and not study.repaired:
        return ", not repaired (the paper's is, its sweeps over K and N excepted)"
    return ", repaired (the paper's is not)" if study.repaired and not is_repaired_there else ""


def _constraint_in_words(column: str, study: StudyResults) -> str:
    """Description of E_constraint on a task for which the paper has none. Empty for other tasks."""
    if paper().tables["tab:dataset_overview"].cell(column, "E_constraint") != "none":
        return ""
    names = ", ".join(study.overview.constraints)
    if not names:
        return ", E_constraint 0 for every candidate, as in the paper"
    return f", E_constraint by {names} (the paper applies none, so that its figures are by mu)"


def _cell(published: str | None, answer: Answer) -> Cell:
    if isinstance(answer, Measured):
        return Cell(
            published=published,
            measured=answer.text,
            estimate=answer.estimate,
            status="measured",
            reason=answer.remark,
        )
    status: Status = "not applicable" if published is None and answer.status != "needs a key or GPU" else answer.status
    return Cell(
        published=published,
        measured=None,
        estimate=None,
        status=status,
        reason=answer.reason,
    )


def _main_value(study: StudyResults, row: SelectorRow) -> Answer:
    """pass@1, or the mean violation if the task has one."""
    if row.mean_violation.value is not None:
        return found_or(row.mean_violation, "no violation score", plain=True)
    return found_or(row.pass_at_1, "no label")


# ---- tab:main_results ------------------------------------------------------------------------------------------------

_SELECTOR_OF = {
    "Greedy (T=0)": "greedy",
    "Random": "random",
    "Self-consistency": "majority vote",
    "Oracle": "oracle",
    "Distributional EBM": PAPER_RULE,
}
_EXTERNAL: dict[str, tuple[str, str, Status]] = {
    "EORM (55M)": ("eorm", "train and score the EORM baseline on this pool", "not measurable"),
    "Skywork-Reward (8B)": ("skywork", "the 8B reward model needs a GPU and its weights", "needs a key or GPU"),
    "Math-Shepherd PRM (7B)": ("shepherd", "the 7B reward model needs a GPU and its weights", "needs a key or GPU"),
    "LLM-as-Judge": ("judge", "a judge needs an API key", "needs a key or GPU"),
}  # fmt: skip
OWN_ROWS = (
    "first",
    "shortest",
    "longest",
    "best generator",
    "mu only",
    "constraint only",
    "energy-weighted vote",
    ALL_PASSES,
)
"""Selectors that the paper's table does not have."""


def _selection(context: Context, row: str, column: str) -> Answer:
    study = context.study(column)
    if study is None:
        return no_pool(column)
    rows = study.evaluation.rows
    if row in _SELECTOR_OF or row in OWN_ROWS:
        wanted = _SELECTOR_OF.get(row, row)
        selected = study.evaluation.row(wanted)
        if selected is None and wanted == "best generator":
            selected = next((each for each in rows if each.name.startswith("best generator")), None)
        return _main_value(study, selected) if selected else Absent(without(wanted))
    if row in _EXTERNAL:
        word, reason, status = _EXTERNAL[row]
        others = [each for each in rows if each.group == "external" and not each.name.startswith(SINGLE_SHOT)]
        name = _named(word, [each.name for each in others])
        selected = next((each for each in others if each.name == name), None)
        if selected is None:
            return Absent(reason, status)
        answer = _main_value(study, selected)
        model = study.models.get(selected.name, selected.name)
        return replace(answer, remark=f"here: {model}") if isinstance(answer, Measured) else answer
    named, remark = single_shot(row, study, [each.name for each in rows]) or ("", "")
    selected = study.evaluation.row(named)
    if selected is None:
        return Absent("answers of this model need an API key", "needs a key or GPU")
    answer = _main_value(study, selected)
    return replace(answer, remark=remark) if isinstance(answer, Measured) else answer


def _named(word: str, names: Sequence[str]) -> str | None:
    """Baseline with the name of a row of the paper, else the first whose name contains it."""
    fitting = [name for name in names if word in name.lower()]
    return min(fitting, key=lambda name: name.lower() != word, default=None)


def rows_without_source(recipe: Recipe) -> list[str]:
    """Rows of the main table with a published value for the recipe's task and no source in its run."""
    published = paper().tables["tab:main_results"]
    columns = [name for name in published.columns if paper().tasks.get(name) == recipe.task.name]
    external = [baseline.name for baseline in recipe.baselines]
    has_greedy = [config for config in recipe.generators if recipe.generation.greedy and config.kind != "recorded"]
    shots = [config for config in has_greedy if config.num_samples == 0]
    in_pool = [config for config in recipe.generators if config.num_samples != 0]

    def has_source(row: str) -> bool:
        if row == "Greedy (T=0)":
            return any(config in has_greedy for config in in_pool)
        if row in _SELECTOR_OF:
            return bool(in_pool)
        if row in _EXTERNAL:
            return _named(_EXTERNAL[row][0], external) is not None
        return any(is_model_of(row, config.name, config.model) for config in shots)

    return [row for row, _ in published.rows for name in columns if published.cell(row, name) and not has_source(row)]


# ---- ablations -------------------------------------------------------------------------------------------------------


def _ensemble_size(context: Context, row: str, column: str) -> Answer:
    size, backbone = row.removeprefix("K=").split(", ")
    study = context.before_repair(column)
    if backbone == "DeBERTa":
        study = context.study_with(column, "deberta")
        if study is None:
            reason = "no pool scored with a DeBERTa-v3 backbone was given; its training needs a GPU"
            return Absent(reason, "needs a key or GPU")
    if study is None:
        return no_pool(column)
    ensemble = next((each for each in study.ensemble_sizes if each.num_adapters == int(size)), None)
    if ensemble is None:
        return Absent(f"the scorer has {len(study.ensemble_sizes)} adapters")
    remark = "mean of all subsets of K adapters; backbone as in the pool's section"
    return by_energy_and_mu(ensemble.pass_at_1, ensemble.mu_pass_at_1, "no label", remark=remark)


def _pool_size(context: Context, row: str, column: str) -> Answer:
    name, kind = column.rsplit(" ", 1)
    study, size = context.before_repair(name), int(row.removeprefix("N="))
    if study is None:
        return no_pool(name)
    curve_point = next((each for each in study.pool_sizes if each.n == size), None)
    if curve_point is None:
        return Absent(f"the pool has at most {study.overview.most} candidates a problem")
    if kind == "EBM":
        return by_energy_and_mu(
            curve_point.pass_at_1.get(PAPER_RULE), curve_point.pass_at_1.get(MU_ONLY), "no energies"
        )
    return found_or(curve_point.pass_at_1.get("random"), "no label")


# ---- energies and uncertainty ----------------------------------------------------------------------------------------


def _energies(context: Context, row: str, column: str) -> Answer:
    study = context.study(column)
    if study is None:
        return no_pool(column)
    evaluation = study.evaluation
    mu_row = next((each for each in evaluation.energies if each.name == "mu"), None)
    if mu_row is None:
        return Absent(without("mu only"))
    if row == "sigma-AUROC":
        return found_or(evaluation.sigma_auroc, "sigma needs two adapters and both outcomes", plain=True)
    if row == "ECE":
        return calibration_error(study)
    within = f"mu; mean within problems with both classes {number(mu_row.energy_gap)}, n={mu_row.energy_gap.n}"
    estimate, remark, reason = {
        "E(correct)": (mu_row.mean_correct, "mu", "no correct candidate has energies"),
        "E(incorrect)": (mu_row.mean_incorrect, "mu", "no incorrect candidate has energies"),
        "Energy gap": (mu_row.mean_difference, within, "not both labels have energies"),
        "Kendall tau": (mu_row.kendall_tau_b, "tau-b, mean over problems", "no problem has labels that differ"),
    }[row]
    return found_or(estimate, reason, plain=True, remark=remark)


def _selective(context: Context, row: str, column: str) -> Answer:
    study = context.study(column)
    if study is None:
        return no_pool(column)
    share = float(row.rstrip("%")) / 100
    by_energy, by_mu = (
        next((each.pass_at_1 for each in rows if abs(each.abstain_frac - share) < 1e-9), None)
        for rows in (study.evaluation.selective, study.evaluation.mu_selective)
    )
    return by_energy_and_mu(by_energy, by_mu, "no sigma")


_NO_PAPER_RULE = (
    "the loop of the runs given decides by the posterior; `triage.rule: paper`, as in configs/paper.yaml, makes the "
    "paper's"
)


def _two_pass(context: Context, row: str, column: str) -> Answer:
    name, kind = row.split(", ")
    task, repaired = name.split(" (")[0], repair_in(name)
    if not context.studies_of(task):
        return no_pool(task)
    # A row that does not name the repair is about a scorer before it.
    studies = context.studies_of(task, repaired=bool(repaired))
    if not studies:
        return Absent(NO_REPAIR[bool(repaired)])
    studies = [each for each in studies if (len(each.overview.generators) > 1) == (kind == "multi")]
    if not studies:
        return Absent(f"the pool given is of {'one generator' if kind == 'multi' else 'several generators'}")
    studies = [each for each in studies if each.evaluation.policy["rule"] == "paper"]
    if not studies:
        return Absent(_NO_PAPER_RULE)
    study = next((each for each in studies if each.evaluation.row(ALL_PASSES) is not None), None)
    if study is None:
        return Absent("no second pass was drawn; recorded candidates hold no answers to feedback")
    return _of_loop(study, column)


def _of_loop(study: StudyResults, column: str) -> Answer:
    """Result of the paper's loop, with its rule and thresholds in the remark."""
    evaluation, policy = study.evaluation, study.evaluation.policy
    loop, last = evaluation.loop, evaluation.row(ALL_PASSES)
    if loop is None or last is None:
        return Absent("no second pass was drawn")
    remark = f"of {study.name}; {rule_in_words(policy)}, {policy['num_regenerate']} candidates in the second pass"
    if loop.num_failed_passes:
        remark += f"; {loop.num_failed_passes} second passes gave nothing, so that the first one stands"
    if column == "Delta":
        delta = next((each.difference for each in evaluation.comparisons if each.one == ALL_PASSES), None)
        return Absent("no label") if delta is None else Measured(points(delta), delta, remark)
    if column == "Pass-2 adopted":
        sent = round((loop.regenerated.value or 0.0) * loop.num_problems)
        return Measured(f"{loop.num_adopted}/{sent}", None, remark)
    first = evaluation.row(PAPER_RULE)
    estimate = {
        "Triage rate": loop.regenerated,
        "Pass-1": first.pass_at_1 if first else None,
        "Two-pass": last.pass_at_1,
    }
    return found_or(estimate[column], "no label", remark=remark)


MEASURES: dict[str, Measure] = {
    "tab:main_results": _selection,
    "tab:full_k_sweep": _ensemble_size,
    "tab:full_pool": _pool_size,
    "tab:single_multi": single_multi,
    "tab:energy_sep": _energies,
    "tab:taco_difficulty": by_group("TACO", {"EBM": PAPER_RULE}),
    "tab:kk_difficulty": by_group("K&K", {"EBM": PAPER_RULE, "Greedy": "greedy", "Random": "random"}),
    "tab:musr_subsets": by_group("MuSR", {"Avg. candidate accuracy": "random"}),
    "tab:selective": _selective,
    "tab:twopass": _two_pass,
    "tab:tp_perdim": dimension,
    "tab:full_transfer": transferred,
    "tab:cross_pool": cross_pool,
    "tab:confounding_screen": screen,
    "tab:dataset_overview": overview,
    "tab:permodel": by_generator,
    "tab:examples": example,
    "text": text_claim,
}
