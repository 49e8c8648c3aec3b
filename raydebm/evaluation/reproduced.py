"""The paper's tables with measured values beside the published ones; every cell says which it is.

A cell is *measured*, *not measurable* with the pools at hand (and why), *needs a key or GPU*, or *not applicable* where
the paper has no value either. Measured values come from ``StudyResults`` and ``Transfer`` alone.
"""

import re
from collections.abc import Sequence

from raydebm.evaluation.entries import ALL_PASSES, OURS, SelectorRow
from raydebm.evaluation.paper_cells import (
    REPAIRED_COLUMNS,
    Absent,
    Answer,
    Cell,
    Context,
    Found,
    Measure,
    ReproducedTable,
    Status,
    by_energy_and_mu,
    found_or,
    no_pool,
)
from raydebm.evaluation.published import PublishedTable, paper, share_of
from raydebm.evaluation.selectors import SINGLE_SHOT
from raydebm.evaluation.studies.judges import VIOLATION
from raydebm.evaluation.studies.pool_size import MU_ONLY
from raydebm.evaluation.studies.transfer import Transfer, TransferCell
from raydebm.evaluation.study import StudyResults
from raydebm.evaluation.table_cells import points, with_interval


def reproduced_tables(studies: Sequence[StudyResults], transfers: Sequence[Transfer] = ()) -> list[ReproducedTable]:
    """Every table of results of the paper, in its order of sections."""
    context = Context(studies, transfers)
    return [_table(context, published, MEASURES[label]) for label, published in paper().tables.items()]


def _table(context: Context, published: PublishedTable, measure: Measure) -> ReproducedTable:
    columns = published.columns
    rows = tuple(name for name, _ in published.rows)
    if set(paper().benchmarks) <= set(columns):
        columns = (*columns, *context.extra_columns())
    if published.label == "tab:main_results":
        rows = (*rows, *OWN_ROWS)
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


def _note(context: Context, published: PublishedTable, columns: Sequence[str]) -> str:
    """The paper's note, and which pool and scorer stand in each of its columns here."""
    measured = [
        f"{column}: {study.name}, scorer on {study.backbone or 'an unnamed backbone'}{_unlike(column, study)}"
        for column in columns
        if (study := context.study(column)) is not None
    ]
    return " ".join(filter(None, (published.note, f"Measured here: {'; '.join(measured)}." if measured else "")))


def _unlike(column: str, study: StudyResults) -> str:
    if column in REPAIRED_COLUMNS and not study.repaired:
        return ", not repaired (the paper's is, its sweeps over K and N excepted)"
    return ", repaired (the paper's is not)" if study.repaired and column not in REPAIRED_COLUMNS else ""


def _cell(published: str | None, answer: Answer) -> Cell:
    if isinstance(answer, Found):
        return Cell(
            published=published,
            published_value=share_of(published),
            measured=answer.text,
            estimate=answer.estimate,
            status="measured",
            reason=answer.remark,
        )
    status: Status = "not applicable" if published is None and answer.status != "needs a key or GPU" else answer.status
    return Cell(
        published=published,
        published_value=share_of(published),
        measured=None,
        estimate=None,
        status=status,
        reason=answer.reason,
    )


def _main_value(study: StudyResults, row: SelectorRow) -> Answer:
    """pass@1, or the mean violation where the task has one."""
    if row.mean_violation.value is not None:
        return found_or(row.mean_violation, "no violation score", plain=True)
    return found_or(row.pass_at_1, "no label")


# ---- tab:main_results ------------------------------------------------------------------------------------------------

_SELECTOR_OF = {
    "Greedy (T=0)": "greedy",
    "Random": "random",
    "Self-consistency": "majority vote",
    "Oracle": "oracle",
    "Distributional EBM (ours)": OURS,
}
_EXTERNAL: dict[str, tuple[str, str, Status]] = {
    "EORM (55M)": ("eorm", "train and score the EORM baseline on this pool", "not measurable"),
    "Skywork-Reward (8B)": ("skywork", "the 8B reward model needs a GPU and its weights", "needs a key or GPU"),
    "Math-Shepherd PRM (7B)": ("shepherd", "the 7B reward model needs a GPU and its weights", "needs a key or GPU"),
    "LLM-as-Judge": ("judge", "a judge needs an API key", "needs a key or GPU"),
}  # fmt: skip
_SINGLE_SHOT = {
    "Claude Opus 4.6": re.compile(r"\bopus\W4\b"),
    "Claude Sonnet 4.6": re.compile(r"\bsonnet\W4\b"),
    "Qwen-72B-Instruct": re.compile(r"\bqwen.*\b72b\b"),
}
"""How a row of ours names the paper's model: its family and major version. The cell says which model was measured."""
OWN_ROWS = (
    "first",
    "shortest",
    "longest",
    "best generator",
    "mu only",
    "mu without length",
    "constraint only",
    "energy-weighted vote",
    "tempered vote",
    "generator-weighted vote",
    "learned vote",
    "learned agreement",
    ALL_PASSES,
)
"""Selectors of ours that the paper's table does not have."""


