"""Process that compares answers with sympy. A standalone script: it imports nothing of the package.

JSON lines: ``{"gold": latex, "answer": latex}`` in, ``{"equal": bool}`` or ``{"error": text}`` out, after an initial
``{"ready": true}`` or ``{"error": text}``. Arguments: CPU seconds per comparison, bytes of memory. The kernel kills the
process if a comparison uses more: sympy holds the interpreter's lock for long stretches, so Python code could not.
"""

import importlib
import json
import logging
import os
import resource
import signal
import sys
import warnings
from typing import Any, TextIO


def main(cpu_s: float, max_bytes: int) -> None:
    """Compare pairs from standard input until it is closed."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of a library must not mix with the replies
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes standard input
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    try:
        library = importlib.import_module("math_verify")  # takes seconds, so it is done before the clock runs
    except ImportError as error:
        _say(replies, {"error": f"the package math-verify cannot be imported: {error}"})
        return
    _say(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        reply = _compare(library, request["gold"], request["answer"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(replies, reply)


def _compare(library: Any, gold: str, answer: str) -> dict[str, Any]:
    try:
        return {"equal": _is_equal(library, gold, answer)}
    except (MemoryError, RecursionError) as error:
        return {"error": f"a comparison needs too much: {type(error).__name__}"}


def _is_equal(library: Any, gold: str, answer: str) -> bool:
    # The library's time limits use SIGALRM and need Python's cooperation; the kernel's does not.
    parsed = [
        library.parse(f"${latex}$", [library.LatexExtractionConfig()], parsing_timeout=None) for latex in (gold, answer)
    ]
    return bool(library.verify(*_with_one_i(parsed), allow_set_relation_comp=True, timeout_seconds=None))


def _with_one_i(parsed: list[list[Any]]) -> list[list[Any]]:
    """The forms with i as a number; in comparisons such as i < 5, as a real unknown.

    The library reads i as an unknown, which is real or not depending on the surrounding text, so that 2(1 + i) and
    2 + 2i would not share their unknowns.
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


def _say(replies: TextIO, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
