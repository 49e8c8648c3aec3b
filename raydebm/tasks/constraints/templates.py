"""Templates for text, with the placeholders ``{name}`` and ``{name:,.2f}`` only.

Python's ``str.format`` reads attributes and elements (``{x.__class__}``) and pads to any width. Here a placeholder is a
plain name, and only numbers have formats. Every other brace is text.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from raydebm.errors import ConstraintError

MAX_VALUE_CHARS = 200

_PLACE = re.compile(r"\{([A-Za-z_]\w*)(?::([^{}]*))?\}")
_LOOKS_LIKE_PLACE = re.compile(r"\{[A-Za-z_][^{}\s\"':,]*[.\[!(][^{}]*\}")
_NUMBER_FORMAT = re.compile(r",?(?:\.\d)?[fd%]?")


def places_in(template: str) -> list[str]:
    """Names of a template's placeholders, each once.

    Raises:
        ConstraintError: a placeholder is not a plain name (``{x.y}``, ``{x[0]}``, ``{x!r}``), or a format is not one of
            a number.
    """
    odd = _LOOKS_LIKE_PLACE.search(_PLACE.sub("", template))
    if odd is not None:
        raise ConstraintError(
            f"placeholder {odd[0]!r} in {template!r:.80}: only plain names are allowed, as in {{value}}"
        )
    for match in _PLACE.finditer(template):
        if match[2] is not None and not _NUMBER_FORMAT.fullmatch(match[2]):
            raise ConstraintError(
                f"placeholder {match[0]!r} in {template!r:.80}: the format must be one of a number, such as :,.2f or :d"
            )
    return list(dict.fromkeys(match[1] for match in _PLACE.finditer(template)))


def check_template(template: str, known: Collection[str]) -> None:
    """Raise ConstraintError for a template that ``places_in`` refuses or that contains an unknown name."""
    for name in places_in(template):
        if name not in known:
            raise ConstraintError(
                f"placeholder {{{name}}} in {template!r:.80} has no value here; known: {', '.join(sorted(known))}"
            )


def fill(template: str, values: Mapping[str, Any], *, render: Callable[[Any], str] | None = None) -> str:
    """Fill values into a checked template. A placeholder without a value remains, and values are not templates.
    ``render`` writes values without a number format. Default: ``short_text``."""
    write = render or short_text

    def value_of(match: re.Match[str]) -> str:
        name, wanted = match[1], match[2]
        if name not in values:
            return match[0]
        value = values[name]
        if wanted and isinstance(value, int | float) and not isinstance(value, bool):
            return _formatted(value, wanted)
        return write(value)

    return _PLACE.sub(value_of, template)


def short_text(value: Any) -> str:
    """Readable form of a value, cut at ``MAX_VALUE_CHARS``: text as it is, floats to ten digits, the rest as JSON."""
    text = full_text(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 3] + "..."


def full_text(value: Any) -> str:
    """Readable form of a value as in ``short_text``, but whole."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not isinstance(value, bool):
        return f"{value:.10g}"
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return f"a value of type {type(value).__name__}"


def _formatted(value: float, wanted: str) -> str:
    try:
        return format(int(value) if wanted.endswith("d") else value, wanted)
    except (ValueError, OverflowError):
        return short_text(value)
