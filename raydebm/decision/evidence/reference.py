"""What evidence is measured against: the skill, energies, lengths and baselines' scores of each author."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By baseline: mean and standard deviation (> 0) of its score over this author's candidates."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Author":
        """Inverse of ``asdict``."""
        scores = {name: (center, scale) for name, (center, scale) in value.get("scores", {}).items()}
        return cls(**{**value, "scores": scores})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What evidence is measured against."""

    authors: Mapping[str, Author]
    default: Author
    """For an author without labelled candidates: all authors together."""
    lambda_: float
    """Weight of E_constraint in E."""

    def author(self, name: str) -> Author:
        """What is known about an author; the default for one without labelled candidates."""
        return self.authors.get(name, self.default)

    def score_norm(self, author: str, score: str) -> tuple[float, float]:
        """(mean, standard deviation) of a baseline's score over an author's candidates."""
        return self.author(author).scores.get(score) or self.default.scores.get(score, (0.0, 1.0))

    def to_json(self) -> dict[str, Any]:
        """The reference as it stands in a policy file, authors in the order of their names."""
        value = asdict(self)
        return {**value, "authors": {name: asdict(author) for name, author in sorted(self.authors.items())}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Reference":
        """Inverse of ``to_json``."""
        return cls(
            authors={name: Author.from_json(author) for name, author in value["authors"].items()},
            default=Author.from_json(value["default"]),
            lambda_=value["lambda_"],
        )


PLAIN = Reference(authors={}, default=Author(skill=0.0, center=0.0, scale=1.0), lambda_=1.0)
"""Nothing is known about authors: energies stay as they are and every author counts the same."""
