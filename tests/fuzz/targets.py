"""What must hold of any text: one function per parser, which raises when something does not.

A target takes a text and returns nothing. The tests beside this module try the corpus and generated texts;
``make fuzz`` tries as many as it is told.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydebm.decision.policy import Policy
from raydebm.decision.sampling.checks import check_candidate
from raydebm.errors import ConfigError, ConstraintError, TaskDataError
from raydebm.evaluation.baselines.judge import read_rating
from raydebm.generators.replies import HttpReply, ReplyError, read_reply, split_reasoning
from raydebm.records import Candidate, Decision, Energies, Outcome, PassRecord, Problem, ScoredCandidate, well_formed
from raydebm.service.store.parquet_folder import file_name
from raydebm.service.store.reader import DecisionReader, Filter
from raydebm.service.store.record import DECISIONS, DecisionRecord, microseconds, new_record_id, record_row
from raydebm.tasks import get_task, task_of
from raydebm.tasks.base import Task
from raydebm.tasks.constraints import expressions, schemas, templates
from raydebm.tasks.constraints.patterns import compile_pattern, is_found
from raydebm.tasks.declared import DeclaredTask
from raydebm.tasks.declared.answer_reading import find_json
from raydebm.tasks.musr import problem_of as story_of
from raydebm.tasks.taco.calls import calls_in
from raydebm.tasks.taco.public_tests import allows_any_answer, samples_in
from raydebm.tasks.travelplanner.plans import canonical_plan, read_plan
from raydebm.user_files import read_json_lines

TOKENS = (
    "#### ", "18", "1,080", "3/4", "-2.5", "1e9", "9" * 30, "$", "%", " = ", "+ ", "x", ".", ":", "2:10 pm", "\n",
    "\n\n", " ", "\t", '{"answer": ', '"18"', "}", "{", "[", "]", ",", '"', "'", "\\", "\\boxed{", "\\frac{1}{2}",
    "\\text{", "$$", "\\(", "\\)", "The answer is ", "Answer: ", "Final answer", "A: ", "(B)", "choice 2",
    "Mackenzie", "Ana", "not ", "either ", " or ", '{"Ava": "knave", "Zoey": "knight"}', "Ava is a knave",
    "Zoey must be a knight", "<answer>", "</answer>", "if ", ". So ", "```python\n", "```", "~~~",
    "def double(value):\n    return value\n", "print(1)\n", "    ", ">>> ", "# => ", "import os\n",
    '[{"day": 1, "current_city": "from Ada to Bree", "lunch": "-"}]', '{"day": 2}', '"day"', "null", "True", "None",
    "// note\n", "<think>", "</think>", "Score: 8", "8/10", "**", "`", "_", "\\d+", "(a+)+", "^", "*", "?", "[a-z]",
    "answer", "problem", "[]", "[?", "length(", "@", "&&", "`2`", ".*", "{value}", "{0}", "{{", "}}",
    "{'answer': 'a' ", '"answer": \\frac{1}{', "1x)", "sqrt(", "\nanswer: 1", "\\boxed 1 or ", "is the one = 5 ",
    "answer: A ", "knight: ", "knight:" + " " * 50, "\nknight: Ava, ", "{} ", "Ava | ", '{"', '["', '{"a":', '{"a ',
    '{"\\"{', '[{"lunch":"a","dinner":"b"},', "````", "```python ", "f(", "(", "f(1) == [",
    "Sample Input\n1\nSample Output\n", "print ", "-", "multiple ",
    '"type": "object"', '"$ref": "#"', '"pattern": "', "\u00e9", "\u2212", "\u0000", "\ufeff", "\U0001f600",
    "\u202e", "\ud800",
)  # fmt: skip
"""Pieces that the parsers look for, and what text can hold that is unusual."""

Target = Callable[[str], None]


def _candidate(problem: Problem, text: str) -> Candidate:
    return Candidate(candidate_id="c", task=problem.task, problem_id=problem.problem_id, generator="g", text=text)


def answers_of(task: Task, problem: Problem) -> Target:
    """Parsing raises nothing; what is read comes back from its canonical text; checks raise nothing and say so."""

    def target(text: str) -> None:
        answer = task.parse(problem, text)
        if answer is not None:
            again = task.parse(problem, task.render(problem, answer))
            assert again is not None, f"the canonical text of {answer!r} has no answer"
            assert task.vote_key(problem, again) == task.vote_key(problem, answer)
        report = check_candidate(task, problem, _candidate(problem, text))
        assert report.error is None, report.error
        assert report.parsed == (answer is not None)

    return target


def _reads_a_problem(task: Task) -> Target:
    def target(text: str) -> None:
        try:
            problem = task.problem_from_text(well_formed(text))  # as every caller does
        except TaskDataError:
            return
        task.messages(problem)
        task.parse(problem, "")

    return target


def plans(text: str) -> None:
    plan = read_plan(text).plan
    assert plan is None or canonical_plan(plan).plan == plan


def plain_json(text: str) -> None:
    for want_array in (False, True):
        parsed = find_json(text, want_array=want_array)
        assert parsed is None or find_json(json.dumps(parsed), want_array=want_array) == parsed


def expression(text: str) -> None:
    for at_root in (True, False):
        try:
            expressions.parse_expression(text, at_root=at_root)
        except ConstraintError:
            continue
        if at_root:
            document = expressions.RuleInput({"answer": {"a": [1, "x", None]}, "problem": {"limit": 3}})
            with suppress(expressions.EvaluationError):
                document.value_of(text)


def template(text: str) -> None:
    try:
        templates.check_template(text, ("value", "path"))
    except ConstraintError:
        return
    templates.fill(text, {"value": 1, "path": "a"})


def examples(text: str) -> None:
    list(calls_in(text, "f"))
    list(samples_in(text))
    allows_any_answer(text)


def pattern(text: str) -> None:
    try:
        compile_pattern(text)
    except ConstraintError:
        return
    is_found(text, "some text \ud800")


def schema(text: str) -> None:
    try:
        tree = json.loads(text)
        schemas.check_schema(tree)
    except (ValueError, RecursionError, ConstraintError):
        return
    try:
        schemas.schema_faults(json.dumps(tree), {"a": [1, "x", None]})
    except expressions.EvaluationError:
        return


def reply(text: str) -> None:
    answer, _ = split_reasoning(text)
    assert len(answer) <= len(text)
    for content in (text, json.dumps({"choices": [{"message": {"content": text}}]})):
        try:
            completion = read_reply(HttpReply(status=200, headers={}, content=content.encode("utf-8", "surrogatepass")))
        except ReplyError:
            continue
        assert well_formed(completion.text) == completion.text


def rating(text: str) -> None:
    reading = read_rating(text)
    assert isinstance(reading, str) or 1 <= reading <= 10


def json_lines(text: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        Path(file.name).write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            rows = list(read_json_lines(file.name))
        except TaskDataError:
            return
        assert all(isinstance(row, dict) for _, row in rows)


def task_file(text: str) -> None:
    from raydebm.config import TaskConfig

    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(tree, dict):
        try:
            task_of(TaskConfig(name="own", definition={**tree, "name": "own"}))
        except (ConfigError, ConstraintError):
            return


def stored_decisions(text: str) -> None:
    """Wherever a row is read as something: what is no decision is left out, and the row next to it is read."""
    text = well_formed(text)  # Parquet takes nothing else
    whole = _stored_row()
    rows = [whole, *_rows_with(text, whole)]
    time = microseconds(whole["time"])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / file_name(time, time, writer="f", sequence=0, level=0)
        pq.write_table(pa.Table.from_pylist(rows, schema=DECISIONS), file)
        reader = DecisionReader(folder)
        assert reader.page().total == len(rows)
        words = text[:200] or None  # no filter is empty, or longer
        reader.page(Filter(text=words, task=words))
        reader.get(text)
        assert whole["record_id"] in {record.record_id for record in reader.records()}


@cache
def _stored_row() -> Mapping[str, Any]:
    problem = Problem(task="gsm8k", problem_id="p", prompt="How many are nine times two?")
    candidate = replace(_candidate(problem, "#### 18"), seed=1)
    report = check_candidate(get_task("gsm8k"), problem, candidate)
    energies = Energies(candidate_id=candidate.candidate_id, members=(-0.5, 0.5))
    best = ScoredCandidate(candidate=candidate, report=report, energies=energies, scores={"judge": 1.0})
    round_ = PassRecord(
        pass_index=1, num_requested=1, num_failed=0, selected="c", sigma=0.5, penalty=0.0, decision=Decision.ACCEPT
    )
    outcome = Outcome(problem=problem, decision=Decision.ACCEPT, best=best, passes=(round_,), pool=(best,), reason="")
    time = datetime(2026, 5, 1, tzinfo=UTC)
    policy = Policy(theta_sigma=1.0, max_passes=1)
    record_id = new_record_id(time)
    return record_row(
        DecisionRecord(record_id=record_id, time=time, request_id="r", outcome=outcome, policy=policy, seed=1)
    )


def _rows_with(text: str, whole: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The row with the text in place of the record, and of each text in it."""
    yield {**whole, "record_id": new_record_id(whole["time"]), "record_json": text}
    record = whole["record_json"]
    for place in re.finditer(r'"[^"\\\\]*"', record):
        changed = record[: place.start()] + json.dumps(text) + record[place.end() :]
        yield {**whole, "record_id": new_record_id(whole["time"]), "record_json": changed}


