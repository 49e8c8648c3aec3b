"""A whole run whose candidates are sampled in waves: pools of different sizes go through every stage."""

import pytest
from tiny_run import recipe_of

from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.passes import outcomes_of
from raydebm.pipeline.stages.problems import saved_samples

pytestmark = pytest.mark.ray

MOST = 2 * 3
"""Samples per problem at most: two generators, three each."""


@pytest.fixture(scope="module")
def in_waves(local_ray, tmp_path_factory):
    """A finished run, and what its stages reported."""
    reports = []
    generation = {"num_samples": 3, "max_tokens": 128, "waves": [2, 2]}
    pipeline = Pipeline(
        recipe=recipe_of(tmp_path_factory.mktemp("run"), generation=generation), on_stage=reports.append
    )
    return pipeline, pipeline.evaluate(), reports


def sizes(pipeline):
    counts = {}
    for candidate in pipeline.run.candidates():
        counts[candidate.problem_id] = counts.get(candidate.problem_id, 0) + (not candidate.is_greedy)
    return list(counts.values())


def test_the_manifest_counts_what_was_never_sampled(in_waves):
    pipeline, _, _ = in_waves
    saved = saved_samples(pipeline)

    assert saved.num_samples == 22 * MOST - sum(sizes(pipeline))
    assert saved.num_settled == sum(size < MOST for size in sizes(pipeline))
    assert 0 < saved.token_share < 1


def test_every_test_problem_is_decided_and_the_report_says_what_was_saved(in_waves):
    pipeline, result, _ = in_waves

    assert [outcome.problem.problem_id for outcome in outcomes_of(pipeline)] == pipeline.splits()["test"]
    assert result.saved == saved_samples(pipeline)
    assert b"Sampling in waves ended" in pipeline.run.read_bytes("evaluation", "report.html")
