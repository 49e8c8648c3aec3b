"""POST /get_reward in OpenRLHF's shape."""

import asyncio

import pytest

from raydebm.errors import ServiceError
from raydebm.serving.rewards import MAX_PARALLEL, RewardRequest, RewardSettings, get_rewards
from raydebm.serving.service import TriageService
from raydebm.tasks import get_task


@pytest.fixture
def rewards(client):
    def ask(query, prompts, url="/get_reward", **more):
        return client.post(url, {"query": query, "prompts": prompts, **more})

    return ask


def test_rewards_are_minus_energy_in_the_order_of_the_queries(rewards, puzzle, texts):
    query = [puzzle + texts["wrong"], puzzle + texts["right"], puzzle + texts["unreadable"]]
    body = rewards(query, [puzzle] * 3, labels=["a", "b", None]).json()
    assert body["rewards"] == [1.5, 2.0, -10.0]  # mu -2; one violated statement of weight 1 and penalty 1/2
    assert body["scores"] == [0.0, 1.0, 0.0]
    assert body["extra_logs"]["checked"] == [1.0, 1.0, 1.0]
    assert body["extra_logs"]["penalty"] == [0.5, 0.0, 0.0]


def test_the_response_alone_is_scored(rewards, backend):
    rewards(["Q: 1+1? 2", "3"], ["Q: 1+1? ", "Q: 1+1? "])
    assert [(text.prompt, text.text) for text in backend.scored] == [("Q: 1+1? ", "2"), ("Q: 1+1? ", "3")]


def test_a_response_that_never_stops_thinking_is_worth_the_floor(rewards):
    assert rewards(["p<think>never closed", "p5"], ["p", "p"]).json()["rewards"] == [-10.0, 2.0]


def test_prompts_may_differ_and_come_in_any_order(rewards, script):
    script(energies=lambda text: (float(len(text)),) * 2)
    assert rewards(["pa", "qbb", "pccc"], ["p", "q", "p"]).json()["rewards"] == [-1.0, -2.0, -3.0]


def test_settings_stand_in_the_url(rewards, puzzle, texts, script):
    script(energies=lambda text: (-3.0, -1.0))
    url = "/get_reward?task=knights_knaves&lambda=4&sigma_weight=0.5&floor=-0.25"
    assert rewards([texts["right"], texts["wrong"]], [puzzle] * 2, url).json()["rewards"] == [1.5, -0.25]


@pytest.mark.parametrize(
    ("url", "query", "prompts", "status"),
    [
        ("/get_reward", ["a"], [], 400),
        ("/get_reward", [], [], 400),
        ("/get_reward?flor=1", ["a"], ["b"], 400),
        ("/get_reward?task=gms8k", ["a"], ["b"], 404),
        ("/get_reward?task=knights_knaves", ["a"], ["b"], 422),
        ("/get_reward?floor=-inf", ["a"], ["b"], 400),
        ("/get_reward", ["a" * 2001], ["b"], 413),
    ],
)
def test_bad_requests(rewards, url, query, prompts, status):
    assert rewards(query, prompts, url).status_code == status


def test_a_text_that_cannot_be_scored_gets_no_reward(rewards, script):
    """A trainer would learn that it is bad."""
    script(energies=lambda text: None if text == "b" else (1.0, 1.0))
    reply = rewards(["pa", "pb"], ["p", "p"])

    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "no_reward")
    assert "response 1 of 2 has no reward: the ensemble gave no finite energy" in reply.json()["error"]["message"]


def test_a_text_whose_checks_raise_gets_no_reward(rewards, puzzle, texts, monkeypatch):
    def vote_key(self, problem, answer):
        raise ZeroDivisionError("of a plug-in")

    monkeypatch.setattr(type(get_task("knights_knaves")), "vote_key", vote_key)
    reply = rewards([puzzle + texts["right"]], [puzzle])

    assert (reply.status_code, "ZeroDivisionError" in reply.json()["error"]["message"]) == (503, True)


@pytest.fixture
def rewards_of(bundle, backend):
    """Rewards of so many prompts."""

    async def ask(count):
        names = [f"p{index}" for index in range(count)]
        request = RewardRequest(query=names, prompts=names)
        return await get_rewards(TriageService(bundle, backend), request, RewardSettings(), request_id="r")

    return ask


def test_only_so_many_prompts_are_scored_at_once(rewards_of, backend):
    running, seen, score = [], [], backend.score

    async def counted(texts):
        running.append(texts)
        seen.append(len(running))
        await asyncio.sleep(0)
        running.remove(texts)
        return await score(texts)

    backend.score = counted
    found = asyncio.run(rewards_of(3 * MAX_PARALLEL))
    assert (len(found.rewards), max(seen)) == (3 * MAX_PARALLEL, MAX_PARALLEL)


def test_a_failure_ends_the_others(rewards_of, backend):
    cancelled = []

    async def score(texts):
        if texts[0].prompt == "p0":
            raise ServiceError("the scorer is away", 503, "unavailable")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(texts[0].prompt)
            raise

    async def scene():
        with pytest.raises(ServiceError, match="the scorer is away"):
            await rewards_of(3)
        return sorted(cancelled)

    backend.score = score
    assert asyncio.run(scene()) == ["p1", "p2"]
