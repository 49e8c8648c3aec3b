"""Texts of several requests, scored in one pass."""

import pytest
import torch

from raydebm.errors import ScoringError
from raydebm.scorer.texts import TextEnergies, TextToScore, energies_of_lists, rank_correlation, scores_or_errors


class LengthEnsemble:
    """Energy = length of the text; refuses any list with the text "nan", as the real one does."""

    def __init__(self):
        self.calls = []

    def score(self, texts):
        self.calls.append(len(texts))
        if any(text == "nan" for _, text in texts):
            raise ScoringError("adapter 'a0' gave energy nan")
        return [TextEnergies(members=(float(len(text)), 0.0), num_tokens=3, num_truncated=0) for _, text in texts]


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


class Picky:
    """The energy of a text is its length; some texts raise."""

    def __init__(self, **raised):
        self.raised = raised

    def score(self, texts):
        for _, text in texts:
            if text in self.raised:
                raise self.raised[text]
        return [len(text) for _, text in texts]


@pytest.mark.parametrize("error", [ScoringError("NaN"), TypeError("TextEncodeInput"), ValueError("surrogates")])
def test_a_text_that_cannot_be_scored_sinks_no_other(error):
    scores = scores_or_errors(Picky(bad=error), [("?", text) for text in ("a", "bb", "bad", "dddd", "eeeee")])

    assert scores[:2] + scores[3:] == [1, 2, 4, 5]
    assert isinstance(scores[2], ScoringError)
    assert str(error) in str(scores[2])


class Small:
    """Has memory for so many letters at a time; the energy of a text is its length."""

    def __init__(self, memory):
        self.memory = memory

    def score(self, texts):
        if sum(len(text) for _, text in texts) > self.memory:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")
        return [len(text) for _, text in texts]


def test_a_text_that_alone_needs_too_much_memory_says_what_helps():
    short, long = scores_or_errors(Small(2), [("?", "a"), ("?", "bbb")])

    assert short == 1
    assert str(long) == (
        "CUDA out of memory. Tried to allocate 9 GiB; lower scorer.max_length, or score on a device with more memory"
    )


def test_what_no_text_can_cause_is_raised():
    with pytest.raises(RuntimeError, match="device lost"):
        scores_or_errors(Picky(bad=RuntimeError("device lost")), [("?", "a"), ("?", "bad")])


FAILED = ScoringError("adapter 'a0' gave energy nan")


def energies_of(*means):
    """Energies of two adapters around each mean; None is a text that failed."""
    return [
        FAILED if mean is None else TextEnergies(members=(mean - 1, mean + 1), num_tokens=3, num_truncated=0)
        for mean in means
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3, 4], [10, 30, 20, 40], 0.8),  # 1 - 6 * (1 + 1) / (4 * 15)
        ([1, None, 2, 3], [30, 99, 20, 10], -1.0),
        ([1, 2, 3], [1, None, 3], None),
        ([1, 2, 3], [5, 5, 5], None),
        ([], [], None),
    ],
    ids=["two-neighbours-change-places", "failed-both-times-or-not", "failed-the-second-time", "one-energy", "no-text"],
)
def test_the_rank_correlation_of_two_scorings(first, second, expected):
    found = rank_correlation(energies_of(*first), energies_of(*second))
    assert found == (expected if expected is None else pytest.approx(expected))
