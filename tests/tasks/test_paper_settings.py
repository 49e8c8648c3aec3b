"""The settings of the paper's table of training configurations, by task."""

import pytest

from raydebm.config import parse_recipe
from raydebm.scorer.training.settings import TrainingSettings
from raydebm.tasks import get_task

GENERATOR = {"kind": "recorded", "name": "g", "pool": "x", "model": "y"}


@pytest.mark.parametrize(
    ("name", "batch_size", "max_length", "patience", "learning_rate", "lambda_"),
    [
        ("gsm8k", 32, 8192, 2, 5e-5, 1.0),
        ("musr", 8, 4096, 2, 5e-5, 1.0),
        ("travelplanner", 32, 8192, 2, 5e-5, 2.0),
        ("taco", 32, 5120, 2, 5e-5, 1.0),
        ("knights_knaves", 16, 1536, 3, 2e-5, 1.0),
    ],
)
def test_a_task_trains_with_the_papers_settings(name, batch_size, max_length, patience, learning_rate, lambda_):
    defaults = get_task(name).defaults

    assert (defaults.batch_size, defaults.max_length, defaults.patience) == (batch_size, max_length, patience)
    assert (defaults.learning_rate, defaults.lambda_) == (learning_rate, lambda_)


def test_a_program_has_the_papers_four_seconds_for_each_test():
    assert get_task("taco").limits.cpu_s == 4.0


def test_optimiser_and_head_have_the_papers_settings():
    tree = {"name": "r", "task": {"name": "gsm8k"}, "generators": [GENERATOR]}
    recipe = parse_recipe(tree)
    settings = TrainingSettings.from_recipe(recipe, get_task("gsm8k").defaults)

    assert (settings.weight_decay, settings.max_grad_norm, settings.warmup_frac) == (0.01, 1.0, 0.1)
    assert (settings.head_dropout, {adapter.dropout for adapter in recipe.scorer.adapters}) == (0.2, {0.2})


def test_programs_are_paired_with_the_papers_limits():
    defaults = get_task("taco").defaults

    assert (defaults.max_correct, defaults.max_incorrect) == (8, 24)
