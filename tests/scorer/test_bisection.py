import pytest
import torch

from raydebm.errors import ScoringError
from raydebm.scorer.bisection import scores_or_errors


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


def test_what_may_be_our_own_fault_is_logged_with_its_traceback(caplog):
    scores_or_errors(Picky(bad=TypeError("TextEncodeInput")), [("?", "bad"), ("?", "a")])

    (record,) = caplog.records
    assert record.exc_info[0] is TypeError


class Small:
    """Has memory for so many letters at a time; the energy of a text is its length."""

    def __init__(self, memory):
        self.memory = memory

    def score(self, texts):
        if sum(len(text) for _, text in texts) > self.memory:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")
        return [len(text) for _, text in texts]


def test_a_batch_that_needs_too_much_memory_is_scored_in_parts():
    assert scores_or_errors(Small(5), [("?", text) for text in ("a", "bb", "ccc", "dddd")]) == [1, 2, 3, 4]


def test_a_text_that_alone_needs_too_much_memory_says_what_helps():
    short, long = scores_or_errors(Small(2), [("?", "a"), ("?", "bbb")])

    assert short == 1
    assert str(long) == (
        "CUDA out of memory. Tried to allocate 9 GiB; lower scorer.max_length, or score on a device with more memory"
    )


def test_what_no_text_can_cause_is_raised():
    with pytest.raises(RuntimeError, match="device lost"):
        scores_or_errors(Picky(bad=RuntimeError("device lost")), [("?", "a"), ("?", "bad")])
