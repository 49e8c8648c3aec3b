"""Sampling in waves through the service: its answers, records, limits and metrics, and a real endpoint."""

import asyncio

import pytest
from hand_written_run import PRICES, HandWritten, session
from upstream import TEXT, Upstream

from raydebm.decision.policy import Policy
from raydebm.generators import build_generator
from raydebm.service.core import Activity, Source
from raydebm.service.spending import Ledger
from raydebm.service.store.reader import DecisionReader
from raydebm.service.store.record import DecisionWriter
from raydebm.service.store.stored_replay import Changes, replay_stored

WAVES = Policy(num_regenerate=2, max_passes=1, theta_sigma=10.0, theta_abstain=20.0, waves=(4,))


@pytest.fixture
def ask(recipe, client_of, bundle_of, puzzle):
    """Asks a service whose policy has waves, and whose two generators write eight candidates each."""
    eight = {**recipe, "generation": {"num_samples": 8, "max_tokens": 64}}

    def post(*, records=None, **changes):
        client = client_of(bundle_of(recipe=eight, policy=WAVES), records=records)
        return client.post("/v1/triage", {"problem": puzzle, **changes}).json()

    return post


def test_a_settled_pass_asks_for_no_more(ask, script, texts):
    backend = script(write=lambda request: texts["wrong"])  # as the paper's rule sees it: one answer, with a violation

    answer = ask()

    assert [(request.generator, request.sample_index) for request in backend.requests] == [
        ("ada", 0), ("bo", 0), ("ada", 1), ("bo", 1),
    ]  # fmt: skip
    assert (answer["stop_reason"], answer["num_planned"], answer["num_samples"]) == ("accept", 16, 4)
    assert (answer["num_cancelled"], answer["tokens_saved"], answer["saved_frac"]) == (0, 12 * 15, 0.75)
    assert answer["stop_words"].startswith("the leading answer is settled after 4 samples")
    assert answer["passes"][0]["stop_reason"] == "accept"
    assert [generator["asked"] for generator in answer["generators"]] == [2, 2]
    assert answer["usage"]["total_tokens"] == 4 * 15


def test_an_empty_list_undoes_the_operators_waves(ask, backend):
    answer = ask(waves=[])

    assert len(backend.requests) == 16
    assert (answer["stop_reason"], "waves" in answer["policy"]) == (None, False)


def test_a_decision_on_disk_says_it_and_decides_again(ask, tmp_path, script, texts):
    script(write=lambda request: texts["wrong"])
    writer = DecisionWriter(str(tmp_path / "records"))
    ask(records=writer)
    writer.close()

    reader = DecisionReader(str(tmp_path / "records"))
    [record] = reader.records()

    stop = record.outcome.passes[0].stop
    assert (stop.reason, stop.num_planned, stop.num_samples, stop.tokens_saved) == ("accept", 16, 4, 180)
    [same] = replay_stored([record], Changes())
    [strict] = replay_stored([record], Changes(values={"waves": [8]}))
    assert (same.changed, same.again.exact, same.again.num_candidates) == (False, True, 4)
    assert str(strict.again.decision) == "regenerate"


# ---- a real endpoint -------------------------------------------------------------------------------------------------


class OverHttp(HandWritten):
    """A backend whose generators are endpoints over real sockets."""

    async def generate(self, requests, on_candidate, *, may_repeat):
        by_id = {}

        async def draw(config):
            generator = build_generator(config)
            try:
                async for candidate in generator.stream([r for r in requests if r.generator == config.name]):
                    by_id[candidate.candidate_id] = candidate
                    on_candidate(candidate)
            finally:
                await generator.aclose()

        async with asyncio.TaskGroup() as group:
            for config in self.served[-1].generator_configs():
                group.create_task(draw(config))
        return [by_id[request.candidate_id] for request in requests]


@pytest.fixture
def upstream():
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def endpoints(recipe, upstream):
    base = {"kind": "openai", "base_url": upstream.url, "api_key_env": None, "max_retries": 0, **PRICES}
    generators = [{**base, "name": name, "model": model} for name, model in (("ada", "gated"), ("bo", "hanging"))]
    return {**recipe, "generators": generators}


def test_requests_in_flight_are_dropped_at_the_endpoint(
    endpoints, puzzle, app_of, upstream, eventually, tmp_path, bundle_of
):
    """An exact constraint proves the first answer: those that hang are not waited for."""
    bundle = bundle_of(recipe=endpoints, policy=WAVES, limits={"per_day": {"candidates": 10, "usd": 100}})
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    app = app_of(bundle, backend=OverHttp(), ledger=ledger)

    async def both():
        async with session(app) as client:
            asked = asyncio.create_task(client.post("/v1/triage", json={"problem": puzzle}, timeout=60))
            await asyncio.to_thread(eventually, lambda: len(upstream.waiting_for("hanging")) == 2)
            upstream.gate.set()
            return await asked

    answer = asyncio.run(both()).json()

    assert (answer["decision"], answer["text"]) == ("accept", TEXT)
    assert answer["stop_words"].startswith("an exact constraint proves the answer")
    assert eventually(lambda: not upstream.waiting_for("hanging"))
    by_name = {generator["name"]: generator for generator in answer["generators"]}
    assert (by_name["bo"]["asked"], by_name["bo"]["cancelled"], by_name["bo"]["failed"]) == (2, 2, 0)
    # A completion of 64 tokens costs a dollar at most; what was cancelled may have cost that.
    assert answer["cancelled_usd"] == pytest.approx(answer["num_cancelled"])
    spent = ledger.spent("service")
    assert spent.candidates == 4
    # One by ada may arrive while it is being cancelled, and then counts what it cost.
    assert spent.nano_usd >= by_name["bo"]["cancelled"] * 1e9


def test_cancelled_requests_count_against_max_usd_at_their_worst(endpoints, context_of, bundle_of):
    context = context_of(bundle_of(recipe=endpoints, policy=WAVES), max_usd=3.0)

    activity = Activity()
    activity.sent = context.requests(1, None)[:2]
    activity.cancelled = list(activity.sent)
    plan = Source(context, None, activity).plan(context.requests(1, None))

    assert len(plan.requests) == 1  # two of three dollars may be gone
