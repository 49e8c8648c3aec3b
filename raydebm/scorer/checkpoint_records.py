"""What a checkpoint says about itself: the records of ensemble.json and of each adapter."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

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
    """How a member reads a text: by which frozen model, how much of it, and in which unit its energies come out."""

    backbone: str
    """Its name, as in the recipe."""
    backbone_fingerprint: str
    """Digest of its weights."""
    family: str
    hidden_size: int
    max_length: int
    """Tokens of the longest input."""
    pooling: Pooling = "cls"
    """What the head reads of the encoder."""
    scale: float = 1.0
    """The head's energies were multiplied by this after its training; 1 where all members have one backbone."""
    offset: float = 0.0
    """... and this was subtracted before, so that validation texts have energy 0 on average."""


class AdapterRecord(ReadingRecord):
    """Contents of an adapter's ``training.json``."""

    format: Literal[1] = 1
    adapter: AdapterConfig
    data_fingerprint: str
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
        """Metrics of the epoch whose weights were stored."""
        return self.epochs[self.best_epoch - 1]


class MemberRecord(ReadingRecord):
    """One member in ``ensemble.json``."""

    name: str
    """Name of its folder."""

    @classmethod
    def of(cls, name: str, record: AdapterRecord) -> "MemberRecord":
        """The member of that name that an adapter becomes."""
        return cls(name=name, **{field: getattr(record, field) for field in READING_FIELDS})


READING_FIELDS = tuple(ReadingRecord.model_fields)


class EnsembleRecord(Record):
    """Contents of ``ensemble.json``."""

    format: Literal[2] = 2
    members: tuple[MemberRecord, ...] = Field(min_length=1)
    """In the order of the energies."""
    data_fingerprint: str
    reasoning: Reasoning = "answer"
    """Whether the texts that it was trained on hold the thinking before the answer."""
    metrics: dict[str, EpochMetrics]
    """Metrics of each adapter's best epoch."""
    meta: dict[str, Any]
    versions: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _of_one_backbone(cls, tree: Any) -> Any:
        """Format 1 said once for all members how they read."""
        if not isinstance(tree, dict) or tree.get("format") != 1 or not isinstance(tree.get("adapters"), list):
            return tree
        shared = {field: tree[field] for field in READING_FIELDS if field in tree}
        rest = {key: value for key, value in tree.items() if key not in {*READING_FIELDS, "adapters"}}
        return rest | {"format": 2, "members": [{"name": name, **shared} for name in tree["adapters"]]}

    @property
    def adapters(self) -> tuple[str, ...]:
        """The members' names, in the order of the energies."""
        return tuple(member.name for member in self.members)

    @property
    def backbones(self) -> tuple[str, ...]:
        """Names of the members' backbones, each once, in the order of the members."""
        return tuple(dict.fromkeys(member.backbone for member in self.members))
