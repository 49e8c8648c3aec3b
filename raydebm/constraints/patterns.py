"""Regular expressions whose time grows with the text alone.

RE2 matches by automaton: a pattern such as ``(a+)+$``, which keeps a backtracking engine busy for hours, costs it one
look at each character. A time limit would bound the wait as well, but its outcome would depend on the machine's load,
and the same answer must get the same penalty everywhere. The price: no lookaround and no backreferences, which are
refused when the pattern is read.
"""

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from raydebm.errors import ConstraintError

MAX_CHARS = 1000
"""Length of the longest pattern that is accepted."""


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Any:
    """The compiled pattern; it has ``search`` and ``fullmatch``.

    Raises:
        ConstraintError: not a pattern of RE2; the message has its reason.
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
            f"pattern {text!r} is refused: {words} (RE2 syntax; lookaround and backreferences are not part of it)"
        ) from error


def is_found(pattern: str, text: str, *, whole: bool = False) -> bool:
    """Whether the pattern matches somewhere in the text, or all of it."""
    compiled = compile_pattern(pattern)
    readable = text.encode("utf-8", "replace").decode("utf-8")  # RE2 reads UTF-8, which has no lone surrogates
    return (compiled.fullmatch(readable) if whole else compiled.search(readable)) is not None
