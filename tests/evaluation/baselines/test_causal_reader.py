import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from raydebm.config import ModelBaseline
from raydebm.errors import CheckpointError
from raydebm.evaluation.baselines import causal_reader as causal_reader_module
from raydebm.evaluation.baselines.causal_reader import Reader, score_of

PROBLEM, ANSWER = "w1 w2 w3", "w4 w5 w6 right"


def reader(model, **more):
    return Reader(ModelBaseline(kind="reader", name="reader", model=model, **more))


def by_hand(folder, before, answer):
    """(log-probabilities, entropies) of the answer's tokens, by the whole model over one text."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (before, answer)]
    with torch.no_grad():
        logs = model(torch.tensor([ids[0] + ids[1]])).logits[0].log_softmax(-1)
    places = range(len(ids[0]) - 1, len(ids[0]) + len(ids[1]) - 1)
    entropies = [float(-(logs[place].exp() * logs[place]).sum()) for place in places]
    return [float(logs[place, token]) for place, token in zip(places, ids[1], strict=True)], entropies


def test_uniform_logits_have_the_entropy_of_the_vocabulary():
    reading = score_of(torch.zeros(2, 8), torch.tensor([3, 5]))

    assert reading.value == pytest.approx(-math.log(8))
    assert reading.parts["logprob"] == pytest.approx(-math.log(8))


def test_a_token_that_cannot_come_adds_nothing_to_the_entropy():
    logits = torch.tensor([[0.0, 0.0, -math.inf]])

    assert score_of(logits, torch.tensor([0])).value == pytest.approx(-math.log(2))


def test_a_long_answer_is_measured_in_slices_of_its_tokens(monkeypatch):
    logits, tokens = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)), torch.arange(7) % 5
    at_once, widths = score_of(logits, tokens), []
    monkeypatch.setattr(causal_reader_module, "TOKENS_AT_ONCE", 3)
    measured = causal_reader_module._measured
    monkeypatch.setattr(
        causal_reader_module, "_measured", lambda *parts: (widths.append(len(parts[0])), measured(*parts))[1]
    )

    sliced = score_of(logits, tokens)

    assert widths == [3, 3, 1]
    assert (sliced.parts["logprob"], sliced.value) == pytest.approx((at_once.parts["logprob"], at_once.value))


def test_a_reading_is_the_models_own(causal_reader):
    log_probs, entropies = by_hand(causal_reader, PROBLEM, ANSWER)

    reading = reader(causal_reader).read([(PROBLEM, ANSWER)])[0]

    assert reading.parts["logprob"] == pytest.approx(sum(log_probs) / 4, abs=1e-5)
    assert reading.value == pytest.approx(-sum(entropies) / 4, abs=1e-5)
    assert reading.parts["worst"] == pytest.approx(min(log_probs), abs=1e-5)


def test_a_reading_does_not_depend_on_the_batch(causal_reader):
    texts = [(PROBLEM, ANSWER), ("w7", "w8 w9 " * 9), ("w1 " * 30, "wrong")]
    model = reader(causal_reader)

    together = model.read(texts)

    alone = [model.read([text])[0] for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert (one.value, one.parts["worst"]) == pytest.approx((other.value, other.parts["worst"]), abs=1e-5)


LONG_PROBLEM = "w1 w2 w3 w4 w5 w6 w7 w8 w9"
ANSWERS = ["w4 right", "w5 w6 w7 wrong", "w8"]


def test_answers_to_one_problem_are_read_as_they_are_alone(causal_reader):
    model = reader(causal_reader)

    together = model.read([(LONG_PROBLEM, answer) for answer in ANSWERS])

    for answer, reading in zip(ANSWERS, together, strict=True):
        log_probs, entropies = by_hand(causal_reader, LONG_PROBLEM, answer)
        assert reading.parts["logprob"] == pytest.approx(sum(log_probs) / len(log_probs), abs=1e-5)
        assert reading.value == pytest.approx(-sum(entropies) / len(entropies), abs=1e-5)
        assert reading.parts["worst"] == pytest.approx(min(log_probs), abs=1e-5)


def test_a_problem_that_several_answers_share_is_run_once(causal_reader):
    model, lengths = reader(causal_reader), []
    model._loaded.model.register_forward_pre_hook(
        lambda module, args, given: lengths.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )

    model.read([(LONG_PROBLEM, answer) for answer in ANSWERS])

    opening_and_newline = len(model._inputs([(LONG_PROBLEM, "w1")])[0].context) - 9
    assert lengths == [(1, 9 + opening_and_newline), (3, 4)]


def test_a_problem_that_saves_little_is_read_with_each_answer(causal_reader):
    model, rows = reader(causal_reader), []
    model._loaded.model.register_forward_pre_hook(
        lambda module, args, given: rows.append(len(given["input_ids"])), with_kwargs=True
    )

    model.read([("w1", "w2 " * 20), ("w1", "w3 " * 20)])

    assert rows == [2]


def test_a_long_problem_is_cut_in_its_middle(causal_reader):
    words = [f"w{index}" for index in range(40)]
    log_probs, _ = by_hand(causal_reader, " ".join(words[:6] + words[-6:]), ANSWER)

    reading = reader(causal_reader, max_length=16).read([(" ".join(words), ANSWER)])[0]

    assert reading.parts["logprob"] == pytest.approx(sum(log_probs) / 4, abs=1e-5)


def test_reference_information_that_does_not_fit_is_not_read(causal_reader):
    tables = " ".join(f"w{index}" for index in range(40))
    (alone,) = reader(causal_reader).read([(PROBLEM, ANSWER)])

    (read,) = reader(causal_reader, max_length=16).read([(f"{PROBLEM}\n\nReference information:\n{tables}", ANSWER)])

    assert read.parts["logprob"] == pytest.approx(alone.parts["logprob"], abs=1e-5)


def test_an_encoder_is_no_reader(encoder_reward):
    with pytest.raises(CheckpointError, match=r"baseline 'reader': model '.*encoder' is an encoder \('bert'\)"):
        reader(encoder_reward)


def test_an_answer_without_tokens_has_no_score(causal_reader, pool):
    empty, written = reader(causal_reader).score([pool("p", " ", ANSWER)])[0]

    assert empty.value is None
    assert "nothing to read" in empty.error
    assert set(written.parts) == {"logprob", "worst"}
