"""An operator's ceilings: of one request, and of the day for a key and for everybody."""

import asyncio
import random
import threading

import pytest
from decisions_by_hand import bearer, keyring
from hand_written_run import HandWritten, chat_body, priced, session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raydebm.decision.policy import Policy
from raydebm.errors import ConfigError, ServiceError
from raydebm.generators.requests import TokenUsage, answered, unanswered, worst_cost
from raydebm.records import FailureKind
from raydebm.service.spending import NANO, Account, Amount, Ceilings, Ledger, spent


@pytest.fixture
def priced_app(recipe, tmp_path, bundle_of, app_of):
    """An application with two keys, a and b, whose candidates cost half a dollar each and at most a dollar."""

    def make(*, policy=None, **args):
        bundle = bundle_of(priced(recipe), policy, **args)
        return app_of(bundle, keyring=keyring("a", "b"), ledger=Ledger(str(tmp_path / "ledger.sqlite")))

    return make


def post(app, *bodies, key="a", path="/v1/triage"):
    """The replies to all of them at once."""

    async def send():
        async with session(app, headers=bearer(key)) as client:
            return await asyncio.gather(*(client.post(path, json=body) for body in bodies))

    return asyncio.run(send())


# ---- of one request --------------------------------------------------------------------------------------------------

OPERATORS = Policy(num_regenerate=2, max_passes=2, budget=3, max_usd=2.5)


@pytest.mark.parametrize(
    ("field", "asked", "counts"),
    [
        ("max_usd", 1e6, 2.5),
        ("max_usd", 1.5, 1.5),
        ("max_usd", None, 2.5),
        ("budget", 500, 3),
        ("max_passes", 8, 2),
    ],
)
def test_a_request_lowers_a_limit_and_never_raises_it(priced_app, puzzle, field, asked, counts):
    (reply,) = post(priced_app(policy=OPERATORS), {"problem": puzzle, field: asked})
    assert reply.json()["policy"][field] == counts


@pytest.mark.parametrize(
    ("ceilings", "field", "asked", "counts"),
    [
        ({"usd": 4.0}, "max_usd", 1e6, 4.0),
        ({"usd": 0.5}, "max_usd", None, 0.5),
        ({"candidates": 10}, "budget", 500, 10),
    ],
)
def test_the_operator_gives_more_room_or_less(priced_app, puzzle, ceilings, field, asked, counts):
    (reply,) = post(priced_app(policy=OPERATORS, limits={"request": ceilings}), {"problem": puzzle, field: asked})
    if reply.status_code == 200:
        assert reply.json()["policy"][field] == counts
    else:  # half a dollar pays for no candidate
        assert (counts, reply.json()["error"]["code"]) == (0.5, "over_budget")


def test_a_named_policy_is_the_operators_word(priced_app, puzzle):
    app = priced_app(policy=OPERATORS, policies={"deep": {"max_passes": 4, "num_samples": 8, "max_usd": 9.0}})
    (reply,) = post(app, {"problem": puzzle, "policy": "deep", "max_usd": 50, "max_passes": 8, "num_samples": 8})
    assert (reply.json()["policy"]["max_usd"], reply.json()["policy"]["max_passes"]) == (9.0, 4)


# ---- of a day --------------------------------------------------------------------------------------------------------


def ceilings_of(reply):
    return {(body["account"], body["kind"]): (body["limit"], body["left"]) for body in reply.json()["ceilings"]}


def test_the_answer_says_what_is_left_of_the_day(priced_app, puzzle):
    app = priced_app(limits={"per_day": {"usd": 10, "candidates": 100}, "key_per_day": {"usd": 5}})
    (reply,) = post(app, {"problem": puzzle})
    # four candidates at 0.5 dollars
    assert ceilings_of(reply) == {
        ("service", "usd"): (10, 8),
        ("service", "candidates"): (100, 96),
        ("key", "usd"): (5, 3),
    }


def test_candidates_that_do_not_fit_are_not_asked(priced_app, backend, puzzle):
    (reply,) = post(priced_app(limits={"per_day": {"usd": 3.2}}), {"problem": puzzle})
    assert (reply.status_code, len(backend.requests)) == (200, 3)
    assert sum(generator["over_budget"] for generator in reply.json()["generators"]) == 1


