"""The base of every part of a recipe."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every part of a recipe: frozen, and strict about unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)
