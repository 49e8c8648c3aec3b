"""Regular expressions in linear time.

RE2 matches by automaton: a pattern such as ``(a+)+$``, on which a backtracking engine may spend hours, takes one step
per character. The outcome of a time limit would depend on the machine's load, but equal answers must have equal
penalties everywhere. Lookaround and backreferences are refused when the pattern is read.
"""

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from raydebm.errors import ConstraintError

MAX_CHARS = 1000
"""Maximum length of a pattern."""


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Any:
    """Compiled pattern, with ``search`` and ``fullmatch``.

    Raises:
        ConstraintError: it is too long or not an RE2 pattern; the message contains RE2's reason.
    """
    if len(text) > MAX_CHARS:
        raise ConstraintError(f"pattern {text[:60]!r}... has {len(text)} characters; at most {MAX_CHARS} are allowed")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ConstraintError(
            f"pattern {text!r} is refused: {words} (RE2 does not support lookaround and backreferences)"
        ) from error


def is_found(pattern: str, text: str) -> bool:
    """True if the pattern matches somewhere in the text."""
    readable = text.encode("utf-8", "replace").decode("utf-8")  # RE2 reads UTF-8, which has no lone surrogates
    return compile_pattern(pattern).search(readable) is not None
