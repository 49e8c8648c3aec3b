import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from raydebm.config import ModelBaseline
from raydebm.errors import CheckpointError
from raydebm.evaluation.baselines import reward_models as process_reward_module
from raydebm.evaluation.baselines.reward_models import ProcessRewardModel, split_steps

TEXT = "w4 w5\nw6 w7 w8\n\nw9 right"


def config(model):
    return ModelBaseline(kind="process_reward", name="prm", model=model)


def test_steps_are_numbered_unless_they_are_already():
    assert split_steps("Step 1: w1\nw2\n\n\nw3") == ["Step 1: w1", "Step 2: w2", "Step 3: w3"]


def test_a_step_token_inside_a_text_is_removed():
    assert split_steps("w1 ки w2") == ["Step 1: w1   w2"]


def step_probabilities(folder, marked):
    """The code of Math-Shepherd's model card."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    good, bad, step = (tokenizer.convert_tokens_to_ids(token) for token in ("+", "-", "ки"))
    ids = torch.tensor([tokenizer.encode(marked)])
    with torch.no_grad():
        scores = model(ids).logits[:, :, [good, bad]].softmax(dim=-1)[:, :, 0]
    return scores[ids == step].tolist()


def test_a_causal_model_scores_as_math_shepherds_card_does(process_reward, pool):
    scores = ProcessRewardModel(config(process_reward)).score([pool("p", TEXT, "w1")])[0]

    steps = step_probabilities(process_reward, "w1 w2 w3 Step 1: w4 w5 ки\nStep 2: w6 w7 w8 ки\nStep 3: w9 right ки")
    assert len(steps) == 3
    assert scores[0].value == pytest.approx(min(steps), abs=1e-5)
    assert scores[1].value == pytest.approx(step_probabilities(process_reward, "w1 w2 w3 Step 1: w1 ки")[0], abs=1e-5)


def test_a_special_token_that_is_spelled_out_in_a_step_is_its_letters(process_reward, pool):
    scores = ProcessRewardModel(config(process_reward)).score([pool("p", "w4 [SEP] w5")])[0]

    (spelled,) = step_probabilities(process_reward, "w1 w2 w3 Step 1: w4 [ SEP] w5 ки")
    (read_as_token,) = step_probabilities(process_reward, "w1 w2 w3 Step 1: w4 [SEP] w5 ки")
    assert scores[0].value == pytest.approx(spelled, abs=1e-5)
    assert scores[0].value != pytest.approx(read_as_token, abs=1e-5)


def test_a_text_without_steps_is_not_scored_and_the_others_are(process_reward, pool):
    scores = ProcessRewardModel(config(process_reward)).score([pool("p", "\n \n", "w1"), pool("q", "w2")])

    assert scores[0][0].error == "the text has no steps"
    assert scores[0][1].value is not None
    assert scores[1][0].value is not None


def test_a_model_without_the_marks_is_refused(causal_reader, monkeypatch):
    monkeypatch.setattr(process_reward_module, "STEP", "<extra_0>")

    with pytest.raises(CheckpointError, match="does not know '<extra_0>'"):
        ProcessRewardModel(config(causal_reader))
