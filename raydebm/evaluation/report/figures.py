"""Figures of evaluations and studies. Every function needs at least one row."""

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from raydebm.evaluation.certainty.reliability import Reliability, SigmaBin
from raydebm.evaluation.report.document import ReportFigure, ece_cells, report_figure
from raydebm.evaluation.results.energy_metrics import PassAtN, PickPoint
from raydebm.evaluation.results.entries import SelectorRow
from raydebm.evaluation.selectors import PAPER_RULE
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.scorers import Transfer
from raydebm.evaluation.studies.sizes import EnsembleSize, PoolSize
from raydebm.evaluation.studies.study import Ridge, StudyResults
from raydebm.evaluation.studies.two_terms import Decomposition

MAX_NAME_CHARS = 26


def ensemble_size_figure(rows: Sequence[EnsembleSize]) -> Figure:
    """pass@1, pair accuracy with its prediction, and sigma-AUROC by number of adapters."""
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    figure.get_layout_engine().set(wspace=0.08)  # type: ignore[union-attr, call-arg]
    chosen, pairs, spread = panels = figure.subplots(1, 3)
    for axes, label in zip(panels, ("pass@1, %", "pairs ranked correctly, %", "sigma-AUROC, %"), strict=True):
        tidy(axes)
        axes.set(xlabel="adapters (K)", ylabel=label, xlim=(0.7, rows[-1].num_adapters + 0.3))
        axes.set_xticks([row.num_adapters for row in rows])
    draw_band(chosen, [(row.num_adapters, row.pass_at_1) for row in rows], "mean of subsets", LINES[0])
    if any(row.mu_pass_at_1 != row.pass_at_1 for row in rows):
        by_mu = [(row.num_adapters, row.mu_pass_at_1) for row in rows]
        draw_band(chosen, by_mu, "mean of subsets, mu alone", LINES[2], alpha=0.09)
    ends = [(row.num_adapters, 100 * row.worst, 100 * row.best) for row in rows if row.worst is not None and row.best]
    for index, name in ((1, "worst and best subset"), (2, None)):
        places, values = [end[0] for end in ends], [end[index] for end in ends]
        chosen.plot(places, values, "_", color=ORANGE, markersize=9, label=name)
    draw_band(pairs, [(row.num_adapters, row.pair_accuracy) for row in rows], "measured", LINES[0])
    predicted = [
        (row.num_adapters, 100 * row.predicted_pair_accuracy) for row in rows if row.predicted_pair_accuracy is not None
    ]
    if predicted:
        pairs.plot(*zip(*predicted, strict=True), "x--", color=RED, linewidth=1.2, markersize=5, label="P(K, q, rho)")
    draw_band(spread, [(row.num_adapters, row.sigma_auroc) for row in rows if row.num_adapters > 1], None, LINES[2])
    spread.axhline(50, color=GREY, linewidth=0.9, linestyle="--", label="chance")
    for axes in panels:
        legend_below(axes, ncols=1)
    return figure


def pool_size_figure(rows: Sequence[PoolSize]) -> Figure:
    """Expected pass@1, or mean violation if the task has violation scores, by number of candidates."""
    continuous = bool(rows[-1].violation)
    values = [(row.n, row.violation if continuous else row.pass_at_1) for row in rows]
    ylabel = "mean violation x 100 (lower is better)" if continuous else "pass@1, %"
    figure, axes = axes_of("candidates per problem (n)", ylabel)
    for name in values[-1][1]:
        look = SELECTOR_LINES.get(name, LINES[4])
        draw_band(axes, [(n, estimates[name]) for n, estimates in values], name, look, alpha=0.09)
    axes.set_xscale("log", base=2)
    # A size close to the last one has no label, so that labels do not overlap.
    shown = [row.n for row in rows if row is rows[-1] or row.n * 1.4 < rows[-1].n]
    axes.set_xticks(shown, [str(size) for size in shown])
    axes.minorticks_off()
    legend_below(axes)
    return figure


