"""Shapes, seeds and training budgets of the embedded models."""

from dataclasses import dataclass

ENCODER = "encoder-mini"


@dataclass(frozen=True, slots=True)
class GeneratorRecipe:
    """A causal model with Llama's architecture."""

    hidden_size: int
    num_layers: int
    intermediate_size: int
    minutes: float
    learning_rate: float
    seed: int
    head_size: int = 32


GENERATORS: dict[str, GeneratorRecipe] = {
    "kk-ada": GeneratorRecipe(128, 5, 320, minutes=48, learning_rate=2e-3, seed=101),
    "kk-bo": GeneratorRecipe(128, 4, 320, minutes=22, learning_rate=2e-3, seed=102),
    "kk-cy": GeneratorRecipe(96, 4, 256, minutes=12, learning_rate=2e-3, seed=103),
    "kk-dee": GeneratorRecipe(64, 3, 192, minutes=5, learning_rate=2e-3, seed=104),
}


@dataclass(frozen=True, slots=True)
class EncoderRecipe:
    """The encoder, with ModernBERT's architecture, so that its modules have the names of ModernBERT-base's."""

    hidden_size: int = 128
    num_layers: int = 4
    intermediate_size: int = 320
    num_heads: int = 4
    minutes: float = 8
    learning_rate: float = 1e-3
    mask_share: float = 0.2
    seed: int = 105
