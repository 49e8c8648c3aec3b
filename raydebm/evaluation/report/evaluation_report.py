"""The report: the same numbers as tables for Markdown and the terminal, as JSON, and as one HTML page."""

from collections.abc import Mapping
from typing import Any

from raydebm.evaluation.certainty.trust import Trust
from raydebm.evaluation.certainty.uncertainty import NUM_RESAMPLES
from raydebm.evaluation.report import drawing, study_figures
from raydebm.evaluation.report.document import Plate, markdown_table, plate_of, template
from raydebm.evaluation.report.evaluation_tables import tables
from raydebm.evaluation.report.headline import main_rows, sentences
from raydebm.evaluation.report.table_cells import number, percent, with_interval
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.results.selector_costs import has_prices
from raydebm.run.directory import RunDir

OPENING_FILE = "main_selectors.svg"
"""The figure of report.md."""


def summary(evaluation: Evaluation) -> str:
    """The headline, and what the pool and the energies are, in sentences that follow from the numbers alone."""
    return " ".join([*sentences(evaluation), _pool_summary(evaluation)])


def _pool_summary(evaluation: Evaluation) -> str:
    """What the candidates are like, and what choosing by energy and sigma is worth."""
    counts = evaluation.counts
    text = [
        f"{counts.problems} problems of task {evaluation.task}, {counts.candidates} candidates by "
        f"{len(evaluation.generators)} generators ({', '.join(evaluation.generators)}). "
        f"{counts.failed} more requests brought none. {counts.unparsed} candidates did not parse, {counts.unscored} "
        "could not be scored, "
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
    if evaluation.sigma_auroc.value is not None:
        auroc = evaluation.sigma_auroc
        text.append(
            f"AUROC of -sigma for a correct selection: {number(auroc)} (n={auroc.n}); above 0.5 a low sigma signals a "
            "correct selection."
        )
    return " ".join(text)


def _opening_plate(evaluation: Evaluation) -> Plate:
    """The figure at the top: the selectors that a reader compares first."""
    value = "mean violation, shorter is better" if evaluation.is_continuous else "pass@1"
    caption = (
        f"Bars: {value} (left) and share of the random-to-oracle gap closed (right); lines: 95 % intervals by "
        "bootstrap over problems."
    )
    return plate_of(drawing.selector_figure(main_rows(evaluation)), "At a glance", caption)


def plates(evaluation: Evaluation, *, training: Mapping[str, Mapping[str, Any]] | None = None) -> list[Plate]:
    """Figures for everything that has data."""
    first = (_selectors, _dimensions, _pass_at_n, _costs, _picks, _selective)
    main_plates = [plate for plate_or_none in first if (plate := plate_or_none(evaluation)) is not None]
    if evaluation.trust is not None and any(row.risk_coverage for row in evaluation.trust.signals):
        main_plates += _trust_plates(evaluation.trust)
    last = (_confidence(evaluation), _difficulties(evaluation), _training(training or {}))
    return [*main_plates, *(plate for plate in last if plate is not None)]


def _selectors(evaluation: Evaluation) -> Plate:
    bars = (
        "Bars: mean violation, shorter is better (left), and share of the random-to-oracle gap closed in mean "
        "violation, longer is better (right)"
        if evaluation.is_continuous
        else "Bars: pass@1 (left) and share of the random-to-oracle gap closed (right), longer is better"
    )
    caption = f"{bars}; lines: 95 % intervals by bootstrap over problems. Bold names are ours, black is the oracle."
    return plate_of(drawing.selector_figure(evaluation.rows), "Selectors", caption)


def _dimensions(evaluation: Evaluation) -> Plate | None:
    if evaluation.dimensions is None or not evaluation.is_continuous:
        return None
    caption = (
        "A row for each part of the violation score, a mark for each selector; lines: 95 % intervals. Further left "
        "is better. Where ours stands near the oracle, that part is chosen well; where all stand far right, no "
        "candidate gets it right."
    )
    return plate_of(drawing.dimension_figure(evaluation.dimensions), "Parts of the violation", caption)


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


def _costs(evaluation: Evaluation) -> Plate | None:
    if all(row.worth.value is None for row in evaluation.costs):
        return None
    caption = (
        "What each selector is worth and costs, candidates, judges and reward models together. Named: no other one "
        "is as cheap and as good. "
    ) + (
        "Selectors without a known price are left out; the table of costs names them."
        if has_prices(evaluation.costs)
        else "No price is known, so that what a selector asks for stands for its cost."
    )
    figure = drawing.cost_figure(evaluation.costs, continuous=evaluation.is_continuous)
    return plate_of(figure, "Worth and cost", caption)


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


def _selective(evaluation: Evaluation) -> Plate | None:
    if not evaluation.selective or evaluation.selective[0].worth.value is None:
        return None
    what, title = ("1 - violation", "1 - violation") if evaluation.is_continuous else ("correct", "Accuracy")
    caption = (
        f"{title} on what is left when the selections with the highest sigma are not answered. A rising curve: "
        "sigma knows where the selection is wrong; a flat or falling one: it does not."
    )
    figure = drawing.selective_figure(evaluation.selective, evaluation.mu_selective, what=what)
    return plate_of(figure, "Selective accuracy", caption)


def _confidence(evaluation: Evaluation) -> Plate | None:
    if evaluation.decision is None or not evaluation.decision.reliability.bins:
        return None
    caption = (
        "Confidence of the posterior's selection against what happened, in ten bins of equal mass; the darker a "
        "bar, the more problems; on the dashed diagonal the confidence can be taken at its word."
    )
    return plate_of(study_figures.reliability_figure([evaluation.decision.reliability], ()), "Confidence", caption)


def _difficulties(evaluation: Evaluation) -> Plate | None:
    if not evaluation.difficulties:
        return None
    what = "Mean violation (lower is better)" if evaluation.is_continuous else "pass@1 (higher is better)"
    caption = f"{what} of the main selectors per group of problems; lines: 95 % intervals."
    return plate_of(drawing.difficulty_figure(evaluation.difficulties), "By difficulty", caption)


def _training(training: Mapping[str, Mapping[str, Any]]) -> Plate | None:
    """``training``: contents of training.json by adapter."""
    curves = {name: record for name, record in training.items() if record.get("epochs")}
    if not curves:
        return None
    caption = (
        "Loss and validation accuracy per epoch and adapter; chance, where drawn, is 0.693 nats. Validation "
        "rising while training falls is overfitting, which early stopping ends."
    )
    return plate_of(drawing.training_figure(curves), "Training", caption)


def _trust_plates(trust: Trust) -> list[Plate]:
    risk = (
        "Share of wrong selections, or mean violation, among the answered, by the share that is answered, most certain "
        "first. The lower and the later it rises, the better the signal knows where the selection is wrong; dotted: "
        "80 % answered. Below 10 % nothing is drawn, because there a single selection decides."
    )
    diagrams = (
        "Observed against predicted, in ten bins of equal mass; the darker a bar, the more problems; points on the "
        "dashed diagonal mean that the probability can be taken at its word. Last panel: accuracy by tenths of sigma; "
        "if sigma told, it would fall from left to right."
    )
    plates = [plate_of(study_figures.risk_coverage_figure(trust.signals), "Risk and coverage", risk)]
    rows = [row for row in trust.reliabilities if row.bins]
    if rows or trust.sigma_bins:
        plates.append(plate_of(study_figures.reliability_figure(rows, trust.sigma_bins), "Reliability", diagrams))
    return plates


def provenance(evaluation: Evaluation) -> list[tuple[str, str]]:
    """How to make these numbers again."""
    return [
        ("command", evaluation.command),
        ("seeds", f"run {evaluation.seed}, candidate order {evaluation.shuffle_seed}"),
        (
            "intervals",
            f"95 %, percentile bootstrap over problems, {evaluation.num_bootstrap} resamples "
            f"({min(NUM_RESAMPLES, evaluation.num_bootstrap)} for signals of certainty)",
        ),
        ("sigma", "population standard deviation over adapters (ddof=0)"),
        ("versions", ", ".join(f"{name} {version}" for name, version in evaluation.versions.items())),
    ]


def render_markdown(evaluation: Evaluation) -> str:
    """The report as one Markdown page; its main figure is a file next to it."""
    parts = [f"# {evaluation.title}", f"![{OPENING_FILE}]({OPENING_FILE})", *sentences(evaluation)]
    parts += ["## The pool", _pool_summary(evaluation)]
    for table in tables(evaluation):
        parts += [f"## {table.title}", table.caption, markdown_table(table)]
    parts.append("## How each selector chooses")
    parts.append("\n".join(f"- **{row.name}**: {row.description}" for row in evaluation.rows))
    parts.append("## How these numbers were made")
    parts.append("\n".join(f"- {name}: `{value}`" for name, value in provenance(evaluation)))
    return "\n\n".join(parts) + "\n"


def render_html(evaluation: Evaluation, *, training: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """One self-contained page: no script, nothing loaded from elsewhere.

    Args:
        evaluation: the numbers.
        training: contents of training.json by adapter, for the training curves; None leaves them out.
    """
    return template("report.html.j2").render(
        evaluation=evaluation,
        opening=_opening_plate(evaluation),
        sentences=sentences(evaluation),
        pool_summary=_pool_summary(evaluation),
        tables=tables(evaluation),
        plates=plates(evaluation, training=training),
        provenance=provenance(evaluation),
    )


def write_report(
    evaluation: Evaluation,
    run: RunDir,
    stage: str = "evaluation",
    *,
    training: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[str, ...]:
    """Write metrics.json, report.md with its figure, and report.html below ``<run>/<stage>/``.

    Returns:
        Addresses of metrics.json, report.md and report.html.
    """
    run.write_json(evaluation.to_json(), stage, "metrics.json")
    run.write_bytes(render_markdown(evaluation).encode(), stage, "report.md")
    run.write_bytes(_opening_plate(evaluation).svg.encode(), stage, OPENING_FILE)
    run.write_bytes(render_html(evaluation, training=training).encode(), stage, "report.html")
    return tuple(run.uri(stage, name) for name in ("metrics.json", "report.md", "report.html"))
