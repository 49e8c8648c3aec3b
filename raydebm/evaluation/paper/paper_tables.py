"""The paper's tables with measured values next to the published ones.

Each cell is *measured*, *not measurable* with the given pools (with the reason), *needs a key or GPU*, or *not
applicable* if the paper has no value either. Measured values come only from ``StudyResults``, ``Transfer`` and
``VariantStudy``.
"""

from collections.abc import Sequence

from raydebm.config import Recipe
from raydebm.evaluation.paper.paper_cells import (
    NEEDED,
    REPAIRED_COLUMNS,
    Cell,
    Context,
    Measure,
    Measured,
    NoValueError,
    PublishedTable,
    ReproducedTable,
    Status,
    by_energy_and_mu,
    measured,
    needed,
    no_pool,
    paper,
    selected,
    without,
)
from raydebm.evaluation.paper.paper_measures import (
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
from raydebm.evaluation.results.entries import ALL_PASSES
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
            (row, tuple(_cell(published.cell(row, column), measure, context, row, column) for column in columns))
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
    columns_here = [
        f"{name}: {study.name}{_stand_in(name, study)}, scorer on {study.backbone or 'an unnamed backbone'}"
        f"{_unlike(name, study, is_sweep=is_sweep)}{_constraint_in_words(name, study)}"
        for name in dict.fromkeys(names)
        if (study := study_of(name)) is not None
    ]
    return " ".join(
        filter(None, (published.note, f"Measured here: {'; '.join(columns_here)}." if columns_here else ""))
    )


def _stand_in(column: str, study: StudyResults) -> str:
    fits_by_default = column == study.name or column not in paper().tasks or paper().fits(column, study.data) == 0
    return "" if fits_by_default else f" ({study.data} in place of {column}, of which no candidates were given)"


def _unlike(column: str, study: StudyResults, *, is_sweep: bool) -> str:
    is_repaired_there = column in REPAIRED_COLUMNS and not is_sweep
    if is_repaired_there and not study.repaired:
        return ", not repaired (the paper's is, except in its sweeps over K and N)"
    return ", repaired (the paper's is not)" if study.repaired and not is_repaired_there else ""


def _constraint_in_words(column: str, study: StudyResults) -> str:
    """Description of E_constraint on a task for which the paper has none. Empty for other tasks."""
    if paper().tables["tab:dataset_overview"].cell(column, "E_constraint") != "none":
        return ""
    names = ", ".join(study.overview.constraints)
    if not names:
        return ", E_constraint 0 for every candidate, as in the paper"
    return f", E_constraint by {names} (the paper applies none: its figures are by mu)"


def _cell(published: str | None, measure: Measure, context: Context, row: str, column: str) -> Cell:
    try:
        figure = measure(context, row, column)
    except NoValueError as absent:
        is_beyond = published is None and absent.status != NEEDED
        status: Status = "not applicable" if is_beyond else absent.status
        return Cell(published=published, measured=None, estimate=None, status=status, reason=absent.reason)
    return Cell(
        published=published, measured=figure.text, estimate=figure.estimate, status="measured", reason=figure.remark
    )


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
    "Skywork-Reward (8B)": ("skywork", "the 8B reward model needs a GPU and its weights", NEEDED),
    "Math-Shepherd PRM (7B)": ("shepherd", "the 7B reward model needs a GPU and its weights", NEEDED),
    "LLM-as-Judge": ("judge", "a judge needs an API key", NEEDED),
}
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


def _selection(context: Context, row: str, column: str) -> Measured:
    study = context.needed(column)
    rows, remark = study.evaluation.rows, ""
    wanted = _SELECTOR_OF.get(row, row)
    if row in _EXTERNAL:
        word, reason, status = _EXTERNAL[row]
        others = [each.name for each in rows if each.group == "external" and not each.name.startswith(SINGLE_SHOT)]
        wanted = needed(_named(word, others), reason, status)
        remark = f"here: {study.models.get(wanted, wanted)}"
    elif wanted == "best generator":
        wanted = next((each.name for each in rows if each.name.startswith(wanted)), wanted)
    elif row not in _SELECTOR_OF and row not in OWN_ROWS:
        wanted, remark = single_shot(row, study, [each.name for each in rows])
    chosen = selected(study, wanted)
    if chosen.mean_violation.value is not None:
        return measured(chosen.mean_violation, "no violation score", plain=True, remark=remark)
    return measured(chosen.pass_at_1, "no label", remark=remark)


def _named(word: str, names: Sequence[str]) -> str | None:
    """Baseline named ``word``, else the first whose name contains it. None without one."""
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


