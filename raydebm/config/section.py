"""The base class of recipe sections."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base class of recipe sections: frozen, and strict about unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)
