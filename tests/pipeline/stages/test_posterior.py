"""Which labelled problems a run's rules learn from."""

from types import SimpleNamespace

import hand_made

from raydebm.pipeline.context import VALIDATION
from raydebm.pipeline.stages import posterior


def test_the_posterior_learns_from_validation_and_from_problems_out_of_bag(monkeypatch):
    """Of two training problems one is in every adapter's bag. Pools have different numbers of energies."""
    pools = hand_made.table_of(
        hand_made.make_pool((1, {"members": members}), (0, {"members": members}), problem_id=name)
        for name, members in (("validation", (1.0, 2.0)), ("out of bag", (1.0,)), ("in every bag", None))
    )
    monkeypatch.setattr(posterior, "evaluated_pools", lambda context, *splits: pools)
    monkeypatch.setattr(posterior, "adapters_out_of_bag", lambda context: {"out of bag": (True, False)})

    learned = posterior.learned_from(SimpleNamespace(splits=lambda: {VALIDATION: ["validation"]}))

    assert [problem.problem_id for problem in learned.problems] == ["validation", "out of bag"]
