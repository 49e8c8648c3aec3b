"""Texts of several requests, scored in one pass."""

from raydebm.errors import ScoringError
from raydebm.scorer.texts import TextToScore, energies_of_lists


class LengthEnsemble:
    """Energy = length of the text; refuses any list with the text "nan", as the real one does."""

    def __init__(self):
        self.calls = []

    def score(self, texts):
        self.calls.append(len(texts))
        if any(text == "nan" for _, text in texts):
            raise ScoringError("adapter 'a0' gave energy nan")
        return [self.of(text) for _, text in texts]

    @staticmethod
    def of(text):
        class Found:
            members = (float(len(text)), 0.0)
            num_tokens = 3
            num_truncated = 0

        return Found()


def lists_of(*names):
    return [[TextToScore(text, "p", text) for text in texts] for texts in names]


def test_lists_are_scored_in_one_pass_and_come_back_as_lists():
    ensemble = LengthEnsemble()
    lists = energies_of_lists(ensemble, lists_of(["a", "bb"], [], ["ccc"]))
    assert [[energies.members[0] for energies in part] for part in lists] == [[1.0, 2.0], [], [3.0]]
    assert ensemble.calls == [3]


def test_one_bad_text_fails_alone():
    ensemble = LengthEnsemble()
    lists = energies_of_lists(ensemble, lists_of(["a", "nan"], ["bb", "ccc"]))
    assert [[energies and energies.members[0] for energies in part] for part in lists] == [[1.0, None], [2.0, 3.0]]
    assert ensemble.calls == [4, 2, 1, 1, 2]