def test_a_spent_day_is_a_429_that_nobody_repeats(priced_app, backend, puzzle):
    app = priced_app(limits={"key_per_day": {"candidates": 4}})
    assert post(app, {"problem": puzzle})[0].status_code == 200
    (reply,) = post(app, {"problem": puzzle})
    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "insufficient_quota")
    assert "0 of 4 candidates (key, until 20" in reply.json()["error"]["message"]
    assert reply.headers["x-should-retry"] == "false"
    assert "retry-after" not in reply.headers
    assert len(backend.requests) == 4
    assert post(app, {"problem": puzzle}, key="b")[0].status_code == 200


def test_a_later_pass_without_money_leaves_the_decision_to_the_first(priced_app, script, puzzle, texts):
    script(write=lambda request: texts["wrong"])
    (reply,) = post(priced_app(limits={"per_day": {"candidates": 4}}), {"problem": puzzle})
    assert (reply.status_code, reply.json()["num_passes"]) == (200, 2)
    assert "of the day's ceilings is left: 0 of 4 candidates" in reply.json()["reason"]


def test_streams_and_chats_are_charged(priced_app, puzzle):
    app = priced_app(limits={"key_per_day": {"candidates": 8}})
    chat = chat_body(puzzle)
    assert post(app, chat, path="/v1/chat/completions")[0].json()["raydebm"]["ceilings"][0]["left"] == 4
    (streamed,) = post(app, {"problem": puzzle, "stream": True})
    assert '"left": 0.0' in streamed.text
    assert post(app, chat, path="/v1/chat/completions")[0].status_code == 429


def test_what_fails_without_a_bill_counts_its_worst(priced_app, script, puzzle):
    script(write=lambda request: None if request.generator == "bo" else "x")
    app = priced_app(limits={"per_day": {"usd": 10}}, policies={"one": {"max_passes": 1}})
    (reply,) = post(app, {"problem": puzzle, "policy": "one"})
    assert ceilings_of(reply) == {("service", "usd"): (10, 10 - 2 * 0.5 - 2 * 1.0)}


@pytest.mark.parametrize("failure", [FailureKind.NOT_SENT, FailureKind.BUDGET])
def test_what_was_never_sent_counts_nothing(priced_app, backend, puzzle, failure):
    """As after a provider's key was revoked: its requests must not spend the day of the others."""
    generate = backend.generate

    async def partly(requests, on_candidate, *, may_repeat):
        sent = await generate(
            [request for request in requests if request.generator == "ada"], on_candidate, may_repeat=may_repeat
        )
        unsent = [unanswered(request, "not sent", failure=failure) for request in requests if request.generator == "bo"]
        for candidate in unsent:
            on_candidate(candidate)
        return [*sent, *unsent]

    backend.generate = partly
    app = priced_app(limits={"per_day": {"usd": 10, "candidates": 10}})
    (reply,) = post(app, {"problem": puzzle, "max_usd": 9})
    assert ceilings_of(reply) == {("service", "usd"): (10, 9), ("service", "candidates"): (10, 8)}


def test_what_was_never_sent_leaves_max_usd_to_the_next_pass(bundle, context_of):
    requests = context_of(bundle).requests(1, None)[:3]
    drawn = [
        unanswered(requests[0], "not sent", failure=FailureKind.NOT_SENT),
        unanswered(requests[1], "HTTP 500"),
        unanswered(requests[2], "cut, then not sent", failure=FailureKind.NOT_SENT, usage=TokenUsage(cost_usd=0.25)),
    ]
    assert spent(requests, drawn, lambda request: 1.0).usd == 1.25


def test_a_request_that_is_cancelled_counts_its_worst(priced_app, backend, puzzle, tmp_path):
    app = priced_app(limits={"per_day": {"usd": 10}})

    async def send():
        async with session(app, headers=bearer("a")) as client:
            backend.held = True
            asked = asyncio.create_task(client.post("/v1/triage", json={"problem": puzzle}))
            while not backend.requests:
                await asyncio.sleep(0.001)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(send())
    assert Ledger(str(tmp_path / "ledger.sqlite")).spent("service").nano_usd == 4 * NANO


class SlowLedger(Ledger):
    """Holds amounts only when it is let."""

    def __init__(self, path):
        super().__init__(path)
        self.asked, self.let, self.held = threading.Event(), threading.Event(), threading.Event()

    def reserve(self, accounts, wanted):
        self.asked.set()
        assert self.let.wait(60)
        hold = super().reserve(accounts, wanted)
        self.held.set()
        return hold


