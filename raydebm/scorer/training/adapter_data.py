"""What one adapter is trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.identity import content_id
from raydebm.pairs import TrainingGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterData:
    """What one adapter is trained on."""

    train: Sequence[TrainingGroup]
    """The adapter's bag."""
    validation: Sequence[TrainingGroup]
    """The same problems for all adapters of an ensemble: without any the last epoch is kept and nothing stops early."""
    fingerprint: str | None = None
    """Content id of the data that all adapters of the ensemble share; None: that of the validation problems."""


def data_fingerprint(*parts: Sequence[TrainingGroup]) -> str:
    """Content id of the data: problems, texts and pairs."""
    return content_id([[[group.problem_id, list(group.texts), list(group.pairs)] for group in part] for part in parts])
