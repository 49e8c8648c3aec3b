"""One budget for all stages of a run."""

import pytest

from raydebm.config import parse_recipe
from raydebm.generators.account import JournalAccount, journal_and_budget
from raydebm.generators.journal import Journal
from raydebm.generators.requests import TokenUsage, answered
from raydebm.records import GenerationRequest, Sampling
from raydebm.run.directory import RunDir

JOURNALS = [
    "candidates/journal",
    "regenerated/validation-1/journal",
    "regenerated/test-1/journal",
    "scores/a judge.journal",
    "confounding/journal",
]


def spend(folder, usd):
    request = GenerationRequest(
        task="toy", problem_id="p", generator="g", messages=({"role": "user", "content": "?"},), sampling=Sampling(),
        seed=0,
    )  # fmt: skip
    Journal(folder).put(answered(request, "text", usage=TokenUsage(cost_usd=usd)))


@pytest.fixture
def run(tmp_path):
    """A run directory that has spent 1, 2, 4, 8 and 16 dollars; a training of its own and a repair lie in it."""
    for power, name in enumerate(JOURNALS):
        spend(tmp_path / name, 2.0**power)
        spend(tmp_path / "seed-1" / name, 1000.0)
        spend(tmp_path / "repair" / name, 1000.0)
    return RunDir(str(tmp_path))


def limited(max_usd):
    generators = [{"kind": "recorded", "name": "g", "pool": "p", "model": "m"}]
    return parse_recipe(
        {"name": "x", "task": {"name": "gsm8k"}, "generators": generators, "generation": {"max_usd": max_usd}}
    )


@pytest.mark.parametrize(
    ("own", "elsewhere"), [(JOURNALS[0], 30), (JOURNALS[3], 23), ("regenerated/test-2/journal", 31)]
)
def test_what_the_other_stages_spent_counts_once(run, own, elsewhere):
    assert JournalAccount(run, (own,)).elsewhere_usd(limited(100)) == elsewhere


@pytest.mark.parametrize(("max_usd", "is_refused"), [(31, True), (32, False)])
def test_a_stage_begins_with_what_the_whole_run_has_spent(run, max_usd, is_refused):
    journal, budget = journal_and_budget(limited(max_usd), run, "confounding", "journal")
    assert len(journal) == 1
    assert budget.spent_usd == 31
    assert (budget.refusal() is not None) is is_refused


def test_a_run_that_cannot_be_appended_to_has_no_journal():
    journal, budget = journal_and_budget(limited(1), RunDir("s3://bucket/run"), "confounding", "journal")
    assert (journal, budget.spent_usd) == (None, 0)
