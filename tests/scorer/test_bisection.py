import pytest

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


def test_what_no_text_can_cause_is_raised():
    with pytest.raises(RuntimeError, match="device lost"):
        scores_or_errors(Picky(bad=RuntimeError("device lost")), [("?", "a"), ("?", "bad")])
