"""Report of an evaluation as JSON, Markdown and one HTML page, with the same numbers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from raydebm.evaluation.certainty.uncertainty import NUM_RESAMPLES
from raydebm.evaluation.report import drawing, study_figures
from raydebm.evaluation.report.document import Chapter, Plate, ReportDocument, plate_of
from raydebm.evaluation.report.evaluation_tables import tables
from raydebm.evaluation.report.headline import main_rows, sentences
from raydebm.evaluation.report.table_cells import number, percent, with_interval
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.run.directory import RunDir

Curves = Mapping[str, Mapping[str, Any]]
"""Contents of training.json by adapter."""


def summary(evaluation: Evaluation) -> str:
    """Headline, and a description of the pool and the energies, generated from the numbers."""
    return " ".join([*sentences(evaluation), _pool_summary(evaluation)])


def _pool_summary(evaluation: Evaluation) -> str:
    """Description of the candidates, and of the value of selection by energy and abstention by sigma."""
    counts, auroc = evaluation.counts, evaluation.sigma_auroc
    text = [
        f"{counts.problems} problems of task {evaluation.task}, {counts.candidates} candidates by "
        f"{len(evaluation.generators)} generators ({', '.join(evaluation.generators)}). {counts.failed} more requests "
        f"brought none. {counts.unparsed} candidates did not parse, {counts.unscored} could not be scored, "
        f"{counts.unlabeled} have no label."
    ]
    ours, chance, bound = (evaluation.row(name) for name in ("ours", "random", "oracle"))
    if ours and chance and bound and ours.mean_violation.value is not None:
        means = [f"{row.mean_violation.value or 0:.3f}" for row in (chance, bound)]
        text.append(
            f"Mean violation of the choice by energy is {number(ours.mean_violation)}, of random choice {means[0]}, of "
            f"the oracle {means[1]}: energy closes {with_interval(ours.violation_gap_closed)} % of that gap (95 % "
            f"intervals in brackets). {with_interval(ours.pass_at_1)} % of its choices count as correct, of random "
            f"choices {percent(chance.pass_at_1)} %, of the oracle's {percent(bound.pass_at_1)} %."
        )
    elif ours and chance and bound and ours.pass_at_1.value is not None:
        text.append(
            f"Choosing by energy is correct on {with_interval(ours.pass_at_1)} % of the problems, random choice on "
            f"{percent(chance.pass_at_1)} %, the oracle on {percent(bound.pass_at_1)} %: energy closes "
            f"{with_interval(ours.gap_closed)} % of that gap (95 % intervals in brackets)."
        )
    if auroc.value is not None:
        text.append(
            f"AUROC of -sigma for a correct selection: {number(auroc)} (n={auroc.n}); above 0.5 a low sigma signals a "
            "correct selection."
        )
    return " ".join(text)


def plates(evaluation: Evaluation, *, training: Curves | None = None) -> list[Plate]:
    """Figures for all available data."""
    made = (_selectors(evaluation), _pass_at_n(evaluation), _picks(evaluation), _reliability(evaluation))
    return [plate for plate in (*made, _training(training or {})) if plate is not None]


def _opening_plate(evaluation: Evaluation) -> Plate:
    value = "mean violation, shorter is better" if evaluation.is_continuous else "pass@1"
    caption = (
        f"Bars: {value} (left) and share of the random-to-oracle gap closed (right); lines: 95 % intervals by "
        "bootstrap over problems."
    )
    return plate_of(drawing.selector_figure(main_rows(evaluation)), "At a glance", caption)


def _selectors(evaluation: Evaluation) -> Plate:
    bars = (
        "Bars: mean violation, shorter is better (left), and share of the random-to-oracle gap closed in mean "
        "violation, longer is better (right)"
        if evaluation.is_continuous
        else "Bars: pass@1 (left) and share of the random-to-oracle gap closed (right), longer is better"
    )
    caption = f"{bars}; lines: 95 % intervals by bootstrap over problems. Bold names are ours, black is the oracle."
    return plate_of(drawing.selector_figure(evaluation.rows), "Selectors", caption)


def _pass_at_n(evaluation: Evaluation) -> Plate | None:
    if not evaluation.pass_at_n:
        return None
    tolerance = evaluation.tolerance
    caption = (
        "Share of problems with a correct candidate among the first n, lowest energy first and in random order. "
        "The higher the upper curve starts above the lower one, the more the energy puts correct candidates first."
        + ("" if tolerance is None else f" Correct is here a violation score of at most {tolerance:g}.")
    )
    return plate_of(drawing.pass_at_n_figure(evaluation.pass_at_n), "pass@n by energy order", caption)


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
    figure = drawing.triage_figure(
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
    return plate_of(study_figures.reliability_figure(rows, tenths), "Reliability", caption)


def _training(training: Curves) -> Plate | None:
    curves = {name: record for name, record in training.items() if record.get("epochs")}
    if not curves:
        return None
    caption = (
        "Loss and validation accuracy per epoch and adapter; chance, where drawn, is 0.693 nats. Validation "
        "rising while training falls is overfitting, which early stopping ends."
    )
    return plate_of(drawing.training_figure(curves), "Training", caption)


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


def document(evaluation: Evaluation, *, training: Curves | None = None) -> ReportDocument:
    """Build the report.

    Args:
        training: Contents of training.json by adapter. Default: no training curves.
    """
    return ReportDocument(
        title=evaluation.title,
        opening=_opening_plate(evaluation),
        summary=sentences(evaluation),
        chapters=(
            Chapter(title="The pool", paragraphs=(_pool_summary(evaluation),)),
            Chapter(title="Tables", tables=[replace(table, is_folded=True) for table in tables(evaluation)]),
            Chapter(
                title="How each selector chooses", details=[(row.name, row.description) for row in evaluation.rows]
            ),
            Chapter(title="Figures", plates=plates(evaluation, training=training)),
        ),
        provenance=provenance(evaluation),
    )


def write_report(
    evaluation: Evaluation, run: RunDir, stage: str = "evaluation", *, training: Curves | None = None
) -> str:
    """Write metrics.json, report.md with its figure, and report.html below ``<run>/<stage>/``. Returns the page's
    address."""
    run.write_json(evaluation.to_json(), stage, "metrics.json")
    return document(evaluation, training=training).write(run, stage)
