"""Cells of the paper's tables: groups, dimensions, transfer, confounding, and data."""

import re
from collections.abc import Sequence

from raydebm.evaluation.paper.paper_cells import (
    MIN_PROBLEMS,
    Absent,
    Answer,
    Context,
    Measure,
    Measured,
    by_energy_and_mu,
    by_mu_and_energy,
    found_or,
    no_pool,
    paper,
    without,
)
from raydebm.evaluation.report.document import ece_in_words, number, points
from raydebm.evaluation.results.entries import OURS, DifficultyRow
from raydebm.evaluation.selectors import SINGLE_SHOT
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.study import StudyResults
from raydebm.evaluation.studies.transfer import TransferCell

_SINGLE_SHOT = {
    "Claude Opus 4.6": (re.compile(r"\bopus\W4\W6\b"), re.compile(r"\bopus\W4\b")),
    "Claude Sonnet 4.6": (re.compile(r"\bsonnet\W4\W6\b"), re.compile(r"\bsonnet\W4\b")),
    "Qwen-72B-Instruct": (re.compile(r"\bqwen\W?2\W5\b.*\b72b\b"), re.compile(r"\bqwen.*\b72b\b")),
}
"""Patterns of our row names for each of the paper's models: its own version, then another version of the same family
and major version or size. The paper's Qwen is generation 2.5, according to its reference."""


def single_shot(model: str, study: StudyResults, selectors: Sequence[str]) -> tuple[str, str] | None:
    """Row used for a paper model's single answers, and a remark with the model, its version and the number of answers.

    The paper's version is preferred to another one, and within a version the model's own row to its share of the pool.
    """
    patterns = next((patterns for name, patterns in _SINGLE_SHOT.items() if model.lower() in name.lower()), ())
    kinds = (SINGLE_SHOT, "greedy ", "generator ")
    names = [(name, name.removeprefix(kind)) for kind in kinds for name in selectors if name.startswith(kind)]
    for pattern, version in zip(patterns, ("", ", another version"), strict=bool(patterns)):
        for name, generator in names:
            written = study.models.get(generator, generator)
            if pattern.search(f"{generator} {written}".lower()):
                return name, f"here: {written}{version}; {_answers(study, name, generator)}"
    return None


def is_model_of(row: str, generator: str, model: str) -> bool:
    """Whether a generator is the model of a row of the paper, or another version of it."""
    return any(pattern.search(f"{generator} {model}".lower()) for pattern in _SINGLE_SHOT.get(row, ()))


def _answers(study: StudyResults, selector: str, generator: str) -> str:
    row = next((row for row in study.generators if row.name == generator), None)
    if not selector.startswith("generator ") or row is None or not row.accuracy.n:
        return "one answer at temperature 0"
    return f"mean of {row.num_candidates / row.accuracy.n:.3g} sampled answers"


NO_REPAIR = {
    True: "no run with a repaired scorer was given; `raydebm confounding --repair` makes one",
    False: "only a repaired scorer was given",
}


def repair_in(row: str) -> bool | None:
    """Repair status (DFR) in a row's name: before (False), after (True), or not stated (None)."""
    if "pre-DFR" in row:
        return False
    return True if "DFR" in row else None


def calibration_error(study: StudyResults) -> Answer:
    """Calibration error of the probability fitted on sigma and mu, or of the first one."""
    trust = study.evaluation.trust
    rows = () if trust is None else trust.reliabilities
    chosen = next((each for each in rows if each.name.startswith("logistic")), rows[0] if rows else None)
    if chosen is None:
        return Absent("a probability needs selections of both outcomes to be fitted on")
    if chosen.ece.value is None:
        return Absent("no label")
    estimate = Estimate(value=chosen.ece.value, low=None, high=None, n=chosen.ece.n)
    return Measured(ece_in_words(chosen.ece), estimate, f"{chosen.name}; ten bins of equal mass")


# ---- groups and dimensions -------------------------------------------------------------------------------------------


def _plain_group(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum()).rstrip("s")


def other_groups(context: Context, task: str, shown: Sequence[str]) -> list[str]:
    """Groups of a task's problems without a row, such as the difficulties of another benchmark in its column."""
    study, known = context.study(task), {_plain_group(row) for row in shown}
    rows = () if study is None else study.evaluation.difficulties
    return [row.difficulty for row in rows if _plain_group(row.difficulty) not in known]


