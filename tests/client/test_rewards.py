"""Reward functions for trainers, against a service that is a function."""

import json

import httpx
import pytest

from raydebm_client import Raydebm
from raydebm_client.rewards import grpo_reward


@pytest.fixture
def asked():
    """The requests that were sent."""
    return []


@pytest.fixture
def client(asked):
    def answer(request):
        asked.append(request)
        return httpx.Response(
            200, json={"rewards": [float(len(text)) for text in json.loads(request.content)["query"]]}
        )

    return Raydebm("http://test", transport=httpx.MockTransport(answer))


def test_texts_go_out_as_they_are(client, asked):
    reward = grpo_reward(client, task="t", reward="log_odds", sigma_weight=0.5, lambda_=2.0)
    assert reward(["p", "p"], ["a", "bb"]) == [1.0, 2.0]
    assert json.loads(asked[0].content) == {"query": ["a", "bb"], "prompts": ["p", "p"]}
    expected = {"task": "t", "reward": "log_odds", "sigma_weight": "0.5", "lambda": "2.0"}
    assert dict(asked[0].url.params) == expected


@pytest.mark.parametrize(
    ("prompt", "completion", "problem", "response"),
    [
        (
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}],
            [{"role": "assistant", "content": "4"}],
            "2+2?",
            "4",
        ),
        ([{"role": "user", "content": [{"type": "text", "text": "2+2?"}, {"type": "image"}]}], "4", "2+2?", "4"),
        ("2+2?", [{"content": "4"}], "2+2?", "4"),
        ("2+2?", [{"role": "assistant", "content": None}], "2+2?", ""),
        (
            "2+2?",
            [
                {"role": "assistant", "content": "let me see"},
                {"role": "tool", "content": "4"},
                {"role": "assistant", "content": "It is 4"},
            ],
            "2+2?",
            "It is 4",
        ),
    ],
)
def test_of_chats_the_last_messages_count(client, asked, prompt, completion, problem, response):
    grpo_reward(client)([prompt], [completion])
    assert json.loads(asked[0].content) == {"query": [response], "prompts": [problem]}


def test_columns_of_the_dataset_are_not_sent(client, asked):
    grpo_reward(client)(prompts=["p"], completions=["a"], answer=["gold"], completion_ids=[[1]], trainer_state=object())
    assert json.loads(asked[0].content) == {"query": ["a"], "prompts": ["p"]}


def test_the_trainer_logs_it_under_its_name(client):
    assert (grpo_reward(client).__name__, grpo_reward(client, name="judge").__name__) == ("raydebm", "judge")
