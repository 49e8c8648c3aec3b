"""Records of a checkpoint: ensemble.json and training.json."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from raydebm.config import AdapterConfig, Pooling
from raydebm.records import Reasoning


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EpochMetrics(Record):
    """Metrics of one epoch of one adapter. Losses are in nats; guessing gives ln 2 = 0.693."""

    epoch: int
    """Number of the epoch, from 1."""
    train_loss: float
    validation_loss: float | None
    """None without validation pairs."""
    validation_accuracy: float | None
    """Share of validation pairs in which the chosen candidate has the lower energy."""
    learning_rate: float
    """Learning rate at the epoch's last step."""
    seconds: float


class ReadingRecord(Record):
    """Backbone, training data and handling of texts, as every part of an ensemble records them."""

    backbone: str
    """Name of the backbone, as in the recipe."""
    backbone_fingerprint: str
    """Digest of the backbone's weights."""
    family: str
    hidden_size: int
    max_length: int
    """Maximum input in tokens."""
    pooling: Pooling = "cls"
    """Pooling of the token states that the heads read."""
    data_fingerprint: str
    reasoning: Reasoning = "answer"
    """Whether the training texts include the thinking before the answer."""


SHARED_FIELDS = tuple(field for field in ReadingRecord.model_fields if field != "backbone")
"""Fields that all parts of an ensemble share. The backbone's name is excluded, because it may differ between
machines."""


class AdapterRecord(ReadingRecord):
    """Contents of an adapter's ``training.json``."""

    format: Literal[2] = 2
    adapter: AdapterConfig
    settings: dict[str, Any]
    epochs: tuple[EpochMetrics, ...]
    best_epoch: int
    num_train_problems: int
    num_train_pairs: int
    num_validation_problems: int
    num_validation_pairs: int
    num_truncated_texts: int
    """Number of training and validation texts that were cut to max_length."""
    num_texts: int
    versions: dict[str, str]

    @property
    def best(self) -> EpochMetrics:
        """Metrics of the epoch whose weights were stored."""
        return self.epochs[self.best_epoch - 1]


class EnsembleRecord(ReadingRecord):
    """Contents of ``ensemble.json``."""

    format: Literal[3] = 3
    adapters: tuple[str, ...] = Field(min_length=1)
    """Names of the adapters and their folders, in the order of the energies."""
    metrics: dict[str, EpochMetrics]
    """Metrics of each adapter's best epoch."""
    meta: dict[str, Any]
    versions: dict[str, str]
