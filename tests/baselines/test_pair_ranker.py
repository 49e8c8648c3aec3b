import shutil

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

from raydebm.baselines.pair_ranker import PairRanker, PairRankerModel, pairwise_scores, rival_pairs
from raydebm.baselines.protocol import TextScore
from raydebm.config import PairRankerBaseline
from raydebm.errors import CheckpointError

TEXTS = ("w4 right", "w9 w8 w7 w6 wrong", "w5 w5")


def config(model, **more):
    return PairRankerBaseline(name="pairs", model=model, device="cpu", **more)


def test_all_pairs_are_compared_by_default():
    assert rival_pairs(3, max_rivals=None, seed=1) == [(0, 1), (0, 2), (1, 2)]


def test_bounded_comparisons_give_everyone_the_same_number_of_rivals():
    pairs = rival_pairs(10, max_rivals=4, seed=3)

    assert len(pairs) == len(set(pairs)) == 20
    assert {sum(text in pair for pair in pairs) for text in range(10)} == {4}


def test_a_share_of_wins_by_hand():
    """0 beats 1 and 2, 1 ties with 2: 1, 1/4, 1/4. Both orders of each pair are averaged."""
    logits = [TextScore(value) for value in (3.0, -1.0, 0.5, 0.2, 1.0, 1.0)]

    scores = pairwise_scores(3, [(0, 1), (0, 2), (1, 2)], logits, wins=True)

    assert [score.value for score in scores] == [1.0, 0.25, 0.25]


def test_mean_differences_of_logits_by_hand():
    logits = [TextScore(value) for value in (3.0, -1.0)]

    assert [score.value for score in pairwise_scores(2, [(0, 1)], logits, wins=False)] == [2.0, -2.0]


def test_a_candidate_all_of_whose_comparisons_failed_is_not_scored():
    logits = [TextScore(None, "too long"), TextScore(None, "too long")] * 2 + [TextScore(1.0), TextScore(-1.0)]

    scores = pairwise_scores(3, [(0, 1), (0, 2), (1, 2)], logits, wins=True)

    assert [score.value for score in scores] == [None, 1.0, 0.0]
    assert "too long" in scores[0].error


def plain_logit(folder, first, second):
    """PairRM's own recipe: three parts, each with [CLS] and [SEP], and the hidden states of their marks."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = PairRankerModel.from_pretrained(folder, config=AutoConfig.from_pretrained(folder)).eval()
    parts = ["<|source|> w1 w2 w3", f"<|candidate1|> {first}", f"<|candidate2|> {second}"]
    ids = torch.tensor([[token for part in parts for token in tokenizer.encode(part)]])
    with torch.no_grad():
        hidden = model.pretrained_model(ids).last_hidden_state[0]
        at = {mark: hidden[ids[0] == tokenizer.convert_tokens_to_ids(mark)][0] for mark in
              ("<|source|>", "<|candidate1|>", "<|candidate2|>")}  # fmt: skip
        left = model.head_layer(torch.cat([at["<|source|>"], at["<|candidate1|>"]]))
        right = model.head_layer(torch.cat([at["<|source|>"], at["<|candidate2|>"]]))
    return float(left - right)


def test_scores_are_those_of_the_published_computation(pair_ranker, pool):
    scores = PairRanker(config(pair_ranker, aggregate="logits")).score([pool("p", *TEXTS)])[0]

    def difference(first, second):
        forward = plain_logit(pair_ranker, TEXTS[first], TEXTS[second])
        return (forward - plain_logit(pair_ranker, TEXTS[second], TEXTS[first])) / 2

    expected = [sum(difference(a, b) for b in range(3) if b != a) / 2 for a in range(3)]
    assert [score.value for score in scores] == pytest.approx(expected, abs=1e-4)
    assert max(abs(value) for value in expected) > 1e-3


def test_the_order_of_a_pool_changes_no_score(pair_ranker, pool):
    ranker = PairRanker(config(pair_ranker))
    forward = [score.value for score in ranker.score([pool("p", *TEXTS)])[0]]

    assert [score.value for score in ranker.score([pool("p", *TEXTS[::-1])])[0]] == forward[::-1]


def test_a_lone_candidate_has_no_rival_and_scores_half(pair_ranker, pool):
    assert PairRanker(config(pair_ranker)).score([pool("p", "w1")])[0][0].value == 0.5


def test_long_texts_are_cut_to_their_share(pair_ranker, pool):
    ranker = PairRanker(config(pair_ranker, max_problem_tokens=10, max_candidate_tokens=10, max_length=30))
    scores = ranker.score([pool("p", "w1 " * 50, "w2 " * 50, prompt="w3 " * 50)])[0]

    assert all(score.value is not None for score in scores)


def test_a_mark_inside_a_text_is_dropped(pair_ranker, pool):
    scores = PairRanker(config(pair_ranker)).score([pool("p", "w1 <|source|> w2", "<|candidate1|> w3")])[0]

    assert all(score.value is not None for score in scores)


def test_a_special_token_that_is_spelled_out_in_a_text_is_its_letters(pair_ranker, pool):
    ranker = PairRanker(config(pair_ranker, aggregate="logits"))
    as_token, as_letters = ranker.score([pool("p", "w1 [SEP] w2", "w3"), pool("q", "w1 [ SEP] w2", "w3")])

    assert [score.value for score in as_token] == [score.value for score in as_letters]


def test_a_model_without_the_pair_head_is_refused(encoder_reward):
    with pytest.raises(CheckpointError, match=r"weights are missing"):
        PairRanker(config(encoder_reward))


def test_a_tokenizer_without_the_marks_is_refused(pair_ranker, tmp_path):
    folder = shutil.copytree(pair_ranker, tmp_path / "unmarked")
    for name in ("tokenizer.json", "config.json"):
        text = (folder / name).read_text().replace("<|candidate2|>", "other").replace("cand2_prefix_id", "other")
        (folder / name).write_text(text)

    with pytest.raises(CheckpointError, match=r"no token '<\|candidate2\|>'"):
        PairRanker(config(str(folder)))
