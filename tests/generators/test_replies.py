import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.generators.replies import HttpReply, ReplyError, read_reply, split_reasoning
from raydebm.generators.requests import NO_USAGE, LogProbs


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("four", ("four", None)),
        ("<think>a</think>\n\nfour", ("four", "a")),
        ("  <think>\na\n</think>four", ("four", "a")),
        ("a</think>four", ("four", "a")),
        ("<think>never closed", ("", "never closed")),
        ("write <think> in text", ("write <think> in text", None)),
        ("", ("", None)),
    ],
)
def test_split_reasoning(content, expected):
    assert split_reasoning(content) == expected


def test_an_escaped_pair_is_one_character():
    content = b'{"choices": [{"message": {"content": "\\ud83d\\ude00 \\ud83d"}, "finish_reason": "\\ud83d"}]}'
    completion = read_reply(HttpReply(status=200, headers={}, content=content))
    assert (completion.text, completion.finish_reason) == ("😀 \ufffd", "\ufffd")


@pytest.mark.parametrize("amount", ["-1", "true", "NaN", "Infinity", "1e999", str(10**400), '"7"', "null", "[]"])
def test_nonsense_is_no_usage(amount):
    usage = '{"prompt_tokens": %s, "completion_tokens": %s, "cost": %s}' % (amount, amount, amount)  # noqa: UP031
    content = '{"choices": [{"message": {"content": "four"}}], "usage": %s}' % usage  # noqa: UP031
    assert read_reply(HttpReply(status=200, headers={}, content=content.encode())).usage == NO_USAGE


KEYS = st.sampled_from(["choices", "message", "content", "error", "usage"])
ANY_TEXT = st.text() | st.text(st.characters(categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()), st.sampled_from([200, 400, 401, 429, 500]))
def test_any_bytes_are_a_completion_or_a_reply_error(content, status):
    """Nothing an endpoint sends raises anything else."""
    try:
        text = read_reply(HttpReply(status=status, headers={}, content=content)).text.strip()
    except ReplyError as error:
        text = str(error)
    assert text.encode()


def reply_with(content, logprobs):
    choice = {"message": {"content": content}, "logprobs": logprobs}
    return HttpReply(status=200, headers={}, content=json.dumps({"choices": [choice]}).encode())


def tokens(**logprobs):
    return {"content": [{"token": token, "logprob": logprob} for token, logprob in logprobs.items()]}


def test_thinking_is_left_out_of_the_log_probabilities():
    logprobs = tokens(**{"<think>": -9, "hm": -9, "</": -9, "think>": -9, "4": -0.25})
    assert read_reply(reply_with("<think>hm</think>4", logprobs)).logprobs == LogProbs(mean=-0.25, worst=-0.25)


@pytest.mark.parametrize(
    "logprobs",
    [
        None, [], {}, {"content": None}, {"content": []}, {"content": ["a"]}, tokens(a=None), tokens(a=True),
        tokens(a=0.7), tokens(a=float("-inf")), tokens(a=float("nan")), tokens(a=-1.0, b="x"),
    ],
)  # fmt: skip
def test_senseless_log_probabilities_are_none(logprobs):
    assert read_reply(reply_with("a", logprobs)).logprobs is None