def by_group(task: str, selectors: dict[str, str]) -> Measure:
    """Measure of a task's selector by the row's group."""

    def measure(context: Context, row: str, column: str) -> Answer:
        first = context.study(task)
        if first is None:
            return no_pool(task)
        studies = [first, *(each for each in context.studies_of(task) if len(each.overview.generators) > 1)]
        if column.startswith("Single-model "):
            studies = context.singles_of(task)
            if not studies:
                return Absent("no run on the candidates of one generator was given")
            column = {"greedy": "Greedy"}.get(column.removeprefix("Single-model "), "EBM")
        # Pools of easy and hard problems of a task may be from different runs.
        found = next(((each, group) for each in studies if (group := _group_of(each, row)) is not None), None)
        if found is None:
            return Absent(f"the pool has no group {row!r}")
        study, group = found
        other = "" if study is studies[0] else f"of {study.name}"
        if column == "n":
            return Measured(str(group.num_problems))
        if column == "n choices":
            choices = ", ".join(map(str, group.num_choices))
            return Measured(choices) if choices else Absent("the problems offer no choices")
        if column == "Random baseline":
            return (
                Absent("not all problems offer choices")
                if group.guess is None
                else Measured(f"{100 * group.guess:.1f}")
            )
        named = (selectors[column], "") if column in selectors else single_shot(column, study, list(group.pass_at_1))
        if named is None:
            return Absent("single answers of this model need an API key", "needs a key or GPU")
        wanted, remark = named
        remark = "; ".join(filter(None, (remark, other)))
        return found_or(group.pass_at_1.get(wanted), without(wanted), remark=remark)

    return measure


def _group_of(study: StudyResults, row: str) -> DifficultyRow | None:
    rows = study.evaluation.difficulties
    return next((each for each in rows if _plain_group(each.difficulty) == _plain_group(row)), None)


_DIMENSION_SELECTORS = {
    "Oracle": "oracle",
    "E_constraint only": "constraint only",
    "EBM+E_constraint": OURS,
    "EBM": "mu only",
    "Random": "random",
}


def dimension(context: Context, row: str, column: str) -> Answer:
    """Part of the TravelPlanner violation by selector."""
    study = context.study("TravelPlanner")
    if study is None:
        return no_pool("TravelPlanner")
    table = study.evaluation.dimensions
    own = _DIMENSION_SELECTORS.get(column)
    named = (own, "") if own else single_shot(column, study, () if table is None else table.selectors)
    if named is None:
        return Absent("plans of this model need an API key", "needs a key or GPU")
    if table is None:
        return Absent("the labels carry no dimensions, and no candidate breaks a constraint")
    wanted, remark = named
    if wanted not in table.selectors:
        return Absent(without(wanted))
    values = next((v for name, v in table.rows if _plain_group(name) == _plain_group(row)), None)
    if values is None:
        return Absent(f"the pool has no dimension {row!r}")
    place = table.selectors.index(wanted)
    remark = "; ".join(filter(None, (remark, f"from {table.source}")))
    return found_or(values[place], "no value", plain=True, remark=remark)


# ---- transfer --------------------------------------------------------------------------------------------------------


_CHANCE = {"Self-consistency": "majority vote", "Random": "random"}
"""Rows of the transfer table without a scorer, with their selectors."""
_BACKBONE = {"MB": "modernbert", "DB": "deberta"}


def transferred(context: Context, row: str, column: str) -> Answer:
    """Result of another task's scorer on the column's task."""
    tasks = paper().tasks
    for transfer in context.transfers:
        target = next((name for name in transfer.targets if tasks.get(name, name) == tasks.get(column, column)), None)
        if target is None:
            continue
        if row in _CHANCE:
            by_chance = (transfer.vote if row == "Self-consistency" else transfer.random).get(target)
            return _enough(found_or(by_chance, "no label"))
        sources = {row: ""} | ({row.removesuffix(" (MB)"): _OTHER_BACKBONE} if row.endswith("(MB)") else {})
        for source, remark in sources.items():
            cell, refusal = transfer.cell(source, target), transfer.refusal(source, target)
            if cell is not None:
                return _enough(_of_source(cell, row, column, remark=remark))
            if refusal is not None:
                return Absent(refusal)
    own = _in_domain(context, row, column)
    return _not_transferred(context, row, column) if own is None else own


_OTHER_BACKBONE = "the scorer's backbone is another than ModernBERT"


def _enough(answer: Answer) -> Answer:
    """The answer, or the remark that it has too few problems."""
    n = answer.estimate.n if isinstance(answer, Measured) and answer.estimate is not None else MIN_PROBLEMS
    if n >= MIN_PROBLEMS:
        return answer
    return Absent(f"tried on {n} problems, and fewer than {MIN_PROBLEMS} say little; leave out --transfer-problems")


def _of_source(cell: TransferCell, row: str, column: str, *, remark: str = "") -> Answer:
    """pass@1, or the mean violation in the one cell where the paper prints it."""
    mu, energy = cell.by_mu, cell.by_energy
    if (row, column) != ("K&K (MB)", "TP") or mu.mean_violation.value is None:
        return by_mu_and_energy(mu.pass_at_1, energy.pass_at_1, remark=remark)
    shown = f"{number(mu.mean_violation)}, n={mu.mean_violation.n}; by E {number(energy.mean_violation)}"
    words = "; ".join(filter(None, ("mean violation by mu alone, as the paper prints it", remark)))
    return Measured(shown, mu.mean_violation, words)


