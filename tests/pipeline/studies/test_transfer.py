"""Which scorers take part in the transfer between tasks."""

from types import SimpleNamespace

import pytest

from raydebm.evaluation.paper.paper_cells import paper
from raydebm.pipeline.studies.transfer import (
    _as_published,
    _first_problems,
    _source_labels,
    _transfer_labels,
    num_seen_in_training,
)
from raydebm.records import Problem
from raydebm.run.directory import RunDir


def scorer(task, folder):
    return SimpleNamespace(run=RunDir(folder), recipe=SimpleNamespace(task=SimpleNamespace(name=task)))


@pytest.mark.parametrize(("task", "root"), [("taco", "/runs/one/repair"), ("knights_knaves", "/runs/one")])
def test_of_a_scorer_and_its_repair_the_one_that_the_paper_shows(task, root):
    chosen = _as_published([scorer(task, "/runs/one"), scorer(task, "/runs/one/repair")])

    assert [pipeline.run.root for pipeline in chosen] == [root]


@pytest.mark.parametrize(("number", "chosen"), [(2, {"a", "b"}), (None, {"a", "b", "c"})])
def test_the_first_problems_by_id(number, chosen):
    target = SimpleNamespace(splits=lambda: {"test": ["c", "a", "b"]})

    assert _first_problems(target, number) == chosen


def run_of(name, task, backbone):
    of_task = SimpleNamespace(name=task, test=SimpleNamespace(source=None))
    recipe = SimpleNamespace(task=of_task, scorer=SimpleNamespace(backbone=backbone))
    return SimpleNamespace(name=name, recipe=recipe, is_repaired=False)


def test_a_variant_on_another_backbone_is_the_papers_row_of_task_and_backbone():
    runs = [
        run_of("paper (gsm8k)", "gsm8k", "answerdotai/ModernBERT-base"),
        run_of("paper-four-each (gsm8k)", "gsm8k", "answerdotai/ModernBERT-base"),
        run_of("paper-deberta (gsm8k)", "gsm8k", "microsoft/deberta-v3-base"),
        run_of("paper-deberta-long (gsm8k)", "gsm8k", "microsoft/deberta-v3-base"),
        run_of("mine (musr)", "musr", "my/encoder"),
        run_of("own (answers)", "answers", "microsoft/deberta-v3-base"),
    ]
    targets = _transfer_labels(runs)

    assert [targets[id(run)] for run in runs[:3]] == ["GSM8K", "paper-four-each (gsm8k)", "paper-deberta (gsm8k)"]
    assert list(_source_labels(runs, targets).values()) == [
        "GSM8K (MB)",
        "paper-four-each (gsm8k) (MB)",
        "GSM8K (DB)",
        "paper-deberta-long (gsm8k) (DB)",
        "MuSR",
        "own (answers) (DB)",
    ]


def test_the_row_of_a_variants_backbone_is_filled_by_its_label():
    runs = [
        run_of("x (gsm8k)", "gsm8k", "my/encoder"),
        run_of("x-deberta (gsm8k)", "gsm8k", "microsoft/deberta-v3-base"),
    ]
    labels = _source_labels(runs, _transfer_labels(runs))

    assert labels[id(runs[1])] in dict(paper().tables["tab:full_transfer"].rows)


def with_problems(**by_split):
    """A run with (id, text) of the problems of each split."""
    problems = {
        split: [Problem(task="t", problem_id=name, prompt=text) for name, text in pairs]
        for split, pairs in by_split.items()
    }
    return SimpleNamespace(problems_of=lambda split: problems.get(split, []))


def test_test_problems_that_a_source_was_trained_on_are_found_by_id_and_by_text():
    source = with_problems(train=[("a", "One?"), ("b", "Two?")], validation=[("c", "Three?")], test=[("d", "Four?")])
    target = with_problems(test=[("a", "1?"), ("x", "two?  "), ("c", "3?"), ("d", "Four?"), ("b", "not chosen")])

    assert num_seen_in_training(source, target, {"a", "x", "c", "d"}) == 3
