from raydebm.evaluation.baselines.evidence import EvidenceScorers
from raydebm.evaluation.baselines.protocol import TextScore


class Lengths:
    """Scores a text by its length, and refuses "bad"."""

    def __init__(self, name):
        self.name, self.pools = name, []

    def score(self, pools):
        self.pools.extend((pool.problem.prompt, pool.texts) for pool in pools)
        return [[self._score(text) for text in pool.texts] for pool in pools]

    @staticmethod
    def _score(text):
        return TextScore.failed("bad text") if text == "bad" else TextScore.of(len(text), {"half": len(text) / 2})


def test_scores_and_their_parts_by_name_in_the_order_of_the_texts():
    scorers = EvidenceScorers([Lengths("a"), Lengths("b")])

    scores = scorers.scores([("p", "xy"), ("q", "z")])

    assert scores == [
        {"a": 2.0, "a.half": 1.0, "b": 2.0, "b.half": 1.0},
        {"a": 1.0, "a.half": 0.5, "b": 1.0, "b.half": 0.5},
    ]


def test_what_could_not_be_scored_is_absent():
    assert EvidenceScorers([Lengths("a")]).scores([("p", "bad")]) == [{}]
