"""Cells of the paper's tables (groups, dimensions, transfer, confounding, data), and figures stated in its text."""

import re
from collections.abc import Callable, Sequence

from raydebm.evaluation.paper.paper_cells import (
    MIN_PROBLEMS,
    NEEDED,
    Context,
    Measure,
    Measured,
    NoValueError,
    by_energy_and_mu,
    by_mu_and_energy,
    joined,
    measured,
    needed,
    no_pool,
    paper,
    selected,
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
"""Patterns of generator names for each of the paper's models: its own version first, then close relatives. The
paper's Qwen is generation 2.5, according to its reference."""


def single_shot(model: str, study: StudyResults, selectors: Sequence[str]) -> tuple[str, str]:
    """Row used for a paper model's single answers, and a remark with the model, its version and the number of answers.

    The paper's version is preferred to another one, and within a version, single-shot answers to greedy ones, and these
    to the pool's candidates.

    Raises:
        NoValueError: no generator is this model.
    """
    patterns = next((patterns for name, patterns in _SINGLE_SHOT.items() if model.lower() in name.lower()), ())
    kinds = (SINGLE_SHOT, "greedy ", "generator ")
    names = [(name, name.removeprefix(kind)) for kind in kinds for name in selectors if name.startswith(kind)]
    for pattern, version in zip(patterns, ("", ", another version"), strict=bool(patterns)):
        for name, generator in names:
            written = study.models.get(generator, generator)
            if pattern.search(f"{generator} {written}".lower()):
                return name, f"here: {written}{version}; {_answers(study, name, generator)}"
    raise NoValueError("answers of this model need an API key", NEEDED)


def is_model_of(row: str, generator: str, model: str) -> bool:
    """Whether a generator is the model of a row of the paper, or another version of it."""
    return any(pattern.search(f"{generator} {model}".lower()) for pattern in _SINGLE_SHOT.get(row, ()))


def _answers(study: StudyResults, selector: str, generator: str) -> str:
    row = next((row for row in study.generators if row.name == generator), None)
    if not selector.startswith("generator ") or row is None or not row.accuracy.n:
        return "one answer at temperature 0"
    return f"mean of {row.num_candidates / row.accuracy.n:.3g} sampled answers"


def repair_in(row: str) -> bool | None:
    """Repair status (DFR) in a row's name: before (False), after (True), or not stated (None)."""
    if "pre-DFR" in row:
        return False
    return True if "DFR" in row else None


def calibration_error(study: StudyResults) -> Measured:
    """Calibration error of the logistic regression of the signals, or of the first probability without one."""
    trust = study.evaluation.trust
    rows = () if trust is None else trust.reliabilities
    chosen = next((each for each in rows if each.name.startswith("logistic")), rows[0] if rows else None)
    chosen = needed(chosen, "a probability is fitted on correct and incorrect selections, and one kind is missing")
    estimate = Estimate(value=needed(chosen.ece.value, "no label"), low=None, high=None, n=chosen.ece.n)
    return Measured(ece_in_words(chosen.ece), estimate, f"{chosen.name}; ten bins of equal mass")


# ---- groups and dimensions -------------------------------------------------------------------------------------------


def _plain_group(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum()).rstrip("s")


def other_groups(context: Context, task: str, shown: Sequence[str]) -> list[str]:
    """Groups of a task's problems that have no row, such as the difficulties of another benchmark in its column."""
    study, known = context.study(task), {_plain_group(row) for row in shown}
    rows = () if study is None else study.evaluation.difficulties
    return [row.difficulty for row in rows if _plain_group(row.difficulty) not in known]


def by_group(task: str, selectors: dict[str, str]) -> Measure:
    """Measure of a task's selectors (columns) on groups of its problems (rows)."""

    def measure(context: Context, row: str, column: str) -> Measured:
        first = context.needed(task)
        studies = [first, *(each for each in context.studies_of(task) if len(each.overview.generators) > 1)]
        if column.startswith("Single-model "):
            studies = context.singles_of(task)
            if not studies:
                raise NoValueError("no run on the candidates of one generator was given")
            column = {"greedy": "Greedy"}.get(column.removeprefix("Single-model "), "EBM")
        # Pools of easy and hard problems of a task may be from different runs.
        found = ((each, group) for each in studies if (group := _group_of(each, row)) is not None)
        study, group = needed(next(found, None), f"the pool has no group {row!r}")
        if column == "n":
            return Measured(str(group.num_problems))
        if column == "n choices":
            return Measured(needed(", ".join(map(str, group.num_choices)) or None, "the problems offer no choices"))
        if column == "Random baseline":
            return Measured(f"{100 * needed(group.guess, 'not all problems offer choices'):.1f}")
        own = selectors.get(column)
        wanted, remark = (own, "") if own else single_shot(column, study, list(group.pass_at_1))
        remark = joined(remark, "" if study is studies[0] else f"of {study.name}")
        return measured(group.pass_at_1.get(wanted), without(wanted), remark=remark)

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


def dimension(context: Context, row: str, column: str) -> Measured:
    """Part of the TravelPlanner violation by selector."""
    study = context.needed("TravelPlanner")
    table = study.evaluation.dimensions
    own = _DIMENSION_SELECTORS.get(column)
    wanted, remark = (own, "") if own else single_shot(column, study, () if table is None else table.selectors)
    table = needed(table, "the labels have no dimensions, and no candidate violates a constraint")
    if wanted not in table.selectors:
        raise NoValueError(without(wanted))
    values = next((v for name, v in table.rows if _plain_group(name) == _plain_group(row)), None)
    estimate = needed(values, f"the pool has no dimension {row!r}")[table.selectors.index(wanted)]
    return measured(estimate, "no value", plain=True, remark=joined(remark, f"from {table.source}"))


# ---- transfer --------------------------------------------------------------------------------------------------------


_CHANCE = {"Self-consistency": "majority vote", "Random": "random"}
"""Rows of the transfer table without a scorer, with their selectors."""
_OTHER_BACKBONE = "the scorer's backbone is not ModernBERT"


def transferred(context: Context, row: str, column: str) -> Measured:
    """Result of another task's scorer on the column's task."""
    tasks = paper().tasks
    for transfer in context.transfers:
        target = next((name for name in transfer.targets if tasks.get(name, name) == tasks.get(column, column)), None)
        if target is None:
            continue
        if row in _CHANCE:
            by_chance = (transfer.vote if row == "Self-consistency" else transfer.random).get(target)
            return _enough(measured(by_chance, "no label"))
        sources = {row: ""} | ({row.removesuffix(" (MB)"): _OTHER_BACKBONE} if row.endswith("(MB)") else {})
        for source, remark in sources.items():
            if (cell := transfer.cell(source, target)) is not None:
                return _enough(_of_source(cell, row, column, remark=remark))
            if (refusal := transfer.refusal(source, target)) is not None:
                raise NoValueError(refusal)
    return _in_domain(context, row, column)


def _enough(figure: Measured) -> Measured:
    """Return the figure. Raises NoValueError if it has too few problems."""
    n = MIN_PROBLEMS if figure.estimate is None else figure.estimate.n
    if n >= MIN_PROBLEMS:
        return figure
    raise NoValueError(
        f"tried on {n} problems only; leave out --transfer-problems to try all ({MIN_PROBLEMS} are needed)"
    )


def _of_source(cell: TransferCell, row: str, column: str, *, remark: str = "") -> Measured:
    """pass@1, but the mean violation in the one cell where the paper prints it."""
    mu, energy = cell.by_mu, cell.by_energy
    if (row, column) != ("K&K (MB)", "TP") or mu.mean_violation.value is None:
        return by_mu_and_energy(mu.pass_at_1, energy.pass_at_1, remark=remark)
    shown = f"{number(mu.mean_violation)}, n={mu.mean_violation.n}; by E {number(energy.mean_violation)}"
    return Measured(shown, mu.mean_violation, joined("mean violation by mu alone, as the paper prints it", remark))


def _in_domain(context: Context, row: str, column: str) -> Measured:
    """Results in a task's own study (random choice, the vote, its own scorer), or the reason why a scorer was not
    tried on the task."""
    tasks, study = paper().tasks, context.study(column)
    source, _, mark = row.removesuffix(")").partition(" (")
    own = tasks.get(source) == tasks.get(column, column)
    if mark == "DB":
        deberta = context.on_deberta(source)
        study = deberta if own else study
    if study is not None and row in _CHANCE:
        return measured(selected(study, _CHANCE[row]).pass_at_1, "no label", remark=f"of {study.name}")
    by_mu = None if study is None or not own else study.evaluation.row("mu only")
    if study is not None and by_mu is not None:
        by_energy = study.evaluation.row(PAPER_RULE)
        is_other = mark == "MB" and "modernbert" not in study.backbone.lower()
        remark = joined(f"of {study.name}", _OTHER_BACKBONE if is_other else "")
        return by_mu_and_energy(by_mu.pass_at_1, None if by_energy is None else by_energy.pass_at_1, remark=remark)
    targets = {tasks.get(name, name) for transfer in context.transfers for name in transfer.targets}
    if study is None and tasks.get(column, column) not in targets:
        raise NoValueError(no_pool(column))
    if context.study(source) is None:
        raise NoValueError(f"no scorer of {source} was given")
    raise NoValueError(
        f"the pool of {column} was not scored by the scorer of {source}; `raydebm reproduce --transfer` does so"
    )


# ---- data ------------------------------------------------------------------------------------------------------------


def _by(rows: Sequence[GeneratorRow], word: str) -> GeneratorRow:
    """Row of the generator with this word in its name. Raises NoValueError without one."""
    row = next((row for row in rows if _plain_group(word) in _plain_group(row.name)), None)
    return needed(row, "this generator is not in the pool")


def screen(context: Context, row: str, column: str) -> Measured:
    """Figure of the confounding screen, before or after the repair."""
    name, repaired = row.split(" (")[0], repair_in(row)
    study = context.with_repair(name, repaired=bool(repaired))[0]
    if column == "Energy spread":
        reason = "needs two generators with five correct, scored candidates each"
        return measured(study.energy_spread, reason, plain=True)
    return measured(_by(study.generators, column).picked, "no energies")


def overview(context: Context, row: str, column: str) -> Measured:
    """Size and difficulty of a task's pools."""
    study = context.needed(row)
    pool, training = study.overview, study.training
    if column == "Train":
        num_train = study.num_train if training is None else training.num_problems
        return Measured(str(needed(num_train, _UNKNOWN)))
    if column == "Candidate accuracy":
        accuracy, remark = (pool.accuracy, "test pool") if training is None else (training.accuracy, "")
        return measured(accuracy, "no label", remark=remark)
    facts = {"Test": str(pool.num_problems), "N": pool.size, "E_constraint": ", ".join(pool.constraints) or "none"}
    return Measured(facts[column])


def by_generator(context: Context, row: str, column: str) -> Measured:
    """Accuracy of one generator."""
    study, wanted = context.needed(column), row.removesuffix("-IT")
    best = "share among the best quarter"
    if study.training is not None:
        by_name = study.training.best_quarter or study.training.by_generator
        names = (name for name in by_name if _plain_group(wanted) in _plain_group(name))
        name = needed(next(names, None), "this generator is not in the pool")
        return measured(by_name[name], "no label", remark=best if study.training.best_quarter else "")
    generator = _by(study.generators, wanted)
    if generator.best_quarter.value is not None:
        return measured(generator.best_quarter, "no label", remark=f"{best}; test pool")
    return measured(generator.accuracy, "no label", remark="test pool")


def example(context: Context, row: str, column: str) -> Measured:
    """Problem, selection and label in words."""
    shown = needed(context.needed(row).example, "no candidate has energies")
    verdict = {True: "correct", False: "incorrect", None: "unlabeled"}[shown.correct]
    violation = "" if shown.violation is None else f", violation score {shown.violation:.3f}"
    texts = {
        "Problem": shown.prompt,
        "Candidate": f"{shown.generator}: {shown.text}",
        "Verdict": f"{verdict}{violation}, E = {shown.energy:.2f}",
    }
    return Measured(texts[column])


_NO_SINGLE = "no scorer trained on one generator was given; a variant with one of the recipe's `generators` makes one"


def single_multi(context: Context, row: str, column: str) -> Measured:
    """Result of a scorer trained and tested on one generator, or on as many candidates of several."""
    context.needed(column)
    single = needed(next(iter(context.singles_of(column)), None), _NO_SINGLE)
    several = context.on_several_generators(column, size=single.overview.most)
    several = needed(several, "the pool has one generator only")
    remark = f"single: {_described(single)}, multi: {_described(several)}"
    if single.overview.most != several.overview.most:
        remark += "; of different sizes, unlike the paper's"
    if row != "Delta":
        return _by_both(single if row.startswith("Single") else several, remark)
    for variants in context.variants:
        comparison = variants.comparison(single.name, several.name, "E")
        if comparison is not None and comparison.difference.value is not None:
            difference = -comparison.difference
            return Measured(f"{points(difference)} pp, n={difference.n}", difference, remark)
    one, other = (needed(selected(study, PAPER_RULE).pass_at_1.value, "no label") for study in (several, single))
    return Measured(f"{100 * (one - other):+.1f} pp", None, f"{remark}; of two runs, not paired")


def _described(study: StudyResults) -> str:
    generators = study.overview.generators
    who = f"{len(generators)} generators" if len(generators) > 1 else generators[0]
    return f"{study.name}, {who}, {study.overview.most} candidates"


def _by_both(study: StudyResults, remark: str) -> Measured:
    by_energy, by_mu = (selected(study, name).pass_at_1 for name in (PAPER_RULE, "mu only"))
    return by_energy_and_mu(by_energy, by_mu, "no energies", remark=remark)


def cross_pool(context: Context, row: str, column: str) -> Measured:
    """Scorers trained on one generator or on several, on pools of one generator or of several."""
    several, single, cell = _crossed(context, column)
    if several is None and single is None:
        raise NoValueError(no_pool(column))
    if row.startswith("Multi-train, multi-test"):
        several = needed(several, "no pool of several generators was given")
        return _by_both(several, several.name)
    single = needed(single, _NO_SINGLE)
    if row.startswith("Single-train, single-test"):
        return _by_both(single, _described(single))
    cell = needed(cell, f"the pool of several generators was not scored by {single.name}")
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
    return context.on_several_generators(column), next(iter(singles), None), None


# ---- figures in the text ---------------------------------------------------------------------------------------------


_UNKNOWN = "not known without the run"
_NO_KEY = "judges and frontier models need an API key"


def text_claim(context: Context, row: str, column: str) -> Measured:
    """Figure stated in the paper's text. Row names have the form "task: figure"."""
    name, what = row.split(": ", 1)
    task, repaired = name.split(" (")[0], repair_in(name)
    if "DeBERTa" in name:
        study = context.on_deberta(task)
    elif repaired is not None:
        study = context.with_repair(task, repaired=repaired)[0]
    else:
        study = context.needed(task)
    measure = next(measure for pattern, measure in _CLAIMS if re.match(pattern, what))
    return measure(context, study, what)


def _pass_at_2(context: Context, study: StudyResults, what: str) -> Measured:
    row = needed(next((each for each in study.evaluation.pass_at_n if each.n == 2), None), "no energies")
    return by_energy_and_mu(row.by_energy, row.by_mu, "no label")


def _two_terms(context: Context, study: StudyResults, what: str) -> Measured:
    terms, reason = study.decomposition, "only one of the two terms differs between candidates"
    estimate = None if terms is None else terms.agree if "agree" in what else terms.neither
    return measured(estimate, reason)


def _rating(context: Context, study: StudyResults, what: str) -> Measured:
    rated = needed(next((each for each in study.rated if "judge" in each.name.lower()), None), _NO_KEY, NEEDED)
    return measured(rated.oracle if "oracle" in what else rated.paper, "not rated", plain=True, remark=rated.name)


def _rank_correlation(context: Context, study: StudyResults, what: str) -> Measured:
    """Rank correlation of two judges, or of a judge and the violation (``study.judges`` has it with the opposite
    sign)."""
    of_violation = "violation" in what
    judges = (each for each in study.judges if "judge" in each.one.lower())
    wanted = (each for each in judges if (each.other == VIOLATION if of_violation else "judge" in each.other.lower()))
    estimate = needed(next(wanted, None), _NO_KEY, NEEDED).spearman
    if of_violation:
        estimate = -estimate
    return Measured(f"{needed(estimate.value, 'constant scores'):.2f}", estimate)


def _fit(context: Context, study: StudyResults, what: str) -> Measured:
    fit = needed(study.fit, _UNKNOWN)
    if what.startswith("lowest"):
        return Measured(_range([f"{loss:.3g}" for loss in fit.losses]))
    if what.startswith("epochs"):
        return Measured(_range([str(epochs) for epochs in fit.num_epochs]))
    return Measured(str(fit.num_usable if what.startswith("usable") else fit.num_pairs))


def _range(shown: list[str]) -> str:
    ends = sorted(set(shown), key=float)
    if not ends:
        raise NoValueError("no validation")
    return ends[0] if len(ends) == 1 else f"{ends[0]}-{ends[-1]}"


def _sigma_by_transfer(context: Context, study: StudyResults, what: str) -> Measured:
    sources, targets = ("GSM8K (MB)", "GSM8K"), ("TP", "TravelPlanner")
    cells = [transfer.cell(one, other) for transfer in context.transfers for one in sources for other in targets]
    reason = "GSM8K's scorer was not tried on TravelPlanner; `raydebm reproduce --transfer` does so"
    cell = needed(next((cell for cell in cells if cell is not None), None), reason)
    return measured(cell.by_mu.sigma_auroc, "both outcomes are needed", plain=True)


def _unsolvable(context: Context, study: StudyResults, what: str) -> Measured:
    share = study.overview.solvable
    value, low, high = (None if bound is None else 1 - bound for bound in (share.value, share.high, share.low))
    return measured(Estimate(value=value, low=low, high=high, n=share.n), "no label")


def _always_the_favourite(context: Context, study: StudyResults, what: str) -> Measured:
    picked = {row.name: row.picked.value for row in study.generators if row.picked.value is not None}
    favourite = max(picked, key=lambda name: picked[name]) if len(picked) > 1 else None
    row = needed(study.evaluation.row(f"generator {favourite}"), "needs energies and two generators")
    if what.startswith("always"):
        return measured(row.pass_at_1, "no label", remark=str(favourite))
    needed(row.paper_minus.value, "no label")
    return Measured(f"{points(row.paper_minus)} pp", row.paper_minus, str(favourite))


def _gap_between(context: Context, study: StudyResults, what: str) -> Measured:
    means = sorted((row.mu_correct.value, row.name) for row in study.generators if row.mu_correct.value is not None)
    if len(means) < 2:
        raise NoValueError("needs correct, scored candidates of two generators")
    (low, best), (high, worst) = means[0], means[-1]
    return Measured(f"{high - low:.2f}", None, f"{best} to {worst}")


def _change_by_repair(context: Context, study: StudyResults, what: str) -> Measured:
    group = what.removeprefix("change on ").removesuffix(" problems")
    values, numbers = [], []
    for each in (context.with_repair("TACO", repaired=False)[0], study):
        rows = (row for row in each.evaluation.difficulties if row.difficulty.upper() == group)
        row = needed(next(rows, None), f"the pool has no group {group!r}")
        estimate = row.pass_at_1.get(PAPER_RULE)
        values.append(needed(None if estimate is None else estimate.value, "no label"))
        numbers.append(row.num_problems)
    shown = f"{100 * (values[1] - values[0]):+.1f} pp, n={min(numbers)}"
    return Measured(shown, None, "of two scorers, not paired")


def _change_by_passes(context: Context, study: StudyResults, what: str) -> Measured:
    reason = "no run on the candidates of one generator was given"
    single = needed(next(iter(context.singles_of("K&K")), None), reason)
    first, last = map(int, re.findall(r"\d+", what))
    changes = []
    for row in single.evaluation.difficulties:
        people = re.match(r"(\d+) people", row.difficulty)
        once, twice = (row.pass_at_1.get(name) for name in (PAPER_RULE, ALL_PASSES))
        if people and first <= int(people[1]) <= last and once and twice and once.value is not None:
            changes.append(100 * ((twice.value or 0.0) - once.value))
    if not changes:
        raise NoValueError(without(ALL_PASSES))
    return Measured(f"{min(changes):+.1f} to {max(changes):+.1f} pp", None, single.name)


_MISSING = {
    "wrong answers": _UNKNOWN,
    "change of mu": "no style swap was made; it needs generators that rewrite answers",
    "share of the parameters": "in the repair's own report (`raydebm confounding --repair`)",
    "gap within a generator": "needs correct and incorrect candidates of the same generators",
}


def _finding(context: Context, study: StudyResults, what: str) -> Measured:
    """Figure of the confounding report or of the labels, by name."""
    estimate = study.findings.get(what)
    if estimate is None or estimate.value is None:
        reasons = (_MISSING[key] for key in _MISSING if what.startswith(key) and not what.endswith("without style"))
        ablation = "the ablation of style was not made; `raydebm reproduce --confounding` does so"
        raise NoValueError(next(reasons, ablation if "," in what else "no energies"))
    if what.startswith(("wrong answers", "share", "pass@1")):
        return Measured(f"{with_interval(estimate)}, n={estimate.n}", estimate)
    if what.startswith(("selections", "wrong selections")):
        return Measured(f"{estimate.value:g} of {estimate.n}")
    return measured(estimate, "no value", plain=True)


def _no_key(context: Context, study: StudyResults, what: str) -> Measured:
    raise NoValueError(_NO_KEY, NEEDED)


def _pass_at_1(selector: str) -> Callable[[Context, StudyResults, str], Measured]:
    return lambda context, study, what: measured(selected(study, selector).pass_at_1, without(selector))


def _mean_violation(selector: str) -> Callable[[Context, StudyResults, str], Measured]:
    return lambda context, study, what: measured(
        selected(study, selector).mean_violation, "no violation score", plain=True
    )


_CLAIMS: tuple[tuple[str, Callable[[Context, StudyResults, str], Measured]], ...] = (
    ("pass@2", _pass_at_2),
    ("zero-violation.*energy", _pass_at_1(PAPER_RULE)),
    ("zero-violation.*random", _pass_at_1("random")),
    ("zero-violation.*self-consistency", _pass_at_1("majority vote")),
    ("mean violation, mu", _mean_violation("mu only")),
    ("mean violation", _mean_violation("constraint only")),
    ("the two terms|the pick", _two_terms),
    ("judge's rating", _rating),
    ("two judges|judge and", _rank_correlation),
    ("usable|pairs|lowest|epochs", _fit),
    (
        "training problems with correct",
        lambda context, study, what: Measured(str(needed(study.training, _UNKNOWN).num_all_correct)),
    ),
    ("ECE", lambda context, study, what: calibration_error(study)),
    ("sigma-AUROC on", _sigma_by_transfer),
    ("problems without", _unsolvable),
    ("connectivity", _no_key),
    (r"always|energy \(paper\) minus", _always_the_favourite),
    ("gap between generators$", _gap_between),
    ("change on", _change_by_repair),
    ("change by two passes", _change_by_passes),
    ("", _finding),
)
"""Measures by the beginning of the row name. The first match is used."""