def _selection(context: Context, row: str, column: str) -> Answer:
    study = context.study(column)
    if study is None:
        return no_pool(column)
    rows = study.evaluation.rows
    if row in _SELECTOR_OF or row in OWN_ROWS:
        wanted = _SELECTOR_OF.get(row, row)
        found = study.evaluation.row(wanted)
        if found is None and wanted == "best generator":
            found = next((item for item in rows if item.name.startswith("best generator")), None)
        reasons = {"greedy": "the pool has no separate sample at temperature 0", ALL_PASSES: "no second pass was drawn"}
        return _main_value(study, found) if found else Absent(reasons.get(wanted, "this pool gives it nothing to use"))
    if row in _EXTERNAL:
        word, reason, status = _EXTERNAL[row]
        others = (item for item in rows if item.group == "external" and not item.name.startswith(SINGLE_SHOT))
        found = next((item for item in others if word in item.name.lower()), None)
        return _main_value(study, found) if found else Absent(reason, status)
    named = _single_shot(row, [item.name for item in rows])
    found = None if named is None else study.evaluation.row(named)
    if found is None:
        return Absent("answers of this model need an API key", "needs a key or GPU")
    answer = _main_value(study, found)
    return Found(answer.text, answer.estimate, f"here: {found.name}") if isinstance(answer, Found) else answer


def _single_shot(model: str, selectors: Sequence[str]) -> str | None:
    """The selector that stands for single answers of a model of the paper: its own row, else its part of the pool."""
    wanted = next((pattern for name, pattern in _SINGLE_SHOT.items() if model.lower() in name.lower()), None)
    if wanted is None:
        return None
    kinds = (SINGLE_SHOT, "greedy ", "generator ")
    found = (name for kind in kinds for name in selectors if name.startswith(kind))
    return next((name for name in found if wanted.search(name.lower())), None)


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
    found = next((item for item in study.ensemble_sizes if item.num_adapters == int(size)), None)
    if found is None:
        return Absent(f"the scorer has {len(study.ensemble_sizes)} adapters")
    remark = "mean of all subsets of K adapters; backbone as in the pool's section"
    return by_energy_and_mu(found.pass_at_1, found.mu_pass_at_1, "no label", remark=remark)


def _pool_size(context: Context, row: str, column: str) -> Answer:
    name, kind = column.rsplit(" ", 1)
    study, size = context.before_repair(name), int(row.removeprefix("N="))
    if study is None:
        return no_pool(name)
    found = next((item for item in study.pool_sizes if item.n == size), None)
    if found is None:
        return Absent(f"the pool has at most {study.overview.most} candidates a problem")
    if kind == "EBM":
        return by_energy_and_mu(found.pass_at_1.get(OURS), found.pass_at_1.get(MU_ONLY), "no energies")
    return found_or(found.pass_at_1.get("random"), "no label")


def _single_multi(context: Context, row: str, column: str) -> Answer:
    study = context.study(column)
    if study is None:
        return no_pool(column)
    if not study.pool_kinds:
        return Absent("the pool has one generator only")
    singles = [kind for kind in study.pool_kinds if not kind.name.startswith("all generators")]
    weakest = min(singles, key=lambda kind: (kind.random.value is None, kind.random.value or 0.0))
    qwen = next((kind for kind in singles if "qwen" in kind.name.lower() and "7b" in kind.name.lower()), None)
    single = weakest if qwen is None else qwen
    whole = study.pool_kinds[-1]
    which = f"{single.name} (the weakest on these problems)" if qwen is None else single.name
    remark = f"single: {which}, {single.n} candidates, scored by the same (mixed) scorer"
    if row == "Delta":
        if single.whole_minus.value is None:
            return Absent("no energies")
        shown = f"{100 * single.whole_minus.value:+.1f} pp"
        return Found(shown, single.whole_minus, f"{remark}; n={single.whole_minus.n} problems that it answered")
    kind = single if row.startswith("Single") else whole
    return by_energy_and_mu(kind.ours, kind.mu_only, "no energies", remark=remark)