def decomposition_figure(decomposition: Decomposition) -> Figure:
    """Candidates in the plane of mu and E_constraint. Selections by the sum are outlined."""
    figure, axes = axes_of("mu (lower is better)", "E_constraint (lower is better)")
    # Penalties repeat; a small fixed jitter shows the number of points on one line.
    points = decomposition.points
    height = max((point.penalty for point in points), default=0.0) or 1.0
    jitter = np.random.default_rng(0).uniform(-0.012, 0.012, len(points)) * height
    places = np.array([(point.mu, point.penalty + off) for point, off in zip(points, jitter, strict=True)])
    looks: tuple[tuple[str, list[bool], int, dict[str, Any]], ...] = (
        ("incorrect", [each.correct is False for each in points], 1500,
         {"c": RED, "marker": "x", "s": 14, "alpha": 0.45, "linewidths": 0.9}),
        ("correct", [each.correct is True for each in points], 1500,
         {"c": BLUE, "marker": "o", "s": 12, "alpha": 0.45, "linewidths": 0}),
        ("selected", [each.selected for each in points], 600,
         {"facecolors": "none", "edgecolors": INK, "marker": "*", "s": 45, "linewidths": 0.7}),
    )  # fmt: skip
    for name, inside, most, look in looks:
        if any(inside):
            axes.scatter(*places[inside].T, **look, label=name, rasterized=sum(inside) > most)
    legend_below(axes)
    return figure


def ridge_figure(rows: Sequence[Ridge]) -> Figure:
    """Distributions of mu: correct filled, incorrect as a dashed outline, one line of densities per row."""
    figure = Figure(figsize=(7.0, 1.3 + 0.62 * len(rows)), layout="constrained")
    axes = figure.subplots()
    top = max((max((*row.correct, *row.incorrect), default=0.0) for row in rows), default=0.0) or 1.0
    for place, row in enumerate(rows):
        base = float(len(rows) - 1 - place)
        centres = (np.array(row.edges[:-1]) + np.array(row.edges[1:])) / 2
        if row.correct:
            axes.fill_between(
                centres, base, base + 0.9 * np.array(row.correct) / top, color=BLUE, alpha=0.45, linewidth=0.6,
                label="correct" if place == 0 else None,
            )  # fmt: skip
        if row.incorrect:
            axes.plot(
                centres, base + 0.9 * np.array(row.incorrect) / top, color=RED, linestyle="--", linewidth=1.2,
                label="incorrect" if place == 0 else None,
            )  # fmt: skip
        axes.axhline(base, color="#bbbbbb", linewidth=0.6)
    names = [f"{short_name(row.name)}\n{row.num_correct:,} / {row.num_incorrect:,}" for row in rows]
    axes.set_yticks([len(rows) - 1 - place for place in range(len(rows))], names, fontsize=8, va="bottom")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.1, len(rows) + 0.1)
    axes.set_xlabel("mu (lower is better)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    return figure


def short_name(name: str) -> str:
    """Name truncated to fit next to an axis."""
    return name if len(name) <= MAX_NAME_CHARS else name[: MAX_NAME_CHARS - 3] + "..."


def reliability_figure(rows: Sequence[Reliability], bins: Sequence[SigmaBin]) -> Figure:
    """Predicted against observed frequency for each probability, and accuracy by tenths of sigma."""
    panels = len(rows) + bool(bins)
    columns = 2 if panels == 4 else min(3, panels)
    lines = math.ceil(panels / columns)
    figure = Figure(figsize=(3.4 * columns, 3.5 * lines), layout="constrained")
    places = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, row in zip(places, rows, strict=False):
        _diagram(axes, row)
    if bins:
        _sigma_panel(places[len(rows)], bins)
    for axes in places[panels:]:
        axes.remove()
    return figure


def _diagram(axes: Axes, row: Reliability) -> None:
    tidy(axes)
    axes.plot([0, 100], [0, 100], color=GREY, linewidth=1.0, linestyle="--")
    largest = max(bucket.n for bucket in row.bins)
    for bucket in row.bins:
        drawn = percent_of(bucket.accuracy)
        if drawn is None:
            continue
        value, low, high = drawn
        width = 100 * (bucket.high - bucket.low)
        axes.bar(100 * bucket.low, value, width=width, align="edge", color=BLUE, alpha=0.15 + 0.5 * bucket.n / largest)
        span = [[value - low], [high - value]]
        place = 100 * bucket.mean_predicted
        axes.errorbar(place, value, yerr=span, color=INK, fmt="o", markersize=3.5, elinewidth=1.0, capsize=2)
    ece, perfect = ece_cells(row.ece)
    by_chance = "" if row.ece.perfect is None else f"\n(if perfect {perfect})"
    axes.set_title(f"{fill(row.name, 34)}\nECE {ece}, n={row.ece.n}{by_chance}", fontsize=8)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 104)
    axes.set_xlabel("predicted, %")
    axes.set_ylabel("observed, %")


