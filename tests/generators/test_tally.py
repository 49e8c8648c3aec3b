from raydebm.generators.requests import TokenUsage, answered, unanswered
from raydebm.generators.tally import MAX_TEXTS, CommonTexts, Tally
from raydebm.records import Sampling
from raydebm.run.tables import CANDIDATES


def test_failed_requests_count_what_they_were_billed(ask):
    tally = Tally()
    candidates = [
        answered(ask(), "four", usage=TokenUsage(prompt_tokens=10, completion_tokens=20, cost_usd=0.25)),
        unanswered(
            ask(),
            "all tokens went into reasoning",
            usage=TokenUsage(prompt_tokens=10, completion_tokens=64, cost_usd=0.5),
        ),
        unanswered(ask(), "connection failed"),
    ]
    tally.add(map(CANDIDATES.row, candidates))
    summary = tally.summary(seconds=1.0)
    assert (summary.num_ok, summary.num_failed, summary.num_unpriced) == (1, 2, 0)
    assert (summary.prompt_tokens, summary.completion_tokens, summary.usd) == (20, 84, 0.75)


def sample(ask, generator, tokens, number, **changes):
    request = ask(generator=generator, sample_index=number, **changes)
    return CANDIDATES.row(answered(request, "four", usage=TokenUsage(completion_tokens=tokens)))


def test_what_was_not_sampled_counts_its_generators_mean_tokens(ask):
    tally = Tally()
    tally.add([sample(ask, "brief", 10, 0), sample(ask, "brief", 30, 1), sample(ask, "long", 100, 0)])
    saved = tally.saved({"brief": 3, "long": 1}, num_problems=5, num_settled=2)
    # 3 x 20 + 1 x 100 saved, 140 spent.
    assert (saved.num_samples, saved.sample_share) == (4, 4 / 7)
    assert (saved.completion_tokens, saved.token_share) == (160, 160 / 300)
    assert (saved.num_problems, saved.num_settled) == (5, 2)


def test_greedy_answers_are_no_samples(ask):
    tally = Tally()
    greedy = Sampling(temperature=0.0, max_tokens=64)
    tally.add([sample(ask, "g", 10, 0), sample(ask, "g", 90, 1, sampling=greedy)])
    saved = tally.saved({"g": 1}, num_problems=1, num_settled=1)
    assert (saved.completion_tokens, saved.token_share, saved.sample_share) == (10, 0.5, 0.5)


def test_saved_tokens_are_unknown_where_a_generator_states_none(ask):
    tally = Tally()
    tally.add([sample(ask, "g", None, 0), sample(ask, "h", 10, 0)])
    saved = tally.saved({"g": 1, "h": 1}, num_problems=1, num_settled=1)
    assert (saved.num_samples, saved.completion_tokens, saved.token_share) == (2, None, None)


def test_the_summary_carries_what_was_saved(ask):
    tally = Tally()
    tally.add([sample(ask, "g", 10, 0)])
    saved = tally.saved({"g": 1}, num_problems=1, num_settled=1)
    assert tally.summary(seconds=1.0, saved=saved).facts()["saved"]["num_samples"] == 1
    assert tally.summary(seconds=1.0).facts()["saved"] is None


def test_of_equal_counts_the_first_text_comes_first():
    texts = CommonTexts()
    texts.update(["b", "a", "c", "a", "c"])

    assert texts.most_common(2) == [("a", 2), ("c", 2)]


def test_texts_after_the_first_thousand_are_not_counted():
    texts = CommonTexts()
    texts.update(f"t{number}" for number in range(MAX_TEXTS))
    texts.update(["new", "new", "t7"])

    assert texts.most_common(1) == [("t7", 2)]
    assert len(texts.most_common(2000)) == MAX_TEXTS
