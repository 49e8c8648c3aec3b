"""What public tests are worth on the recorded pools of programs, as a Markdown page.

``python benchmarks/public_tests.py --rows rows.jsonl > docs/results/public_tests.md``

Every candidate of every problem of the recipes is checked by the public tests, in the sandbox, which takes a while:
``--rows`` keeps what was measured, one line per problem, and a further call goes on from there. Labels are the recorded
ones, which were made by running the hidden tests (docs/tasks/taco.md has how often our grader agrees), and our grader's
where those were made with another edition's tests. Intervals are 95 %, percentile bootstrap over problems.
"""

import argparse
import asyncio
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from raydebm.config import Recipe, RecordedGenerator, load_recipe
from raydebm.decision.sampling.checks import check_candidate
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, Floats
from raydebm.generators.passes import PassRequests
from raydebm.generators.recorded import recorded_generators
from raydebm.labels import label_candidate
from raydebm.pipeline.stages.problems import answerable, load_problems
from raydebm.records import Candidate, Problem, Verdict
from raydebm.run.json_lines import read_json_lines
from raydebm.tasks import task_of
from raydebm.tasks.base import Task
from raydebm.tasks.taco.extraction import normal_form
from raydebm.tasks.taco.public_tests import public_tests

POOLS = {"HumanEval": "humaneval_recorded", "MBPP": "mbpp_recorded", "APPS": "apps_recorded"}
NUM_BOOTSTRAP = 10_000
SELECTORS = (
    "random",
    "vote by text",
    "vote by behaviour",
    "fewest failed public tests",
    "of these, vote by behaviour",
    "oracle",
)
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, help="what was measured, as JSON lines; continued")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.rows.open()] if arguments.rows.exists() else []
    known = {(row["pool"], row["problem_id"]) for row in rows}
    with arguments.rows.open("a", encoding="utf-8") as file:
        for name, recipe in POOLS.items():
            for row in measured(name, load_recipe(Path("configs") / f"{recipe}.yaml"), known):
                file.write(json.dumps(row) + "\n")
                file.flush()
                rows.append(row)
    print("\n".join(page(rows, seed=arguments.seed)))


def measured(pool: str, recipe: Recipe, known: set[tuple[str, str]]) -> Iterator[Row]:
    """One row per problem of the recipe that has a recorded candidate and is not known yet."""
    task, loaded = task_of(recipe.task), answerable(recipe, list(load_problems(recipe)))
    recorded = recorded_labels(recipe)
    by_problem = asyncio.run(_recorded(recipe, task, [problem for _, problem, _ in loaded]))
    for _, problem, gold in loaded:
        if (pool, problem.problem_id) not in known:
            print(pool, problem.data.get("source_id"), file=sys.stderr, flush=True)
            mine = by_problem[problem.problem_id]
            labels = {
                candidate.candidate_id: recorded.get((problem.data.get("source_id"), candidate.text))
                or label_candidate(task, problem, gold, candidate).verdict
                for candidate in mine
            }
            yield _row(pool, task, problem, mine, labels)


def recorded_labels(recipe: Recipe) -> dict[tuple[str | None, str | None], Verdict]:
    """By the source's problem id and text; without MBPP's of MapCoder, whose edition has other tests."""
    config = recipe.generators[0]
    assert isinstance(config, RecordedGenerator)
    return {
        (row["problem_id"], row[config.text_fields[0]]): Verdict.CORRECT if row["correct"] else Verdict.INCORRECT
        for _, row in read_json_lines(config.pool)
        if not (row["problem_id"].startswith("mbpp/") and row["run"].startswith("mapcoder"))
    }


async def _recorded(recipe: Recipe, task: Task, problems: Sequence[Problem]) -> Mapping[str, list[Candidate]]:
    answers: dict[str, list[Candidate]] = {problem.problem_id: [] for problem in problems}
    requests = PassRequests(recipe=recipe, task=task)
    for generator in recorded_generators(recipe.generators, problems=problems):
        for problem in problems:
            mine = [request for request in requests.first(problem) if request.generator == generator.name]
            async for candidate in generator.stream(mine):
                if candidate.text is not None:
                    answers[problem.problem_id].append(candidate)
    return answers