def test_what_is_held_for_a_cancelled_request_is_put_back(tmp_path):
    ledger = SlowLedger(str(tmp_path / "ledger.sqlite"))
    account = Account(ledger, {"service": Ceilings(candidates=4)})

    async def cancelled():
        held = asyncio.create_task(account.reserve([Amount(candidates=3)]))
        await asyncio.to_thread(ledger.asked.wait)
        held.cancel()
        ledger.let.set()
        while (await account.reserve([Amount(candidates=2)])).granted != (0,):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(cancelled(), 60))
    assert ledger.spent("service") == Amount(candidates=2)


def test_where_money_is_limited_no_request_is_sent_twice(priced_app, backend, puzzle):
    seen, generate = [], backend.generate

    async def noted(requests, on_candidate, *, may_repeat):
        seen.append(may_repeat)
        return await generate(requests, on_candidate, may_repeat=may_repeat)

    backend.generate = noted
    post(priced_app(limits={"per_day": {"usd": 100}}), {"problem": puzzle})
    post(priced_app(limits={"per_day": {"candidates": 100}}), {"problem": puzzle})
    assert seen == [False, True]


def test_a_ledger_that_cannot_be_used_spends_nothing(priced_app, backend, puzzle, tmp_path):
    (tmp_path / "ledger.sqlite").mkdir()
    (reply,) = post(priced_app(limits={"per_day": {"usd": 100}}), {"problem": puzzle})
    assert (reply.status_code, reply.json()["error"]["code"], backend.requests) == (503, "unavailable", [])


@pytest.mark.parametrize("limits", [{"per_day": {"usd": 1}}, {"key_per_day": {"usd": 1}}, {"request": {"usd": 1}}])
def test_ceilings_of_money_need_prices(limits, bundle_of):
    with pytest.raises(ConfigError, match="has none for ada, bo"):
        bundle_of(limits=limits)


class Expensive(HandWritten):
    """A backend whose candidates cost any part of their worst, fail, or break; it adds up what it was paid."""

    def __init__(self, bundle, chance):
        super().__init__()
        self.configs = {config.name: config for config in bundle.generator_configs()}
        self.chance, self.paid, self.count = chance, 0.0, 0

    async def generate(self, requests, on_candidate, *, may_repeat):
        assert not may_repeat
        candidates = []
        for request in requests:
            worst = worst_cost(self.configs[request.generator], request)
            share = self.chance.choice([0.0, 0.3, 1.0])
            self.paid += share * worst
            self.count += 1
            await asyncio.sleep(0)
            luck = self.chance.random()
            if luck < 0.1:
                raise ServiceError("the replica is gone", 503, "unavailable")
            text = '{"Ava": "knave", "Zoey": "knave"}' if luck < 0.7 else '{"Ava": "knave", "Zoey": "knight"}'
            facts = {"usage": TokenUsage(cost_usd=share * worst)}
            candidates.append(unanswered(request, "HTTP 500") if luck < 0.2 else answered(request, text, **facts))
            on_candidate(candidates[-1])
        return candidates


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(usd=st.floats(0, 120), candidates=st.integers(0, 200), seed=st.integers(0, 10**6))
def test_64_parallel_clients_never_spend_more_than_the_ceilings(
    tmp_path_factory, recipe, puzzle, usd, candidates, seed, bundle_of, app_of
):
    limits = {"per_day": {"usd": usd, "candidates": candidates}, "max_running": 64}
    bundle = bundle_of(priced(recipe), limits=limits)
    backend = Expensive(bundle, random.Random(seed))
    ledger = Ledger(str(tmp_path_factory.mktemp("ledger") / "ledger.sqlite"))
    app = app_of(bundle, backend=backend, keyring=keyring("a"), ledger=ledger)
    replies = post(app, *({"problem": puzzle, "seed": index} for index in range(64)))
    assert {reply.status_code for reply in replies} <= {200, 429, 503}
    spent = ledger.spent("service")
    assert backend.paid <= spent.nano_usd / NANO + 1e-6 <= usd + 1e-6
    assert backend.count <= spent.candidates <= candidates
    ledger.close()
