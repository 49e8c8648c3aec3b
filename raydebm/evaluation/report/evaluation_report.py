"""Report of an evaluation as JSON, Markdown and one HTML page, with the same numbers."""

from dataclasses import replace

from raydebm.evaluation.certainty.signals import NUM_RESAMPLES
from raydebm.evaluation.report import figures
from raydebm.evaluation.report.document import Chapter, ReportDocument, ReportFigure, report_figure
from raydebm.evaluation.report.evaluation_tables import facts, lead, main_rows, ordered_rows, sentences, shown, tables
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.run.directory import RunDir


def pool_summary(evaluation: Evaluation) -> str:
    """Description of the candidates."""
    counts = evaluation.counts
    return (
        f"{counts.problems} problems of task {evaluation.task}, {counts.candidates} candidates by "
        f"{len(evaluation.generators)} generators ({', '.join(evaluation.generators)}). {counts.failed} more requests "
        f"failed. {counts.unparsed} candidates did not parse, {counts.unscored} could not be scored, "
        f"{counts.unlabeled} have no label."
    )


def figures_of(evaluation: Evaluation) -> list[ReportFigure]:
    """Figures for all available data."""
    made = (_pass_at_n(evaluation), _picks(evaluation), _reliability(evaluation))
    return [figure for figure in made if figure is not None]


def _opening_figure(evaluation: Evaluation) -> ReportFigure:
    value = "mean violation, shorter is better" if evaluation.is_continuous else "share right (pass@1)"
    caption = (
        f"Bars: {value} (left) and share of the gap from random choice to the oracle (right); lines: 95 % intervals "
        "over problems. Bold: the selector to use."
    )
    rows = [replace(row, name=shown(row.name, evaluation)) for row in main_rows(evaluation)]
    return report_figure(figures.selector_figure(rows), "At a glance", caption)


def _pass_at_n(evaluation: Evaluation) -> ReportFigure | None:
    if not evaluation.pass_at_n:
        return None
    tolerance = evaluation.tolerance
    caption = (
        "Share of problems with a correct candidate among the first n, lowest energy first and in random order. "
        "The further the upper curve starts above the lower one, the better the energy orders the candidates."
        + ("" if tolerance is None else f" A candidate counts as correct up to a violation score of {tolerance:g}.")
    )
    return report_figure(figures.pass_at_n_figure(evaluation.pass_at_n), "pass@n by energy order", caption)


def _picks(evaluation: Evaluation) -> ReportFigure | None:
    if not evaluation.picks:
        return None
    policy = evaluation.policy
    caption = (
        "One mark per problem: the selected candidate. The paper's rule accepts at once below the dashed line if "
        "no constraint is broken, and abstains above the dotted one. If sigma is informative, crosses gather at "
        "the top."
    )
    if policy["rule"] != "paper":
        caption += " This run's loop decides by the posterior instead."
    elif policy["signal"] == "pool_mean":
        caption += " Here the dashed line is a limit on the mean sigma of the pool, which the figure does not show."
    figure = figures.triage_figure(
        evaluation.picks, theta_sigma=policy["theta_sigma"], theta_abstain=policy["theta_abstain"]
    )
    return report_figure(figure, "Triage surface", caption)


def _reliability(evaluation: Evaluation) -> ReportFigure | None:
    trust, decision = evaluation.trust, evaluation.decision
    rows = [*([] if decision is None else [decision.reliability]), *(() if trust is None else trust.reliabilities)]
    rows, tenths = [row for row in rows if row.bins], () if trust is None else trust.sigma_bins
    if not rows and not tenths:
        return None
    caption = (
        "Observed against predicted, in ten bins of equal mass; the darker a bar, the more problems; points on the "
        "dashed diagonal mean that the probability is well calibrated. Last panel: accuracy by tenths of sigma, "
        "which falls from left to right if sigma is informative."
    )
    return report_figure(figures.reliability_figure(rows, tenths), "Reliability", caption)


def provenance(evaluation: Evaluation) -> dict[str, str]:
    """Settings and versions that are needed to reproduce the numbers."""
    return {
        "command": evaluation.command,
        "seeds": f"run {evaluation.seed}, candidate order {evaluation.shuffle_seed}",
        "intervals": f"95 %, percentile bootstrap over problems, {evaluation.num_bootstrap} resamples "
        f"({min(NUM_RESAMPLES, evaluation.num_bootstrap)} for signals of certainty)",
        "sigma": "population standard deviation over adapters (ddof=0)",
        "versions": ", ".join(f"{name} {version}" for name, version in evaluation.versions.items()),
    }


def document(evaluation: Evaluation) -> ReportDocument:
    """Build the report."""
    return ReportDocument(
        title=evaluation.title,
        lead=lead(evaluation),
        facts=facts(evaluation),
        opening=_opening_figure(evaluation),
        summary=sentences(evaluation),
        chapters=(
            *(Chapter(title=table.title, tables=(table,), is_folded=True) for table in tables(evaluation)),
            *(Chapter(title=f"Figure: {one.title}", figures=(one,), is_folded=True) for one in figures_of(evaluation)),
            Chapter(
                title="The pool, and how each selector chooses",
                paragraphs=(pool_summary(evaluation),),
                details=tuple((shown(row.name, evaluation), row.description) for row in ordered_rows(evaluation)),
                is_folded=True,
            ),
        ),
        provenance=provenance(evaluation),
    )


def write_report(evaluation: Evaluation, run: RunDir) -> str:
    """Write metrics.json, report.md with its figure, and report.html below ``<run>/evaluation/``. Returns the address
    of report.html."""
    run.write_json(evaluation.to_json(), "evaluation", "metrics.json")
    return document(evaluation).write(run, "evaluation")
