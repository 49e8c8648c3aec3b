"""A problem's statement: the question, the starter code, and the way to call programs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from raydebm.identity import content_id
from raydebm.records import Problem

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
        question: the text; the words around it in prompts of the published evaluation are removed.
        function: name of the called function. None for programs that read stdin.
        starter_code: head of that function in the prompt, if the source has one.
        head: source that a program may continue or rely on, such as imports and the function's first line.
        given: public tests in addition to those of the text, in the form of ``public_tests.given_tests``.
        difficulty: ``EASY`` to ``VERY_HARD``; other words are kept, in capitals.
    """
    parts = [_unwrapped(question)]
    if starter_code.strip():
        parts.append(f"Starter code:\n```python\n{starter_code.strip()}\n```")
    parts.append(_STDIN if function is None else _CALL.format(function=function))
    data: dict[str, Any] = {"function": function}
    data |= {"head": head} if head else {}
    data |= {"public_tests": list(given)} if given else {}
    data |= {"source_id": source_id} if source_id is not None else {}
    return _problem("\n\n".join(parts), data, difficulty)


def problem_of_prompt(text: str) -> Problem:
    """Problem of a whole prompt, or of a bare question, for a program on stdin."""
    prompt = text.strip()
    last = prompt.rpartition("\n")[2].strip()
    called = _CALL_LINE.fullmatch(last)
    if called:
        return _problem(prompt, {"function": called[1]})
    return _problem(prompt, {"function": None}) if last == _STDIN else problem_of(prompt)


def _unwrapped(question: str) -> str:
    text = question.strip()
    if text.startswith("QUESTION:"):
        text = text.removeprefix("QUESTION:").strip()
        for ending in ("ANSWER:", "Use Call-Based format", "Use Standard Input format"):
            text = text.removesuffix(ending).strip()
    return text


def _problem(prompt: str, data: Mapping[str, Any], difficulty: str = "") -> Problem:
    return Problem(
        task=TASK,
        problem_id=content_id(TASK, prompt),
        prompt=prompt,
        data=data,
        difficulty=difficulty.strip().upper().replace("UNKNOWN_DIFFICULTY", UNKNOWN_DIFFICULTY) or UNKNOWN_DIFFICULTY,
    )
