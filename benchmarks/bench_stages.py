"""Labels and energies per second on one to eight nodes, with workers that sleep instead of computing.

The nodes are those of ``bench_nodes.py``: Ray processes on this machine, with one CPU each. The real stages run on
them, but their workers sleep for ``SLEEP_S`` per candidate, so two cores are enough to see how the stages scale. Each
stage runs once before it is measured, to start the processes of its nodes. The time is that of the whole call.

    python benchmarks/bench_stages.py --nodes 1 2 4 8
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from bench_nodes import grow, growing_cluster

from raydebm.config import Recipe
from raydebm.decision.sampling.checks import unchecked
from raydebm.embedded import DEMO_RUN_FOLDER
from raydebm.pipeline.ray import label, score
from raydebm.records import Candidate, ConstraintReport, Label, Problem, Verdict
from raydebm.run.directory import RunDir
from raydebm.scorer.texts import TextEnergies

SLEEP_S = 0.1
GENERATOR = {"kind": "openai", "name": "g", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None}


class Sleeper:
    """A checker and a scorer that sleeps."""

    def check(self, problem: Problem, gold: object, candidate: Candidate) -> tuple[Label, ConstraintReport]:
        time.sleep(SLEEP_S)
        name = candidate.candidate_id
        verdict = Label(candidate_id=name, problem_id=problem.problem_id, verdict=Verdict.UNLABELED, reason="asleep")
        return verdict, unchecked(name, "asleep")

    def score(self, texts: Sequence[tuple[str, str]]) -> list[TextEnergies]:
        time.sleep(SLEEP_S * len(texts))
        return [TextEnergies(members=(0.0,) * 5, num_tokens=1, num_truncated=0) for _ in texts]

    def close(self) -> None:
        """Nothing to free."""


class SleepingChecks(label.CheckBatch):
    def __init__(self, **setup: Any) -> None:
        super().__init__(**setup)
        self._checker = Sleeper()  # type: ignore[assignment]


class SleepingScores(score.ScoreBatch):
    def __init__(self, **setup: Any) -> None:
        super().__init__(**setup)
        self._scorer = Sleeper()  # type: ignore[assignment]


def stages_of(recipe: Recipe, run: RunDir, count: int) -> dict[str, Callable[[], object]]:
    """The two stages on ``count`` candidates, one per problem."""
    problems = {f"{number}": Problem(task="taco", problem_id=f"{number}", prompt="?") for number in range(count)}
    run.write_candidates(
        Candidate(candidate_id=f"c{name}", task="taco", problem_id=name, generator="g", text=f"answer {name}")
        for name in problems
    )
    candidates = run.stored_candidates()
    given = score.ScoringInput(problems=problems, candidates=candidates)
    checkpoint = str(DEMO_RUN_FOLDER / "scorer")
    return {
        "labels": lambda: label.label(problems, {}, candidates, recipe=recipe, run=run),
        "energies": lambda: score.score(given, checkpoint=checkpoint, recipe=recipe, run=run),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8], help="in rising order")
    parser.add_argument("--per-node", type=int, default=512, help="candidates per node")
    options = parser.parse_args()
    # TACO, because its candidates are programs, of which the stage gives few to each process.
    recipe = Recipe.model_validate({"name": "nodes", "task": {"name": "taco"}, "generators": [GENERATOR]})
    print(
        "| nodes | stage | candidates | seconds | per second | expected | share |\n|---:|---|---:|---:|---:|---:|---:|"
    )
    with (
        growing_cluster() as cluster,
        patch.object(label, "CheckBatch", SleepingChecks),
        patch.object(score, "ScoreBatch", SleepingScores),
    ):
        for nodes in options.nodes:
            grow(cluster, nodes)
            for count, is_measured in ((nodes * 64, False), (nodes * options.per_node, True)):
                with tempfile.TemporaryDirectory() as folder:
                    for name, stage in stages_of(recipe, RunDir(folder), count).items():
                        started = time.monotonic()
                        stage()
                        seconds = time.monotonic() - started
                        if is_measured:
                            rate, expected = count / seconds, nodes / SLEEP_S
                            cells = f"{count:,} | {seconds:.1f} | {rate:.1f} | {expected:g} | {rate / expected:.2f}"
                            print(f"| {nodes} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
