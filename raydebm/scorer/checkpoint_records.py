"""What a checkpoint says about itself: the records of ensemble.json and of each adapter."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from raydebm.config import AdapterConfig, Pooling
from raydebm.records import Reasoning


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EpochMetrics(Record):
    """One epoch of one adapter. Losses in nats, of ``training.loss``; chance is ln 2 = 0.693 for bradley_terry."""

    epoch: int
    """From 1."""
    train_loss: float
    validation_loss: float | None
    """None without validation pairs."""
    validation_accuracy: float | None
    """Share of validation pairs whose chosen candidate has the lower energy."""
    learning_rate: float
    """At the epoch's last step."""
    seconds: float


class ReadingRecord(Record):
    """The frozen model that reads a text, how much of it, and what texts it was trained on."""

    backbone: str
    """Its name, as in the recipe."""
    backbone_fingerprint: str
    """Digest of its weights."""
    family: str
    hidden_size: int
    max_length: int
    """Tokens of the longest input."""
    pooling: Pooling = "cls"
    """What the heads read of the encoder."""
    data_fingerprint: str
    reasoning: Reasoning = "answer"
    """Whether the texts that it was trained on hold the thinking before the answer."""


SHARED_FIELDS = tuple(field for field in ReadingRecord.model_fields if field != "backbone")
"""What all parts of an ensemble must have in common. Not the backbone's name: it may be another one here."""


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
    """Training and validation texts that were cut to fit max_length."""
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
    """Names of the members and their folders, in the order of the energies."""
    metrics: dict[str, EpochMetrics]
    """Metrics of each adapter's best epoch."""
    meta: dict[str, Any]
    versions: dict[str, str]
