"""How often ``raydebm/auto`` gives a question to its own task, on problems that the service has not seen.

    python benchmarks/routing.py --data ../shared/data

Known problems are training problems of GSM8K, MATH and knights and knaves; asked are their test problems, and
questions of three other kinds that belong to none of them: programs (HumanEval), stories (MuSR) and trips
(TravelPlanner). Nothing is sent to a model. The files are those of docs/recorded_pools.md.
"""

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from raydebm.errors import TaskDataError
from raydebm.serving.settings.known_problems import NOVEL_FRAC, KnownProblems
from raydebm.serving.settings.routing import choose
from raydebm.tasks import GENERAL, get_task
from raydebm.tasks.base import Task

NUM_KNOWN, NUM_ASKED = 2000, 500
KNOWN = {
    "gsm8k": ("gsm8k/problems_train.jsonl.gz", "gsm8k/problems_test.jsonl.gz", "question"),
    "math500": ("math/problems_math_train.jsonl.gz", "math/problems_math_test.jsonl.gz", "question"),
    "knights_knaves": ("knights_knaves/problems_kk_train.jsonl.gz", "knights_knaves/problems_kk_test.jsonl.gz", "quiz"),
}
OTHERS = {
    "programs": ("code/problems_humaneval.jsonl.gz", "prompt"),
    "stories": ("musr/problems_musr_sample.jsonl.gz", "context"),
    "trips": ("travelplanner/problems_train.jsonl.gz", "query"),
}


def texts(file: Path, field: str, most: int) -> list[str]:
    """The questions of a file of JSON lines, in an order shuffled by a fixed seed."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        questions = [str(json.loads(line)[field]) for line in lines]
    order = np.random.default_rng(0).permutation(len(questions))
    return [questions[place] for place in order[:most]]


def main() -> None:
    """Print a table: per kind of question, how many went where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data = parser.parse_args().data
    tasks = {name: get_task(name) for name in KNOWN}
    known = {
        name: [tasks[name].problem_from_text(text) for text in texts(data / train, field, NUM_KNOWN)]
        for name, (train, _, field) in KNOWN.items()
    }
    started = time.perf_counter()
    index = KnownProblems(known, {name: task.problem_from_text for name, task in tasks.items()})
    print(f"index: {time.perf_counter() - started:.2f} s; telling: {dict(index.refused)}")
    print("least cosine:", {name: round(index.least(name), 3) for name in tasks})
    asked = {name: texts(data / test, field, NUM_ASKED) for name, (_, test, field) in KNOWN.items()}
    asked |= {name: texts(data / file, field, NUM_ASKED) for name, (file, field) in OTHERS.items()}
    print("kind, n, where it goes (with the general task), where without")
    for kind, questions in asked.items():
        started = time.perf_counter()
        chosen = [choice(index, tasks, text) for text in questions]
        seconds = (time.perf_counter() - started) / len(questions)
        with_general, without = (dict(Counter(names)) for names in zip(*chosen, strict=True))
        print(kind, len(questions), with_general, without, f"{1000 * seconds:.1f} ms each")
    print(f"novel: farther than all but {NOVEL_FRAC:.0%} of a task's own problems")


def choice(known: KnownProblems, tasks: Mapping[str, Task], text: str) -> tuple[str, str]:
    """Where the question goes with the general task, and where without it."""
    readers = [name for name, task in tasks.items() if can_read(task, text)]
    if not readers:
        return GENERAL, "refused"
    choices = [choose(known, text, readers, (), has_general=general).task for general in (True, False)]
    return choices[0], choices[1]


def can_read(task: Task, text: str) -> bool:
    """Whether the text is a problem of the task."""
    try:
        task.problem_from_text(text)
    except TaskDataError:
        return False
    return True


if __name__ == "__main__":
    main()
