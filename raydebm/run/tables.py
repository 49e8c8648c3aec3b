"""The tables of a run directory: what a row of each is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raydebm.records import (
    Candidate,
    CandidateScore,
    ConstraintReport,
    Energies,
    Gold,
    Label,
    Pair,
    Problem,
)
from raydebm.run.codec import Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProblem:
    """A problem, and the part of the recipe's task that it came from."""

    problem: Problem
    split: str
    """``train`` or ``test``. The problems that validate are chosen among the former."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """What scoring made of one candidate. ``members`` is None exactly when ``error`` says why."""

    candidate_id: str
    members: tuple[float | None, ...] | None
    """One entry per adapter, None for those that were not asked."""
    num_tokens: int = 0
    num_truncated: int = 0
    problem_read: float | None = None
    """Share of the problem's tokens that the scorer read; None where it was not recorded."""
    answer_read: float | None = None
    """Likewise of the answer's."""
    error: str | None = None

    def of_members(self, asked: Sequence[bool]) -> "EnergyRow":
        """The same without the energies of members that are not ``asked``; () asks all."""
        if self.members is None or not asked:
            return self
        members = (energy if is_asked else None for energy, is_asked in zip(self.members, asked, strict=True))
        return replace(self, members=tuple(members))

    def spread_over(self, asked: Sequence[bool]) -> "EnergyRow":
        """Energies of the ``asked`` members alone, made one entry per member; () asked all."""
        if self.members is None or not asked:
            return self
        remaining = iter(self.members)
        return replace(self, members=tuple(next(remaining) if is_asked else None for is_asked in asked))

    @property
    def energies(self) -> Energies | None:
        """None without any; without adapters that were not asked."""
        if self.members is None:
            return None
        return Energies(
            candidate_id=self.candidate_id,
            members=tuple(energy for energy in self.members if energy is not None),
            num_tokens=self.num_tokens,
            num_truncated=self.num_truncated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEnergies:
    """What a scorer is known to say about some candidates."""

    rows: Mapping[str, EnergyRow]
    """By candidate id, with the energies of all members."""
    dtype: str
    """Type of the encoder that read them; the other candidates are scored in it too."""


PROBLEM = Codec(Problem)
PROBLEMS = Codec(SplitProblem)
GOLDS = Codec(Gold)
CANDIDATES = Codec(Candidate, int32=("pass_index", "sample_index", "max_tokens"))
LABELS = Codec(Label, int32=("severity",))
REPORTS = Codec(ConstraintReport)
ENERGIES = Codec(EnergyRow, int32=("num_tokens", "num_truncated"))
PAIRS = Codec(Pair)
SCORES = Codec(CandidateScore)


def pools_of(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """Candidates by problem, in the order in which they come. Greedy ones are left out: they are not of the pool."""
    pools: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if not candidate.is_greedy:
            pools.setdefault(candidate.problem_id, []).append(candidate)
    return pools
