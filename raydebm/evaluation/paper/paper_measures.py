"""Cells of the paper's tables (groups, dimensions, transfer, confounding, data), and figures stated in its text."""

import re
from collections.abc import Callable, Sequence

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
from raydebm.evaluation.report.document import ece_in_words, number, points, with_interval
from raydebm.evaluation.results.entries import ALL_PASSES, DifficultyRow
from raydebm.evaluation.selectors import PAPER_RULE, SINGLE_SHOT
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.generators import GeneratorRow
from raydebm.evaluation.studies.scorers import VIOLATION, TransferCell
from raydebm.evaluation.studies.study import StudyResults

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
    "EBM+E_constraint": PAPER_RULE,
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
    by_mu, by_energy = study.evaluation.row("mu only"), study.evaluation.row(PAPER_RULE)
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
        return _by_both(single if row.startswith("Single") else several, remark)
    for variants in context.variants:
        comparison = variants.comparison(single.name, several.name, "E")
        if comparison is not None and comparison.difference.value is not None:
            difference = -comparison.difference
            return Measured(f"{points(difference)} pp, n={difference.n}", difference, remark)
    values = [_by(study, PAPER_RULE) for study in (several, single)]
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


def _by_both(study: StudyResults, remark: str) -> Answer:
    return by_energy_and_mu(_by(study, PAPER_RULE), _by(study, "mu only"), "no energies", remark=remark)


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
    return by_energy_and_mu(kind.by_energy, kind.mu_only, "no energies", remark=remark)


def cross_pool(context: Context, row: str, column: str) -> Answer:
    """Scorers trained on one generator or on several, on pools of one generator or of several."""
    several, single, cell = _crossed(context, column)
    if several is None and single is None:
        return no_pool(column)
    if row.startswith(_MULTI_MULTI):
        return Absent("no pool of several generators was given") if several is None else _by_both(several, several.name)
    if single is None:
        return Absent(_NO_SINGLE)
    if row.startswith(_SINGLE_SINGLE):
        return _by_both(single, _described(single))
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
    wanted = {"energy (paper)": PAPER_RULE, "random": "random", "self-consistency": "majority vote"}[
        what.rsplit(", ", 1)[1]
    ]
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
    return found_or(rated.oracle if "oracle" in what else rated.paper, "not rated", plain=True, remark=rated.name)


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
    if row.paper_minus.value is None:
        return Absent("no label")
    return Measured(f"{points(row.paper_minus)} pp", row.paper_minus, favourite.name)


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
    values = [row.pass_at_1[PAPER_RULE].value for row in rows if row is not None and PAPER_RULE in row.pass_at_1]
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
        once, twice = (row.pass_at_1.get(name) for name in (PAPER_RULE, ALL_PASSES))
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
    (
        "training problems with correct",
        lambda context, study, what: (
            Absent("not known without the run")
            if study.training is None
            else Measured(str(study.training.num_all_correct))
        ),
    ),
    ("ECE", lambda context, study, what: calibration_error(study)),
    ("sigma-AUROC on", _sigma_by_transfer),
    ("problems without", _unsolvable),
    ("connectivity", lambda context, study, what: NO_KEY),
    (r"always|energy \(paper\) minus", _always_the_favourite),
    ("gap between generators$", _gap_between),
    ("change on", _change_by_repair),
    ("change by two passes", _change_by_passes),
    ("", _finding),
)
"""Measures by the beginning of the row name. The first match is used."""
