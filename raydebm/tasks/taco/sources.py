"""Problems and gold from rows of TACO and of similar data sets, whose formats are recognised by their fields."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from raydebm.errors import TaskDataError
from raydebm.identity import content_id
from raydebm.records import Gold, Problem
from raydebm.tasks.base import required_field
from raydebm.tasks.file_backed import question_of, source_id_of
from raydebm.tasks.sources import Row
from raydebm.tasks.taco.calls import asserted_call
from raydebm.tasks.taco.public_tests import FIELD, given_tests, samples_in

HUB_DATASET = "BAAI/TACO"

_MBPP_IMPORTS = "import math\nimport re\nfrom typing import *\n"
"""Imports that MBPP's graders put before every program; its recorded programs rely on them."""


def problem_and_gold(row: Row, where: str) -> tuple[Problem, Gold]:
    """Parse a row of any known format. Errors name the row and field."""
    if "entry_point" in row:
        return _by_assertions(row, where)
    question = str(required_field(row, "question", where))
    tests = _tests(row, where)
    starter = str(row.get("starter_code") or "")
    problem = problem_of(
        question,
        function=tests.get("function"),
        starter_code=starter,
        given=_given(row, question, tests.get("function"), where),
        difficulty=str(row.get("difficulty") or ""),
        source_id=source_id_of(row),
    )
    solution = _first_solution(row)
    value = tests if solution is None else tests | {"solution": solution}
    return problem, Gold(task=TASK, problem_id=problem.problem_id, value=value)


def _tests(row: Row, where: str) -> dict[str, Any]:
    if "test_list" in row:
        return {"kind": "stdin", "tests": _text_tests(row["test_list"])}
    content = required_field(row, "input_output", where)
    try:
        known = json.loads(content) if isinstance(content, str) else content
        inputs, outputs, function = known["inputs"], known["outputs"], known.get("fn_name")
        pairs = list(zip(inputs, outputs, strict=True))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TaskDataError(
            f"{where}: field 'input_output' must be JSON with as many inputs as outputs: {error!r}"
        ) from error
    if function is None:
        return {"kind": "stdin", "tests": _text_tests({"input": given, "output": wanted} for given, wanted in pairs)}
    if any(not isinstance(given, list) for given in inputs):
        raise TaskDataError(f"{where}: the inputs of function {function!r} must be lists of arguments")
    tests = [{"input": given, "output": wanted} for given, wanted in pairs]
    return {"kind": "call", "function": str(function), "tests": tests}


def _text_tests(tests: Any) -> list[dict[str, str]]:
    return [{"input": _text(test["input"]), "output": _text(test["output"])} for test in tests]


def _text(value: Any) -> str:
    """Text of stdin or stdout. A list has one line per item."""
    if isinstance(value, list):
        return "\n".join(str(line) for line in value)
    return str(value)


def _given(row: Row, question: str, function: str | None, where: str) -> list[Any]:
    """Public tests in addition to the statement's own: the row's, and in the recorded APPS file the first sample if the
    statement has no samples.

    The prompts of the recorded programs (MapCoder, ``APPSDataset.get_prompt``) showed that sample and no other.
    """
    given = _checked_tests(row, function, where)
    if "test_list" in row and next(samples_in(question), None) is None:
        for sample in _text_tests((row.get("sample_io") or [])[:1]):
            given.append({**sample, "input": sample["input"].rstrip("\n") + "\n"})
    return given


def _checked_tests(row: Row, function: str | None, where: str) -> list[Any]:
    try:
        given_tests(row.get(FIELD) or [], function)
    except TaskDataError as error:
        raise TaskDataError(f"{where}: {error}") from error
    return list(row.get(FIELD) or [])


def _first_solution(row: Row) -> str | None:
    solutions = row.get("solutions")
    try:
        known = json.loads(solutions) if isinstance(solutions, str) else solutions
    except ValueError:
        return None
    return str(known[0]) if isinstance(known, list) and known else None


