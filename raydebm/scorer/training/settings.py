"""Settings of an adapter's training, and their values on a device."""

from dataclasses import dataclass

import torch

from raydebm.config import Pooling, Recipe
from raydebm.errors import ConfigError
from raydebm.records import Reasoning
from raydebm.scorer.model.backbone import DTYPES
from raydebm.tasks.base import TaskDefaults

PLACEMENT = {"graph_gib", "gpu_share"}
"""Settings that depend on where a worker is placed. They may differ when a training is resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """Settings of an adapter's training (paper, table of training configurations)."""

    max_length: int
    """Maximum input in tokens, limited by the backbone's context."""
    batch_size: int
    """Minimum number of pairs per optimiser step, in whole problems. A problem with more pairs is split over several
    steps."""
    patience: int
    """Epochs without a lower validation loss before training stops."""
    learning_rate: float
    max_epochs: int = 10
    weight_decay: float = 0.01
    warmup_frac: float = 0.1
    """Share of the planned steps with a rising learning rate, followed by a cosine to 0."""
    max_grad_norm: float = 1.0
    head_dropout: float = 0.2
    pooling: Pooling = "cls"
    reasoning: Reasoning = "answer"
    """Form of the training texts (``Candidate.as_scored``), recorded with the adapter."""
    dtype: str = "auto"
    """Dtype of matrix products. ``auto`` is float32 on the CPU and bfloat16 on a GPU. Weights, head and loss are
    float32."""
    micro_batch_tokens: int = 8192
    """Padded tokens of one forward pass."""
    graph_gib: float | None = None
    """Memory for the activations of a step in GiB. A step that is estimated to need more runs its forward pass twice,
    in smaller pieces, with the same gradient. Default: 2 on the CPU; on a GPU 60 % of this worker's share of its
    memory, at most 30 % of the whole."""
    gpu_share: float = 1.0
    """This worker's share of its GPU. Other workers use the rest."""
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("max_length", "batch_size", "patience", "max_epochs", "micro_batch_tokens"):
            if getattr(self, field) < 1:
                raise ConfigError(f"training setting {field} must be at least 1, got {getattr(self, field)}")
        if not 0 < self.gpu_share <= 1:
            raise ConfigError(f"training setting gpu_share must be above 0 and at most 1, got {self.gpu_share}")
        if not self.learning_rate > 0:
            raise ConfigError(f"training setting learning_rate must be above 0, got {self.learning_rate}")

    @classmethod
    def from_recipe(cls, recipe: Recipe, defaults: TaskDefaults) -> "TrainingSettings":
        """Settings of a recipe's adapters, with the task's defaults for absent values."""
        training, scorer = recipe.training, recipe.scorer
        return cls(
            max_length=scorer.max_length or defaults.max_length,
            batch_size=training.batch_size or defaults.batch_size,
            patience=training.patience or defaults.patience,
            learning_rate=training.learning_rate or defaults.learning_rate,
            max_epochs=training.max_epochs,
            pooling=scorer.pooling,
            reasoning=scorer.reasoning,
            dtype=scorer.dtype,
            micro_batch_tokens=scorer.micro_batch_tokens,
            seed=recipe.training_seed,
        )


def autocast_dtype(dtype: str, device: torch.device) -> torch.dtype | None:
    """Dtype of mixed precision, or None for plain float32.

    Raises:
        ConfigError: float16 on a CPU, where its gradients are not usable.
    """
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else None
    if dtype == "float16" and device.type == "cpu":
        raise ConfigError("scorer.dtype float16 trains on GPUs only; use bfloat16 or float32 on the CPU")
    torch_dtype = DTYPES[dtype]
    return None if torch_dtype == torch.float32 else torch_dtype


def graph_bytes(settings: TrainingSettings, device: torch.device) -> float:
    """Memory for the graphs of one step, in bytes; see ``TrainingSettings.graph_gib``."""
    if settings.graph_gib is not None:
        return settings.graph_gib * 2**30
    if device.type != "cuda":
        return 2.0 * 2**30
    return min(0.3, 0.6 * settings.gpu_share) * torch.cuda.get_device_properties(device).total_memory