def _sigma_panel(axes: Axes, bins: Sequence[SigmaBin]) -> None:
    tidy(axes)
    for place, tenth in enumerate(bins):
        drawn = percent_of(tenth.accuracy)
        if drawn is not None:
            value, low, high = drawn
            axes.bar(place, value, color=GREEN, alpha=0.55)
            span = [[value - low], [high - value]]
            axes.errorbar(place, value, yerr=span, color=INK, elinewidth=1.0, capsize=2, fmt="none")
    shown = range(0, len(bins), 3)
    axes.set_xticks(list(shown), [f"{bins[place].low:.2g}" for place in shown])
    axes.set_ylim(0, 104)
    axes.set_xlabel("sigma of the pick, by tenths")
    axes.set_ylabel("correct, or 1 - violation, %")
    axes.set_title("accuracy by sigma\n(flat: sigma is not informative)", fontsize=8)


def transfer_figure(transfer: Transfer) -> Figure:
    """pass@1 by mu, coloured by the lift over random choice (green above, pink below). In-domain cells are framed."""
    lifts = np.full((len(transfer.sources), len(transfer.targets)), math.nan)
    for cell in transfer.cells:
        if cell.by_mu.lift.value is not None:
            lifts[transfer.sources.index(cell.source), transfer.targets.index(cell.target)] = (
                100 * cell.by_mu.lift.value
            )
    longest = max(len(source) for source in transfer.sources)
    width = 1.8 + 0.08 * longest + 1.25 * len(transfer.targets)
    figure = Figure(figsize=(width, 1.5 + 0.62 * len(transfer.sources)), layout="constrained")
    axes = figure.subplots()
    limit = max(float(np.nanmax(np.abs(lifts))) if not np.isnan(lifts).all() else 1.0, 1e-6)
    image = axes.imshow(lifts, cmap="PiYG", norm=TwoSlopeNorm(0.0, -limit, limit), aspect="auto")
    for cell in transfer.cells:
        row, column = transfer.sources.index(cell.source), transfer.targets.index(cell.target)
        share, lift = cell.by_mu.pass_at_1.value, cell.by_mu.lift.value
        if share is not None and lift is not None:
            dark = abs(100 * lift) > 0.7 * limit
            text = f"{100 * share:.1f}\n({100 * lift:+.1f})"
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else INK)
        if cell.in_domain:
            corner = (column - 0.48, row - 0.48)
            axes.add_patch(Rectangle(corner, 0.96, 0.96, fill=False, edgecolor=INK, linewidth=2.0))
    axes.set_xticks(
        range(len(transfer.targets)), transfer.targets, fontsize=8, rotation=20 if len(transfer.targets) > 4 else 0
    )
    axes.set_yticks(range(len(transfer.sources)), transfer.sources, fontsize=8)
    axes.set_xlabel("evaluated on")
    axes.set_ylabel("trained on")
    figure.colorbar(image, ax=axes, label="lift over random, points", shrink=0.9)
    return figure