def _ensemble_size(context: Context, row: str, column: str) -> Measured:
    size, backbone = row.removeprefix("K=").split(", ")
    study = context.on_deberta(column) if backbone == "DeBERTa" else context.before_repair(column)
    sizes = needed(study, no_pool(column)).ensemble_sizes
    ensemble = next((each for each in sizes if each.num_adapters == int(size)), None)
    ensemble = needed(ensemble, f"the scorer has {len(sizes)} adapters")
    remark = "mean of all subsets of K adapters; backbone as in the pool's section"
    return by_energy_and_mu(ensemble.pass_at_1, ensemble.mu_pass_at_1, "no label", remark=remark)


def _pool_size(context: Context, row: str, column: str) -> Measured:
    name, kind = column.rsplit(" ", 1)
    study = needed(context.before_repair(name), no_pool(name))
    shares = next((each.pass_at_1 for each in study.pool_sizes if f"N={each.n}" == row), None)
    shares = needed(shares, f"the pool has at most {study.overview.most} candidates per problem")
    if kind == "EBM":
        return by_energy_and_mu(shares.get(PAPER_RULE), shares.get(MU_ONLY), "no energies")
    return measured(shares.get("random"), "no label")


# ---- energies and uncertainty ----------------------------------------------------------------------------------------


def _energies(context: Context, row: str, column: str) -> Measured:
    study = context.needed(column)
    evaluation = study.evaluation
    mu_row = next((each for each in evaluation.energies if each.name == "mu"), None)
    mu_row = needed(mu_row, without("mu only"))
    if row == "sigma-AUROC":
        return measured(evaluation.sigma_auroc, "sigma needs two adapters and both outcomes", plain=True)
    if row == "ECE":
        return calibration_error(study)
    within = f"mu; mean within problems with both classes {number(mu_row.energy_gap)}, n={mu_row.energy_gap.n}"
    estimate, remark, reason = {
        "E(correct)": (mu_row.mean_correct, "mu", "no correct candidate has energies"),
        "E(incorrect)": (mu_row.mean_incorrect, "mu", "no incorrect candidate has energies"),
        "Energy gap": (mu_row.mean_difference, within, "one of the two labels has no candidate with energies"),
        "Kendall tau": (mu_row.kendall_tau_b, "tau-b, mean over problems", "no problem has labels that differ"),
    }[row]
    return measured(estimate, reason, plain=True, remark=remark)


def _selective(context: Context, row: str, column: str) -> Measured:
    evaluation = context.needed(column).evaluation
    by_energy, by_mu = (
        next((each.pass_at_1 for each in rows if f"{100 * each.abstain_frac:.0f}%" == row), None)
        for rows in (evaluation.selective, evaluation.mu_selective)
    )
    return by_energy_and_mu(by_energy, by_mu, "no sigma")


def _two_pass(context: Context, row: str, column: str) -> Measured:
    name, kind = row.split(", ")
    # Rows that do not mention the repair are about a scorer before it.
    studies = context.with_repair(name.split(" (")[0], repaired=bool(repair_in(name)))
    studies = [each for each in studies if (len(each.overview.generators) > 1) == (kind == "multi")]
    if not studies:
        raise NoValueError(f"the given pool has {'one generator' if kind == 'multi' else 'several generators'}")
    studies = [each for each in studies if each.evaluation.policy["rule"] == "paper"]
    if not studies:
        raise NoValueError(
            "the given runs decide by the posterior; set `decision.rule: paper`, as configs/paper.yaml does"
        )
    study = next((each for each in studies if each.evaluation.row(ALL_PASSES) is not None), None)
    study = needed(study, "no second pass was sampled; recorded candidates have no answers to feedback")
    evaluation, policy = study.evaluation, study.evaluation.policy
    loop, last = needed(evaluation.loop, without(ALL_PASSES)), selected(study, ALL_PASSES)
    remark = f"of {study.name}; {rule_in_words(policy)}, {policy['num_regenerate']} candidates in the second pass"
    if loop.num_failed_passes:
        remark += f"; {loop.num_failed_passes} second passes failed, so the first one counts"
    if column == "Delta":
        delta = next((each.difference for each in evaluation.comparisons if each.one == ALL_PASSES), None)
        return Measured(points(needed(delta, "no label")), delta, remark)
    if column == "Pass-2 adopted":
        sent = round((loop.regenerated.value or 0.0) * loop.num_problems)
        return Measured(f"{loop.num_adopted}/{sent}", None, remark)
    estimate = {
        "Triage rate": loop.regenerated,
        "Pass-1": selected(study, PAPER_RULE).pass_at_1,
        "Two-pass": last.pass_at_1,
    }[column]
    return measured(estimate, "no label", remark=remark)


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
