"""Which scorers take part in the transfer between tasks."""

from types import SimpleNamespace

import pytest

from raydebm.pipeline.studies.transfer import _as_published, _first_problems
from raydebm.run.directory import RunDir


def scorer(task, folder):
    return SimpleNamespace(run=RunDir(folder), recipe=SimpleNamespace(task=SimpleNamespace(name=task)))


@pytest.mark.parametrize(("task", "root"), [("taco", "/runs/one/repair"), ("knights_knaves", "/runs/one")])
def test_of_a_scorer_and_its_repair_the_one_that_the_paper_shows(task, root):
    chosen = _as_published([scorer(task, "/runs/one"), scorer(task, "/runs/one/repair")])

    assert [pipeline.run.root for pipeline in chosen] == [root]


def test_a_scorer_that_was_not_repaired_takes_part():
    assert len(_as_published([scorer("taco", "/runs/one"), scorer("taco", "/runs/two")])) == 2


@pytest.mark.parametrize(("number", "chosen"), [(2, {"a", "b"}), (None, {"a", "b", "c"})])
def test_the_first_problems_by_id(number, chosen):
    target = SimpleNamespace(splits=lambda: {"test": ["c", "a", "b"]})

    assert _first_problems(target, number) == chosen
