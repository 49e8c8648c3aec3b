"""Training data of one adapter."""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.identity import content_id
from raydebm.scorer.pairs import TrainingGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterData:
    """Training data of one adapter."""

    train: Sequence[TrainingGroup]
    """Training groups of the adapter's bag."""
    validation: Sequence[TrainingGroup]
    """Validation problems, the same for all adapters. If empty, the last epoch is stored and there is no early stop."""
    fingerprint: str | None = None
    """Content id of the data of all adapters of the ensemble. Default: the content id of the validation problems."""


def data_fingerprint(*parts: Sequence[TrainingGroup]) -> str:
    """Content id of the data: problems, texts and pairs."""
    return content_id([[[group.problem_id, list(group.texts), list(group.pairs)] for group in part] for part in parts])