def _in_domain(context: Context, row: str, column: str) -> Answer | None:
    """Results in a task's own study: random choice, the vote, and its own scorer."""
    tasks, study = paper().tasks, context.study(column)
    source, _, mark = row.removesuffix(")").partition(" (")
    if mark == "DB":
        study = context.study_with(column, _BACKBONE[mark])
    if study is None:
        return None
    if row in _CHANCE:
        selected = study.evaluation.row(_CHANCE[row])
        return None if selected is None else found_or(selected.pass_at_1, "no label", remark=f"of {study.name}")
    by_mu, by_energy = study.evaluation.row("mu only"), study.evaluation.row(OURS)
    if tasks.get(source) != tasks.get(column, column) or by_mu is None:
        return None
    is_other = mark == "MB" and _BACKBONE[mark] not in study.backbone.lower()
    remark = "; ".join(filter(None, (f"of {study.name}", _OTHER_BACKBONE if is_other else "")))
    return by_mu_and_energy(by_mu.pass_at_1, None if by_energy is None else by_energy.pass_at_1, remark=remark)


def _not_transferred(context: Context, row: str, column: str) -> Absent:
    """Reason for a missing transfer cell: the source's scorer, the target's pool, or the scores."""
    source, _, mark = row.removesuffix(")").partition(" (")
    tasks = paper().tasks
    targets = {tasks.get(name, name) for transfer in context.transfers for name in transfer.targets}
    if mark == "DB" and context.study_with(source, _BACKBONE[mark]) is None:
        reason = f"no scorer of {source} with a DeBERTa-v3 backbone was given; its training needs a GPU"
        return Absent(reason, "needs a key or GPU")
    if context.study(column) is None and tasks.get(column, column) not in targets:
        return no_pool(column)
    if row in _CHANCE:
        return Absent(without(_CHANCE[row]))
    if context.study(source) is None:
        return Absent(f"no scorer of {source} was given")
    return Absent(
        f"the pool of {column} was not scored by the scorer of {source}; `raydebm reproduce --transfer` does so"
    )


# ---- data ------------------------------------------------------------------------------------------------------------


def screen(context: Context, row: str, column: str) -> Answer:
    """Figure of the confounding screen, before or after the repair."""
    name, repaired = row.split(" (")[0], repair_in(row)
    if not context.studies_of(name):
        return no_pool(name)
    studies = context.studies_of(name, repaired=bool(repaired))
    if not studies:
        return Absent(NO_REPAIR[bool(repaired)])
    study = studies[0]
    if column == "Energy spread":
        reason = "needs two generators with five correct, scored candidates each"
        return found_or(study.energy_spread, reason, plain=True)
    generator = next((each for each in study.generators if _plain_group(column) in _plain_group(each.name)), None)
    return (
        Absent("this generator is not in the pool")
        if generator is None
        else found_or(generator.picked_of_all, "no energies")
    )


def overview(context: Context, row: str, column: str) -> Answer:
    """Size and difficulty of a task's pools."""
    study = context.study(row)
    if study is None:
        return no_pool(row)
    test_pool = study.overview
    size = str(test_pool.most) if test_pool.fewest == test_pool.most else f"{test_pool.fewest} to {test_pool.most}"
    training = study.training
    if column == "Train":
        num_train = study.num_train if training is None else training.num_problems
        return Absent("not known without the run") if num_train is None else Measured(str(num_train))
    if column == "Candidate accuracy":
        accuracy, remark = (test_pool.accuracy, "test pool") if training is None else (training.accuracy, "")
        return found_or(accuracy, "no label", remark=remark)
    return Measured(
        {"Test": str(test_pool.num_problems), "N": size, "E_constraint": ", ".join(test_pool.constraints) or "none"}[
            column
        ]
    )


def by_generator(context: Context, row: str, column: str) -> Answer:
    """Accuracy of one generator."""
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
    generator = next((each for each in study.generators if wanted in _plain_group(each.name)), None)
    if generator is None:
        return Absent("this generator is not in the pool")
    if generator.best_quarter.value is not None:
        return found_or(generator.best_quarter, "no label", remark="share among the best quarter; test pool")
    return found_or(generator.accuracy, "no label", remark="test pool")


def example(context: Context, row: str, column: str) -> Answer:
    """Problem, selection and label in words."""
    study = context.study(row)
    if study is None:
        return no_pool(row)
    shown = study.example
    if shown is None:
        return Absent("no candidate has energies")
    verdict = {True: "correct", False: "incorrect", None: "unlabeled"}[shown.correct]
    violation = "" if shown.violation is None else f", violation score {shown.violation:.3f}"
    texts = {
        "Problem": shown.prompt,
        "Candidate": f"{shown.generator}: {shown.text}",
        "Verdict": f"{verdict}{violation}, E = {shown.energy:.2f}",
    }
    return Measured(texts[column])


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