def study_figures(results: StudyResults) -> list[ReportFigure]:
    """Figures of the studies with data."""
    value = "mean violation" if results.evaluation.is_continuous else "pass@1"
    drawn = (
        (
            ensemble_size_figure(results.ensemble_sizes) if results.ensemble_sizes else None,
            "Ensemble size",
            "By number of adapters, means over all subsets: pass@1 (left), pairs ranked correctly, with the "
            "prediction for correlated adapters (middle), AUROC of -sigma (right; sigma is informative above the "
            "dashed line). Bands: 95 % intervals over problems.",
        ),
        (
            pool_size_figure(results.pool_sizes) if len(results.pool_sizes) > 1 else None,
            "Candidates per problem",
            f"Expected {value} with n random candidates of each pool. The gap between a curve and the oracle is "
            "what selection loses; a selector whose curve flattens early needs no more candidates.",
        ),
        (
            None if results.decomposition is None else decomposition_figure(results.decomposition),
            "The two terms",
            "One mark for each candidate of a sample: learned energy across, constraint penalty upwards "
            "(jittered); stars are selected. If both terms help, stars gather in the lower left among correct ones.",
        ),
        (
            ridge_figure(results.ridges) if results.ridges else None,
            "Energies of correct and incorrect candidates",
            "Distribution of mu for correct (filled) and incorrect (dashed) candidates, with their numbers; one row "
            "per generator. If the filled parts of the rows are shifted relative to each other, mu depends on "
            "the author.",
        ),
    )
    return [report_figure(figure, title, caption) for figure, title, caption in drawn if figure is not None]


BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY, INK = "#CC79A7", "#56B4E9", "#8C8C8C", "#222222"
GROUP_COLOURS = {
    "baseline": GREY, "generator": SKY, "external": GREEN, "adapter": ORANGE, "ablation": PURPLE, "paper": BLUE,
    "decision": BLUE, "loop": BLUE, "bound": INK,
}  # fmt: skip
Look = tuple[str, str, str]
"""Colour, marker and line style."""
LINES: tuple[Look, ...] = (
    (BLUE, "o", "-"), (ORANGE, "s", "--"), (GREEN, "^", "-."), (RED, "D", ":"), (PURPLE, "v", "-"), (INK, "P", "--"),
)  # fmt: skip
SELECTOR_LINES: dict[str, Look] = {
    "random": (GREY, "s", "--"),
    "mu only": (SKY, "v", ":"),
    PAPER_RULE: (BLUE, "o", "-"),
    "oracle": (INK, "P", "--"),
}
MAX_VECTOR_POINTS = 3000
"""Number of points above which a scatter plot is embedded as an image in the SVG, which limits the page's size."""


