"""Training pairs and folds, the encoder with its adapters, and their training."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from raydebm.config.section import FolderName, Section
from raydebm.records import Reasoning

NAMED_LAYERS = ("all", "upper half", "upper quarter")
Layers = Literal["all", "upper half", "upper quarter"] | tuple[int, ...]
Pooling = Literal["cls", "mean", "last"]


_TAKEN = frozenset({"progress", "ensemble.json", "manifest.json", "spool"})
"""Names in the checkpoint folder that adapters cannot have."""


class AdapterConfig(Section):
    """One low-rank adapter (LoRA) of the ensemble."""

    name: FolderName
    """Name of its folder in the checkpoint; ``progress`` is reserved."""
    rank: int = Field(ge=1)
    """Rank of the low-rank matrices."""
    alpha: int = Field(ge=1)
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = Field(min_length=1)
    """Layers to adapt: ``Wqkv`` (attention in), ``Wo`` (attention and feed-forward out), ``Wi`` (feed-forward in), or
    names of the backbone's modules, such as ``q_proj``."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on the input of the low-rank update."""
    # The default is not written, so that adapters that were trained before this field existed stay current.
    layers: Layers = Field("all", exclude_if=lambda layers: layers == "all")
    """Blocks of the backbone to adapt: ``all`` (as in the paper), ``upper half``, ``upper quarter``, or their numbers,
    from 0 for the lowest, or from -1 for the highest. Blocks below the lowest one that any adapter changes are
    computed once for all."""

    @model_validator(mode="after")
    def _is_no_folder_of_the_training(self) -> "AdapterConfig":
        if self.name.casefold() in _TAKEN:
            raise ValueError(f"name {self.name!r} is that of a file or folder of every training; choose another")
        return self

    @model_validator(mode="after")
    def _layers_are_named_once(self) -> "AdapterConfig":
        if not isinstance(self.layers, str) and (not self.layers or len(set(self.layers)) != len(self.layers)):
            raise ValueError(f"layers must be {' or '.join(NAMED_LAYERS)}, or distinct numbers, got {self.layers}")
        return self


PAPER_ADAPTERS = (
    AdapterConfig(name="a0", rank=8, alpha=16, targets=("Wqkv",)),
    AdapterConfig(name="a1", rank=8, alpha=16, targets=("Wqkv", "Wo")),
    AdapterConfig(name="a2", rank=16, alpha=32, targets=("Wqkv",)),
    AdapterConfig(name="a3", rank=4, alpha=8, targets=("Wqkv",)),
    AdapterConfig(name="a4", rank=8, alpha=16, targets=("Wqkv", "Wi")),
)
"""Paper, table of the heterogeneous LoRA ensemble."""


class ScorerConfig(Section):
    backbone: str = "answerdotai/ModernBERT-base"
    """An encoder or a decoder: hub name, local folder, ``embedded:encoder-mini`` or ``package:minilm``."""
    max_length: int | None = Field(None, ge=16)
    """Maximum input tokens. Default: the task's, clipped to the backbone's context."""
    adapters: tuple[AdapterConfig, ...] = PAPER_ADAPTERS
    """The ensemble's adapters. Default: the paper's five."""
    pooling: Pooling = "cls"
    """Input of the head: the state of [CLS] (as in the paper), the mean of the token states, or the state of the last
    token. A decoder needs ``last`` or ``mean``."""
    reasoning: Reasoning = "answer"
    """Text to score when a model thinks before it answers: the ``answer`` alone, or ``all``, thinking and answer (the
    paper captures both). The default is ``answer`` because thinking reveals the author, fills the context, and is
    withheld by many endpoints, so that the candidates of a pool would not be comparable."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Dtype of the encoder. ``auto``: bfloat16 on GPUs; on CPUs, float32 for training, and for scoring bfloat16 if a
    short probe shows that it is clearly faster and keeps the order of texts (docs/performance.md). Heads and energies
    are float32."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Padded tokens per forward pass. A large GPU is a fifth faster with 32768 (docs/log/gpu.md)."""

    @model_validator(mode="after")
    def _distinct_adapters(self) -> "ScorerConfig":
        names = [adapter.name for adapter in self.adapters]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"scorer.adapters needs at least one adapter and distinct names, got {names}")
        return self


class TrainingConfig(Section):
    learning_rate: float | None = Field(None, gt=0)
    """AdamW learning rate. Default: the task's (5e-5; K&K 2e-5)."""
    batch_size: int | None = Field(None, ge=1)
    """Pairs per optimiser step (docs/training.md). Default: the task's."""
    patience: int | None = Field(None, ge=1)
    """Epochs without a lower validation loss before training ends. Default: the task's."""
    max_epochs: int = Field(10, ge=1)
    """Maximum number of epochs."""


BAG_FRAC = 0.8
"""Share of the training problems that each adapter is trained on, sampled per adapter."""
POSITIVE_FRAC = 0.25
"""For tasks with violation scores: the share of a problem's best candidates that counts as correct (paper: 25 %)."""


Fold = tuple[int, int]
"""One of the folds that divide all problems of a recipe, those of ``task.train`` and ``task.test`` together: its number
from 0, and the number of folds. Problems are assigned by the run's seed, and those with the same text share a fold."""


class PairsConfig(Section):
    max_pairs: int | None = Field(16, ge=1)
    """Pairs per problem; null: all pairs."""
    max_correct: int | None = Field(None, ge=1)
    """Correct candidates per problem. Default: the task's (all, or the paper's limit for the task)."""
    max_incorrect: int | None = Field(None, ge=1)
    """Incorrect candidates per problem, the least severe failures first. Default: the task's."""
    within_author: bool = False
    """Pair only texts of the same generator, so that adapters cannot learn who wrote a text instead of whether it is
    right. Needs several samples per generator and problem; ``max_correct`` and ``max_incorrect`` then apply per
    generator and problem."""
    validation_frac: float = Field(0.2, gt=0, lt=1)
    """Share of the training problems reserved for early stopping and calibration."""
    seed: int | None = None
    """Seed of the split into training and validation, the pairs, the bags and the adapters. Default: the run's seed.
    Another seed trains again on the same candidates (`raydebm seeds`)."""
    fold: Fold | None = None
    """Test one fold of all problems and train on the others: its number from 0, and the number of folds (`raydebm seeds
    --folds`). Default: the problems of ``task.test`` are tested."""

    @field_validator("fold")
    @classmethod
    def _known(cls, fold: Fold | None) -> Fold | None:
        if fold is not None and not 0 <= fold[0] < fold[1]:
            raise ValueError(f"must be the fold's number from 0, and the number of folds; got {list(fold)}")
        return fold
