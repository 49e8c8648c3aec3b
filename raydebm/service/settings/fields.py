"""Field types for clients and operators: texts, numbers and JSON values that can be serialised again.

Does not know: HTTP, Ray, tasks.
"""

import json
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
MAX_DEPTH = 64
"""Maximum nesting of a client's own objects. Serialisers of responses fail at a few hundred."""


def writable(value: Any) -> Any:
    """Refuse values that cannot be serialised again: lone surrogates, which JSON can spell and neither UTF-8 nor a
    tokenizer can hold, NaN, infinities, and excessive nesting."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("holds a lone surrogate (such as \\ud800), which is not text") from error
    except RecursionError as error:
        raise ValueError(f"is nested more than {MAX_DEPTH} deep") from error
    except ValueError as error:
        raise ValueError("holds NaN or an infinity, which JSON has no number for") from error
    level, depth = [value], 0
    while level := [part for inner in level for part in _inside(inner)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"is nested more than {MAX_DEPTH} deep")
    return value


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


Text = Annotated[str, AfterValidator(writable)]
Data = Annotated[dict[str, Any], AfterValidator(writable)]


class Body(BaseModel):
    """Base of our own request bodies: unknown fields are refused."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", populate_by_name=True)
