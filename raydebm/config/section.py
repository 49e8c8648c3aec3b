"""The base class of recipe sections, and pydantic's errors as text."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from raydebm.errors import without_credentials


def _stays_below(name: str) -> str:
    if not name.strip() or ".." in name or name.startswith("/"):
        raise ValueError("a name must not be empty, contain '..' or begin with '/'")
    return name


FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""A name that a folder or file gets unchanged."""
PathName = Annotated[str, AfterValidator(_stays_below)]
"""A name of any characters that is a path below a folder."""
MOST_SAMPLES = 100_000
"""Limit that catches typing errors: a plan counts its requests one by one, and would not end."""
SampleCount = Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
Device = Annotated[str, Field(pattern=r"^(auto|(cpu|cuda|mps|xpu|hpu|npu|xla|mtia)(:\d+)?)$")]
"""``auto``, or a device by torch's name."""


class Section(BaseModel):
    """Base class of recipe sections: frozen, and strict about unknown keys and infinite numbers, which JSON lacks."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def problems_in(error: ValidationError, *, root: str) -> Iterator[str]:
    """One line per fault: its path, the message, and the value, without passwords in addresses.

    Args:
        root: name of the whole value, for faults without a path.
    """
    for fault in error.errors():
        path = ".".join(str(part) for part in fault["loc"])
        # Without a path the value is the whole section, and the message names the parts that matter.
        has_own_value = path and fault["type"] not in {"missing", "extra_forbidden"}
        value = f" (got {fault['input']!r})" if has_own_value else ""
        yield without_credentials(f"{path or root}: {fault['msg'].removeprefix('Value error, ')}{value}")
