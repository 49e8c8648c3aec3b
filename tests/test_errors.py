"""Errors cross process boundaries and tell the thing, the value and the way out."""

import pickle

import pytest

from raydebm import errors

EXAMPLES = [
    errors.RaydebmError("x"),
    errors.ConfigError("bad"),
    errors.UnknownNameError("task", "gms8k", ["gsm8k", "knights_knaves"]),
    errors.MissingKeyError("qwen", "OPENROUTER_API_KEY"),
    errors.ConstraintError("penalty nan"),
    errors.TaskDataError("no file"),
    errors.PoolError("empty"),
    errors.GenerationError("no model"),
    errors.LimitReachedError("max_usd 0.1 pays for none"),
    errors.CeilingReachedError("of 5 usd nothing is left"),
    errors.ScoringError("NaN"),
    errors.CheckpointError("corrupt"),
    errors.TrainingError({"a2": "out of memory"}, ("a0", "a1")),
    errors.StorageError({"a2": "the disk is full"}, ()),
    errors.ResourceError("port in use"),
    errors.ServiceError("no text"),
    errors.OverloadedError("64 requests run", 3),
]


def every_error():
    kinds, queue = set(), [errors.RaydebmError]
    while queue:
        kind = queue.pop()
        kinds.add(kind)
        queue += kind.__subclasses__()
    return {kind for kind in kinds if kind.__module__ == "raydebm.errors"}


def test_every_error_has_an_example():
    assert {type(example) for example in EXAMPLES} == every_error()


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_survives_the_process_boundary(error):
    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), str(copy)) == (type(error), str(error))


def test_unknown_name_suggests_the_nearest():
    error = errors.UnknownNameError("task", "gms8k", ["knights_knaves", "gsm8k"])

    assert str(error) == "unknown task 'gms8k' (did you mean 'gsm8k'?); known: gsm8k, knights_knaves"


def test_training_error_says_what_failed_and_what_is_kept():
    text = str(errors.TrainingError({"a2": "out of memory"}, ("a0", "a1")))

    assert "a2: out of memory" in text
    assert "a0, a1" in text
    assert "resume" in text


def test_the_tree_in_the_docstring_names_every_error():
    assert all(kind.__name__ in errors.__doc__ for kind in every_error())