def _row(
    pool: str, task: Task, problem: Problem, candidates: Sequence[Candidate], labels: Mapping[str, Verdict]
) -> Row:
    entries, checking_s, distinct = [], 0.0, set()
    for candidate in candidates:
        answer = task.parse(problem, candidate.text or "")
        started = time.perf_counter()
        report = check_candidate(task, problem, candidate)
        checking_s += time.perf_counter() - started
        if report.error is not None:
            raise RuntimeError(f"{problem.data.get('source_id')}: {report.error}")
        distinct.add(str(answer))
        verdict = labels[candidate.candidate_id]
        entries.append(
            {
                "generator": candidate.generator,
                "correct": None if verdict is Verdict.UNLABELED else verdict is Verdict.CORRECT,
                "penalty": report.penalty if report.parsed else None,
                "vote_key": report.vote_key,
                "text_key": None if answer is None else normal_form(str(answer)),
            }
        )
    tests = public_tests(problem)
    return {
        "pool": pool,
        "problem_id": problem.problem_id,
        "source_id": problem.data.get("source_id"),
        "inputs": len(tests),
        "tests": sum(test.expected is not None for test in tests),
        "distinct": len(distinct),
        "checking_s": checking_s,
        "candidates": entries,
    }


def values_of(row: Row) -> dict[str, float]:
    """Expected correctness of each selector's choice on one problem; ties are shared."""
    candidates = [candidate for candidate in row["candidates"] if candidate["correct"] is not None]
    correct = np.array([float(candidate["correct"]) for candidate in candidates])
    parsed = np.array([candidate["penalty"] is not None for candidate in candidates])
    penalty = np.array(
        [candidate["penalty"] if candidate["penalty"] is not None else np.inf for candidate in candidates]
    )
    fewest = parsed & (penalty == penalty.min())
    weights = {
        "random": np.ones(len(candidates)),
        "vote by text": _vote(candidates, "text_key", parsed),
        "vote by behaviour": _vote(candidates, "vote_key", parsed),
        "fewest failed public tests": fewest.astype(np.float64),
        "of these, vote by behaviour": _vote(candidates, "vote_key", fewest),
        "oracle": correct if correct.any() else np.ones(len(candidates)),
    }
    return {name: _mean(correct, weight) for name, weight in weights.items()}


def _vote(candidates: Sequence[Row], key: str, among: np.ndarray[Any, Any]) -> Floats:
    keys = [candidate[key] if may_vote else None for candidate, may_vote in zip(candidates, among, strict=True)]
    counts = {vote: keys.count(vote) for vote in keys if vote is not None}
    most = max(counts.values(), default=0)
    # Tied answers share the choice, whatever their order; each has the same number of candidates.
    return np.array([float(counts.get(vote, -1) == most) for vote in keys])


def _mean(correct: Floats, weights: Floats) -> float:
    return float(correct @ weights / weights.sum()) if weights.sum() else 0.0


def page(rows: Sequence[Row], *, seed: int) -> Iterator[str]:
    command = f"python {shlex.join(sys.argv)} > docs/results/public_tests.md"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    yield "# Public tests of programs: as a constraint, and for votes by behaviour"
    yield ""
    yield (
        "All problems of the three recipes that have recorded programs, those to train on and those to test on: "
        "nothing here is trained or fitted. Labels are the hidden tests'. What counts as a public test, and how "
        "programs are compared, is in `docs/tasks/taco.md`. Intervals are 95 %, percentile bootstrap over problems, "
        f"{NUM_BOOTSTRAP:,} resamples, seed {seed}."
    )
    yield ""
    yield f"Command: `{command}` at commit {commit.stdout.strip()}."
    yield ""
    yield "How to read it:"
    yield ""
    yield (
        "- MBPP's public test is one of its hidden ones, and so is the sample of APPS where the statement shows none: "
        "that right programs pass it follows. HumanEval's examples are read from docstrings; two problems have wrong "
        "ones, and a few programs that were recorded as right do not import what they use, which our grader calls "
        "wrong, too."
    )
    yield (
        "- Many recorded programs come from methods that had run the public tests themselves and mended what failed "
        "(MapCoder, LLMDebugger, Reflexion), so that less is left to gain than for programs of one attempt."
    )
    yield (
        "- With one test per problem all programs that pass it do the same as far as the test sees: a vote by "
        "behaviour is then a vote of those that pass against each way of failing, and the fewest failed tests decide "
        "more."
    )
    yield (
        "- What is read as an example was fixed on statements and docstrings, with HumanEval's reference programs as a "
        "check, before any candidate's label was looked at."
    )
    yield ""
    yield from _coverage(rows, seed)
    yield ""
    yield from _accuracy(rows, seed, "All problems", lambda row: True)
    yield ""
    yield from _accuracy(rows, seed, "Problems with a public test", lambda row: row["tests"] > 0)


