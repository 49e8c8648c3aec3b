"""Process that generates questions and scores answers with reasoning-gym. A script: it imports nothing of raydebm.

JSON lines in: ``{"entries": data set, "config": {...}}``, answered by ``{"category": text, "entries": [[question,
answer], ...]}``, and ``{"score": data set, "config": {...}, "index": number, "question": text, "answer": text}``,
answered by ``{"score": number}``; or ``{"error": text}``. The first line out is ``{"version": text}`` or ``{"error":
text}``. Arguments: CPU seconds for a score, CPU seconds for entries, bytes of memory. The kernel kills the process if a
request uses more: some of the verifiers compute for hours on a short text.

Some verifiers of reasoning-gym evaluate an answer as Python (``eval``, and ``parse_expr`` of sympy, which does it too).
Answers are untrusted, so here they are read as literals or as plain formulas.
"""

import ast
import importlib
import json
import logging
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any, TextIO

EVALUATING = (
    "reasoning_gym.algorithmic.binary_matrix",
    "reasoning_gym.algorithmic.spiral_matrix",
    "reasoning_gym.algorithmic.string_insertion",
    "reasoning_gym.games.n_queens",
)
"""Modules whose verifiers only use ``eval`` to read an answer."""

PARSING = ("reasoning_gym.games.countdown", "reasoning_gym.games.puzzle24")
"""Modules that import ``parse_expr`` by name; others call ``sympy.parse_expr``. Both read answers with it."""

FUNCTIONS = frozenset(
    (
        "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln",
        "sqrt", "Abs", "Rational", "Integer", "pi", "E", "C",
    )
)  # fmt: skip
_FORMULA = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd, ast.Load,
)  # fmt: skip


class NotAFormulaError(ValueError):
    """The text contains something other than numbers, single letters, known functions and arithmetic."""


def _check_formula(text: str) -> None:
    """Raises NotAFormulaError, or SyntaxError."""
    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        if isinstance(node, ast.Name):
            allowed = len(node.id) == 1 or node.id in FUNCTIONS
        elif isinstance(node, ast.Call):
            allowed = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords
        elif isinstance(node, ast.Constant):
            allowed = type(node.value) in (int, float)
        else:
            allowed = isinstance(node, _FORMULA)
        if not allowed:
            raise NotAFormulaError(f"{type(node).__name__} is not part of a formula")


def _load_library() -> Any:
    """reasoning-gym, with harmless readers in place of those that evaluate answers."""
    library = importlib.import_module("reasoning_gym")
    for name in EVALUATING:
        vars(importlib.import_module(name))["eval"] = ast.literal_eval
    sympy = importlib.import_module("sympy")
    original: Callable[..., Any] = sympy.parse_expr

    def guarded(text: str, *arguments: Any, **settings: Any) -> Any:
        _check_formula(text)
        return original(text, *arguments, **settings)

    for module in (sympy, *map(importlib.import_module, PARSING)):
        vars(module)["parse_expr"] = guarded
    return library


class LoadedLibrary:
    """The data sets of reasoning-gym, each made once."""

    def __init__(self) -> None:
        self._library = _load_library()
        self._made: dict[str, Any] = {}
        self._last: tuple[Any, dict[str, Any]] | None = None

    def entries(self, name: str, config: dict[str, Any]) -> dict[str, Any]:
        """Questions and answers of a data set."""
        dataset = self._dataset(name, config)
        made = (dataset[index] for index in range(len(dataset)))
        return {
            "category": dataset.category,
            "entries": [[entry["question"], str(entry["answer"])] for entry in made],
        }

    def score(self, name: str, config: dict[str, Any], index: int, question: str, answer: str) -> dict[str, Any]:
        """The verifier's score in [0, 1]."""
        key = (name, config, index)
        if self._last is None or self._last[0] != key:
            self._last = (key, self._dataset(name, config)[index])
        entry = self._last[1]
        if entry["question"].strip() != question.strip():
            return {"error": f"entry {index} of {name} is another question with this version of reasoning-gym"}
        return {"score": float(self._dataset(name, config).score_answer(answer, entry))}

    def _dataset(self, name: str, config: dict[str, Any]) -> Any:
        key = json.dumps([name, config], sort_keys=True)
        if key not in self._made:
            self._made[key] = self._library.create_dataset(name, **config)
        return self._made[key]


def _reply_to(library: LoadedLibrary, request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "entries" in request:
            return library.entries(request["entries"], request["config"])
        return library.score(
            request["score"], request["config"], request["index"], request["question"], request["answer"]
        )
    except Exception as error:  # noqa: BLE001 - whatever a data set raises is its answer to this request
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def main(score_cpu_s: float, entries_cpu_s: float, max_bytes: int) -> None:
    """Answer requests on standard input until it is closed."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of a library must not mix with the replies
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes standard input
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    try:
        library = LoadedLibrary()
        version = importlib.import_module("importlib.metadata").version("reasoning-gym")
    except ImportError as error:
        _say(replies, {"error": f"the package reasoning-gym cannot be imported: {error}"})
        return
    _say(replies, {"version": version})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, entries_cpu_s if "entries" in request else score_cpu_s)
        reply = _reply_to(library, request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(replies, reply)


def _say(replies: TextIO, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