@cache
def targets() -> Mapping[str, Target]:
    """By name. Problems are made once."""
    puzzles = get_task("knights_knaves")
    puzzle = puzzles.problem_from_text(
        "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves "
        'always lie. You meet 2 inhabitants: Ava, and Zoey. Ava said, "Zoey is a knave." Zoey said, "Ava is a knight '
        'if and only if Zoey is a knave." So who is a knight and who is a knave?'
    )
    problems = {
        "knights_knaves": puzzle,
        "gsm8k": get_task("gsm8k").problem_from_text("How many are nine times two?"),
        "math500": get_task("math500").problem_from_text("Write nine halves in LaTeX."),
        "musr": story_of("Mack fell.", "Who is the most likely murderer?", ["Mackenzie", "Ana"]),
        "reasoning_gym": get_task("reasoning_gym").problem_from_text("Add 2 and 6."),
    }
    return {
        **{f"answer {name}": answers_of(get_task(name), problem) for name, problem in problems.items()},
        **{f"problem {name}": _reads_a_problem(get_task(name)) for name in (*problems, "taco", "travelplanner")},
        "answer taco": _parses(get_task("taco"), Problem(task="taco", problem_id="t", prompt="Print.", data={})),
        "answer choice": _parses(_CHOICE, Problem(task="choice", problem_id="c", prompt="Which?")),
        "examples of a statement": examples,
        "expression": expression,
        "json lines": json_lines,
        "judge's rating": rating,
        "pattern": pattern,
        "plain JSON": plain_json,
        "plans": plans,
        "reply of an endpoint": reply,
        "schema": schema,
        "stored decisions": stored_decisions,
        "task file": task_file,
        "template": template,
    }


_CHOICE = DeclaredTask(
    {
        "name": "choice",
        "instructions": "Answer.",
        "prompt": "{question}",
        "output": {"format": "choice", "choices": ["A", "b"]},
    }
)


def _parses(task: Task, problem: Problem) -> Target:
    """Where checks would run programs."""

    def target(text: str) -> None:
        answer = task.parse(problem, text)
        if answer is not None:
            again = task.parse(problem, task.render(problem, answer))
            assert again is not None
            assert task.vote_key(problem, again) == task.vote_key(problem, answer)

    return target
