"""Chats of several turns: what generators, checks and the ensemble see of them."""

import pytest
from hand_written_run import chat_body
from hypothesis import given
from hypothesis import strategies as st

from raydebm.errors import ServiceError
from raydebm.service.core import chat_for_generators
from raydebm.service.routes.bodies import ChatMessage, read_conversation


def said(role, content="x", **more):
    return ChatMessage(role=role, content=content, **more)


def test_the_last_user_message_is_the_problem_and_the_turns_before_it_are_context():
    conversation = read_conversation(
        [said("developer", "Be brief."), said("user", "one"), said("assistant", "1"), said("user", "two")]
    )
    turns = [(turn["role"], turn["content"]) for turn in conversation.context]
    assert (conversation.problem, conversation.num_ignored) == ("two", 0)
    assert turns == [("system", "Be brief."), ("user", "one"), ("assistant", "1")]


def test_what_follows_the_last_user_message_is_ignored_and_counted():
    conversation = read_conversation([said("user", "one"), said("assistant", "The answer is")])
    assert (conversation.problem, conversation.context, conversation.num_ignored) == ("one", (), 1)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([said("user", " ")], "is empty"),
        ([said("tool"), said("user")], "role 'tool' cannot be used"),
        ([said("assistant", None, tool_calls=[{"id": "1"}]), said("user")], "with 'tool_calls' cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused(messages, words):
    with pytest.raises(ServiceError, match=words):
        read_conversation(messages)


@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text(min_size=1, max_size=5)), max_size=6)
)
def test_no_turn_is_lost_between_client_and_generator(turns):
    context = [{"role": role, "content": text} for role, text in turns]
    woven = chat_for_generators(
        [{"role": "system", "content": "task"}, {"role": "user", "content": "problem"}], context
    )
    assert sorted(str(turn) for turn in woven[1:-1]) == sorted(str(turn) for turn in context)
    assert woven[-1]["content"] == "problem"


@pytest.fixture
def follow_up(client, puzzle):
    earlier = [("system", "Answer in French."), ("user", "hello"), ("assistant", "good day")]
    messages = [{"role": role, "content": text} for role, text in (*earlier, ("user", puzzle))]
    return lambda: client.post("/v1/chat/completions", chat_body(puzzle, messages=messages))


def test_generators_get_the_whole_chat_in_every_pass(follow_up, backend, texts, script, puzzle):
    script(lambda request: texts["wrong"] if request.pass_index == 1 else texts["right"])
    assert follow_up().json()["raydebm"]["num_passes"] == 2
    first = [message["content"] for message in backend.requests[0].messages]
    later = [message["content"] for message in backend.requests[-1].messages]
    assert first[1:4] == ["Answer in French.", "hello", "good day"]
    assert first[-1].endswith(puzzle)
    assert later[: len(first)] == first
    assert len(later) == len(first) + 2  # the best answer so far, and the feedback


def test_the_ensemble_scores_the_problem_with_its_context(follow_up, backend, puzzle):
    follow_up()
    assert {text.prompt for text in backend.scored} == {f"user: hello\n\nassistant: good day\n\nuser: {puzzle}"}


def test_the_response_format_reaches_the_generators_and_makes_other_candidates(client, backend, puzzle):
    for kind in ("text", "json_object"):
        client.post("/v1/chat/completions", chat_body(puzzle, response_format={"type": kind}))
    plain, formatted = backend.requests[0], backend.requests[-4]
    assert (plain.response_format, formatted.response_format) == (None, '{"type": "json_object"}')
    assert plain.candidate_id != formatted.candidate_id
