"""Time of writing, listing and replaying stored decisions. Records are synthetic; nothing is sampled or scored.

python benchmarks/bench_replay.py --records 100000 --candidates 16 --members 5
"""

import argparse
import gc
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from raydebm.decision.evidence.built_in_terms import CONTEXT, TERMS
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.decision.rules import decide_pool
from raydebm.records import (
    GC_THRESHOLD,
    Candidate,
    ConstraintReport,
    Energies,
    Outcome,
    PassRecord,
    Problem,
    ScoredCandidate,
    Violation,
)
from raydebm.service.store.reader import DecisionReader, Filter
from raydebm.service.store.record import DecisionRecord, DecisionWriter, RecordsArgs, new_record_id
from raydebm.service.store.stored_replay import Changes, ReplayTally, replay_stored

POLICY = Policy()
POSTERIOR = Posterior(weights=dict.fromkeys(TERMS, 0.3), context_weights=dict.fromkeys(CONTEXT, 0.1), num_problems=100)
START = datetime(2026, 1, 1, tzinfo=UTC)


def synthetic_records(count: int, *, candidates: int, members: int, seed: int) -> Iterator[DecisionRecord]:
    """Decisions of one or two passes."""
    rng = random.Random(seed)
    words = [f"{rng.randrange(10**6):x}" for _ in range(4000)]
    for index in range(count):
        problem = Problem(
            task=f"task{index % 3}", problem_id=f"p{index % 5000}", prompt=" ".join(rng.choices(words, k=60))
        )
        pool: list[ScoredCandidate] = []
        passes: list[PassRecord] = []
        for pass_index in (1, 2):
            size = candidates if pass_index == 1 else POLICY.num_regenerate
            pool += [_scored(rng, problem, words, pass_index, sample, members) for sample in range(size)]
            decided = decide_pool(pool, passes_left=2 - pass_index, policy=POLICY)
            passes.append(
                PassRecord(
                    pass_index=pass_index,
                    num_requested=size,
                    num_failed=0,
                    selected=None if decided.best is None else decided.best.candidate.candidate_id,
                    sigma=decided.signal,
                    penalty=decided.penalty,
                    decision=decided.decision,
                )
            )
            if decided.decision != "regenerate":
                break
        outcome = Outcome(
            problem=problem,
            decision=decided.decision,
            best=decided.best,
            passes=tuple(passes),
            pool=tuple(pool),
            reason=decided.reason,
        )
        moment = START + timedelta(seconds=7 * index)
        yield DecisionRecord(
            record_id=new_record_id(moment),
            time=moment,
            request_id=f"r{index}",
            outcome=outcome,
            policy=POLICY,
            seed=index,
            versions={"raydebm": "0", "checkpoint": "abc"},
            latency_ms=rng.uniform(100, 3000),
        )


def _scored(
    rng: random.Random, problem: Problem, words: list[str], pass_index: int, sample: int, members: int
) -> ScoredCandidate:
    candidate_id = f"{rng.getrandbits(80):020x}"
    candidate = Candidate(
        candidate_id=candidate_id,
        task=problem.task,
        problem_id=problem.problem_id,
        generator=f"g{sample % 4}",
        text=" ".join(rng.choices(words, k=80)),
        pass_index=pass_index,
        sample_index=sample // 4,
        prompt_tokens=100,
        completion_tokens=200,
    )
    amount = rng.choice((0.0, 0.0, 0.5, 1.0))
    broken = (Violation(constraint="limit", penalty=amount, weight=1.0, message="over the limit"),) if amount else ()
    key = str(rng.randrange(4))
    report = ConstraintReport(candidate_id=candidate_id, answer=key, vote_key=key, penalty=amount, violations=broken)
    mu, spread = rng.gauss(0, 2), rng.choice((0.3, 0.8, 1.5))
    energies = Energies(
        candidate_id=candidate_id, members=tuple(rng.gauss(mu, spread) for _ in range(members)), num_tokens=300
    )
    return ScoredCandidate(candidate=candidate, report=report, energies=energies)


def write(folder: str, arguments: argparse.Namespace) -> float:
    """Write the records, and return the seconds of the flushes."""
    writer = DecisionWriter(folder, RecordsArgs(max_days=None), flush_s=3600)
    seconds = 0.0
    records = synthetic_records(
        arguments.records, candidates=arguments.candidates, members=arguments.members, seed=arguments.seed
    )
    for index, record in enumerate(records, start=1):
        writer.put(record)
        if index % 1000 == 0 or index == arguments.records:
            started = time.perf_counter()
            if not writer.flush():
                raise OSError(writer.last_error)
            seconds += time.perf_counter() - started
    writer.close()
    return seconds


def replayed(folder: str, changes: Changes) -> ReplayTally:
    tally = ReplayTally()
    for decision in replay_stored(DecisionReader(folder).records(), changes):
        tally.add(decision, {})
    return tally


def seconds_of(work: Callable[[], object], *, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    gc.set_threshold(GC_THRESHOLD)  # as in the command line and the service
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--candidates", type=int, default=16, help="candidates in the first pass")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="folder for the records; reused if it exists")
    parser.add_argument("--lists-only", action="store_true", help="only lists, without replays")
    arguments = parser.parse_args()
    folder = arguments.folder or tempfile.mkdtemp(prefix="raydebm-records-")
    if arguments.folder is None or not Path(folder).exists():
        print(f"written in {write(folder, arguments):.1f} s")
    files = list(Path(folder).glob("*.parquet"))
    print(f"{len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.0f} MB")

    reader = DecisionReader(folder)
    started = time.perf_counter()
    reader.page(limit=50)
    print(f"{'the first list of a process':<40} {1000 * (time.perf_counter() - started):8.1f} ms")
    strict = Filter(decision="abstain", task="task1", generator="generator1")
    some_id = reader.page(limit=1, offset=arguments.records // 2).data[0].record_id
    for name, work in {
        "newest 50": lambda: reader.page(limit=50),
        "page in the middle": lambda: reader.page(limit=50, offset=arguments.records // 2),
        "by sigma": lambda: reader.page(sort="sigma", limit=50),
        "abstentions of a task, sigma >= 1.6": lambda: reader.page(strict, limit=50),
        "a word in the title": lambda: reader.page(Filter(text="abc"), limit=50),
        "a generator and a letter, by sigma": lambda: reader.page(
            Filter(generator="g2", text="a"), sort="sigma", limit=50
        ),
        "one decision": lambda: reader.get(some_id),
    }.items():
        print(f"{name:<40} {1000 * seconds_of(work):8.1f} ms")
    if arguments.lists_only:
        return
    learned = POLICY.replaced(rule="posterior", posterior=POSTERIOR)
    for name, changes in {
        "replay, nothing changed": Changes(),
        "replay, rule posterior": Changes(policy=learned),
        "replay, rule posterior, profile vote": Changes(policy=learned.replaced(profile="vote")),
        "replay, lambda 2, theta_sigma 0.5": Changes(values={"lambda": 2.0, "theta_sigma": 0.5}),
        "replay, budget 8": Changes(values={"budget": 8}),
    }.items():
        started, cpu = time.perf_counter(), time.process_time()
        tally = replayed(folder, changes)
        changed = f"changed {tally.num_changed:,} of {tally.num_decisions:,}"
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
        print(f"{name:<40} {seconds:8.1f} s, {cpu_seconds:.1f} s of CPU   {changed}")
    if arguments.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
