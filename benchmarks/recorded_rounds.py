"""Recorded second passes: how many wrong answers feedback turns right, and how many right ones it turns wrong.

    git clone https://github.com/karthikv792/LLMs-Planning              # b008bc4, MIT
    python benchmarks/recorded_rounds.py plans LLMs-Planning/llm_planning_analysis/results_backprompting
    git clone https://github.com/noahshinn/reflexion                    # 218cf0e, MIT
    python benchmarks/recorded_rounds.py runs reflexion/programming_runs/root

``plans``: plans in a formal language, with feedback by a validator that is never wrong (the first precondition or goal
that is not met), after the model's own answers. Right is what that validator says. ``runs``: programs by GPT-4, without
feedback and with Reflexion, which tells the model which of the tests fail that it wrote itself. Right is what was
recorded of the hidden tests.

Intervals: 95 %, Wilson for shares; percentile bootstrap over problems, 2,000 times, seed 0, for differences.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.report.table_cells import points
from raydebm.evaluation.stats.intervals import Bootstrap

RUNS = {
    "MBPP": (
        "simple_mbpp_py/mbpp-py._simple_1_gpt-4_pass_at_k_1_py.jsonl",
        "simple_mbpp_py2/mbpp-py._simple_1_gpt-4_pass_at_k_1_py.jsonl",
        "reflexion_mbpp_py/mbpp-py._reflexion_5_gpt-4_pass_at_k_1_py.jsonl",
    ),
    "HumanEval": (
        "simple_test_run/simple_1_gpt-4_pass_at_k_1.jsonl",
        "simple_human_eval_py_logging/humaneval-py..gz_simple_1_gpt-4_pass_at_k_1_py.jsonl",
        "reflexion_humaneval_py_pass_at_1/reflexion_humaneval_py_pass_at_1.jsonl",
    ),
}
"""A run, another one without feedback, and one with."""


def share(count: int, total: int) -> str:
    """``33 of 84, 39.3 % [29.5, 50.0]``."""
    if not total:
        return "0 of 0"
    interval = binomtest(count, total).proportion_ci(method="wilson")
    return f"{count} of {total}, {100 * count / total:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def header(*names: str) -> str:
    """The first two lines of a table, the first column on the left."""
    return f"| {' | '.join(names)} |\n|---|{'---:|' * (len(names) - 1)}"


# ---- plans -----------------------------------------------------------------------------------------------------------


def plans(given: argparse.Namespace) -> Iterator[str]:
    yield header(
        "domain and model", "right at once", "turned right by one reply", "by all replies", "most replies",
        "tokens of a first answer", "of a reply",
    )  # fmt: skip
    for file in sorted(Path(given.folder).glob("*/*/*.json")):
        try:
            instances = json.loads(file.read_text(encoding="utf-8"))["instances"]
        except (ValueError, OSError):
            continue  # a file that the copy lacks, or has as a pointer
        rounds = [known for instance in instances if instance and (known := _rounds_of(instance))]
        if not rounds:
            continue
        name = f"{file.parent.parent.name}, {file.parent.name.removesuffix('_chat')}"
        yield f"| {name} | {' | '.join(_plan_cells(rounds))} |"


def _rounds_of(instance: Mapping[str, Any]) -> list[tuple[bool, int]]:
    """(whether it is valid, completion tokens) of each plan for an instance."""
    steps = list(instance["step_wise_dict"].values())
    verdicts = [_verdict(step) for step in steps]
    if verdicts[-1] is None and instance.get("act_correct"):
        verdicts[-1] = True  # recorded for the instance alone
    # What else has no verdict is a request that failed.
    return [(verdict, _tokens(step)) for verdict, step in zip(verdicts, steps, strict=True) if verdict is not None]


def _verdict(step: Mapping[str, Any]) -> bool | None:
    verdict = ((step.get("sound_verifier_json") or {}).get("validation_info") or {}).get("is_valid_plan")
    return None if verdict is None else bool(verdict)


def _tokens(step: Mapping[str, Any]) -> int:
    reply = step.get("response_object")
    return int((reply.get("usage") or {}).get("completion_tokens") or 0) if isinstance(reply, dict) else 0


def _plan_cells(rounds: Sequence[Sequence[tuple[bool, int]]]) -> list[str]:
    wrong = [plan for plan in rounds if not plan[0][0]]
    asked = [plan for plan in wrong if len(plan) > 1]
    most = max(len(plan) for plan in rounds) - 1
    first = np.mean([plan[0][1] for plan in rounds])
    replies = [tokens for plan in asked for _, tokens in plan[1:]]
    return [
        share(len(rounds) - len(wrong), len(rounds)),
        share(sum(plan[1][0] for plan in asked), len(asked)),
        share(sum(plan[-1][0] for plan in asked), len(asked)),
        str(most),
        f"{first:.0f}",
        f"{np.mean(replies):.0f}" if replies else "-",
    ]


# ---- runs ------------------------------------------------------------------------------------------------------------


def runs(given: argparse.Namespace) -> Iterator[str]:
    yield header(
        "problems and run", "right", "right where a run without feedback was wrong", "wrong where it was right",
        "minus another run without, points",
    )  # fmt: skip
    for task, files in RUNS.items():
        solved = [_solved(Path(given.folder) / file) for file in files]
        common = sorted(set.intersection(*(set(each) for each in solved)))
        one, again, feedback = (np.array([each[name] for name in common], dtype=bool) for each in solved)
        for name, other in (("without feedback again", again), ("with Reflexion", feedback)):
            yield f"| {task}, {name} | {' | '.join(_run_cells(one, other, again))} |"


def _run_cells(one: Any, other: Any, again: Any) -> list[str]:
    bootstrap = Bootstrap.of(len(one), num_bootstrap=2000, seed=0)
    difference: Floats = other.astype(float) - again.astype(float)
    return [
        share(int(other.sum()), len(other)),
        share(int((other & ~one).sum()), int((~one).sum())),
        share(int((~other & one).sum()), int(one.sum())),
        points(bootstrap.mean(difference)),
    ]


def _solved(file: Path) -> dict[str, bool]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {row.get("name") or row["task_id"]: bool(row["is_solved"]) for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for verb in (plans, runs):
        own = verbs.add_parser(verb.__name__)
        own.add_argument("folder")
        own.set_defaults(run=verb)
    given = parser.parse_args()
    for line in given.run(given):
        print(line, flush=True)


if __name__ == "__main__":
    main()