# ---- energies and uncertainty ----------------------------------------------------------------------------------------


def _energies(context: Context, row: str, column: str) -> Answer:
    study = context.study(column)
    if study is None:
        return no_pool(column)
    evaluation = study.evaluation
    found = next((item for item in evaluation.energies if item.name == "mu"), None)
    if found is None:
        return Absent("no energies")
    if row == "sigma-AUROC":
        return found_or(evaluation.sigma_auroc, "sigma needs two adapters and both outcomes", plain=True)
    if row == "ECE":
        rows = () if evaluation.trust is None else evaluation.trust.reliabilities
        chosen = next((item for item in rows if item.name.startswith("logistic")), rows[0] if rows else None)
        return (
            Absent("nothing to fit")
            if chosen is None
            else found_or(chosen.ece, "no label", plain=True, remark=chosen.name)
        )
    estimate, remark = {
        "E(correct)": (found.mean_correct, "mu"),
        "E(incorrect)": (found.mean_incorrect, "mu"),
        "Energy gap": (found.energy_gap, "mean over problems with both classes"),
        "Kendall tau": (found.kendall_tau_b, "tau-b, mean over problems"),
    }[row]
    return found_or(estimate, "no problem has both classes", plain=True, remark=remark)


def _selective(context: Context, row: str, column: str) -> Answer:
    study = context.study(column)
    if study is None:
        return no_pool(column)
    share = float(row.rstrip("%")) / 100
    by_energy, by_mu = (
        next((item.pass_at_1 for item in rows if abs(item.abstain_frac - share) < 1e-9), None)
        for rows in (study.evaluation.selective, study.evaluation.mu_selective)
    )
    return by_energy_and_mu(by_energy, by_mu, "no sigma")


_NO_REPAIR = {
    True: "no run with a repaired scorer was given; `raydebm repair` makes one",
    False: "only a repaired scorer was given",
}


def _repair_in(row: str) -> bool | None:
    """What a row's name says about the repair (DFR): before (False), after (True), or nothing (None)."""
    if "pre-DFR" in row:
        return False
    return True if "DFR" in row else None


def _two_pass(context: Context, row: str, column: str) -> Answer:
    name, kind = row.split(", ")
    task, repaired = name.split(" (")[0], _repair_in(name)
    given = context.studies_of(task)
    if not given:
        return no_pool(name)
    # A row that does not name the repair is about a scorer as it was trained.
    studies = context.studies_of(task, repaired=bool(repaired))
    if not studies:
        return Absent(_NO_REPAIR[bool(repaired)])
    study = next((found for found in studies if (len(found.overview.generators) > 1) == (kind == "multi")), None)
    if study is None:
        return Absent(f"the pool given is of {'one generator' if kind == 'multi' else 'several generators'}")
    evaluation = study.evaluation
    loop, last = evaluation.loop, evaluation.row(ALL_PASSES)
    if loop is None or last is None:
        return Absent("recorded candidates hold no answers to feedback, so no second pass")
    first = evaluation.row(OURS)
    sent = round((loop.regenerated.value or 0.0) * loop.num_problems)
    delta = next((item.difference for item in evaluation.comparisons if item.one == ALL_PASSES), None)
    if column == "Delta":
        return Absent("no label") if delta is None else Found(points(delta), delta)
    if column == "Pass-2 adopted":
        return Found(f"{loop.num_adopted}/{sent}")
    estimate = {
        "Triage rate": loop.regenerated,
        "Pass-1": first.pass_at_1 if first else None,
        "Two-pass": last.pass_at_1,
    }
    return found_or(estimate[column], "no label")


# ---- groups and dimensions -------------------------------------------------------------------------------------------


def _plain_group(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum()).rstrip("s")


def _by_group(task: str, selectors: dict[str, str]) -> Measure:
    def measure(context: Context, row: str, column: str) -> Answer:
        study, single = context.study(task), column.startswith("Single-model ")
        if study is None:
            return no_pool(task)
        if single:
            study = next((found for found in context.studies_of(task) if len(found.overview.generators) == 1), None)
            if study is None:
                return Absent("no run on the candidates of one generator was given")
            column = {"greedy": "Greedy"}.get(column.removeprefix("Single-model "), "EBM")
        found = next(
            (item for item in study.evaluation.difficulties if _plain_group(item.difficulty) == _plain_group(row)), None
        )
        if found is None:
            return Absent(f"the pool has no group {row!r}")
        if column == "n":
            return Found(str(found.num_problems))
        if column == "n choices":
            shown = ", ".join(map(str, found.num_choices))
            return Found(shown) if shown else Absent("the problems offer no choices")
        if column == "Random baseline":
            return (
                Absent("not all problems offer choices") if found.guess is None else Found(f"{100 * found.guess:.1f}")
            )
        wanted = selectors.get(column) or _single_shot(column, list(found.pass_at_1))
        if wanted is None:
            return Absent("single answers of this model need an API key", "needs a key or GPU")
        return found_or(found.pass_at_1.get(wanted), f"no {wanted} selection in this pool")

    return measure


