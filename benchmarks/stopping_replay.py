"""Stopping rules replayed on recorded answers, as a Markdown page and a figure.

``python benchmarks/stopping_replay.py`` reads ``$RAYDEBM_DATA`` (or ``--data``) and writes stopping.md and
stopping.svg to docs/results; about ten minutes on one core. What a rule is fitted or tuned on are one half of the
problems of a pool, and it is judged on the other half, both ways.
"""

import argparse
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from stopping_data import NAMES, plain_key, read_boinf, read_pools
from stopping_sweeps import (
    ALLOWED_LOSS,
    AS_PUBLISHED,
    MAX_SINGLES,
    SINGLES,
    Family,
    Replayer,
    Sweep,
    at_share,
    families_of,
    share_of,
)

from raydebm.decision.stopping.published_rules import BetaRule, FixedBudgetRule
from raydebm.evaluation.report.drawing import GREY, LINES, svg_of, tidy
from raydebm.evaluation.results.stopping import (
    RecordedAnswers,
    ReplayedStopping,
    StoppingRow,
    joined,
    lead_probabilities,
    replay,
    replay_threshold,
    stopping_row,
    trajectories,
)
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate

NUM_BOOTSTRAP = 2000
SHARES = (0.15, 0.2, 0.3, 0.4)
"""Token shares at which rules are compared."""


def pool_section(replayer: Replayer, sweeps: Sequence[Sweep], bootstrap: Bootstrap) -> Iterator[str]:
    """One pool: rules as published, tuned rules, and rules at equal budgets."""
    pool = replayer.pool
    groups = len({answers.group for answers in pool.answers})
    yield f"## {pool.name}"
    yield ""
    yield (
        f"{len(pool.problem_ids)} problems, {groups} {'author' if groups == 1 else 'authors'} replayed apart, "
        f"{len(pool.answers):,} pools, budget {pool.max_samples}, waves {', '.join(map(str, pool.waves))}."
    )
    yield ""
    yield f"| rule | accuracy % | minus whole budget, points | samples | {pool.unit} % | accepted / budget % |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, rule, waves in AS_PUBLISHED:
        if waves == SINGLES and pool.max_samples > MAX_SINGLES:
            continue
        yield _row(stopping_row(name, replayer.fixed(rule, waves), bootstrap))
    for sweep in sweeps:
        if sweep.family.name.startswith("settled"):
            name = f"**{sweep.family.name}, epsilon .05, prior of the other half**"
            yield _row(stopping_row(name, sweep.default(), bootstrap))
        if sweep.family.setting != "budget":
            replayed, settings = sweep.tuned()
            name = f"{sweep.family.name}, tuned ({settings[0]:g}; {settings[1]:g})"
            yield _row(stopping_row(name, replayed, bootstrap))
    yield ""
    whole = replayer.fixed(FixedBudgetRule(), None).full_correct
    curves = {sweep.family.name: sweep.everywhere() for sweep in sweeps}
    columns = [f"{share:.0%}" for share in SHARES]
    yield f"At equal budgets: accuracy minus that of the whole budget in points, at a share of {pool.unit}."
    yield ""
    yield f"| rule | {' | '.join(columns)} |"
    yield f"|---|{'---:|' * len(columns)}"
    at = {name: [at_share(curve, share) for share in SHARES] for name, curve in curves.items()}
    for name, values in at.items():
        yield f"| {name} | {' | '.join(_points(bootstrap, value, whole) for value in values)} |"
    for ours, theirs in EQUAL_BUDGET_PAIRS:
        if ours not in at or theirs not in at:
            continue
        cells = [_points(bootstrap, a, b) for a, b in zip(at[ours], at[theirs], strict=True)]
        yield f"| *{ours} minus {theirs}* | {' | '.join(cells)} |"
    yield ""


EQUAL_BUDGET_PAIRS = (
    ("settled, waves", "Beta, waves"),
    ("settled, waves", "ESC"),
    ("settled, waves", "fixed budget"),
    ("settled, single samples", "Beta, single samples"),
    ("settled, single samples", "fixed budget"),
)
ALLOWED_SHARE, ALLOWED_POINTS = 0.5, 0.005
"""What stopping must reach: at most this share of the cost for at most this loss."""


