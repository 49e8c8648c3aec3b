"""The settings of the paper's table of training configurations, by task."""

import pytest

from raydebm.tasks import get_task


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
