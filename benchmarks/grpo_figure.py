"""The figure and the table of ``grpo_rewards``.

    python benchmarks/grpo_figure.py grpo.jsonl --figure docs/results/grpo.svg

Lines are means over seeds, bands reach from the lowest to the highest seed. The table's intervals are 95 %, percentile
bootstrap over held-out puzzles (2,000 times) of the mean over seeds: they say nothing about other seeds.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.report.drawing import LINES, svg_of, tidy
from raydebm.evaluation.report.table_cells import points
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate

Row = Mapping[str, Any]
Runs = Mapping[int, Sequence[Row]]
"""Measurements by seed, in the order of steps."""
CONTROL = "log_odds_exact"
PANELS = (
    ("accuracy", "right, % of held-out texts", 100.0),
    ("reward", "own reward, minus that at the start", 1.0),
    ("mu", "-mu: what the verifier says", -1.0),
    ("sigma", "sigma: how far its members disagree", 1.0),
    ("kl", "KL(policy || start), nats per text", 1.0),
    ("tokens", "tokens per text", 1.0),
)


def read_runs(files: Sequence[Path]) -> dict[str, dict[int, list[Row]]]:
    """Measurements by reward function and seed. Seeds that did not reach the last step of their reward are left out.

    Raises:
        SystemExit: one reward function was run under two settings, or twice with one seed.
    """
    by_reward: dict[str, dict[int, list[Row]]] = {}
    for line in (line for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        by_reward.setdefault(row["reward_function"], {}).setdefault(row["seed"], []).append(row)
    for name, runs in by_reward.items():
        for seed, rows in runs.items():
            if len({row["step"] for row in rows}) < len(rows):
                raise SystemExit(f"{name}, seed {seed}: a step was measured twice; give the lines of one training each")
        last = max(rows[-1]["step"] for rows in runs.values())
        by_reward[name] = {seed: rows for seed, rows in sorted(runs.items()) if rows[-1]["step"] == last}
    return by_reward


def figure_of(by_reward: Mapping[str, Runs]) -> Figure:
    figure = Figure(figsize=(12.0, 6.4), layout="constrained")
    for axes, (name, label, scale) in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        tidy(axes)
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        for look, (reward, runs) in zip(LINES, by_reward.items(), strict=False):
            draw(axes, runs, name, scale, label=reward, look=look)
    figure.axes[0].legend(frameon=False, fontsize="small")
    return figure


def draw(axes: Axes, runs: Runs, name: str, scale: float, *, label: str, look: tuple[str, str, str]) -> None:
    colour, mark, style = look
    steps = [row["step"] for row in next(iter(runs.values()))]
    values = scale * np.array([[row[name] for row in rows] for rows in runs.values()], dtype=float)
    if name == "reward":  # rewards have scales of their own
        values -= values[:, :1]
    axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.plot(steps, values.mean(axis=0), color=colour, marker=mark, linestyle=style, markersize=4, label=label)


def right_shares(runs: Runs, place: int) -> Floats:
    """(P,): share of right texts of each held-out puzzle, over the seeds, at a measurement."""
    shares: Floats = np.mean(
        [np.array(rows[place]["right"]) / rows[place]["samples"] for rows in runs.values()], axis=0
    )
    return shares


def table(by_reward: Mapping[str, Runs]) -> list[str]:
    lines = [
        "| reward | seeds | right at the start, % | right at the end, % | change, points | by seed | best on the "
        "way, % (step) | reward | -mu | sigma | KL | tokens | answered, % |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    return lines + [line(name, runs) for name, runs in by_reward.items()]


def line(name: str, runs: Runs) -> str:
    rows = list(runs.values())
    means = [100 * right_shares(runs, place).mean() for place in range(len(rows[0]))]
    best = int(np.argmax(means))
    by_seed = ", ".join(f"{100 * (run[-1]['accuracy'] - run[0]['accuracy']):+.1f}" for run in rows)
    cells = [
        name,
        str(len(rows)),
        f"{means[0]:.1f}",
        f"{means[-1]:.1f}",
        points(bootstrapped(right_shares(runs, -1) - right_shares(runs, 0))),
        by_seed,
        f"{means[best]:.1f} ({rows[0][best]['step']})",
        f"{average(rows, 'reward', 0):.2f} to {average(rows, 'reward', -1):.2f}",
        f"{-average(rows, 'mu', 0):.2f} to {-average(rows, 'mu', -1):.2f}",
        f"{average(rows, 'sigma', 0):.2f} to {average(rows, 'sigma', -1):.2f}",
        f"{average(rows, 'kl', -1):.1f}",
        f"{average(rows, 'tokens', 0):.0f} to {average(rows, 'tokens', -1):.0f}",
        f"{100 * average(rows, 'answered', 0):.0f} to {100 * average(rows, 'answered', -1):.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def average(rows: Sequence[Sequence[Row]], name: str, place: int) -> float:
    return float(np.mean([run[place][name] for run in rows]))


def bootstrapped(values: Floats) -> Estimate:
    return Bootstrap.of(len(values), num_bootstrap=2000, seed=0).mean(values)


def comparisons(by_reward: Mapping[str, Runs]) -> list[str]:
    """Differences in right texts at the end: by the uncertainty term, and of every reward to the control."""
    pairs = [(f"{name}_sigma", name) for name in by_reward if f"{name}_sigma" in by_reward]
    pairs += [(name, CONTROL) for name in by_reward if name != CONTROL and CONTROL in by_reward]
    return [difference(by_reward, first, second) for first, second in pairs]


def difference(by_reward: Mapping[str, Runs], first: str, second: str) -> str:
    """Over the seeds that both were trained with, on the same puzzles."""
    seeds = sorted({*by_reward[first]} & {*by_reward[second]})
    if not seeds:
        return f"- {first} - {second}: no seed in common"
    one, other = ({seed: by_reward[name][seed] for seed in seeds} for name in (first, second))
    gain = bootstrapped(right_shares(one, -1) - right_shares(other, -1))
    return f"- {first} - {second}: {points(gain)} points, {gain.n} puzzles, {len(seeds)} seeds"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="what `grpo_rewards --out` wrote")
    parser.add_argument("--figure", type=Path, required=True, help="SVG file to write")
    given = parser.parse_args()
    by_reward = read_runs(given.files)
    given.figure.write_text(svg_of(figure_of(by_reward)), encoding="utf-8")
    print("\n".join([*table(by_reward), "", *comparisons(by_reward)]))


if __name__ == "__main__":
    main()
