"""What a checkpoint says about itself: the records of ensemble.json and of each adapter."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

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


class AdapterRecord(Record):
    """Contents of an adapter's ``training.json``."""

    format: Literal[1] = 1
    adapter: AdapterConfig
    backbone: str
    backbone_fingerprint: str
    data_fingerprint: str
    family: str
    hidden_size: int
    max_length: int
    pooling: Pooling = "cls"
    reasoning: Reasoning = "answer"
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
        return self.epochs[self.best_epoch - 1]


class EnsembleRecord(Record):
    """Contents of ``ensemble.json``."""

    format: Literal[1] = 1
    adapters: tuple[str, ...]
    """Folder names, in the order of the energies."""
    backbone: str
    backbone_fingerprint: str
    data_fingerprint: str
    family: str
    hidden_size: int
    max_length: int
    pooling: Pooling = "cls"
    """What the heads read of the encoder."""
    reasoning: Reasoning = "answer"
    """Whether the texts that it was trained on hold the thinking before the answer."""
    metrics: dict[str, EpochMetrics]
    """Metrics of each adapter's best epoch."""
    meta: dict[str, Any]
    versions: dict[str, str]