SUMMARY_HEAD = (
    "| pool | cost in | drawn in | problems | whole budget % | samples % | cost % | minus whole budget, points | "
    "reached | Beta, minus ours | Beta on single samples, minus ours | ESC, minus ours | fixed budget, minus ours |",
    f"|{'---|' * 3}{'---:|' * 5}---|{'---:|' * 4}",
)


def summary_rows(replayer: Replayer, sweeps: Sequence[Sweep], bootstrap: Bootstrap) -> Iterator[str]:
    """The settled rule at its default, and the others at the mean cost that it has."""
    pool = replayer.pool
    by_name = {sweep.family.name: sweep for sweep in sweeps}
    for kind in ("waves", "single samples"):
        ours = by_name.get(f"settled, {kind}")
        if ours is None:
            continue
        replayed = ours.default()
        row, share = stopping_row(pool.name, replayed, bootstrap), share_of(replayed)
        loss = float(np.nanmean(replayed.full_correct - replayed.correct))
        names = (f"Beta, {kind}", "Beta, single samples", "ESC", "fixed budget")
        others = [at_share(by_name[name].everywhere(), share) if name in by_name else None for name in names]
        cells = [
            pool.name, pool.unit, kind, str(len(pool.problem_ids)), f"{100 * np.nanmean(replayed.full_correct):.1f}",
            _cell(row.sample_share, 100), _cell(row.token_share, 100), _cell(row.difference, 100, digits=2, sign=True),
            "yes" if share <= ALLOWED_SHARE and loss <= ALLOWED_POINTS else "no",
            *(_points(bootstrap, other, replayed.correct) for other in others),
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _row(row: StoppingRow) -> str:
    reasons = f"{100 * row.reasons['accept']:.0f} / {100 * row.reasons['budget']:.0f}"
    cells = [
        row.name, _cell(row.accuracy, 100), _cell(row.difference, 100, digits=2, sign=True),
        _cell(row.mean_samples, 1), _cell(row.token_share, 100), reasons,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _cell(estimate: Estimate, factor: float, *, digits: int = 1, sign: bool = False) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    plus = "+" if sign else ""
    value, low, high = (
        f"{factor * number:{plus}.{digits}f}" for number in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} [{low}, {high}]"


def _points(bootstrap: Bootstrap, ours: np.ndarray | None, theirs: np.ndarray | None) -> str:
    return "-" if ours is None or theirs is None else _cell(bootstrap.mean(ours - theirs), 100, digits=2, sign=True)


def author_table(pools: Sequence[tuple[Replayer, Sweep]]) -> Iterator[str]:
    """The tuned settled rule by author; what is tuned is tuned on all authors of the calibration half."""
    yield "## By author"
    yield ""
    yield "The settled rule in waves, tuned as above, on each author's pools."
    yield ""
    yield "| data | author | problems | whole budget % | minus whole budget, points | samples | tokens % |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for replayer, sweep in pools:
        _, settings = sweep.tuned()
        for group in sorted({pool.group for pool in replayer.pool.answers}):
            row, whole = _by_author(replayer, sweep.family, group, settings)
            yield (
                f"| {replayer.pool.name} | {group} | {whole.n} | {_cell(whole, 100)} | "
                f"{_cell(row.difference, 100, digits=2, sign=True)} | {_cell(row.mean_samples, 1)} | "
                f"{_cell(row.token_share, 100)} |"
            )
    yield ""


def _by_author(
    replayer: Replayer, family: Family, group: str, settings: tuple[float, float]
) -> tuple[StoppingRow, Estimate]:
    parts = []
    for half, setting in enumerate(settings):
        judged = set(replayer.halves[1 - half])
        played = replayer.of_group(group, replayer.pool.waves)
        replayed = replay_threshold(played, lead_probabilities(played, family.rule(replayer.priors[half])), setting)
        parts.append(replayed.only([name for name in replayed.problem_ids if name in judged]))
    together = joined(parts)
    bootstrap = Bootstrap.of(len(together.problem_ids), num_bootstrap=NUM_BOOTSTRAP, seed=replayer.seed)
    return stopping_row(group, together, bootstrap), bootstrap.proportion(together.full_correct)


def known_results(data: Path, *, num_replays: int, seed: int) -> Iterator[str]:
    """The replay beside figures that were measured before, with answers compared as plain text."""
    yield "## Beside earlier figures"
    yield ""
    yield (
        "Earlier replays (of all problems, answers compared as text, one to ten repeats): MATH-500 gpt-oss-20b .954, "
        "Beta .95 .958 / 5.4 samples / 26 %, Beta .99 .952 / 7.8 / 35 %; GPQA Nemotron-9B .629, Beta .95 .631 / 12.3 / "
        "45 %. Here, on the problems at hand, with the same comparison:"
    )
    yield ""
    yield "| data | author | problems | rule | accuracy | samples | tokens % |"
    yield "|---|---|---:|---|---:|---:|---:|"
    wanted = {("math500", "gpt-oss-20b"), ("gpqa_diamond", "NVIDIA-Nemotron-Nano-9B-v2")}
    pools: dict[tuple[str, str], list[RecordedAnswers]] = {}
    for name, pool in read_boinf(data, plain_key):
        if (name, pool.group) in wanted:
            pools.setdefault((name, pool.group), []).append(pool)
    for (name, model), answers in sorted(pools.items()):
        played = trajectories(answers, waves=SINGLES, max_samples=32, num_replays=num_replays, seed=seed)
        bootstrap = Bootstrap.of(len(answers), num_bootstrap=NUM_BOOTSTRAP, seed=seed)
        for label, rule in (
            ("whole budget", FixedBudgetRule()),
            ("Beta .95", BetaRule(0.95)),
            ("Beta .99", BetaRule(0.99)),
        ):
            row = stopping_row(label, replay(played, rule), bootstrap)
            yield (
                f"| {NAMES[name]} | {model} | {len(answers)} | {label} | {_cell(row.accuracy, 1, digits=3)} | "
                f"{_cell(row.mean_samples, 1)} | {_cell(row.token_share, 100)} |"
            )
    yield ""


def figure_of(curves: Sequence[tuple[str, Mapping[str, Sequence[ReplayedStopping]]]]) -> Figure:
    """Accuracy minus that of the whole budget over the token share, a panel per pool."""
    figure = Figure(figsize=(11.0, 6.2), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    for axes, (title, by_rule) in zip(panels, curves, strict=False):
        tidy(axes)
        axes.axhline(0, color=GREY, linewidth=0.9, linestyle="--")
        axes.axhline(-0.5, color=GREY, linewidth=0.9, linestyle=":")
        for (name, curve), (colour, mark, line) in zip(by_rule.items(), LINES, strict=False):
            points = sorted(
                (100 * share_of(replayed), 100 * float(np.nanmean(replayed.correct - replayed.full_correct)))
                for replayed in curve
            )
            axes.plot(
                *zip(*points, strict=True),
                marker=mark,
                linestyle=line,
                color=colour,
                markersize=4,
                linewidth=1.2,
                label=name,
            )
        axes.set_xlim(0, 80)
        axes.set_ylim(-3, 1)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("cost, % of the whole budget")
        axes.set_ylabel("accuracy, points")
    for axes in panels[len(curves) :]:
        axes.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="lower right")
    return figure


INTRODUCTION = """# When to stop sampling: rules replayed on recorded answers

Recorded answers are replayed in {num_replays} random orders (seed {seed}). Every rule sees the same orders; the answer
is the majority of what was drawn (ties shared) and is compared with that of the whole budget in the same order.
Intervals are 95 %, percentile bootstrap over problems ({num_bootstrap} resamples; authors of a problem are resampled
together). A sample without an answer costs its tokens and does not vote. Data: `docs/recorded_pools.md`; MATH-500,
GPQA and AIME are 80 to 160 answers with their token counts per problem and model, without texts
(github.com/jkomiyama/BoInf-code-publish at fbcb097). Answers to MATH problems are equal when their normal forms are
(`raydebm.tasks.math500.latex`), others when their text (GSM8K: number) is. Where no token counts were recorded the
cost is the number of characters.

- *settled* is this project's rule (`raydebm.decision.stopping.SettledRule`): stop when the leader keeps its lead over
  the rest of the budget with probability 1 - epsilon; its setting is that probability.
- *Beta* and *Dirichlet* are Adaptive-Consistency's (arXiv 2305.11860); Beta .95 on single samples is its_hub's rule.
- *ESC* stops when all answers of a window are equal (arXiv 2401.10480).
- *Single samples* wait for each answer before the next is asked for; waves ask for several at once.
- *Tuned*: the cheapest setting that loses at most {allowed:g} points on one half of the problems, judged on the other
  half, both ways (the two settings stand in brackets). The settled rule's prior is fitted on the same half.
- *At equal budgets*: two settings of a rule are mixed at random so that exactly this share is spent.

Command: `python benchmarks/stopping_replay.py` at commit {commit}.

## At the default

The settled rule at its default, epsilon .05. Nothing is tuned; its prior over concentrations is fitted (maximum
likelihood, votes alone, no labels) on one half of the problems and used on the other half, both ways. *Reached* says
whether it costs at most half and loses at most 0.5 points. Beside it, at exactly the same mean cost and on the same
problems and orders: Beta (its_hub's rule) on the same schedule and on single samples, ESC, and a fixed number of
samples, each as its accuracy minus that of the settled rule in points; "-" where no setting of the rule costs that.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("RAYDEBM_DATA", "../shared/data"), help="recorded data")
    parser.add_argument("--out", default="docs/results", help="folder that stopping.md and stopping.svg go to")
    parser.add_argument("--pools", default="", help="only those whose name has this in it")
    parser.add_argument("--num-replays", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    data, out = Path(arguments.data), Path(arguments.out)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    head = INTRODUCTION.format(
        num_replays=arguments.num_replays,
        seed=arguments.seed,
        num_bootstrap=NUM_BOOTSTRAP,
        allowed=100 * ALLOWED_LOSS,
        commit=commit.stdout.strip(),
    )
    summary, sections = list(SUMMARY_HEAD), list[str]()
    curves: list[tuple[str, dict[str, list[ReplayedStopping]]]] = []
    by_author: list[tuple[Replayer, Sweep]] = []

    def write(*more: str) -> None:
        lines = [head, *summary, "", "![Accuracy over cost](stopping.svg)", "", *sections, *more]
        (out / "stopping.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
        (out / "stopping.svg").write_text(svg_of(figure_of(curves)), encoding="utf-8")

    for pool in (pool for pool in read_pools(data) if arguments.pools in pool.name):
        replayer = Replayer(pool, num_replays=arguments.num_replays, seed=arguments.seed)
        sweeps = [replayer.sweep(family) for family in families_of(pool)]
        bootstrap = Bootstrap.of(len(pool.problem_ids), num_bootstrap=NUM_BOOTSTRAP, seed=arguments.seed)
        summary += summary_rows(replayer, sweeps, bootstrap)
        sections += pool_section(replayer, sweeps, bootstrap)
        if pool.max_samples != 64:
            curves.append((pool.name, {s.family.name: s.everywhere() for s in sweeps if s.family.name in SHOWN}))
        if pool.max_samples == 32:
            by_author.append((replayer, sweeps[0]))
        write()
        print(f"{pool.name} done", flush=True)
    if not arguments.pools:
        known = known_results(data, num_replays=arguments.num_replays, seed=arguments.seed)
        write(*author_table(by_author), *known)


SHOWN = ("settled, waves", "Beta, waves", "ESC", "settled, single samples", "Beta, single samples", "fixed budget")


if __name__ == "__main__":
    main()
