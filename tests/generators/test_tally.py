from raydebm.generators.requests import answered, unanswered
from raydebm.generators.tally import Tally
from raydebm.store import candidate_row


def test_failed_requests_count_what_they_were_billed(ask):
    tally = Tally()
    candidates = [
        answered(ask(), "four", prompt_tokens=10, completion_tokens=20, cost_usd=0.25),
        unanswered(ask(), "all tokens went into reasoning", prompt_tokens=10, completion_tokens=64, cost_usd=0.5),
        unanswered(ask(), "connection failed"),
    ]
    tally.add(map(candidate_row, candidates))
    summary = tally.summary(seconds=1.0)
    assert (summary.num_ok, summary.num_failed, summary.num_unpriced) == (1, 2, 0)
    assert (summary.prompt_tokens, summary.completion_tokens, summary.usd) == (20, 84, 0.75)
