"""What the posterior adds to a decision: CPU time per pool, beside the paper's rule. Synthetic pools.

python benchmarks/bench_posterior.py --pools 200 --candidates 32 --members 5
"""

import argparse
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from raydebm.decision.evidence.built_in_terms import DEFAULT_CONTEXT, DEFAULT_TERMS
from raydebm.decision.evidence.measuring import evidence_of
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.reference import PLAIN
from raydebm.decision.evidence.terms import PoolTable
from raydebm.decision.policy import Policy
from raydebm.decision.rules import decide_pool
from raydebm.records import Candidate, ConstraintReport, Energies, ScoredCandidate

POSTERIOR = Posterior(
    weights=dict.fromkeys(DEFAULT_TERMS, 0.3), context_weights=dict.fromkeys(DEFAULT_CONTEXT, 0.1), num_problems=100
)
POLICY = Policy(rule="posterior", posterior=POSTERIOR)
VOTE = POLICY.replaced(profile="vote")
NUM_AUTHORS = 8

Pool = Sequence[ScoredCandidate]


def synthetic_pool(index: int, *, candidates: int, members: int, rng: random.Random) -> Pool:
    """About half of the candidates give the most frequent answer; up to ten answers."""
    return [_scored(f"{index}-{place}", place, members, rng) for place in range(candidates)]


def _scored(name: str, place: int, members: int, rng: random.Random) -> ScoredCandidate:
    answer = str(min(int(rng.expovariate(0.6)), 9))
    return ScoredCandidate(
        candidate=Candidate(
            candidate_id=name, task="t", problem_id=name, generator=f"g{place % NUM_AUTHORS}", text="x"
        ),
        report=ConstraintReport(candidate_id=name, answer=answer, vote_key=answer, penalty=0.0),
        energies=Energies(candidate_id=name, members=tuple(rng.gauss(0, 1) for _ in range(members))),
    )


def milliseconds(decide: Callable[[Pool], object], pools: Sequence[Pool], rounds: int) -> float:
    """CPU milliseconds per pool: median over rounds, after one round of warm-up."""
    times = []
    for _ in range(rounds + 1):
        started = time.process_time()
        for pool in pools:
            decide(pool)
        times.append(1000 * (time.process_time() - started) / len(pools))
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", type=int, default=200)
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    pools = [
        synthetic_pool(index, candidates=args.candidates, members=args.members, rng=rng) for index in range(args.pools)
    ]
    variants: dict[str, Callable[[Pool], object]] = {
        "paper's rule": lambda pool: decide_pool(pool, passes_left=0, policy=Policy()),
        "posterior": lambda pool: decide_pool(pool, passes_left=0, policy=POLICY),
        "posterior, profile vote": lambda pool: decide_pool(
            pool, passes_left=0, policy=POLICY.replaced(profile="vote")
        ),
        "  of it: grouping": lambda pool: PoolTable.of([pool]),
        "  of it: grouping and evidence": lambda pool: evidence_of(PoolTable.of([pool]), PLAIN),
    }
    print(f"python {platform.python_version()}, numpy {np.__version__}, {platform.processor() or platform.machine()}")
    print(f"{args.pools} pools of {args.candidates} candidates, {args.members} members, seed {args.seed}")
    for name, decide in variants.items():
        print(f"{name:32s} {milliseconds(decide, pools, args.rounds):.3f} ms per pool")
    all_at_once = milliseconds(lambda pool: POSTERIOR.beliefs_of(pools), [pools[0]], args.rounds) / len(pools)
    print(f"{'posterior, all pools at once':32s} {all_at_once:.3f} ms per pool")


if __name__ == "__main__":
    main()
