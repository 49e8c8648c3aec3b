"""What a recipe says about waves, before anything is sent."""

import pytest

from raydebm.config import parse_recipe
from raydebm.errors import RaydebmError
from raydebm.generators.passes import PassRequests
from raydebm.tasks import get_task


def passes(*, task="gsm8k", names="ab", **generation):
    generators = [{"kind": "openai", "name": name, "model": "m"} for name in names]
    tree = {"name": "t", "task": {"name": task}, "generators": generators, "generation": generation}
    return PassRequests(recipe=parse_recipe(tree), task=get_task(task))


def test_everything_is_sampled_at_once_by_default():
    assert (passes().waves, passes().remarks_on_waves) == (None, ())


def test_waves_are_the_recipes():
    found = passes(waves=[4, 8])
    assert (found.waves, found.remarks_on_waves) == ((4, 8), ())


@pytest.mark.parametrize("task", ["taco", "travelplanner"])
def test_answers_that_cannot_be_compared_are_sampled_at_once_and_it_is_said(task):
    found = passes(task=task, waves=[4, 8])
    assert found.waves is None
    assert f"task '{task}'" in found.remarks_on_waves[0]


def test_a_first_wave_without_every_generator_is_remarked_on():
    assert "begin with 3 or more" in passes(names="abc", waves=[2, 8]).remarks_on_waves[0]


def test_generators_that_sample_nothing_do_not_count():
    found = passes(names="abc", waves=[3])
    silent = found.recipe.generators[0].model_copy(update={"num_samples": 0})
    recipe = found.recipe.model_copy(
        update={
            "generators": (silent, *found.recipe.generators[1:]),
            "generation": found.recipe.generation.model_copy(update={"waves": (2,)}),
        }
    )
    assert PassRequests(recipe=recipe, task=found.task).remarks_on_waves == ()


@pytest.mark.parametrize("generation", [{"waves": []}, {"waves": [0]}, {"waves": [4], "epsilon": 1.0}])
def test_impossible_waves_are_refused(generation):
    with pytest.raises(RaydebmError, match="generation"):
        passes(**generation)
