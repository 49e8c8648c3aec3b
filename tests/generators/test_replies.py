import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.generators.replies import HttpReply, ReplyError, read_reply, split_reasoning


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


KEYS = st.sampled_from(["choices", "message", "content", "error", "usage"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()), st.sampled_from([200, 400, 401, 429, 500]))
def test_any_bytes_are_a_completion_or_a_reply_error(content, status):
    """Nothing an endpoint sends raises anything else."""
    try:
        found = read_reply(HttpReply(status=status, headers={}, content=content)).text.strip()
    except ReplyError as error:
        found = str(error)
    assert found
