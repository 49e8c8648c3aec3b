"""The base class of recipe sections, and what pydantic finds wrong with one, in words."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from raydebm.errors import without_credentials


def _stays_below(name: str) -> str:
    if not name.strip() or ".." in name or name.startswith("/"):
        raise ValueError("a name is not empty, has no '..', and begins with no '/'")
    return name


FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""A name that becomes one of a folder or file."""
PathName = Annotated[str, AfterValidator(_stays_below)]
"""A name, of any words, that may become a path below a folder."""
MOST_SAMPLES = 100_000
"""Every sample is a request that a plan counts one by one, so a slip of the keyboard would count for ever."""
SampleCount = Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
Device = Annotated[str, Field(pattern=r"^(auto|(cpu|cuda|mps|xpu|hpu|npu|xla|mtia)(:\d+)?)$")]
"""``auto``, or torch's name of a device."""


class Section(BaseModel):
    """Base class of recipe sections: frozen, and strict about unknown keys and infinite numbers, which JSON lacks."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def problems_in(error: ValidationError, *, root: str) -> Iterator[str]:
    """One line per problem: its path, what is wrong, and the value, without passwords of addresses.

    Args:
        root: how a problem of the whole is named, which has no path.
    """
    for problem in error.errors():
        path = ".".join(str(part) for part in problem["loc"])
        # Where the whole is wrong, its message names the values, and the whole would hide it.
        has_own_value = path and problem["type"] not in {"missing", "extra_forbidden"}
        value = f" (got {problem['input']!r})" if has_own_value else ""
        yield without_credentials(f"{path or root}: {problem['msg'].removeprefix('Value error, ')}{value}")
