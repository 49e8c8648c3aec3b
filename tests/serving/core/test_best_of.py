"""``best_of`` on the run of the live service: a real ensemble of random adapters, and the paper's rule."""

from raydebm import best_of
from raydebm.records import Decision


def test_a_real_ensemble_scores_in_this_process(live_run, puzzle, texts):
    """Random adapters say nothing; the broken statement alone makes the difference at this run's lambda."""
    choice = best_of(puzzle, [texts["unreadable"], texts["right"]], run=live_run)

    assert (choice.decision, choice.text, choice.selected) == (Decision.ACCEPT, texts["right"], 1)
    assert "sigma" in choice.reason