_DIMENSION_SELECTORS = {
    "Oracle": "oracle",
    "E_constraint only": "constraint only",
    "EBM+E_constraint": OURS,
    "EBM": "mu only",
    "Random": "random",
}


def _dimension(context: Context, row: str, column: str) -> Answer:
    study = context.study("TravelPlanner")
    if study is None:
        return no_pool("TravelPlanner")
    found = study.evaluation.dimensions
    wanted = _DIMENSION_SELECTORS.get(column) or _single_shot(column, () if found is None else found.selectors)
    if wanted is None:
        return Absent("plans of this model need an API key", "needs a key or GPU")
    if found is None or wanted not in found.selectors:
        return Absent("the labels carry no dimensions")
    values = next((v for name, v in found.rows if _plain_group(name) == _plain_group(row)), None)
    if values is None:
        return Absent(f"the pool has no dimension {row!r}")
    place = found.selectors.index(wanted)
    return found_or(values[place], "no value", plain=True, remark=f"from {found.source}")


# ---- transfer --------------------------------------------------------------------------------------------------------


def _transferred(context: Context, row: str, column: str) -> Answer:
    for found in context.transfers:
        tasks = paper().tasks
        target = next((name for name in found.targets if tasks.get(name, name) == tasks.get(column, column)), None)
        if target is None:
            continue
        if row in ("Self-consistency", "Random"):
            return found_or((found.vote if row == "Self-consistency" else found.random).get(target), "no label")
        cell = found.cell(row, target)
        if cell is not None:
            return _by_mu_and_energy(cell)
        cell = found.cell(row.removesuffix(" (MB)"), target) if row.endswith("(MB)") else None
        if cell is not None:
            return _by_mu_and_energy(cell, remark="the scorer's backbone is another than ModernBERT")
    own = _in_domain(context, row, column)
    if own is not None:
        return own
    if "(DB)" in row:
        return Absent("a DeBERTa-v3 scorer needs a GPU to train", "needs a key or GPU")
    return Absent(f"no pool of {column} scored by a scorer of {row.split(' (')[0]} was given")


def _by_mu_and_energy(cell: TransferCell, *, remark: str = "") -> Answer:
    """By mu alone, as the paper's cells can only be; by E in the remark where the target's constraints change it."""
    mu, energy = cell.by_mu.pass_at_1, cell.by_energy.pass_at_1
    answer = found_or(mu, "no label", remark="; ".join(filter(None, ("by mu alone", remark))))
    if isinstance(answer, Absent) or energy == mu or energy.value is None:
        return answer
    return Found(f"{answer.text}; by E {with_interval(energy)}", answer.estimate, answer.remark)


def _in_domain(context: Context, row: str, column: str) -> Answer | None:
    """What a task's own study says: random choice, the vote, and the scorer trained on it."""
    study, tasks = context.study(column), paper().tasks
    if study is None:
        return None
    source = row.removesuffix(" (MB)")
    other = source != row and "modernbert" not in study.backbone.lower()
    names = {"Self-consistency": "majority vote", "Random": "random"}
    same = source in tasks and tasks[source] == tasks.get(column, column)
    remark = f"of {study.name}" + (", by mu alone" if same else "")
    remark += "; the scorer's backbone is another than ModernBERT" if other else ""
    selected = study.evaluation.row("mu only" if same else names.get(row, ""))
    return None if selected is None else found_or(selected.pass_at_1, "no label", remark=remark)


# ---- data ------------------------------------------------------------------------------------------------------------


def _screen(context: Context, row: str, column: str) -> Answer:
    name, repaired = row.split(" (")[0], _repair_in(row)
    if not context.studies_of(name):
        return no_pool(name)
    studies = context.studies_of(name, repaired=bool(repaired))
    if not studies:
        return Absent(_NO_REPAIR[bool(repaired)])
    study = studies[0]
    if column == "Energy spread":
        reason = "needs two generators with five correct, scored candidates each"
        return found_or(study.energy_spread, reason, plain=True)
    found = next((item for item in study.generators if _plain_group(column) in _plain_group(item.name)), None)
    return Absent("this generator is not in the pool") if found is None else found_or(found.picked, "no energies")


