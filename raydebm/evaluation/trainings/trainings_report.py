"""Summary over several trainings as documents (Markdown, JSON, one HTML page) and as tables by problem."""

from collections.abc import Callable

from raydebm.evaluation.certainty.confidence import CHOSEN
from raydebm.evaluation.report.document import (
    Cell,
    Chapter,
    Plate,
    ReportDocument,
    Table,
    decimal,
    number,
    plate_of,
    points,
    table_of,
)
from raydebm.evaluation.report.evaluation_tables import comparison_table, reliability_table, texts_table
from raydebm.evaluation.report.figures import reliability_figure
from raydebm.evaluation.report.headline import unread_problems
from raydebm.evaluation.selectors import PAPER_RULE
from raydebm.evaluation.stats.json_results import versions
from raydebm.evaluation.trainings.training_summary import (
    TrainingRow,
    TrainingSummary,
)
from raydebm.run.directory import RunDir


def write_summary(summary: TrainingSummary, run: RunDir, *, command: str) -> str:
    """Write folds.json, report.md and report.html below ``<run>/folds/``; without folds, seeds.json and the others
    below ``<run>/seeds/``.

    Returns:
        The page's address.
    """
    stage = "folds" if summary.folds else "seeds"
    run.write_json(summary.to_json(), stage, f"{stage}.json")
    return document(summary, command=command).write(run, stage)


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


def in_words(summary: TrainingSummary) -> str:
    """Summary of trainings and tests, with a warning if the scorers read too little."""
    count = len(summary.seeds)
    trainings = "one training" if count == 1 else f"{count} trainings"
    opening = (
        f"{summary.num_problems} problems of task {summary.task}, each tested once in {len(summary.folds)} folds, by "
        f"{trainings} on the other folds."
        if summary.folds
        else f"{trainings} on {summary.num_problems} test problems of task {summary.task}."
    )
    return " ".join([*unread_problems(summary.texts_read), opening])


# ---- tables and figures ----------------------------------------------------------------------------------------------


def training_tables(summary: TrainingSummary) -> list[Table]:
    """Tables with rows."""
    tables = [
        selector_table(summary),
        _by_training(summary),
        _facts_table(summary),
        comparison_table(summary.comparisons, what="violation avoided" if summary.is_continuous else "pass@1"),
        _decision_table(summary),
        reliability_table("Calibration of confidence", summary.confidence),
        texts_table(summary.texts_read),
    ]
    return [table for table in tables if table.rows]


def selector_table(summary: TrainingSummary) -> Table:
    """One row per selector, the main result."""
    continuous, digits, scale = summary.is_continuous, *((3, 1) if summary.is_continuous else (1, 100))
    caption = (
        f"{summary.num_problems} problems, means over seeds {', '.join(map(str, summary.seeds))}"
        + (f", each tested once by a training on other folds ({len(summary.folds)} folds)" if summary.folds else "")
        + ". The interval resamples problems; a standard deviation over seeds is zero for rules that use no training, "
        "and one over folds holds other problems and another training. Gap closed: 0 is random choice, 100 the oracle. "
        f"{PAPER_RULE} minus it: {'violation avoided' if continuous else 'percentage points'}, paired by problem."
    )
    if summary.absent:
        absent = "; ".join(f"{name} in {', '.join(map(str, folds))}" for name, folds in summary.absent.items())
        caption += f" Not every fold has every selector, and n is then smaller. Absent: {absent}."
    spreads: dict[str, Callable[[TrainingRow], Cell]] = {}
    if len(summary.seeds) > 1:
        spreads["sd over seeds"] = lambda row: decimal(row.sd_of_seeds, digits, scale=scale)
    if summary.folds:
        spreads["sd over folds"] = lambda row: decimal(row.sd_of_folds, digits, scale=scale)
    worth: dict[str, Callable[[TrainingRow], Cell]] = {"pass@1 %": lambda row: row.pass_at_1}
    if continuous:
        worth = {"mean violation": lambda row: number(row.mean_violation), **worth}

    def minus(row: TrainingRow) -> str:
        shown = number(row.paper_minus, signed=True) if continuous else points(row.paper_minus)
        return "" if row.name == PAPER_RULE else shown

    return table_of(
        "Selectors",
        caption,
        sorted(summary.rows, key=lambda row: row.name != _used(summary)),
        {
            "selector": lambda row: row.name,
            **worth,
            **spreads,
            "gap closed %": lambda row: row.gap_closed,
            f"{PAPER_RULE} minus it": minus,
            "n": lambda row: (row.mean_violation if continuous else row.pass_at_1).n,
        },
        emphasised=lambda row: row.name == _used(summary),
    )


def _used(summary: TrainingSummary) -> str:
    """Name of the rule to use: the chosen profile, else the paper's rule."""
    return PAPER_RULE if summary.row(CHOSEN) is None else CHOSEN


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
        emphasised=lambda row: row.name == _used(summary),
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
