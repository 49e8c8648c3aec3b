"""Which known problems a text is like."""

import pytest

from raydebm.records import Problem
from raydebm.serving.settings.known_problems import MAX_PROBLEMS, KnownProblems, spread, words_of


def problems(task, texts):
    return [Problem(task=task, problem_id=str(index), prompt=text) for index, text in enumerate(texts)]


@pytest.fixture
def known():
    """Two problems of ``fruit`` and one of ``cars``."""
    fruit = problems("fruit", ["an apple and a pear", "a ripe pear"])
    return KnownProblems({"fruit": fruit, "cars": problems("cars", ["a fast car"])})


def test_every_number_is_the_same_word():
    assert words_of("Ann's 3 cats, 1,200.5 mice") == ["ann", "s", "#", "cats", "#", "mice"]


def test_a_known_text_has_cosine_one_with_itself(known):
    likeness = known.likeness("a ripe pear", ["fruit", "cars"])

    assert likeness.closest["fruit"] == pytest.approx(1.0)
    assert likeness.closest["cars"] < 0.1  # the article alone


def test_a_text_without_a_known_word_is_like_nothing(known):
    likeness = known.likeness("zebra", ["fruit", "cars"])

    assert (dict(likeness.nearest), likeness.closest) == ({}, {"fruit": 0.0, "cars": 0.0})


def test_tasks_that_cannot_read_a_text_are_not_compared(known):
    likeness = known.likeness("a fast pear", ["fruit"])

    assert (dict(likeness.nearest), list(likeness.closest)) == ({"fruit": 2}, ["fruit"])


def test_few_problems_say_nothing_about_what_is_far(known):
    assert known.least("fruit") == 0.0


def test_what_is_far_follows_from_how_far_the_tasks_own_problems_are():
    """50 equal problems have the closest other one at cosine 1, so every quantile is 1."""
    known = KnownProblems({"same": problems("same", ["the same words"] * 50), "other": problems("other", ["x"])})

    assert known.least("same") == pytest.approx(1.0)


def test_a_reader_that_refuses_enough_foreign_problems_is_telling():
    def reads_fruit(text):
        if "pear" not in text:
            raise ValueError("no pear")
        return problems("fruit", [text])[0]

    cars = problems("cars", [f"car {index}" for index in range(25)])
    known = KnownProblems(
        {"fruit": problems("fruit", ["a pear"]), "cars": cars},
        {"fruit": reads_fruit, "cars": lambda text: problems("cars", [text])[0]},
    )

    assert known.refused == {"fruit": 25, "cars": 0}  # cars reads everything, and one problem is too few to try


def test_a_large_table_is_sampled_evenly():
    sample = spread(problems("t", map(str, range(4 * MAX_PROBLEMS + 1))), MAX_PROBLEMS)

    assert len(sample) == MAX_PROBLEMS
    assert (sample[0].prompt, sample[-1].prompt) == ("0", str(4 * MAX_PROBLEMS))
