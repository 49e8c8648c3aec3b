"""POST /get_reward in OpenRLHF's shape."""

import asyncio
import math
import time

import pytest

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.errors import ServiceError
from raydebm.service.core import TriageService
from raydebm.service.routes.scoring import MAX_PARALLEL, RewardRequest, RewardSettings, get_rewards, log_odds
from raydebm.tasks import get_task
from raydebm_client import Raydebm
from raydebm_client.rewards import grpo_reward


def test_a_text_whose_checks_raise_gets_no_reward(client, puzzle, texts, monkeypatch):
    def vote_key(self, problem, answer):
        raise ZeroDivisionError("of a plug-in")

    monkeypatch.setattr(type(get_task("knights_knaves")), "vote_key", vote_key)
    reply = client.post("/get_reward", {"query": [puzzle + texts["right"]], "prompts": [puzzle]})

    assert (reply.status_code, "ZeroDivisionError" in reply.json()["error"]["message"]) == (503, True)


@pytest.fixture
def rewards_of(bundle, backend, puzzle):
    """Rewards of so many prompts."""

    async def ask(count):
        names = [f"{puzzle} p{index}" for index in range(count)]
        request = RewardRequest(query=names, prompts=names)
        return await get_rewards(TriageService(bundle, backend), request, RewardSettings())

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
    body = asyncio.run(rewards_of(3 * MAX_PARALLEL))
    assert (len(body.rewards), max(seen)) == (3 * MAX_PARALLEL, MAX_PARALLEL)


def test_a_failure_ends_the_others(rewards_of, backend):
    cancelled = []

    async def score(texts):
        if texts[0].prompt.endswith("p2"):
            raise ServiceError("the scorer is away", 503, "unavailable")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(texts[0].prompt[-2:])
            raise

    async def scene():
        with pytest.raises(ServiceError, match="the scorer is away"):
            await rewards_of(3)
        return sorted(cancelled)

    backend.score = score
    assert asyncio.run(scene()) == ["p0", "p1"]


@pytest.mark.parametrize(("waited_s", "ended_s"), [(0.0, 2.5), (2.0, 0.5)])
def test_all_prompts_have_one_deadline_together_from_their_arrival(
    backend, run_virtually, monkeypatch, waited_s, ended_s, bundle_of, puzzle
):
    async def slow(texts):
        await asyncio.sleep(1)
        return await type(backend).score(backend, texts)

    monkeypatch.setattr(backend, "score", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    service = TriageService(bundle_of(max_deadline_s=2.5), backend)
    names = [f"{puzzle} {index}" for index in range(3 * MAX_PARALLEL)]  # a second for each sixteen
    request = RewardRequest(query=names, prompts=names)

    async def work():
        with pytest.raises(ServiceError, match=r"were not scored within 2.5 s") as caught:
            await get_rewards(service, request, RewardSettings(), received=100.0 - waited_s)
        return caught.value.status, caught.value.code, asyncio.get_running_loop().time()

    assert run_virtually(work()) == (504, "deadline_exceeded", ended_s)


# ---- rewards by the posterior ---------------------------------------------------------------------------------------

VOTES = Posterior(weights={"votes": 1.0}, context_weights={})
"""p(a) = share(a) / (1 + 1): shares add up to 1, and "none of them" weighs as much."""


@pytest.fixture
def gsm8k_app(bundle_of, recipe, app_of):
    """A service whose task reads any text; two of three equal answers have p = 1/3, the third 1/6."""
    tree = {**recipe, "task": {"name": "gsm8k"}}
    return lambda **changes: app_of(bundle_of(tree, Policy(posterior=VOTES, **changes)))


@pytest.fixture
def rewards_by_votes(gsm8k_app, client_of):
    def ask(query, prompts, url="/get_reward?reward=log_odds", **policy):
        return client_of(gsm8k_app(**policy)).post(url, {"query": query, "prompts": prompts}).json()

    return ask


def test_disagreement_of_the_ensemble_costs_log_odds_too(rewards_by_votes, script):
    script(energies=lambda text: (-3.0, -1.0))  # sigma 1
    url = "/get_reward?reward=log_odds&sigma_weight=0.5"
    assert rewards_by_votes(["#### 4"], ["What is 2 + 2?"], url)["rewards"] == pytest.approx([-0.5])


def test_proven_and_refuted_answers_have_bounded_log_odds(client_of, puzzle, texts, bundle_of):
    client = client_of(bundle_of(policy=Policy(posterior=VOTES)))
    body = {"query": [texts["right"], texts["wrong"]], "prompts": [puzzle] * 2}
    reply = client.post("/get_reward?reward=log_odds&floor=-99", body).json()
    assert (reply["rewards"], reply["extra_logs"]["confidence"]) == ([10.0, -10.0], [1.0, 0.0])


@pytest.mark.parametrize(
    ("probability", "expected"),
    [(0.5, 0.0), (0.75, math.log(3)), (1e-6, -10.0), (1 - 1e-6, 10.0), (0.0, -10.0), (1.0, 10.0)],
)
def test_log_odds_are_bounded(probability, expected):
    assert log_odds(probability) == pytest.approx(expected)


@pytest.mark.parametrize(("tau_accept", "expected"), [(0.5, 1.0), (0.6, 0.0)])
def test_scores_follow_the_rule_that_decides(rewards_by_votes, tau_accept, expected):
    policy = {"rule": "posterior", "tau_accept": tau_accept}
    assert rewards_by_votes(["#### 4"], ["What is 2 + 2?"], **policy)["scores"] == [expected]


# ---- functions for trainers, over a real connection -----------------------------------------------------------------


def test_a_grpo_reward_asks_the_service_for_a_whole_group(gsm8k_app, free_port, listening):
    group = {"prompts": ["What is 2 + 2?"] * 3, "completions": ["#### 4", "#### 5", "#### 4"], "answer": ["4"] * 3}
    with listening(gsm8k_app(), free_port) as url:
        group_rewards = grpo_reward(Raydebm(url), task="gsm8k", reward="log_odds")(**group)
    assert group_rewards == pytest.approx([-math.log(2), -math.log(5), -math.log(2)])
