"""The summary over folds as documents (Markdown, JSON, one self-contained HTML page) and as tables by problem."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raydebm.evaluation.certainty.reliability import Reliability
from raydebm.evaluation.certainty.uncertainty import SignalRow
from raydebm.evaluation.report.document import Plate, ReportDocument, plate_of
from raydebm.evaluation.report.evaluation_tables import texts_table
from raydebm.evaluation.report.headline import unread_problems
from raydebm.evaluation.report.study_figures import reliability_figure
from raydebm.evaluation.report.table_cells import (
    ECE_HEADERS,
    ECE_IN_WORDS,
    Table,
    ece_in_words,
    number,
    points,
    with_interval,
)
from raydebm.evaluation.report.trust_tables import comparison_table, reliability_cells
from raydebm.evaluation.trainings.folds import FoldSignal, FoldSummary, FoldTraining
from raydebm.evaluation.trainings.seed_signals import best_signal, signal_sentence
from raydebm.evaluation.trainings.seeds import selector_table
from raydebm.evaluation.trainings.seeds_report import provenance, selector_sentences
from raydebm.run.codec import Codec
from raydebm.run.directory import RunDir

STAGE = "folds"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorValue:
    """What a selector gives on one problem, by one seed; NaN where it has no value there."""

    problem_id: str
    fold: int
    seed: int
    selector: str
    correct: float
    violation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalValue:
    """What a signal of certainty says about one problem, by one seed; ``correct`` and ``violation`` are those of the
    selection by energy."""

    problem_id: str
    fold: int
    seed: int
    signal: str
    value: float
    correct: float
    violation: float


SELECTORS = Codec(SelectorValue, int32=("fold",))
SIGNALS = Codec(SignalValue, int32=("fold",))


def summary(fold_summary: FoldSummary) -> str:
    """What was found, in sentences that follow from the numbers alone."""
    trainings = "one training" if len(fold_summary.seeds) == 1 else f"{len(fold_summary.seeds)} trainings"
    text = [
        *unread_problems(fold_summary.texts_read),
        f"{fold_summary.num_problems} problems of task {fold_summary.task}, each tested once in "
        f"{fold_summary.num_folds} folds, by {trainings} on the other folds.",
        *selector_sentences([row.overall for row in fold_summary.rows], fold_summary.comparisons),
        signal_sentence([row.overall for row in fold_summary.signals], continuous=fold_summary.is_continuous),
        *(f"ECE of {row.name}: {ece_in_words(row.ece)}." for row in fold_summary.confidence),
    ]
    return " ".join(filter(None, text))


def write_folds(fold_summary: FoldSummary, parts: Sequence[FoldTraining], run: RunDir, *, command: str) -> str:
    """Write folds.json, report.md, report.html, selectors.parquet and signals.parquet below ``<run>/folds/``.

    Args:
        parts: what the summary was made of.

    Returns:
        The page's address.
    """
    run.write_records(SELECTORS, _selector_values(parts), STAGE, "selectors.parquet")
    run.write_records(SIGNALS, _signal_values(parts), STAGE, "signals.parquet")
    run.write_json(fold_summary.to_json(), STAGE, "folds.json")
    return document(fold_summary, command=command).write(run, STAGE)


def document(fold_summary: FoldSummary, *, command: str) -> ReportDocument:
    """The summary, its tables and figures, and how to make the numbers again."""
    return ReportDocument(
        title=f"{fold_summary.title}: {fold_summary.num_folds} folds",
        summary=summary(fold_summary),
        tables=fold_tables(fold_summary),
        plates=_plates(fold_summary.confidence),
        provenance=provenance(
            command, "95 %, percentile bootstrap over the problems of all folds, with the trainings as they are"
        ),
    )


def fold_tables(fold_summary: FoldSummary) -> list[Table]:
    """Those that have rows."""
    tables = [
        _selectors(fold_summary),
        _by_fold(fold_summary),
        _sizes(fold_summary),
        _signals(fold_summary),
        comparison_table(
            fold_summary.comparisons, what="violation avoided" if fold_summary.is_continuous else "pass@1"
        ),
        _decision(fold_summary.decision, continuous=fold_summary.is_continuous),
        _calibration(fold_summary.confidence),
        _reliability(fold_summary.confidence),
        texts_table(fold_summary.texts_read),
    ]
    return [table for table in tables if table.rows]


def _decision(rows: Sequence[SignalRow], *, continuous: bool) -> Table:
    what = "1 - violation" if continuous else "correct"
    return Table(
        title="Confidence in the chosen profile's selections",
        caption="The posterior's confidence in its selection, each problem by the fold that tested it.",
        headers=("signal", "AUROC", f"80 % most certain, {what} %", "gain", "n"),
        rows=tuple(
            (row.name, number(row.auroc), with_interval(row.accuracy_at_80), points(row.gain_at_80), str(row.auroc.n))
            for row in rows
        ),
    )


def _plates(rows: Sequence[Reliability]) -> list[Plate]:
    drawn = [row for row in rows if row.bins]
    if not drawn:
        return []
    caption = (
        "Share of correct selections, or 1 - violation, against the mean confidence, in ten bins that hold equally "
        "many problems of all folds; lines: 95 % intervals. Points on the dashed diagonal mean that the confidence can "
        "be taken at its word."
    )
    return [plate_of(reliability_figure(drawn, ()), "Reliability of confidence", caption)]


def _selectors(fold_summary: FoldSummary) -> Table:
    seeds = (
        f"seed {fold_summary.seeds[0]}"
        if len(fold_summary.seeds) == 1
        else f"means over seeds {_listed(fold_summary.seeds)}"
    )
    caption = (
        f"{fold_summary.num_problems} problems, each tested once by a training on other folds "
        f"({fold_summary.num_folds} folds, {seeds}). The interval resamples problems; the standard deviation is over "
        "folds, so it holds other problems and another training."
    )
    if fold_summary.absent:
        absent = "; ".join(f"{name} in {_listed(folds)}" for name, folds in fold_summary.absent.items())
        caption += f" Not every fold has every selector and signal, and n is then smaller. Absent: {absent}."
    rows = [row.overall for row in fold_summary.rows]
    return selector_table(
        rows,
        [row.sd for row in fold_summary.rows],
        spread="sd over folds",
        caption=caption,
        continuous=fold_summary.is_continuous,
    )


def _by_fold(fold_summary: FoldSummary) -> Table:
    what, scale, digits = ("mean violation", 1.0, 3) if fold_summary.is_continuous else ("pass@1 %", 100.0, 1)
    shown = len(fold_summary.seeds) > 1
    return Table(
        title="Fold by fold",
        caption=f"{what} of each fold's test problems" + (", mean over seeds; then over all folds by seed." * shown),
        headers=("selector", *_fold_headers(fold_summary), *(f"seed {seed}" for seed in fold_summary.seeds if shown)),
        rows=tuple(
            (
                row.overall.name,
                *(_plain(value, scale, digits) for value in row.by_fold),
                *(_plain(value, scale, digits) for value in row.overall.by_seed if shown),
            )
            for row in fold_summary.rows
        ),
        emphasised=tuple(index for index, row in enumerate(fold_summary.rows) if row.overall.group == "ours"),
    )


def _sizes(fold_summary: FoldSummary) -> Table:
    return Table(
        title="What each fold was tested and trained on",
        caption=(
            "Problems tested, problems for training, and problems for early stopping and for whatever is chosen or "
            "fitted afterwards; pairs of candidates that training compares; lambda as calibrated in the fold."
        ),
        headers=("fold", "seed", "tested", "training", "validation", "training pairs", "lambda"),
        rows=tuple(
            (
                str(fold.fold),
                str(fold.seed),
                str(fold.num_test),
                str(fold.num_train),
                str(fold.num_validation),
                f"{fold.num_pairs:,}",
                f"{fold.lambda_:g}",
            )
            for fold in fold_summary.folds
        ),
    )


def _signals(fold_summary: FoldSummary) -> Table:
    best = best_signal([row.overall for row in fold_summary.signals])
    what = "1 - violation" if fold_summary.is_continuous else "accuracy %"
    return Table(
        title="Signals of certainty",
        caption=(
            "AUROC for a correct selection in % (50 is chance), over all problems; each problem has the value that "
            "its own fold's training gave, and nothing is standardised across folds, so a signal whose scale differs "
            "from training to training ranks worse over all problems than within folds (their mean, then each). Then "
            f"{what} among the 80 % most certain selections of all problems, and the gain over answering everything. "
            "Set apart: the best gain, found in hindsight."
        ),
        headers=(
            "signal",
            "AUROC %",
            "mean of folds",
            *_fold_headers(fold_summary),
            f"{what} at 80 %",
            "gain",
            "n",
        ),
        rows=tuple(_signal_cells(row, fold_summary) for row in fold_summary.signals),
        emphasised=tuple(index for index, row in enumerate(fold_summary.signals) if row.overall is best),
    )


def _signal_cells(row: FoldSignal, fold_summary: FoldSummary) -> tuple[str, ...]:
    known = [value for value in row.auroc_by_fold if value is not None]
    overall = row.overall
    return (
        overall.name,
        with_interval(overall.auroc),
        _plain(sum(known) / len(known) if known else None, 100, 1),
        *(_plain(value, 100, 1) for value in row.auroc_by_fold),
        number(overall.right_at_80) if fold_summary.is_continuous else with_interval(overall.right_at_80),
        number(overall.gain_at_80, signed=True) if fold_summary.is_continuous else points(overall.gain_at_80),
        str(overall.gain_at_80.n),
    )


def _calibration(rows: Sequence[Reliability]) -> Table:
    return Table(
        title="Calibration of confidence",
        caption=(
            f"Over the problems of all folds, of which probability: {ECE_IN_WORDS}; Brier score "
            "(lower is better), and the Brier score of always saying the mean accuracy, which a useful probability "
            "beats."
        ),
        headers=("probability", "that", *ECE_HEADERS, "Brier", "Brier of the mean", "n"),
        rows=tuple((row.name, row.event, *reliability_cells(row)) for row in rows),
    )


def _reliability(rows: Sequence[Reliability]) -> Table:
    return Table(
        title="Reliability of confidence",
        caption="Each bin of equal mass: lowest, highest and mean confidence, and the share correct, or "
        "1 - violation, all in %.",
        headers=("probability", "from", "to", "mean", "correct", "n"),
        rows=tuple(
            (
                row.name,
                _plain(bin_.low, 100, 1),
                _plain(bin_.high, 100, 1),
                _plain(bin_.mean_predicted, 100, 1),
                with_interval(bin_.accuracy),
                str(bin_.n),
            )
            for row in rows
            for bin_ in row.bins
        ),
    )


def _fold_headers(fold_summary: FoldSummary) -> tuple[str, ...]:
    return tuple(f"fold {fold}" for fold in sorted({facts.fold for facts in fold_summary.folds}))


def _plain(value: float | None, scale: float, digits: int) -> str:
    return "-" if value is None else f"{scale * value:.{digits}f}"


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _selector_values(parts: Sequence[FoldTraining]) -> Iterator[SelectorValue]:
    for part in parts:
        for entry in part.training.entries:
            for row, problem_id in enumerate(part.training.problem_ids):
                yield SelectorValue(
                    problem_id=problem_id,
                    fold=part.facts.fold,
                    seed=part.facts.seed,
                    selector=entry.name,
                    correct=float(entry.correct[row]),
                    violation=float(entry.violation[row]),
                )


def _signal_values(parts: Sequence[FoldTraining]) -> Iterator[SignalValue]:
    for part in parts:
        certainty = part.training.certainty
        if certainty is None:
            continue
        for signal in certainty.signals:
            for row, problem_id in enumerate(part.training.problem_ids):
                yield SignalValue(
                    problem_id=problem_id,
                    fold=part.facts.fold,
                    seed=part.facts.seed,
                    signal=signal.name,
                    value=float(signal.values[row]),
                    correct=float(certainty.correct[row]),
                    violation=float(certainty.violation[row]),
                )
