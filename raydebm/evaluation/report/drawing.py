"""Figures of a report: matplotlib figures without global state, and their SVG text.

Colours are from Okabe and Ito's palette, which is safe for colour-blind readers. Marks, line styles and labels differ
too. Every function needs at least one row.
"""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raydebm.evaluation.results.energy_measures import PassAtN, PickPoint
from raydebm.evaluation.results.entries import OURS, SelectorRow
from raydebm.evaluation.stats.intervals import Estimate

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY, INK = "#CC79A7", "#56B4E9", "#8C8C8C", "#222222"
GROUP_COLOURS = {
    "baseline": GREY, "generator": SKY, "external": GREEN, "adapter": ORANGE, "ablation": PURPLE, "ours": BLUE,
    "decision": BLUE, "bound": INK,
}  # fmt: skip
Look = tuple[str, str, str]
"""Colour, marker and line style."""
LINES: tuple[Look, ...] = (
    (BLUE, "o", "-"), (ORANGE, "s", "--"), (GREEN, "^", "-."), (RED, "D", ":"), (PURPLE, "v", "-"), (INK, "P", "--"),
)  # fmt: skip
SELECTOR_LINES: dict[str, Look] = {
    "random": (GREY, "s", "--"),
    "majority vote": (GREEN, "^", "-."),
    "energy-weighted vote": (ORANGE, "D", "-."),
    "mu only": (SKY, "v", ":"),
    OURS: (BLUE, "o", "-"),
    "oracle": (INK, "P", "--"),
}
MAX_VECTOR_POINTS = 3000
"""Number of points above which a scatter plot is embedded as an image in the SVG, which limits the page's size."""


def svg_of(figure: Figure) -> str:
    """The figure as an ``<svg>`` element. Deterministic."""
    sink = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "raydebm", "svg.fonttype": "path"}):
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    text = sink.getvalue()
    return text[text.index("<svg") :]


def selector_figure(rows: Sequence[SelectorRow]) -> Figure:
    """Bars of pass@1 and of the share of the random-to-oracle gap closed, with intervals.

    If the task has violation scores, bars of their mean and of the gap in it.
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
        tick.set_fontweight("bold" if row.group in ("ours", "decision") else "normal")
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
    figure, axes = axes_of("candidates looked at (n)", "share with a correct one, %")
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
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    return figure


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
    axes: Axes,
    points: Sequence[tuple[float, Estimate]],
    label: str | None,
    look: Look,
    *,
    alpha: float = 0.18,
) -> None:
    """Draw a line with its interval as a band."""
    colour, mark, style = look
    drawn = [(x, percent) for x, estimate in points if (percent := percent_of(estimate)) is not None]
    places = [x for x, _ in drawn]
    axes.fill_between(
        places, [p[1] for _, p in drawn], [p[2] for _, p in drawn], color=colour, alpha=alpha, linewidth=0
    )
    axes.plot(places, [p[0] for _, p in drawn], color=colour, marker=mark, linestyle=style, markersize=4, label=label)
