"""Base classes of recipe sections and task files, and pydantic's errors as text."""

import ast
import inspect
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from raydebm.errors import without_credentials


def _stays_below(name: str) -> str:
    if not name.strip() or ".." in name or name.startswith("/"):
        raise ValueError("a name must not be empty, contain '..' or begin with '/'")
    return name


FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""A name that is used unchanged for a folder or file."""
PathName = Annotated[str, AfterValidator(_stays_below)]
"""A relative path that stays below its folder."""
MAX_SAMPLES = 100_000
"""Limit that catches typing mistakes. Planning more requests would take too long."""
SampleCount = Annotated[int, Field(ge=1, le=MAX_SAMPLES)]


class Documented(BaseModel):
    """A model whose JSON schema has the docstrings below its fields as their descriptions."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        # Not by pydantic's use_attribute_docstrings, which would read the source at every import.
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, text in field_docs(cls).items():
            properties[cls.model_fields[name].alias or name]["description"] = text
        return schema


class Section(Documented):
    """Base class of recipe sections: frozen, and strict about unknown keys and infinite numbers, which JSON lacks."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings below a model's fields, by field name."""
    docs: dict[str, str] = {}
    for one in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        body = ast.parse(inspect.getsource(one)).body[0].body  # type: ignore[attr-defined]
        for field, below in pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = inspect.cleandoc(text)
    return {name: text for name, text in docs.items() if name in model.model_fields}


_WITHOUT_VALUE = frozenset({"missing", "extra_forbidden", "union_tag_invalid", "union_tag_not_found"})


def faults_in(error: ValidationError, *, root: str, tree: Any = None, secret: bool = False) -> Iterator[str]:
    """One line per fault: its path, the message, and the value, without passwords in addresses.

    Args:
        root: name of the whole value, for faults without a path.
        tree: the validated value. With it, paths are the user's; pydantic's paths also name the branch of a union.
        secret: whether to leave values out.
    """
    lines: dict[str, None] = {}
    for fault in error.errors():
        is_missing, value = fault["type"] == "missing", fault["input"]
        steps = fault["loc"] if tree is None else [*_inside(tree, fault["loc"]), *fault["loc"][-1:] * is_missing]
        path = ".".join(map(str, steps))
        # The message about a whole section names the parts that matter.
        is_section = fault["type"] == "value_error" and not isinstance(value, str | float | int | None)
        has_own_value = path and not secret and not is_section and fault["type"] not in _WITHOUT_VALUE
        shown = f" (got {without_credentials(repr(value)):.80})" if has_own_value else ""
        message = "unknown key" if fault["type"] == "extra_forbidden" else fault["msg"].removeprefix("Value error, ")
        lines[f"{without_credentials(f'{path or root}: {message}')}{shown}"] = None
    yield from lines


def _inside(tree: Any, location: Sequence[int | str]) -> Iterator[int | str]:
    for part in location:
        try:
            tree = tree[part]
        except (LookupError, TypeError):
            continue
        yield part
