"""Summary over several trainings as documents (Markdown, JSON, one HTML page) and as tables by problem."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from raydebm.evaluation.certainty.signals import SIGMA
from raydebm.evaluation.certainty.trust import CONFIDENCE, LEARNED
from raydebm.evaluation.provenance import versions
from raydebm.evaluation.report.document import Chapter, Plate, ReportDocument, plate_of
from raydebm.evaluation.report.evaluation_tables import comparison_table, reliability_table, texts_table
from raydebm.evaluation.report.headline import unread_problems
from raydebm.evaluation.report.study_figures import reliability_figure
from raydebm.evaluation.report.table_cells import (
    Cell,
    Table,
    decimal,
    ece_in_words,
    number,
    points,
    table_of,
    with_interval,
)
from raydebm.evaluation.results.entries import OURS, VOTE
from raydebm.evaluation.stats.significance import ALPHA
from raydebm.evaluation.trainings.training_summary import (
    Training,
    TrainingRow,
    TrainingSignal,
    TrainingSummary,
)
from raydebm.run.codec import Codec
from raydebm.run.directory import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorValue:
    """Value of a selector on one problem in one training. NaN without a value. Fold 0 without folds."""

    problem_id: str
    fold: int
    seed: int
    selector: str
    correct: float
    violation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalValue:
    """Value of a certainty signal on one problem in one training. ``correct`` and ``violation`` describe the selection
    by energy."""

    problem_id: str
    fold: int
    seed: int
    signal: str
    value: float
    correct: float
    violation: float


SELECTORS = Codec(SelectorValue, int32=("fold",))
SIGNALS = Codec(SignalValue, int32=("fold",))


def write_summary(summary: TrainingSummary, trainings: Sequence[Training], run: RunDir, *, command: str) -> str:
    """Write folds.json, report.md, report.html, selectors.parquet and signals.parquet below ``<run>/folds/``; without
    folds, seeds.json and the others below ``<run>/seeds/``.

    Args:
        trainings: Trainings of the summary.

    Returns:
        The page's address.
    """
    stage = "folds" if summary.folds else "seeds"
    run.write_records(SELECTORS, _selector_values(trainings), stage, "selectors.parquet")
    run.write_records(SIGNALS, _signal_values(trainings), stage, "signals.parquet")
    run.write_json(summary.to_json(), stage, f"{stage}.json")
    return document(summary, command=command).write(run, stage)


def _selector_values(trainings: Sequence[Training]) -> Iterator[SelectorValue]:
    for training in trainings:
        fold, seed = training.facts.fold or 0, training.facts.seed
        for entry in training.entries:
            for row, problem_id in enumerate(training.problem_ids):
                yield SelectorValue(
                    problem_id=problem_id,
                    fold=fold,
                    seed=seed,
                    selector=entry.name,
                    correct=float(entry.correct[row]),
                    violation=float(entry.violation[row]),
                )


def _signal_values(trainings: Sequence[Training]) -> Iterator[SignalValue]:
    for training in trainings:
        certainty, fold, seed = training.certainty, training.facts.fold or 0, training.facts.seed
        if certainty is None:
            continue
        for signal in certainty.signals:
            for row, problem_id in enumerate(training.problem_ids):
                yield SignalValue(
                    problem_id=problem_id,
                    fold=fold,
                    seed=seed,
                    signal=signal.name,
                    value=float(signal.values[row]),
                    correct=float(certainty.correct[row]),
                    violation=float(certainty.violation[row]),
                )


def document(summary: TrainingSummary, *, command: str) -> ReportDocument:
    """Summary, tables and figures, and the information that reproduces the numbers."""
    count = f"{len(summary.folds)} folds" if summary.folds else f"{len(summary.seeds)} seeds"
    return ReportDocument(
        title=f"{summary.title}: {count}",
        summary=(in_words(summary),),
        chapters=(
            Chapter(title="Tables", tables=training_tables(summary)),
            Chapter(title="Figures", plates=_plates(summary)),
        ),
        provenance={
            "command": command,
            "intervals": "95 %, percentile bootstrap over problems of each problem's mean over trainings",
            "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        },
    )


# ---- in words --------------------------------------------------------------------------------------------------------


def in_words(summary: TrainingSummary) -> str:
    """Results in sentences, generated from the numbers."""
    count = len(summary.seeds)
    trainings = "one training" if count == 1 else f"{count} trainings"
    opening = (
        f"{summary.num_problems} problems of task {summary.task}, each tested once in {len(summary.folds)} folds, by "
        f"{trainings} on the other folds."
        if summary.folds
        else f"{trainings} on {summary.num_problems} test problems of task {summary.task}."
    )
    text = [
        *unread_problems(summary.texts_read),
        opening,
        *_selectors_in_words(summary),
        _signals_in_words(summary),
        *(f"ECE of {row.name}: {ece_in_words(row.ece)}." for row in summary.confidence),
    ]
    return " ".join(filter(None, text))


def _selectors_in_words(summary: TrainingSummary) -> list[str]:
    """Results of the selectors, with those that ours is significantly better and worse than after correction. Empty
    without ours and its bounds."""
    by_name = {row.name: row for row in summary.rows}
    if not {OURS, "random", "oracle"} <= by_name.keys():
        return []
    ours, continuous = by_name[OURS], summary.is_continuous
    shown = {"mu + lambda E": OURS, "random choice": "random", "majority vote": VOTE, "the oracle": "oracle"}
    values = [
        f"{title} {number(row.mean_violation) if continuous else with_interval(row.pass_at_1)}"
        for title, name in shown.items()
        if (row := by_name.get(name)) is not None
    ]
    what = "Mean violation (lower is better)" if continuous else "Correct, in %"
    text = [
        f"{what}: {', '.join(values)}; 95 % intervals over problems in brackets.",
        f"Energy closes {with_interval(ours.gap_closed)} % of the gap between random choice and the oracle.",
    ]
    verdicts = {row.other: row.verdict for row in summary.comparisons if row.one == OURS}
    for title, verdict in (("Better", "better"), ("Worse", "worse")):
        names = [name for name in by_name if verdicts.get(name) == verdict]
        if names:
            text.append(f"{title} than (p < {ALPHA:g} after Holm's correction): {', '.join(names)}.")
    if ours.sd_of_seeds is not None:
        unit = "mean violation" if continuous else "points of pass@1"
        spread = f"{ours.sd_of_seeds if continuous else 100 * ours.sd_of_seeds:.3g}"
        text.append(f"From one training to another it varies by {spread} {unit} (standard deviation).")
    return text


def _best_signal(summary: TrainingSummary) -> TrainingSignal | None:
    known = [row for row in summary.signals if row.gain_at_80.value is not None]
    return max(known, key=lambda row: row.gain_at_80.value or 0.0, default=None)


def _signals_in_words(summary: TrainingSummary) -> str:
    """Effect of abstention by sigma, by the learned signal and by the best one. Empty without signals."""
    best = _best_signal(summary)
    if best is None:
        return ""
    unit = "" if summary.is_continuous else " points"
    # Sigma is the paper's signal and the others were fitted on validation: they are not chosen in hindsight.
    fixed = [row for row in summary.signals if row.name in (SIGMA, LEARNED, CONFIDENCE)]
    parts = [f"by {row.name} {_gain(row, summary)}{unit} ({_verdict(row)})" for row in fixed]
    if best not in fixed:
        which = f"the best of {len(summary.signals)} signals, in hindsight"
        parts.append(f"by {best.name} {_gain(best, summary)}{unit} ({which})")
    what = "1 - violation changes" if summary.is_continuous else "accuracy changes"
    return f"Where the least certain fifth is not answered, {what} {'; '.join(parts)}."


def _verdict(row: TrainingSignal) -> str:
    low, high = row.gain_at_80.low, row.gain_at_80.high
    if low is None or high is None:
        return "interval unknown"
    return "helps" if low > 0 else "harms" if high < 0 else "not shown to help"


def _gain(row: TrainingSignal, summary: TrainingSummary) -> str:
    return number(row.gain_at_80, signed=True) if summary.is_continuous else points(row.gain_at_80)


# ---- tables and figures ----------------------------------------------------------------------------------------------


def training_tables(summary: TrainingSummary) -> list[Table]:
    """Tables with rows."""
    tables = [
        _selector_table(summary),
        _by_training(summary),
        _facts_table(summary),
        _signal_table(summary),
        comparison_table(summary.comparisons, what="violation avoided" if summary.is_continuous else "pass@1"),
        _decision_table(summary),
        reliability_table("Calibration of confidence", summary.confidence),
        texts_table(summary.texts_read),
    ]
    return [table for table in tables if table.rows]


def _selector_table(summary: TrainingSummary) -> Table:
    continuous, digits, scale = summary.is_continuous, *((3, 1) if summary.is_continuous else (1, 100))
    caption = (
        f"{summary.num_problems} problems, means over seeds {', '.join(map(str, summary.seeds))}"
        + (f", each tested once by a training on other folds ({len(summary.folds)} folds)" if summary.folds else "")
        + ". The interval resamples problems; a standard deviation over seeds is zero for rules that use no training, "
        "and one over folds holds other problems and another training. Gap closed: 0 is random choice, 100 the oracle. "
        f"Ours minus it: {'violation avoided by ours' if continuous else 'percentage points'}, paired by problem."
    )
    if summary.absent:
        absent = "; ".join(f"{name} in {', '.join(map(str, folds))}" for name, folds in summary.absent.items())
        caption += f" Not every fold has every selector and signal, and n is then smaller. Absent: {absent}."
    spreads: dict[str, Callable[[TrainingRow], Cell]] = {}
    if len(summary.seeds) > 1:
        spreads["sd over seeds"] = lambda row: decimal(row.sd_of_seeds, digits, scale=scale)
    if summary.folds:
        spreads["sd over folds"] = lambda row: decimal(row.sd_of_folds, digits, scale=scale)
    worth: dict[str, Callable[[TrainingRow], Cell]] = {"pass@1 %": lambda row: row.pass_at_1}
    if continuous:
        worth = {"mean violation": lambda row: number(row.mean_violation), **worth}

    def minus(row: TrainingRow) -> str:
        shown = number(row.ours_minus, signed=True) if continuous else points(row.ours_minus)
        return "" if row.name == OURS else shown

    return table_of(
        "Selectors",
        caption,
        summary.rows,
        {
            "selector": lambda row: row.name,
            **worth,
            **spreads,
            "gap closed %": lambda row: row.gap_closed,
            "ours minus it": minus,
            "n": lambda row: (row.mean_violation if continuous else row.pass_at_1).n,
        },
        emphasised=lambda row: row.group == "ours",
    )


def _by_training(summary: TrainingSummary) -> Table:
    what, scale, digits = ("mean violation", 1.0, 3) if summary.is_continuous else ("pass@1 %", 100.0, 1)

    def at(field: str, index: int) -> Callable[[TrainingRow], Cell]:
        return lambda row: decimal(getattr(row, field)[index], digits, scale=scale)

    by_fold = {f"fold {fold}": at("by_fold", index) for index, fold in enumerate(summary.folds)}
    by_seed = {f"seed {seed}": at("by_seed", index) for index, seed in enumerate(summary.seeds)}
    return table_of(
        "Fold by fold" if by_fold else "Training by training",
        f"{what} on each fold's test problems, mean over seeds, and on all problems by seed.",
        summary.rows,
        {"selector": lambda row: row.name, **by_fold, **(by_seed if len(by_seed) > 1 else {})},
        emphasised=lambda row: row.group == "ours",
    )


def _facts_table(summary: TrainingSummary) -> Table:
    return table_of(
        "Trainings",
        "Problems tested, problems for training, and problems for early stopping and for whatever is chosen or "
        "fitted afterwards; pairs of candidates that training compares; lambda as calibrated. AUROC of -sigma above "
        "0.5: a low sigma signals a correct selection. AUROC of -mu within one generator ranks answers of the same "
        "author only, so that knowing the author cannot help.",
        summary.trainings,
        {
            "fold": lambda row: row.fold,
            "seed": lambda row: str(row.seed),
            "tested": lambda row: row.num_test,
            "training": lambda row: row.num_train,
            "validation": lambda row: row.num_validation,
            "training pairs": lambda row: row.num_pairs,
            "lambda": lambda row: f"{row.lambda_:g}",
            "AUROC of -sigma": lambda row: decimal(row.sigma_auroc),
            "AUROC of -mu within one generator": lambda row: decimal(row.within_generator),
            "confounding screen": lambda row: row.screen or None,
        },
    )


def _signal_table(summary: TrainingSummary) -> Table:
    best, continuous = _best_signal(summary), summary.is_continuous
    what = "1 - violation" if continuous else "accuracy %"
    scale, digits = (1.0, 3) if continuous else (100.0, 1)

    def mean_of_folds(row: TrainingSignal) -> str:
        known = [value for value in row.auroc_by_fold if value is not None]
        return decimal(sum(known) / len(known) if known else None, 1, scale=100)

    def within(index: int) -> Callable[[TrainingSignal], Cell]:
        return lambda row: decimal(row.auroc_by_fold[index], 1, scale=100)

    def gained(index: int) -> Callable[[TrainingSignal], Cell]:
        return lambda row: decimal(row.by_seed[index], digits, scale=scale, signed=True)

    by_fold = {f"fold {fold}": within(index) for index, fold in enumerate(summary.folds)}
    by_seed = {f"gain, seed {seed}": gained(index) for index, seed in enumerate(summary.seeds)}
    return table_of(
        "Signals of certainty",
        "AUROC for a correct selection in % (50 is chance), over all problems; each problem has the value that the "
        "training that tested it gave, and nothing is standardised, so a signal whose scale differs from training to "
        "training ranks worse over all problems than within folds (their mean, then each). Then "
        f"{what} among the 80 % most certain selections of all problems, and the gain over answering everything. "
        "Set apart: the best gain, found in hindsight.",
        summary.signals,
        {
            "signal": lambda row: row.name,
            "AUROC %": lambda row: row.auroc,
            **({"mean of folds": mean_of_folds, **by_fold} if by_fold else {}),
            f"{what} at 80 %": lambda row: number(row.right_at_80) if continuous else row.right_at_80,
            "gain": lambda row: _gain(row, summary),
            **(by_seed if len(by_seed) > 1 else {}),
            "n": lambda row: row.gain_at_80.n,
        },
        emphasised=lambda row: row is best,
    )


def _decision_table(summary: TrainingSummary) -> Table:
    what = "1 - violation" if summary.is_continuous else "correct"
    return table_of(
        "Confidence in the chosen profile's selections",
        "The posterior's confidence in its selection, each problem by the training that tested it; a row per seed.",
        summary.decision,
        {
            "signal": lambda row: row.name,
            "AUROC": lambda row: number(row.auroc),
            f"80 % most certain, {what} %": lambda row: row.accuracy_at_80,
            "gain": lambda row: points(row.gain_at_80),
            "n": lambda row: row.auroc.n,
        },
    )


def _plates(summary: TrainingSummary) -> list[Plate]:
    drawn = [row for row in summary.confidence if row.bins]
    if not drawn:
        return []
    caption = (
        "Share of correct selections, or 1 - violation, against the mean confidence, in ten bins that hold equally "
        "many problems; lines: 95 % intervals. Points on the dashed diagonal mean that the confidence can be taken at "
        "its word."
    )
    return [plate_of(reliability_figure(drawn, ()), "Reliability of confidence", caption)]
