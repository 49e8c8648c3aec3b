"""Recipes: a whole run in one YAML file, checked before anything starts.

One pydantic model per stage; unknown keys are refused; dotted overrides (``generation.num_samples=4``) come from the
command line; ``${VAR}`` and ``${VAR:-default}`` are read from the environment. Credentials are never part of a recipe:
a generator names the environment variable that holds its key.
"""

from raydebm.config.baselines import (
    BaselineConfig,
    EormBaseline,
    JudgeBaseline,
    ModelBaseline,
)
from raydebm.config.decision import CostsConfig, DecisionConfig
from raydebm.config.generators import (
    GenerationConfig,
    GeneratorConfig,
    OpenAIGenerator,
    RecordedGenerator,
    TransformersGenerator,
    VllmGenerator,
)
from raydebm.config.reading import (
    apply_overrides,
    changed_recipe,
    load_recipe,
    parse_recipe,
    with_recorded_answers,
)
from raydebm.config.recipe import RayConfig, Recipe
from raydebm.config.scorer import (
    PAPER_ADAPTERS,
    AdapterConfig,
    Fold,
    PairsConfig,
    Pooling,
    ScorerConfig,
)
from raydebm.config.studies import ConfoundingConfig, VariantConfig
from raydebm.config.task import SplitSource, TaskConfig

__all__ = [
    "PAPER_ADAPTERS",
    "AdapterConfig",
    "BaselineConfig",
    "ConfoundingConfig",
    "CostsConfig",
    "DecisionConfig",
    "EormBaseline",
    "Fold",
    "GenerationConfig",
    "GeneratorConfig",
    "JudgeBaseline",
    "ModelBaseline",
    "OpenAIGenerator",
    "PairsConfig",
    "Pooling",
    "RayConfig",
    "Recipe",
    "RecordedGenerator",
    "ScorerConfig",
    "SplitSource",
    "TaskConfig",
    "TransformersGenerator",
    "VariantConfig",
    "VllmGenerator",
    "apply_overrides",
    "changed_recipe",
    "load_recipe",
    "parse_recipe",
    "with_recorded_answers",
]