def _overview(context: Context, row: str, column: str) -> Answer:
    study = context.study(row)
    if study is None:
        return no_pool(row)
    found = study.overview
    size = str(found.most) if found.fewest == found.most else f"{found.fewest} to {found.most}"
    training = study.training
    if column == "Train":
        num_train = study.num_train if training is None else training.num_problems
        return Absent("not known without the run") if num_train is None else Found(str(num_train))
    if column == "Candidate accuracy":
        accuracy, remark = (found.accuracy, "test pool") if training is None else (training.accuracy, "")
        return found_or(accuracy, "no label", remark=remark)
    return Found(
        {"Test": str(found.num_problems), "N": size, "E_constraint": ", ".join(found.constraints) or "none"}[column]
    )


def _by_generator(context: Context, row: str, column: str) -> Answer:
    study = context.study(column)
    if study is None:
        return no_pool(column)
    wanted = _plain_group(row.removesuffix("-IT"))
    if study.training is not None:
        by_name = study.training.best_quarter or study.training.by_generator
        estimate = next((value for name, value in by_name.items() if wanted in _plain_group(name)), None)
        if estimate is None:
            return Absent("this generator is not in the pool")
        return found_or(
            estimate, "no label", remark="share among the best quarter" if study.training.best_quarter else ""
        )
    found = next((item for item in study.generators if wanted in _plain_group(item.name)), None)
    if found is None:
        return Absent("this generator is not in the pool")
    if found.best_quarter.value is not None:
        return found_or(found.best_quarter, "no label", remark="share among the best quarter; test pool")
    return found_or(found.accuracy, "no label", remark="test pool")


def _text(context: Context, row: str, column: str) -> Answer:
    name, what = row.split(": ", 1)
    study = context.study(name)
    if study is None:
        return no_pool(name)
    evaluation, terms = study.evaluation, study.decomposition
    if what == "pass@2 by energy":
        found = next((item for item in evaluation.pass_at_n if item.n == 2), None)
        return Absent("no energies") if found is None else by_energy_and_mu(found.by_energy, found.by_mu, "no label")
    if what.startswith("zero-violation"):
        wanted = {"ours": OURS, "random": "random", "self-consistency": "majority vote"}[what.rsplit(", ", 1)[1]]
        selected = evaluation.row(wanted)
        return found_or(None if selected is None else selected.pass_at_1, "no such selection")
    if what.startswith("mean violation"):
        selected = evaluation.row("mu only" if "mu" in what else "constraint only")
        return found_or(None if selected is None else selected.mean_violation, "no such selection", plain=True)
    if what.startswith("the "):
        estimate = None if terms is None else terms.agree if "agree" in what else terms.neither
        return found_or(estimate, "the two terms do not both choose here")
    judges = [item for item in study.judges if "judge" in item.one.lower()]
    wanted_judges = [
        item for item in judges if (item.other == VIOLATION if "violation" in what else "judge" in item.other.lower())
    ]
    if not wanted_judges:
        return Absent("judges need an API key", "needs a key or GPU")
    estimate = wanted_judges[0].spearman
    if estimate.value is None:
        return Absent("constant scores")
    if "violation" in what:  # measured against minus the violation, so that higher is better for both
        estimate = -estimate
    return Found(f"{estimate.value:.2f}", estimate)


MEASURES: dict[str, Measure] = {
    "tab:main_results": _selection,
    "tab:full_k_sweep": _ensemble_size,
    "tab:full_pool": _pool_size,
    "tab:single_multi": _single_multi,
    "tab:energy_sep": _energies,
    "tab:taco_difficulty": _by_group("TACO", {"EBM": OURS}),
    "tab:kk_difficulty": _by_group("K&K", {"EBM": OURS, "Greedy": "greedy", "Random": "random"}),
    "tab:musr_subsets": _by_group("MuSR", {"Avg. candidate accuracy": "random"}),
    "tab:selective": _selective,
    "tab:twopass": _two_pass,
    "tab:tp_perdim": _dimension,
    "tab:full_transfer": _transferred,
    "tab:cross_pool": _transferred,
    "tab:confounding_screen": _screen,
    "tab:dataset_overview": _overview,
    "tab:permodel": _by_generator,
    "text": _text,
}
