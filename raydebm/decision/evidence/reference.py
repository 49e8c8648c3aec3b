"""Statistics of each author that evidence is standardised by: skill, energies, lengths, baseline scores."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Statistics of one author (a generator) on labelled problems."""

    skill: float
    """Log-odds that one of the author's candidates is right."""
    center: float
    """Mean of mu over the author's candidates."""
    scale: float
    """Standard deviation of mu over the author's candidates, > 0."""
    length_center: float = 0.0
    """Mean of log(1 + characters) over the author's candidates."""
    length_scale: float = 1.0
    """Standard deviation of log(1 + characters) over the author's candidates, > 0."""
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean and standard deviation (> 0) of the score over this author's candidates, by baseline."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Author":
        """Inverse of ``asdict``."""
        scores = {name: (center, scale) for name, (center, scale) in value.get("scores", {}).items()}
        return cls(**{**value, "scores": scores})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Statistics of all authors."""

    authors: Mapping[str, Author]
    default: Author
    """Statistics for authors without labelled candidates: all authors together."""
    lambda_: float
    """Weight of E_constraint in E."""

    def author(self, name: str) -> Author:
        """Statistics of one author; the default for one without labelled candidates."""
        return self.authors.get(name, self.default)

    def score_norm(self, author: str, score: str) -> tuple[float, float]:
        """(mean, standard deviation) of a baseline's score over an author's candidates."""
        return self.author(author).scores.get(score) or self.default.scores.get(score, (0.0, 1.0))

    def to_json(self) -> dict[str, Any]:
        """The reference as JSON values, as in a policy file, with authors ordered by name."""
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
"""Reference without author statistics: energies are not standardised, and all authors count equally."""
