"""The tables of a run directory and the types of their rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raydebm.records import (
    Candidate,
    CandidateScore,
    ConstraintReport,
    Energies,
    GenerationRequest,
    Gold,
    Label,
    Pair,
    Problem,
)
from raydebm.run.codec import Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProblem:
    """A problem with its split."""

    problem: Problem
    split: str
    """``train`` or ``test``. Validation problems are sampled from ``train``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """The scoring result of one candidate. ``members`` is None exactly when ``error`` is set."""

    candidate_id: str
    members: tuple[float | None, ...] | None
    """One energy per adapter; None for adapters that did not score it."""
    num_tokens: int = 0
    num_truncated: int = 0
    problem_read: float | None = None
    """Fraction of the problem's tokens that fit the context; None if not recorded."""
    answer_read: float | None = None
    """Fraction of the answer's tokens that fit the context; None if not recorded."""
    error: str | None = None

    def of_members(self, selected: Sequence[bool]) -> "EnergyRow":
        """Keep the energies of the selected members. An empty ``selected`` keeps all."""
        if self.members is None or not selected:
            return self
        members = (energy if is_selected else None for energy, is_selected in zip(self.members, selected, strict=True))
        return replace(self, members=tuple(members))

    def spread_over(self, selected: Sequence[bool]) -> "EnergyRow":
        """Move the energies of the selected members to their places among all. An empty ``selected`` means all."""
        if self.members is None or not selected:
            return self
        remaining = iter(self.members)
        return replace(self, members=tuple(next(remaining) if is_selected else None for is_selected in selected))

    @property
    def energies(self) -> Energies | None:
        """Energies of the adapters that scored the candidate; None if there are none."""
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
    """Energies of candidates from an earlier stage, which are not scored again."""

    rows: Mapping[str, EnergyRow]
    """Rows by candidate id, with the energies of all members."""
    dtype: str
    """Dtype of the encoder; the other candidates are scored in it too."""


PROBLEM = Codec(Problem)
PROBLEMS = Codec(SplitProblem)
GOLDS = Codec(Gold)
CANDIDATES = Codec(Candidate, int32=("pass_index", "sample_index", "max_tokens"))
LABELS = Codec(Label, int32=("severity",))
REPORTS = Codec(ConstraintReport)
ENERGIES = Codec(EnergyRow, int32=("num_tokens", "num_truncated"))
REQUESTS = Codec(GenerationRequest, int32=("pass_index", "sample_index", "max_tokens"))
PAIRS = Codec(Pair)
SCORES = Codec(CandidateScore)


def pools_of(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """Candidates by problem, in order of appearance, without greedy ones."""
    pools: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if not candidate.is_greedy:
            pools.setdefault(candidate.problem_id, []).append(candidate)
    return pools
