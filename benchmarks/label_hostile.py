"""Labels at scale: recorded answers of real models with hostile ones among them, through the label stage on Ray.

Needs the folder of recorded data. Programs are graded in the sandbox, mathematics by a comparer that a child process
runs. Hostile answers try to hang, to exhaust or to leave their checker. Printed: verdicts, reasons, how often the label
of a recorded answer is the recorded one, what became of the hostile ones, and the rate.

    python benchmarks/label_hostile.py                             # 20,000 answers, 1 in 50 hostile
    python benchmarks/label_hostile.py --num-programs 200 --num-formulas 300
"""

import argparse
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from raydebm.config import RayConfig, Recipe, parse_recipe
from raydebm.distributed.label import label
from raydebm.distributed.session import ray_session
from raydebm.identity import content_id, seed_for
from raydebm.records import Candidate, Gold, Label, Problem
from raydebm.run.directory import RunDir
from raydebm.run.json_lines import read_json_lines
from raydebm.tasks import get_task

DATA = Path(os.environ.get("RAYDEBM_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
PROGRAMS = (("apps150", "test_list"), ("humaneval", "entry_point"), ("mbpp", "entry_point"))

HOSTILE_PROGRAMS = (
    "while True:\n    pass",
    "import os\nwhile True:\n    os.fork()",
    "x = []\nwhile True:\n    x.append(bytearray(10**7))",
    "while True:\n    print('x' * 10**6)",
    "import os\nos._exit(0)",
    "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "import sys\nsys.stdout.close()\nraise SystemExit(0)",
    "import socket\nsocket.create_connection(('127.0.0.1', 22), 1)",
    "print(open('/etc/shadow').read())",
    "def f(n):\n    return f(n + 1)\nimport sys\nsys.setrecursionlimit(10**9)\nf(0)",
    "import time\ntime.sleep(10**6)",
)
HOSTILE_FORMULAS = (
    r"\boxed{9^{9^{9^{9^{9}}}}}",
    r"\boxed{" + "(" * 3000 + "1" + ")" * 3000 + "}",
    r"\boxed{" + r"\frac{1}{" * 200 + "2" + "}" * 200 + "}",
    r"\boxed{1000000!!!}",
    r"\boxed{\int_0^{10^{10}} x^{x^x} dx + \sum_{k=1}^{10^{12}} k^{k}}",
    r"\boxed{" + "{" * 5000,
)


def programs(count: int) -> tuple[dict[str, Problem], dict[str, Gold], list[tuple[Candidate, bool | None]]]:
    """Problems, golds, and (candidate, recorded verdict)."""
    problems, golds, by_source = {}, {}, {}
    for name, _ in PROGRAMS:
        for problem, gold in get_task("taco").load("test", source=str(DATA / "code" / f"problems_{name}.jsonl.gz")):
            problems[problem.problem_id], golds[problem.problem_id] = problem, gold
            by_source[problem.data.get("source_id")] = problem
    rows = _mixed(
        row for name, _ in PROGRAMS for _, row in read_json_lines(str(DATA / "code" / f"pool_{name}.jsonl.gz"))
    )
    texts = ((row, f"```python\n{row['code']}\n```") for row in rows if row.get("code"))
    return problems, golds, list(islice(_candidates(texts, "taco", by_source), count))


def formulas(count: int) -> tuple[dict[str, Problem], dict[str, Gold], list[tuple[Candidate, bool | None]]]:
    """The same for mathematics."""
    problems, golds, by_source = {}, {}, {}
    for problem, gold in get_task("math500").load("test", source=str(DATA / "math" / "problems_math_l5.jsonl.gz")):
        problems[problem.problem_id], golds[problem.problem_id] = problem, gold
        by_source[problem.data.get("source_id")] = problem
    rows = _mixed(row for _, row in read_json_lines(str(DATA / "math" / "pool_zeroeval_l5.jsonl.gz")))
    texts = ((row, row["text"]) for row in rows if row.get("text"))
    return problems, golds, list(islice(_candidates(texts, "math500", by_source), count))


def _mixed(rows: Iterator[Any]) -> list[Any]:
    mixed = list(rows)
    random.Random(seed_for(0, "label_hostile")).shuffle(mixed)
    return mixed


def _candidates(
    rows: Iterator[tuple[Any, str]], task: str, by_source: dict[Any, Problem]
) -> Iterator[tuple[Candidate, bool | None]]:
    for number, (row, text) in enumerate(rows):
        problem = by_source.get(row["problem_id"])
        if problem is not None:
            yield _candidate(task, problem, str(row["model"]), text, number), row.get("correct")


def _candidate(task: str, problem: Problem, generator: str, text: str, number: int) -> Candidate:
    return Candidate(
        candidate_id=content_id(task, problem.problem_id, generator, text, number),
        task=task,
        problem_id=problem.problem_id,
        generator=generator,
        text=text,
    )


def plant(
    recorded: list[tuple[Candidate, bool | None]], hostile: Sequence[str], *, every: int
) -> list[tuple[Candidate, bool | None]]:
    """The recorded answers with one of the hostile texts after each ``every - 1`` of them."""
    planted: list[tuple[Candidate, bool | None]] = []
    for number, answer in enumerate(recorded):
        planted.append(answer)
        if number % (every - 1) == 0:
            near = answer[0]
            text = hostile[(number // (every - 1)) % len(hostile)]
            name = f"hostile: {text[:40]!r}"
            problem = Problem(task=near.task, problem_id=near.problem_id, prompt="")
            planted.append((_candidate(near.task, problem, name, text, -number), None))
    return planted


def show(name: str, recipe: Recipe, parts: tuple[Any, Any, Any], hostile: Sequence[str], *, every: int) -> None:
    problems, golds, recorded = parts
    planted = plant(recorded, hostile, every=every)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(folder)
        run.write_candidates(candidate for candidate, _ in planted)
        summary = label(problems, golds, run.stored_candidates(), recipe=recipe, run=run)
        labels = run.labels()
    seconds = time.monotonic() - started
    print(f"\n{name}: {len(planted)} answers, {len(planted) - len(recorded)} of them hostile, {seconds:.0f} s")
    print(f"  {len(planted) / seconds:.0f} answers/s; verdicts {dict(summary.verdicts)}")
    wanted = {candidate.candidate_id: verdict for candidate, verdict in planted}
    generators = {candidate.candidate_id: candidate.generator for candidate, _ in planted}
    known = [row for row in labels if isinstance(wanted[row.candidate_id], bool) and row.verdict != "unlabeled"]
    agreed = sum((row.verdict == "correct") == wanted[row.candidate_id] for row in known)
    print(f"  recorded labels: {agreed} of {len(known)} agree ({100 * agreed / max(1, len(known)):.2f} %)")
    print(f"  unlabeled recorded answers: {dict(Counter(_reason(row) for row in labels if _is_open(row, generators)))}")
    counts = Counter(
        (generators[row.candidate_id], row.verdict, _reason(row))
        for row in labels
        if generators[row.candidate_id].startswith("hostile")
    )
    for (generator, verdict, reason), count in sorted(counts.items()):
        print(f"  {count:5} {generator:60} {verdict:10} {reason}")
    assert len(labels) == len(planted), "a row was lost"


def _is_open(row: Label, generators: dict[str, str]) -> bool:
    return row.verdict == "unlabeled" and not generators[row.candidate_id].startswith("hostile")


def _reason(row: Label) -> str:
    return row.reason.split(":")[0].split(",")[0][:70]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-programs", type=int, default=5_000)
    parser.add_argument("--num-formulas", type=int, default=14_600)
    parser.add_argument("--every", type=int, default=50)
    args = parser.parse_args()
    with ray_session(RayConfig()):
        for name, task, parts, hostile in (
            ("programs", "taco", programs(args.num_programs), HOSTILE_PROGRAMS),
            ("formulas", "math500", formulas(args.num_formulas), HOSTILE_FORMULAS),
        ):
            recipe = parse_recipe(
                {
                    "name": "hostile",
                    "task": {"name": task},
                    "generators": [{"kind": "recorded", "name": "r", "pool": "-", "model": "-"}],
                }
            )
            show(name, recipe, parts, hostile, every=args.every)


if __name__ == "__main__":
    main()
