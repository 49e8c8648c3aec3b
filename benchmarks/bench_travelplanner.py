"""How many TravelPlanner plans one core checks in a second: labels, constraints, and the official verdicts.

``python benchmarks/bench_travelplanner.py --data ../shared/data/travelplanner`` prints a line each: plans, CPU
seconds of the process (best of the rounds), plans a second. Plans come from the recorded pool, shuffled.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from raydebm.decision.sampling.checks import check_candidate
from raydebm.records import Candidate, Gold, Problem
from raydebm.run.json_lines import read_json_lines
from raydebm.tasks.travelplanner import TravelPlanner
from raydebm.tasks.travelplanner.database import VARIABLE, read_database
from raydebm.tasks.travelplanner.official import evaluate
from raydebm.tasks.travelplanner.trip import trip_of

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data/travelplanner", help="folder with the pool and database/")
    parser.add_argument("--plans", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(arguments.data)
    os.environ[VARIABLE] = str((folder / "database").resolve())
    task = TravelPlanner()
    known = {
        pair[0].data["source_id"]: pair for split in ("train", "test") for pair in task.load(split, source=str(folder))
    }
    rows = [
        row for _, row in read_json_lines(str(folder / "pool_validation.jsonl.gz")) if isinstance(row["plan"], list)
    ]
    rows = random.Random(0).sample(rows, min(arguments.plans, len(rows)))
    items = [(*known[row["problem_id"]], row["plan"], json.dumps(row["plan"])) for row in rows]
    sandbox = read_database(os.environ[VARIABLE])

    def label(problem: Problem, gold: Gold, plan: list[Row], text: str) -> object:
        return task.judge(problem, gold, text)

    def check(problem: Problem, gold: Gold, plan: list[Row], text: str) -> object:
        candidate = Candidate(
            candidate_id="c", task=task.name, problem_id=problem.problem_id, generator="recorded", text=text
        )
        return check_candidate(task, problem, candidate)

    def official(problem: Problem, gold: Gold, plan: list[Row], text: str) -> object:
        return evaluate(trip_of(problem.data), plan, sandbox)

    names = {
        "label (text to eight dimensions)": label,
        "constraints (text to E_constraint and its sentences)": check,
        "official (13 verdicts of a plan)": official,
    }
    for name, function in names.items():
        seconds = min(_seconds(function, items) for _ in range(arguments.rounds))
        print(f"{name}: {len(items)} plans, {seconds:.2f} s CPU, {len(items) / seconds:,.0f} plans/s")


def _seconds(function: Callable[..., object], items: Sequence[tuple[Problem, Gold, list[Row], str]]) -> float:
    started = time.process_time()
    for arguments in items:
        function(*arguments)
    return time.process_time() - started


if __name__ == "__main__":
    main()