def _by_assertions(row: Row, where: str) -> tuple[Problem, Gold]:
    """Parse a row of HumanEval or MBPP: a function's head with a docstring, and test code."""
    prompt, function = str(required_field(row, "prompt", where)), str(row["entry_point"])
    test = str(required_field(row, "test", where))
    if "METADATA" in test or f"check({function})" not in test:
        test += f"\n\ncheck({function})\n"
    head = _MBPP_IMPORTS + prompt if "prompt_multiple" in row else prompt
    # The prompts of the recorded MBPP programs (LLMDebugger, ``simple_text2code``) showed the given test.
    readable = [source for source in row.get("given_tests") or [] if asserted_call(source) is not None]
    given = [*_checked_tests(row, function, where), *readable]
    problem = problem_of(prompt, function=function, head=head, given=given, source_id=source_id_of(row))
    value = {"kind": "assert", "function": function, "head": head, "test": test}
    return problem, Gold(task=TASK, problem_id=problem.problem_id, value=value)


NUM_PROBLEMS, NUM_TEST = 695, 94

_PICTURE = re.compile(r"<image>|\[image\]|<img\b|!\[[^\]]*\]\(", re.IGNORECASE)


def paper_problems(pairs: Iterable[tuple[Problem, Gold]], split: str) -> list[tuple[Problem, Gold]]:
    """Select problems of a split, ``train`` or ``test``, from all of TACO-verified, in place of the paper's 695.

    The paper takes "695 fully-clean problems" of the set without the difficulty VERY_HARD, 601 to train and 94 to test,
    and publishes neither their ids nor a definition of clean. Here a problem is clean if it has hidden tests, a
    recorded solution, and a statement without pictures, which a text model cannot see. The first 695 by a hash of their
    ids are taken, and the first 94 of these are for testing, whatever the order of the data.
    """
    clean = [pair for pair in pairs if is_clean(*pair)]
    ranked = sorted(clean, key=lambda pair: content_id("taco", "paper", pair[0].problem_id))[:NUM_PROBLEMS]
    return ranked[:NUM_TEST] if split == "test" else ranked[NUM_TEST:]


def is_clean(problem: Problem, gold: Gold) -> bool:
    """True if a problem can be judged, is known to be solvable, and does not refer to pictures."""
    return bool(gold.value.get("tests")) and bool(gold.value.get("solution")) and not _PICTURE.search(problem.prompt)


TASK = "taco"
UNKNOWN_DIFFICULTY = "UNKNOWN"

_STDIN = "Read the input from standard input and print the answer to standard output."
_CALL = "Complete the function `{function}`. It is called with its arguments, and what it returns is the answer."
_CALL_LINE = re.compile(re.escape(_CALL).replace(r"\{function\}", r"(\w{1,200})"))


def problem_of(
    question: str,
    *,
    function: str | None = None,
    starter_code: str = "",
    head: str = "",
    given: Sequence[Any] = (),
    difficulty: str = "",
    source_id: str | None = None,
) -> Problem:
    """Problem of a statement; its id depends on the prompt alone.

    Args:
        question: the text. The words around it in prompts of the published evaluation are removed.
        function: name of the called function. None for programs that read stdin.
        starter_code: head of that function to show in the prompt, if any.
        head: source that a program may continue or rely on, such as imports and the function's first line.
        given: public tests in addition to those of the text, as in ``public_tests.given_tests``.
        difficulty: ``EASY`` to ``VERY_HARD``. Other words are kept, in capitals.
    """
    parts = [_unwrapped(question)]
    if starter_code.strip():
        parts.append(f"Starter code:\n```python\n{starter_code.strip()}\n```")
    parts.append(_STDIN if function is None else _CALL.format(function=function))
    data = {"function": function, "head": head, "public_tests": list(given), "source_id": source_id}
    return _problem("\n\n".join(parts), difficulty, **data)


def problem_of_prompt(text: str) -> Problem:
    """Problem of a whole prompt. A bare question asks for a program that reads stdin."""
    prompt = text.strip()
    last = prompt.rpartition("\n")[2].strip()
    called = _CALL_LINE.fullmatch(last)
    if called:
        return _problem(prompt, function=called[1])
    return _problem(prompt) if last == _STDIN else problem_of(prompt)


def _unwrapped(question: str) -> str:
    text = question.strip()
    if text.startswith("QUESTION:"):
        text = text.removeprefix("QUESTION:").strip()
        for ending in ("ANSWER:", "Use Call-Based format", "Use Standard Input format"):
            text = text.removesuffix(ending).strip()
    return text


def _problem(prompt: str, difficulty: str = "", **data: Any) -> Problem:
    level = difficulty.strip().upper().replace("UNKNOWN_DIFFICULTY", UNKNOWN_DIFFICULTY) or UNKNOWN_DIFFICULTY
    return question_of(TASK, prompt, difficulty=level, **data)
