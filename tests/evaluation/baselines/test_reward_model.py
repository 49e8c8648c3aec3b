import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from raydebm.config import ModelBaseline
from raydebm.errors import CheckpointError
from raydebm.evaluation.baselines import reward_models as loading
from raydebm.evaluation.baselines.reward_models import RewardModel

TEXTS = ("w4 right", "w9 w8 w7 w6 wrong", "w5")


def config(model, **more):
    return ModelBaseline(kind="reward_model", name="rm", model=model, **more)


def plain_reward(folder, text):
    """One text at a time, by the code of the models' cards."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.chat_template:
        conversation = [{"role": "user", "content": "w1 w2 w3"}, {"role": "assistant", "content": text}]
        inputs = tokenizer.apply_chat_template(conversation, tokenize=True, return_tensors="pt", return_dict=True)
        inputs = {"input_ids": inputs["input_ids"]}
    else:
        encoded = tokenizer("w1 w2 w3", text, return_tensors="pt")
        inputs = {"input_ids": encoded["input_ids"]}
    with torch.no_grad():
        return float(model(**inputs).logits[0][0])


def test_a_decoder_with_a_chat_template_scores_as_its_model_card_does(decoder_reward, pool):
    scores = RewardModel(config(decoder_reward)).score([pool("p", *TEXTS)])[0]

    expected = [plain_reward(decoder_reward, text) for text in TEXTS]
    assert [score.value for score in scores] == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) == 3


def test_an_encoder_takes_two_segments_and_the_first_logit(encoder_reward, pool):
    scores = RewardModel(config(encoder_reward)).score([pool("p", *TEXTS)])[0]

    expected = [plain_reward(encoder_reward, text) for text in TEXTS]
    assert [score.value for score in scores] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["decoder_reward", "encoder_reward"])
def test_a_special_token_that_is_spelled_out_in_an_answer_ends_nothing(kind, pool, request):
    folder = request.getfixturevalue(kind)
    scores = RewardModel(config(folder)).score([pool("p", "w4 [SEP] w5")])[0]

    assert scores[0].value == pytest.approx(plain_reward(folder, "w4 [ SEP] w5"), abs=1e-5)
    assert scores[0].value != pytest.approx(plain_reward(folder, "w4 [SEP] w5"), abs=1e-5)


def test_without_a_padding_token_texts_go_one_by_one_with_the_same_scores(decoder_reward, unpadded_reward, pool):
    padded = RewardModel(config(decoder_reward)).score([pool("p", *TEXTS)])[0]
    single = RewardModel(config(unpadded_reward)).score([pool("p", *TEXTS)])[0]

    assert [score.value for score in single] == pytest.approx([score.value for score in padded], abs=1e-5)


def test_scores_do_not_depend_on_the_other_texts(decoder_reward, pool, monkeypatch):
    monkeypatch.setattr(loading, "MICRO_BATCH_TOKENS", 24)
    model = RewardModel(config(decoder_reward))
    together = model.score([pool("p", *TEXTS), pool("q", *TEXTS[::-1])])
    alone = [model.score([pool("p", text)])[0][0].value for text in TEXTS]

    assert [score.value for score in together[0]] == pytest.approx(alone, abs=1e-5)
    assert [score.value for score in together[1]] == pytest.approx(alone[::-1], abs=1e-5)


def test_too_long_a_text_is_not_scored_and_says_why(decoder_reward, pool):
    scores = RewardModel(config(decoder_reward, max_length=20)).score([pool("p", "w1 " * 40, "w1")])[0]

    assert scores[0].value is None
    assert "more than the 20" in scores[0].error
    assert scores[1].value is not None


def test_the_context_of_the_model_bounds_the_length(decoder_reward, pool):
    scores = RewardModel(config(decoder_reward)).score([pool("p", "w1 " * 200)])[0]

    assert "more than the 128" in scores[0].error


def test_a_model_without_a_reward_head_is_refused(process_reward):
    with pytest.raises(CheckpointError, match="weights are missing"):
        RewardModel(config(process_reward))
