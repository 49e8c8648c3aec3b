"""Score the texts of several requests in one pass of the ensemble, so that one bad text sinks no other.

Does not know: Ray, torch.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from raydebm.errors import ScoringError
from raydebm.records import Energies
from raydebm.serving.parts import TextToScore

log = logging.getLogger(__name__)


class Scored(Protocol):
    """What the ensemble says about one text (scorer.ensemble.TextEnergies, without importing torch)."""

    @property
    def members(self) -> tuple[float, ...]: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_truncated(self) -> int: ...


class Ensemble(Protocol):
    def score(self, texts: Sequence[tuple[str, str]]) -> Sequence[Scored]:
        """Raises ScoringError when any energy is not finite."""
        ...


def energies_of_lists(ensemble: Ensemble, lists: Sequence[Sequence[TextToScore]]) -> list[list[Energies | None]]:
    """Energies of each list's texts, in order; None for a text without finite energies."""
    energies = iter(_energies(ensemble, [text for texts in lists for text in texts]))
    return [[next(energies) for _ in texts] for texts in lists]


def _energies(ensemble: Ensemble, texts: Sequence[TextToScore]) -> list[Energies | None]:
    try:
        found = ensemble.score([(text.prompt, text.text) for text in texts])
    except ScoringError as error:
        if len(texts) > 1:  # halve until the bad one is alone: few extra passes, and the others keep their energies
            half = len(texts) // 2
            return _energies(ensemble, texts[:half]) + _energies(ensemble, texts[half:])
        log.warning("candidate %s could not be scored: %s", texts[0].candidate_id, error)
        return [None]
    return [
        Energies(
            candidate_id=text.candidate_id,
            members=energies.members,
            num_tokens=energies.num_tokens,
            num_truncated=energies.num_truncated,
        )
        for text, energies in zip(texts, found, strict=True)
    ]
