"""Time and memory of the whole evaluation of a scored pool: selectors, metrics, studies, report.

    python benchmarks/bench_evaluation.py                         # 3,125 problems x 32 = 100,000
    python benchmarks/bench_evaluation.py --num-problems 31250    # 1,000,000
    python benchmarks/bench_evaluation.py --num-problems 300 --profile

The pools are synthetic: energies that correlate with correctness, four generators of different quality, two baselines.
Validation has a fifth as many problems. Times are CPU seconds of this process, which a busy machine hardly affects, and
wall seconds. The pools are made before, and timed separately. Memory is the peak of the process, most of which are the
synthetic candidates.
"""

import argparse
import cProfile
import math
import pstats
import random
import resource
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

from raydebm.decision.policy import Policy
from raydebm.decision.table import PoolTable
from raydebm.evaluation.paper.reproduction import reproduction, write_reproduction
from raydebm.evaluation.results.evaluation import EvaluationInputs, evaluate
from raydebm.evaluation.studies.study import StudyResults, study
from raydebm.records import Candidate, ConstraintReport, Energies, Label, Problem, ScoredCandidate, Verdict, Violation
from raydebm.run.directory import RunDir

T = TypeVar("T")
STRENGTH = {"alpha-8b": -1.0, "beta-7b": -0.3, "gamma-26b": 1.0, "delta-20b": 0.5}
NUM_ADAPTERS = 5


def make_pools(num_problems: int, num_candidates: int, *, name: str, seed: int = 0) -> PoolTable:
    rng = random.Random(seed)
    pools: list[list[ScoredCandidate]] = []
    problems, labels = [], {}
    scores: dict[str, dict[str, float | None]] = {"judge": {}, "reward model": {}}
    for index in range(num_problems):
        problem_id, ease = f"{name}{index:05d}", rng.gauss(0, 1)
        difficulty = f"{2 + index % 4} people"
        problems.append(Problem(task="made-up", problem_id=problem_id, prompt="?" * 200, difficulty=difficulty))
        pools.append([])
        for place in range(num_candidates):
            scored, correct = _candidate(problem_id, place, ease, rng)
            identity = scored.candidate.candidate_id
            pools[-1].append(scored)
            verdict = Verdict.CORRECT if correct else Verdict.INCORRECT
            labels[identity] = Label(
                candidate_id=identity,
                problem_id=problem_id,
                verdict=Verdict.UNLABELED if rng.random() < 0.01 else verdict,
            )
            scores["judge"][identity] = float(round(min(10, max(1, 5 + 3 * correct + rng.gauss(0, 2)))))
            scores["reward model"][identity] = correct + rng.gauss(0, 1.5)
    return PoolTable.of(pools, problems=problems, labels=labels, scores=scores)


def _candidate(problem_id: str, index: int, ease: float, rng: random.Random) -> tuple[ScoredCandidate, int]:
    generator = rng.choice(list(STRENGTH))
    correct = int(rng.random() < 1 / (1 + math.exp(-(STRENGTH[generator] + ease))))
    mu = 1.0 - correct + rng.gauss(0, 1)
    penalty = 0.0 if correct else rng.choice([0.0, 0.0, 0.5, 1.0, math.inf])
    answer = None if math.isinf(penalty) else "right" if correct else f"wrong {rng.randrange(4)}"
    identity = f"{problem_id}-{index:03d}"
    broken = (Violation(constraint="budget", penalty=penalty, weight=1.0, message="too dear"),)
    return (
        ScoredCandidate(
            candidate=Candidate(
                candidate_id=identity,
                task="made-up",
                problem_id=problem_id,
                generator=generator,
                text="x" * rng.randint(50, 400 + 200 * (1 - correct)),
                completion_tokens=rng.randint(20, 150),
                finish_reason="stop",
            ),
            report=ConstraintReport(
                candidate_id=identity,
                answer=answer,
                vote_key=answer,
                penalty=penalty,
                violations=broken if 0 < penalty < math.inf else (),
            ),
            energies=Energies(
                candidate_id=identity,
                members=tuple(mu + rng.gauss(0, 0.3 + 0.3 * abs(ease)) for _ in range(NUM_ADAPTERS)),
            ),
        ),
        correct,
    )


def timed(name: str, act: Callable[[], T]) -> T:
    cpu, wall = time.process_time(), time.perf_counter()
    result = act()
    print(f"{name}: {time.process_time() - cpu:.1f} s CPU, {time.perf_counter() - wall:.1f} s", flush=True)
    return result


def peak_memory() -> float:
    """Peak memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-problems", type=int, default=3125)
    parser.add_argument("--num-candidates", type=int, default=32)
    parser.add_argument("--profile", action="store_true", help="print the 40 functions that take longest")
    options = parser.parse_args()
    sizes = (options.num_problems, max(options.num_problems // 5, 10))
    sized = zip(sizes, "tv", strict=True)
    test, validation = timed(
        "candidates and their tables",
        lambda: [
            make_pools(size, options.num_candidates, name=name, seed=seed) for seed, (size, name) in enumerate(sized)
        ],
    )
    print(f"{sizes[0]} problems x {options.num_candidates} candidates, {sizes[1]} validation problems")
    print(f"memory so far: {peak_memory():.2f} GB")

    def studied() -> StudyResults:
        inputs = EvaluationInputs(
            pools=test,
            validation=validation,
            policy=Policy(),
            task="made-up",
            command="bench",
        )
        return study(evaluate(inputs), test)

    def everything() -> None:
        results = timed("study", studied)
        with tempfile.TemporaryDirectory() as folder:
            timed("report", lambda: write_reproduction(reproduction([results]), RunDir(folder)))

    profile = cProfile.Profile()
    if options.profile:
        profile.enable()
    timed("together", everything)
    profile.disable()
    print(f"peak memory: {peak_memory():.2f} GB")
    if options.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(40)


if __name__ == "__main__":
    main()
