"""Helper script that runs math-verify or reasoning-gym. It does not import raydebm.

Arguments: the library, and its memory limit in bytes. The script writes ``{"version": text}`` or ``{"error": text}``
and then replies to JSON lines. Every request has ``cpu_s``, its CPU time limit in seconds:

- math-verify: ``{"gold": latex, "answer": latex}``; reply ``{"equal": bool}``;
- reasoning-gym: ``{"entries": data set, "config": {...}}``; reply ``{"category": text, "entries": [[question, answer],
  ...]}``; and ``{"score": data set, "config": {...}, "index": number, "question": text, "answer": text}``; reply
  ``{"score": number}``;
- the reply to a request that failed: ``{"error": text}``.

The kernel kills the process if a request uses more CPU time. Python code could not do so reliably, because sympy may
hold the interpreter's lock for a long time.

Some verifiers of reasoning-gym evaluate answers as Python code, by ``eval`` or sympy's ``parse_expr``. Answers are
untrusted, so they are read here as literals or as plain formulas.
"""

import ast
import importlib
import importlib.metadata
import json
import logging
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

EVALUATING = (
    "reasoning_gym.algorithmic.binary_matrix",
    "reasoning_gym.algorithmic.spiral_matrix",
    "reasoning_gym.algorithmic.string_insertion",
    "reasoning_gym.games.n_queens",
)
"""Modules whose verifiers use ``eval`` only to read answers."""

PARSING = ("reasoning_gym.games.countdown", "reasoning_gym.games.puzzle24")
"""Modules that import ``parse_expr`` by name to read answers. Others call ``sympy.parse_expr``."""

FUNCTIONS = frozenset(
    (
        "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln",
        "sqrt", "Abs", "Rational", "Integer", "pi", "E", "C",
    )
)  # fmt: skip
_FORMULA = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd, ast.Load,
)  # fmt: skip


def _check_formula(text: str) -> None:
    """Raise ValueError for anything other than numbers, single letters, known functions and arithmetic."""
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
            raise ValueError(f"{type(node).__name__} is not part of a formula")


def _load_library() -> Any:
    """Import reasoning-gym, and replace the functions that evaluate answers with safe ones."""
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


class ReasoningGymLibrary:
    """Data sets of reasoning-gym, each created once."""

    def __init__(self) -> None:
        self._library = _load_library()
        self._made: dict[str, Any] = {}
        self._last: tuple[Any, dict[str, Any]] | None = None

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """Questions of a data set, or a verifier's score of an answer."""
        try:
            if "entries" in request:
                return self.entries(request["entries"], request["config"])
            names = ("score", "config", "index", "question", "answer")
            return self.score(*(request[name] for name in names))
        except Exception as error:  # noqa: BLE001 - any error of a data set is the reply to this request
            return {"error": f"{type(error).__name__}: {error}"[:500]}

    def entries(self, name: str, config: dict[str, Any]) -> dict[str, Any]:
        dataset = self._dataset(name, config)
        made = (dataset[index] for index in range(len(dataset)))
        return {
            "category": dataset.category,
            "entries": [[entry["question"], str(entry["answer"])] for entry in made],
        }

    def score(self, name: str, config: dict[str, Any], index: int, question: str, answer: str) -> dict[str, Any]:
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


class MathVerifyLibrary:
    """Comparison of formulas."""

    def __init__(self) -> None:
        self._library = importlib.import_module("math_verify")  # takes seconds, which do not count as a request's

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compare an answer with gold. Not symmetric: the answer "5" matches the gold "x = 5"."""
        library, rules = self._library, [self._library.LatexExtractionConfig()]
        # The library's own time limits use SIGALRM, which needs Python; the kernel's limit does not.
        try:
            parsed = [library.parse(f"${request[name]}$", rules, parsing_timeout=None) for name in ("gold", "answer")]
            is_equal = library.verify(*_with_one_i(parsed), allow_set_relation_comp=True, timeout_seconds=None)
        except (MemoryError, RecursionError) as error:
            return {"error": f"a formula is too large to compare: {type(error).__name__}"}
        return {"equal": bool(is_equal)}


def _with_one_i(parsed: list[list[Any]]) -> list[list[Any]]:
    """Replace i with the imaginary unit; in comparisons such as i < 5, with a real unknown.

    The library reads i as an unknown, which is real or not depending on the text around it, so that the unknowns of
    2(1 + i) and 2 + 2i would differ.
    """
    sympy = importlib.import_module("sympy")
    for meaning in (sympy.I, sympy.Symbol("i", real=True)):
        try:
            return [[_replaced(form, meaning, sympy) for form in forms] for forms in parsed]
        except (TypeError, ValueError, AttributeError, NotImplementedError):  # complex numbers have no order
            continue
    return parsed


def _replaced(form: Any, meaning: Any, sympy: Any) -> Any:
    unknowns = getattr(form, "free_symbols", ())
    if all(unknown.name != "i" for unknown in unknowns):
        return form
    alike = {unknown: sympy.Symbol(unknown.name, real=True) for unknown in unknowns}
    return form.xreplace({**alike, **{unknown: meaning for unknown in unknowns if unknown.name == "i"}})


_LIBRARIES: dict[str, Callable[[], Any]] = {"math-verify": MathVerifyLibrary, "reasoning-gym": ReasoningGymLibrary}


def main(name: str, max_bytes: int) -> None:
    """Answer requests on standard input until it is closed."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library's output must not mix with the replies

    def say(reply: dict[str, Any]) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which closes standard input
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    try:
        library = _LIBRARIES[name]()
    except ImportError as error:
        say({"error": f"the package {name} cannot be imported: {error}"})
        return
    say({"version": importlib.metadata.version(name)})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
        reply = library.reply(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        say(reply)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
