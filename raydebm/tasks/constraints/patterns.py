"""Regular expressions in linear time.

RE2 matches by automaton: a pattern such as ``(a+)+$``, which takes a backtracking engine hours, takes one step per
character. A time limit would bound the wait as well, but its outcome would depend on the machine's load, and equal
answers must get equal penalties everywhere. Lookaround and backreferences are refused when the pattern is read.
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
        ConstraintError: not an RE2 pattern; the message has RE2's reason.
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


def is_found(pattern: str, text: str) -> bool:
    """True if the pattern matches somewhere in the text."""
    readable = text.encode("utf-8", "replace").decode("utf-8")  # RE2 reads UTF-8, which has no lone surrogates
    return compile_pattern(pattern).search(readable) is not None