def _coverage(rows: Sequence[Row], seed: int) -> Iterator[str]:
    yield "## Public tests"
    yield ""
    yield (
        "Programs: those with a verdict. Passed: share of right (wrong) programs that pass all public tests, over "
        "problems that have one. Checked: different programs per second, in one process, beside other work."
    )
    yield ""
    yield (
        "| pool | problems | with a public test | tests per problem | programs | right: passed % | wrong: passed % "
        "| checked per s |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for pool in POOLS:
        chosen = [row for row in rows if row["pool"] == pool]
        tested = [row for row in chosen if row["tests"]]
        bootstrap = Bootstrap.of(len(tested), num_bootstrap=NUM_BOOTSTRAP, seed=seed)
        cells = [_percent(_pass_rate(tested, bootstrap, is_right=is_right)) for is_right in (True, False)]
        num_programs = sum(candidate["correct"] is not None for row in chosen for candidate in row["candidates"])
        speed = sum(row["distinct"] for row in tested) / max(sum(row["checking_s"] for row in tested), 1e-9)
        yield (
            f"| {pool} | {len(chosen)} | {len(tested)} ({100 * len(tested) / max(len(chosen), 1):.0f} %) | "
            f"{sum(row['tests'] for row in tested) / max(len(tested), 1):.1f} | {num_programs:,} | {' | '.join(cells)} "
            f"| {speed:.1f} |"
        )


def _pass_rate(rows: Sequence[Row], bootstrap: Bootstrap, *, is_right: bool) -> Estimate:
    passed, total = np.zeros(len(rows)), np.zeros(len(rows))
    for place, row in enumerate(rows):
        chosen = [candidate for candidate in row["candidates"] if candidate["correct"] is is_right]
        passed[place], total[place] = sum(candidate["penalty"] == 0 for candidate in chosen), len(chosen)
    return bootstrap.ratio(passed, total)


def _accuracy(rows: Sequence[Row], seed: int, title: str, is_chosen: Callable[[Row], bool]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield (
        "Correct, in %; below it the share of the gap between random choice and the oracle that is closed, in %, and "
        "points more than the vote by text, paired by problem. Ties are shared."
    )
    yield ""
    yield f"| pool | n | {' | '.join(SELECTORS)} |"
    yield f"|---|---:|{'---:|' * len(SELECTORS)}"
    for pool in POOLS:
        chosen = [row for row in rows if row["pool"] == pool and is_chosen(row) and _is_labelled(row)]
        bootstrap = Bootstrap.of(len(chosen), num_bootstrap=NUM_BOOTSTRAP, seed=seed)
        by_row = [values_of(row) for row in chosen]
        values = {name: np.array([value[name] for value in by_row]) for name in SELECTORS}
        cells = [_percent(bootstrap.proportion(values[name])) for name in SELECTORS]
        yield f"| {pool} | {len(chosen)} | {' | '.join(cells)} |"
        gap = values["oracle"] - values["random"]
        closed = [_percent(bootstrap.ratio(values[name] - values["random"], gap)) for name in SELECTORS[1:-1]]
        yield f"| gap closed | | 0 | {' | '.join(closed)} | 100 |"
        more = [_percent(bootstrap.mean(values[name] - values["vote by text"]), sign="+") for name in SELECTORS[2:-1]]
        yield f"| minus vote by text | | | | {' | '.join(more)} | |"


def _is_labelled(row: Row) -> bool:
    return any(candidate["correct"] is not None for candidate in row["candidates"])


def _percent(estimate: Estimate, sign: str = "") -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{100 * estimate.value:{sign}.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


if __name__ == "__main__":
    main()
