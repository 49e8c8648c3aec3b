"""Local models: a tiny random Llama, the embedded ones, and a model served over HTTP."""

import asyncio
import threading
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from raydebm.config import TransformersGenerator
from raydebm.errors import GenerationError
from raydebm.generators.requests import collect
from raydebm.generators.transformers_local import LocalGenerator
from raydebm.records import GenerationRequest, Sampling

CONTEXT = 48
WORDS = ["<pad>", "<unk>", "<eos>", *(f"w{i}" for i in range(60))]


def save_model(folder, *, chat_template="{% for m in messages %}{{ m['content'] }} {% endfor %}"):
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")
    fast.chat_template = chat_template
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=CONTEXT, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def local(model_folder):
    return LocalGenerator(TransformersGenerator(name="l", model=model_folder, batch_size=16), threads=1)


def ask(content="w1 w2 w3", *, seed=0, **sampling):
    return GenerationRequest(
        task="toy",
        problem_id=content,
        generator="l",
        messages=({"role": "user", "content": content},),
        sampling=Sampling(**{"max_tokens": 12, **sampling}),
        seed=seed,
    )


def draw(generator, *requests):
    return asyncio.run(collect(generator, requests))


def test_request_alone_and_in_company(local):
    requests = [ask(" ".join(f"w{j}" for j in range(i % 5 + 1)), seed=i) for i in range(40)]
    together = draw(local, *requests)
    alone = [draw(local, request)[0] for request in requests]
    assert [candidate.text for candidate in alone] == [candidate.text for candidate in together]
    assert len({candidate.text for candidate in together}) > 20


def test_candidate_says_what_it_took(local):
    (candidate,) = draw(local, ask("w1 w2 w3", seed=5))
    assert candidate.candidate_id == ask("w1 w2 w3", seed=5).candidate_id
    assert (candidate.prompt_tokens, candidate.completion_tokens) == (3, len(candidate.text.split()))
    assert candidate.finish_reason == ("length" if candidate.completion_tokens == 12 else "stop")
    assert candidate.cost_usd == 0.0
    assert candidate.latency_s > 0


def test_prompt_longer_than_the_context_is_an_error_row(local):
    long, short = draw(local, ask(" ".join(["w1"] * 50)), ask("w1 w2", seed=1))
    assert long.text is None
    assert "50 tokens" in long.error
    assert f"holds {CONTEXT}" in long.error
    assert short.text is not None


def test_stop_string_ends_the_text(local):
    (whole,) = draw(local, ask(seed=5))
    stop = whole.text.split()[3]
    expected = whole.text.partition(stop)[0]
    (cut,) = draw(local, ask(seed=5, stop=(stop,)))
    assert (cut.text, cut.finish_reason) == (expected, "stop")
    assert cut.completion_tokens <= 4


def test_a_cancelled_request_ends_its_decoding_before_the_next_one_begins(local, monkeypatch):
    """The model waits in its first step until the request is cancelled; then nobody needs the others."""
    forward, reading, go_on, num_steps = local._model.forward, threading.Event(), threading.Event(), [0]

    def slow_forward(*args, **kwargs):
        num_steps[0] += 1
        reading.set()
        assert go_on.wait(60)
        return forward(*args, **kwargs)

    async def work():
        task = asyncio.create_task(collect(local, [ask(seed=5)]))
        await asyncio.to_thread(reading.wait, 60)
        for _ in range(2):  # whoever cancels again does not shorten the wait
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()
            assert local._turn.locked()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not local._turn.locked()
        assert num_steps == [1]
        return await collect(local, [ask(seed=5)])

    expected = draw(local, ask(seed=5))[0].text
    with monkeypatch.context() as patch:
        patch.setattr(local._model, "forward", slow_forward)
        (candidate,) = asyncio.run(work())
    assert candidate.text == expected


def test_system_message_joins_the_user_where_the_template_has_no_system(tmp_path):
    template = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    folder = save_model(tmp_path, chat_template=template + "{% for m in messages %}{{ m['content'] }} {% endfor %}")
    request = ask("w1 w2")
    with_system = replace(request, messages=({"role": "system", "content": "w7"}, *request.messages))
    (candidate,) = draw(LocalGenerator(TransformersGenerator(name="l", model=folder)), with_system)
    assert candidate.prompt_tokens == 3


def test_model_without_chat_template(tmp_path):
    folder = save_model(tmp_path, chat_template=None)
    with pytest.raises(GenerationError, match="has no chat template"):
        LocalGenerator(TransformersGenerator(name="l", model=folder))


def test_model_that_is_not_there(tmp_path):
    with pytest.raises(GenerationError, match=r"generator 'l': model .*nowhere.* cannot be read"):
        LocalGenerator(TransformersGenerator(name="l", model=str(tmp_path / "nowhere")))


def test_an_encoder_writes_nothing(tmp_path):
    folder = save_model(tmp_path)
    BertForMaskedLM(
        BertConfig(
            vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
        )
    ).save_pretrained(folder)
    with pytest.raises(GenerationError, match=r"generator 'l': model .* is an encoder \('bert'\)"):
        LocalGenerator(TransformersGenerator(name="l", model=folder))


def test_a_tokenizer_with_more_words_than_the_model(tmp_path):
    folder = save_model(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["w60"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(GenerationError, match="1 ids beyond the 63 rows of its embedding, such as 63 for 'w60'"):
        LocalGenerator(TransformersGenerator(name="l", model=folder))
