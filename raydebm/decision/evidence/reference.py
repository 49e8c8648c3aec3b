"""Statistics of each author that evidence is standardised by: skill, energies, lengths, baseline scores."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Statistics of one author (a generator) on labelled problems."""

    skill: float
    """Log-odds that one of the author's candidates is right."""
    kinds: Mapping[str, float] = field(default_factory=dict)
    """The same on problems of one kind, for each kind with labelled candidates of the author. Empty where problems have
    no kinds."""
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
class Kind:
    """Statistics of one kind of question on labelled problems."""

    level: float
    """Log-odds that a candidate of any author is right, minus those on all problems."""
    difficulty: float
    """Log-odds that no candidate of a problem is right, minus those on all problems."""
    num_problems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Statistics of all authors."""

    authors: Mapping[str, Author]
    default: Author
    """Statistics for authors without labelled candidates: all authors together."""
    lambda_: float
    """Weight of E_constraint in E."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """By name. Empty where problems have no kinds."""

    def author(self, name: str) -> Author:
        """Statistics of one author; the default for one without labelled candidates."""
        return self.authors.get(name, self.default)

    def skill(self, author: str, kind: str) -> float:
        """Skill of an author in a kind of question, without the level of the kind.

        The skill over all kinds if the kind is unknown or has no labelled candidate of the author.
        """
        known = self.author(author)
        if kind not in self.kinds or kind not in known.kinds:
            return known.skill
        return known.kinds[kind] - self.kinds[kind].level

    def difficulty(self, kind: str) -> float:
        """Difficulty of a kind of question; 0 if the kind is unknown."""
        return self.kinds[kind].difficulty if kind in self.kinds else 0.0

    def score_norm(self, author: str, score: str) -> tuple[float, float]:
        """(mean, standard deviation) of a baseline's score over an author's candidates."""
        return self.author(author).scores.get(score) or self.default.scores.get(score, (0.0, 1.0))

    def to_json(self) -> dict[str, Any]:
        """The reference as JSON values, as in a policy file, with authors ordered by name."""
        authors = {name: _json(author) for name, author in sorted(self.authors.items())}
        return {**_json(self), "authors": authors, "default": _json(self.default)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Reference":
        """Inverse of ``to_json``."""
        return cls(
            authors={name: Author.from_json(author) for name, author in value["authors"].items()},
            default=Author.from_json(value["default"]),
            lambda_=value["lambda_"],
            kinds={name: Kind(**kind) for name, kind in value.get("kinds", {}).items()},
        )


def _json(part: Author | Reference) -> dict[str, Any]:
    """JSON values, without the key ``kinds`` where problems have none."""
    return {name: value for name, value in asdict(part).items() if value or name != "kinds"}


PLAIN = Reference(authors={}, default=Author(skill=0.0, center=0.0, scale=1.0), lambda_=1.0)
"""Reference without author statistics: energies are not standardised, and all authors count equally."""
