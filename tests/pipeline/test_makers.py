"""Stages and the functions that make them."""

from raydebm.pipeline.makers import MAKERS
from raydebm.run.stages import STAGES


def test_every_stage_of_the_graph_has_a_function():
    assert list(MAKERS) == [stage.name for stage in STAGES]
