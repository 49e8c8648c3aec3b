import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer

from raydebm.baselines.process_reward import ProcessRewardModel, aggregate_steps, split_steps
from raydebm.config import ProcessRewardBaseline
from raydebm.errors import CheckpointError, ConfigError

NEWLINES = re.compile(r"\n+")
TEXT = "w4 w5\nw6 w7 w8\n\nw9 right"


def config(model, **more):
    return ProcessRewardBaseline(name="prm", model=model, device="cpu", **more)


@pytest.mark.parametrize(
    ("how", "expected"), [("min", 0.25), ("mean", 0.5625), ("product", 0.0625), ("last", 0.5)], ids=lambda value: value
)
def test_aggregation_of_steps(how, expected):
    assert aggregate_steps([1.0, 0.25, 0.5, 0.5], how) == pytest.approx(expected)


def test_steps_are_numbered_unless_they_are_already():
    steps = split_steps("Step 1: w1\nw2\n\n\nw3", separator=NEWLINES, prefix="Step {n}: ", step_token="ки")

    assert steps == ["Step 1: w1", "Step 2: w2", "Step 3: w3"]


def test_a_step_token_inside_a_text_is_removed():
    assert split_steps("w1 ки w2", separator=NEWLINES, prefix="", step_token="ки") == ["w1   w2"]


def step_probabilities(folder, marked):
    """The code of Math-Shepherd's model card."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    good, bad, step = (tokenizer.convert_tokens_to_ids(token) for token in ("+", "-", "ки"))
    ids = torch.tensor([tokenizer.encode(marked)])
    with torch.no_grad():
        scores = model(ids).logits[:, :, [good, bad]].softmax(dim=-1)[:, :, 0]
    return scores[ids == step].tolist()


@pytest.mark.parametrize("how", ["min", "mean", "product", "last"])
def test_a_causal_model_scores_as_math_shepherds_card_does(process_reward, pool, how):
    scores = ProcessRewardModel(config(process_reward, aggregate=how)).score([pool("p", TEXT, "w1")])[0]

    steps = step_probabilities(process_reward, "w1 w2 w3 Step 1: w4 w5 ки\nStep 2: w6 w7 w8 ки\nStep 3: w9 right ки")
    assert len(steps) == 3
    assert scores[0].value == pytest.approx(aggregate_steps(steps, how), abs=1e-5)
    assert scores[1].value == pytest.approx(step_probabilities(process_reward, "w1 w2 w3 Step 1: w1 ки")[0], abs=1e-5)


def test_a_special_token_that_is_spelled_out_in_a_step_is_its_letters(process_reward, pool):
    scores = ProcessRewardModel(config(process_reward, aggregate="last")).score([pool("p", "w4 [SEP] w5")])[0]

    (spelled,) = step_probabilities(process_reward, "w1 w2 w3 Step 1: w4 [ SEP] w5 ки")
    (read_as_token,) = step_probabilities(process_reward, "w1 w2 w3 Step 1: w4 [SEP] w5 ки")
    assert scores[0].value == pytest.approx(spelled, abs=1e-5)
    assert scores[0].value != pytest.approx(read_as_token, abs=1e-5)


def test_a_token_classifier_is_read_at_the_step_tokens(token_reward, pool):
    model = ProcessRewardModel(config(token_reward, head="token_classification", step_prefix="", aggregate="mean"))
    scores = model.score([pool("p", "w4\nw5")])[0]

    tokenizer = AutoTokenizer.from_pretrained(token_reward)
    plain = AutoModelForTokenClassification.from_pretrained(token_reward).eval()
    ids = torch.tensor([tokenizer.encode("w1 w2 w3 w4 ки\nw5 ки")])
    with torch.no_grad():
        good = plain(ids).logits.softmax(-1)[0, :, 1]
    expected = good[ids[0] == tokenizer.convert_tokens_to_ids("ки")]
    assert scores[0].value == pytest.approx(float(expected.mean()), abs=1e-5)


def test_a_text_without_steps_is_not_scored_and_the_others_are(process_reward, pool):
    scores = ProcessRewardModel(config(process_reward)).score([pool("p", "\n \n", "w1"), pool("q", "w2")])

    assert scores[0][0].error == "the text has no steps"
    assert scores[0][1].value is not None
    assert scores[1][0].value is not None


def test_a_step_token_that_the_tokenizer_does_not_know_is_refused(process_reward):
    with pytest.raises(CheckpointError, match="does not know '<extra_0>'"):
        ProcessRewardModel(config(process_reward, step_token="<extra_0>"))


def test_a_bad_separator_is_refused_before_the_model_is_read():
    with pytest.raises(ConfigError, match="step_separator"):
        ProcessRewardModel(config("nowhere", step_separator="("))
