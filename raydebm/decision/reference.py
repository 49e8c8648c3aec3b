"""What evidence is measured against: the skill, energies and lengths of each author."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """What is known about one author (a generator), from labelled problems."""

    skill: float
    """Log-odds that one of its candidates is right."""
    center: float
    """Mean of mu over its candidates."""
    scale: float
    """Standard deviation of mu over its candidates, > 0."""
    length_center: float = 0.0
    """Mean of log(1 + characters) over its candidates."""
    length_scale: float = 1.0
    """Standard deviation of log(1 + characters) over its candidates, > 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What evidence is measured against."""

    authors: Mapping[str, Author]
    default: Author
    """For an author without labelled candidates: all authors together."""
    lambda_: float
    """Weight of E_constraint in ``energy_vote`` and ``minus_energy``."""

    def author(self, name: str) -> Author:
        return self.authors.get(name, self.default)

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        return {**value, "authors": {name: asdict(author) for name, author in sorted(self.authors.items())}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Reference":
        """Inverse of ``to_json``."""
        return cls(
            authors={name: Author(**author) for name, author in value["authors"].items()},
            default=Author(**value["default"]),
            lambda_=value["lambda_"],
        )


PLAIN = Reference(authors={}, default=Author(skill=0.0, center=0.0, scale=1.0), lambda_=1.0)
"""Nothing is known about authors: energies stay as they are and every author counts the same."""