def selector_figure(rows: Sequence[SelectorRow]) -> Figure:
    """Bars of pass@1 and of the share of the random-to-oracle gap closed, with intervals.

    If the task has violation scores, the bars show the mean violation and the gap closed in it.
    """
    continuous = any(row.mean_violation.value is not None for row in rows)
    drawn = [
        (row, row.mean_violation, row.violation_gap_closed) if continuous else (row, row.pass_at_1, row.gap_closed)
        for row in rows
    ]
    figure = Figure(figsize=(9.0, 1.1 + 0.3 * len(rows)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for place, (row, value, gap) in enumerate(drawn):
        colour = GROUP_COLOURS.get(row.group, GREY)
        _bar(left, place, value, colour)
        _bar(right, place, gap, colour)
    names = [f"{row.name} (n={value.n})" for row, value, _ in drawn]
    left.set_yticks(range(len(rows)), names)
    for tick, row in zip(left.get_yticklabels(), rows, strict=True):
        tick.set_fontweight("bold" if row is rows[0] else "normal")
    left.set_ylim(len(rows) - 0.4, -0.6)
    if continuous:
        left.set_xlim(left=0)
        left.set_xlabel("mean violation x 100 (lower is better)")
    else:
        left.set_xlim(0, 100)
        left.set_xlabel("pass@1, %")
    right.set_xlabel("gap closed, %")
    right.axvline(0, color=INK, linewidth=0.8)
    right.set_xlim(*_gap_limits([gap for _, _, gap in drawn]))
    for axes in (left, right):
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    right.spines["left"].set_visible(False)
    right.tick_params(axis="y", length=0)
    return figure


def _gap_limits(gaps: Sequence[Estimate]) -> tuple[float, float]:
    """Axis limits that include every bar and interval, except for very wide intervals."""
    spans = [span for gap in gaps if (span := percent_of(gap)) is not None]
    lowest, highest = min([0.0, *(low for _, low, _ in spans)]), max([100.0, *(high for _, _, high in spans)])
    return max(lowest - 5, -200.0), min(highest + 5, 200.0)


def _bar(axes: Axes, place: int, estimate: Estimate, colour: str) -> None:
    drawn = percent_of(estimate)
    if drawn is None:
        axes.text(1, place, "no value", va="center", fontsize=8, color=INK)
        return
    value, low, high = drawn
    axes.barh(place, value, height=0.68, color=colour, alpha=0.85)
    axes.errorbar(
        value, place, xerr=[[value - low], [high - value]], color=INK, elinewidth=1.1, capsize=2.5, fmt="none"
    )


def percent_of(estimate: Estimate) -> tuple[float, float, float] | None:
    """Estimate in per cent for drawing. None without a value or an interval."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    # The percentile interval of a skewed statistic may exclude the value; error bars must not be negative.
    low, high = min(estimate.low, estimate.value), max(estimate.high, estimate.value)
    return 100 * estimate.value, 100 * low, 100 * high


def pass_at_n_figure(rows: Sequence[PassAtN]) -> Figure:
    """Share of problems with a correct candidate among the first n, by energy and at random."""
    figure, axes = axes_of("candidates (n)", "share with a correct one, %")
    draw_band(axes, [(row.n, row.by_energy) for row in rows], "lowest E first", LINES[0])
    if any(row.by_mu != row.by_energy for row in rows):
        draw_band(axes, [(row.n, row.by_mu) for row in rows], "lowest mu first", LINES[2], alpha=0.09)
    draw_band(axes, [(row.n, row.by_chance) for row in rows], "in random order", LINES[1])
    if rows[-1].n > 16:
        axes.set_xscale("log", base=2)
    ticks = [row.n for row in rows if row.n <= 4 or row.n % 4 == 0 or row is rows[-1]]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="lower right")
    return figure


def triage_figure(picks: Sequence[PickPoint], *, theta_sigma: float, theta_abstain: float) -> Figure:
    """Each problem's selection in the mu-sigma plane, with both thresholds."""
    figure, axes = axes_of("mu of the selected candidate (lower is better)", "sigma of the selected candidate")
    looks: tuple[tuple[bool | None, str, dict[str, Any]], ...] = (
        (True, "correct", {"c": BLUE, "marker": "o", "s": 16, "alpha": 0.5, "linewidths": 0}),
        (None, "unlabeled", {"c": INK, "marker": "+", "s": 26, "linewidths": 1.0}),
        (False, "incorrect", {"c": RED, "marker": "x", "s": 26, "linewidths": 1.4}),
    )
    for correct, name, look in looks:
        points = [pick for pick in picks if pick.correct is correct]
        if points:
            axes.scatter(
                [point.mu for point in points],
                [point.sigma for point in points],
                **look,
                label=f"{name} (n={len(points)})",
                rasterized=len(picks) > MAX_VECTOR_POINTS,
            )
    top = max(pick.sigma for pick in picks)
    ceiling = max(1.15 * top, 1e-6)
    for theta, name, style in ((theta_sigma, "theta_sigma", "--"), (theta_abstain, "theta_abstain", ":")):
        inside = theta <= ceiling
        label = f"{name} = {theta:.3g}" + ("" if inside else " (above the plot)")
        if inside:
            axes.axhline(theta, color=INK, linestyle=style, linewidth=1.2, label=label)
        else:
            axes.plot([], [], color=INK, linestyle=style, linewidth=1.2, label=label)
    axes.set_ylim(0, ceiling)
    legend_below(axes)
    return figure


def legend_below(axes: Axes, *, ncols: int = 3) -> None:
    """Draw the legend below the axis label."""
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=ncols)


def axes_of(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    """Empty figure in the report's style."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    return figure, axes


def tidy(axes: Axes) -> None:
    """Draw a light grid behind the data, and remove the frame."""
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_band(
    axes: Axes, points: Sequence[tuple[float, Estimate]], label: str | None, look: Look, *, alpha: float = 0.18
) -> None:
    """Draw a line with its interval as a band."""
    colour, mark, style = look
    drawn = [(x, percent) for x, estimate in points if (percent := percent_of(estimate)) is not None]
    places = [x for x, _ in drawn]
    axes.fill_between(
        places, [p[1] for _, p in drawn], [p[2] for _, p in drawn], color=colour, alpha=alpha, linewidth=0
    )
    axes.plot(places, [p[0] for _, p in drawn], color=colour, marker=mark, linestyle=style, markersize=4, label=label)
