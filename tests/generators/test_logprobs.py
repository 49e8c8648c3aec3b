from raydebm.generators.requests import LogProbs


def test_the_worst_of_a_few_tokens_is_one():
    assert LogProbs.of([-1.0, -4.0, -1.0]) == LogProbs(mean=-2.0, worst=-4.0)


def test_the_worst_of_twenty_tokens_are_two():
    assert LogProbs.of([-1.0] * 18 + [-2.0, -4.0]).worst == -3.0
