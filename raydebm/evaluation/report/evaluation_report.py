"""Report of an evaluation as JSON, Markdown and one HTML page, with the same numbers."""

from dataclasses import replace

from raydebm.evaluation.certainty.signals import NUM_RESAMPLES
from raydebm.evaluation.report import figures
from raydebm.evaluation.report.document import Chapter, Plate, ReportDocument, plate_of
from raydebm.evaluation.report.evaluation_tables import facts, lead, main_rows, ordered_rows, sentences, shown, tables
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.run.directory import RunDir


def pool_summary(evaluation: Evaluation) -> str:
    """Description of the candidates."""
    counts = evaluation.counts
    return (
        f"{counts.problems} problems of task {evaluation.task}, {counts.candidates} candidates by "
        f"{len(evaluation.generators)} generators ({', '.join(evaluation.generators)}). {counts.failed} more requests "
        f"brought none. {counts.unparsed} candidates did not parse, {counts.unscored} could not be scored, "
        f"{counts.unlabeled} have no label."
    )


def plates(evaluation: Evaluation) -> list[Plate]:
    """Figures for all available data."""
    made = (_pass_at_n(evaluation), _picks(evaluation), _reliability(evaluation))
    return [plate for plate in made if plate is not None]


def _opening_plate(evaluation: Evaluation) -> Plate:
    value = "mean violation, shorter is better" if evaluation.is_continuous else "share right (pass@1)"
    caption = (
        f"Bars: {value} (left) and share of the gap from random choice to the oracle (right); lines: 95 % intervals "
        "over problems. Bold: what to use."
    )
    rows = [replace(row, name=shown(row.name, evaluation)) for row in main_rows(evaluation)]
    return plate_of(figures.selector_figure(rows), "At a glance", caption)


def _pass_at_n(evaluation: Evaluation) -> Plate | None:
    if not evaluation.pass_at_n:
        return None
    tolerance = evaluation.tolerance
    caption = (
        "Share of problems with a correct candidate among the first n, lowest energy first and in random order. "
        "The higher the upper curve starts above the lower one, the more the energy puts correct candidates first."
        + ("" if tolerance is None else f" Correct is here a violation score of at most {tolerance:g}.")
    )
    return plate_of(figures.pass_at_n_figure(evaluation.pass_at_n), "pass@n by energy order", caption)


def _picks(evaluation: Evaluation) -> Plate | None:
    if not evaluation.picks:
        return None
    policy = evaluation.policy
    caption = (
        "One mark per problem: the selected candidate. The paper's rule accepts at once below the dashed line, where "
        "no constraint is broken, and abstains above the dotted one. If sigma is informative, crosses gather at "
        "the top."
    )
    if policy["rule"] != "paper":
        caption += " This run's loop decides by the posterior instead."
    elif policy["signal"] == "pool_mean":
        caption += " The dashed line is a limit of the pool's mean sigma here, which is not shown."
    figure = figures.triage_figure(
        evaluation.picks, theta_sigma=policy["theta_sigma"], theta_abstain=policy["theta_abstain"]
    )
    return plate_of(figure, "Triage surface", caption)


def _reliability(evaluation: Evaluation) -> Plate | None:
    trust, decision = evaluation.trust, evaluation.decision
    rows = [*([] if decision is None else [decision.reliability]), *(() if trust is None else trust.reliabilities)]
    rows, tenths = [row for row in rows if row.bins], () if trust is None else trust.sigma_bins
    if not rows and not tenths:
        return None
    caption = (
        "Observed against predicted, in ten bins of equal mass; the darker a bar, the more problems; points on the "
        "dashed diagonal mean that the probability can be taken at its word. Last panel: accuracy by tenths of sigma; "
        "if sigma told, it would fall from left to right."
    )
    return plate_of(figures.reliability_figure(rows, tenths), "Reliability", caption)


def provenance(evaluation: Evaluation) -> dict[str, str]:
    """Information that reproduces the numbers."""
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
        opening=_opening_plate(evaluation),
        summary=sentences(evaluation),
        chapters=(
            *(Chapter(title=table.title, tables=(table,), is_folded=True) for table in tables(evaluation)),
            *(Chapter(title=f"Figure: {plate.title}", plates=(plate,), is_folded=True) for plate in plates(evaluation)),
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
    """Write metrics.json, report.md with its figure, and report.html below ``<run>/evaluation/``. Returns the page's
    address."""
    run.write_json(evaluation.to_json(), "evaluation", "metrics.json")
    return document(evaluation).write(run, "evaluation")
