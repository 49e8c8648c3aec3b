"""Equal requests of one caller reuse the candidates of the first one; nothing is shared, and nothing is paid twice."""

import asyncio
import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydebm.decision.policy import Policy
from raydebm.decisions.reader import DecisionReader
from raydebm.decisions.stored_decisions import stored_decisions
from raydebm.decisions.stored_replay import Changes, replay_stored
from raydebm.decisions.writer import DecisionWriter
from raydebm.records import Candidate
from raydebm.serving.access.keys import ApiKey, Keyring
from raydebm.serving.access.request_limits import KeyLimits
from raydebm.serving.api.application import create_app
from raydebm.serving.core.request import request_context
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs, LimitArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.serving.settings.overrides import Overrides
from raydebm.serving.spending.candidate_store import CandidateStore, ReuseLimits
from raydebm.serving.spending.ledger import Ledger

KEYS = {"ada": "a" * 32, "bo": "b" * 32}


class Clock:
    now = 1_780_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reusing(write_run):
    """A served run that reuses candidates for a minute."""
    return load_bundle(AppArgs(run_dir=write_run(), reuse_s=60))


def keyring():
    hashes = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}
    return Keyring([ApiKey(name=name, sha256=digest) for name, digest in hashes.items()])


@pytest.fixture
def ask(reusing, backend, puzzle, client_of, clock):
    """Posts the puzzle to one service that keeps candidates in memory; returns the answer."""
    service = TriageService(reusing, backend, candidate_store=CandidateStore(":memory:", clock=clock))
    app = create_app(service, keyring=keyring())

    def post(key="ada", *, path="/v1/triage", headers=None, **body):
        sent = {"Authorization": f"Bearer {KEYS[key]}", **(headers or {})}
        reply = client_of(app).post(path, {"problem": puzzle, **body} if "messages" not in body else body, headers=sent)
        assert reply.status_code == 200, reply.text
        return reply.json()

    return post


def test_an_equal_request_reuses_everything(ask, backend, clock):
    first = ask()
    clock.now += 12.5
    second = ask()

    assert (first["reused"], len(backend.requests)) == (None, 4)
    assert second["reused"] == {"candidates": 4, "oldest_s": 12.5, "tokens_saved": 60, "usd_saved": 2.0}
    assert (second["answer"], second["decision"]) == (first["answer"], "accept")
    assert (second["usage"]["total_tokens"], second["cost_usd"]) == (0, None)
    assert [(use["asked"], use["failed"], use["reused"]) for use in second["generators"]] == [(0, 0, 2), (0, 0, 2)]


def test_what_is_too_old_is_sampled_again(ask, backend, clock):
    ask()
    clock.now += 60
    assert (ask()["reused"], len(backend.requests)) == (None, 8)


def test_a_larger_request_pays_for_the_rest(ask, backend):
    ask(num_samples=1)
    again = ask(num_samples=2)

    assert (again["reused"]["candidates"], again["cost_usd"], again["usage"]["total_tokens"]) == (2, 1.0, 30)
    assert [request.sample_index for request in backend.requests] == [0, 0, 1, 1]


@pytest.mark.parametrize("change", [{"seed": 8}, {"fresh": True}])
def test_other_seeds_and_fresh_requests_reuse_nothing(ask, backend, change):
    ask()
    assert (ask(**change)["reused"], len(backend.requests)) == (None, 8)


def test_a_header_asks_for_fresh_candidates_too(ask, backend):
    ask()
    ask(headers={"X-RayDEBM-Fresh": "true"})
    assert len(backend.requests) == 8


def test_other_sampling_reuses_nothing(ask, backend, puzzle):
    chat = {"model": "raydebm/knights_knaves", "messages": [{"role": "user", "content": puzzle}]}
    ask(path="/v1/chat/completions", **chat)
    hot = ask(path="/v1/chat/completions", temperature=1.5, **chat)
    same = ask(path="/v1/chat/completions", temperature=1.5, **chat)

    assert (hot["raydebm"]["reused"], same["raydebm"]["reused"]["candidates"]) == (None, 4)


def test_failed_candidates_are_sampled_again(ask, script, texts):
    backend = script(write=lambda request: None if request.generator == "bo" else texts["right"])
    ask()
    backend.write = lambda request: texts["right"]

    again = ask()
    assert {use["name"]: (use["asked"], use["reused"]) for use in again["generators"]} == {"ada": (0, 2), "bo": (2, 0)}


def test_without_the_setting_nothing_is_kept(bundle, backend, puzzle, client_of):
    app = create_app(TriageService(bundle, backend, candidate_store=CandidateStore(":memory:")))
    for _ in range(2):
        client_of(app).post("/v1/triage", {"problem": puzzle})
    assert len(backend.requests) == 8


def test_equal_requests_at_the_same_time_each_sample(reusing, backend, puzzle):
    service = TriageService(reusing, backend, candidate_store=CandidateStore(":memory:"))
    backend.pause_s = 0.01

    context = request_context(reusing, Overrides(), request_id="r", task_name=None, problem=puzzle)

    async def both():
        return await asyncio.gather(service.triage(context), service.triage(context))

    assert [len(result.reused) for result in asyncio.run(both())] == [0, 0]
    assert len(backend.requests) == 8


def test_a_file_that_cannot_be_used_costs_the_reuse_and_not_the_request(reusing, backend, puzzle, client_of, tmp_path):
    (tmp_path / "taken").write_text("no database")
    app = create_app(TriageService(reusing, backend, candidate_store=CandidateStore(str(tmp_path / "taken"))))

    assert client_of(app).post("/v1/triage", {"problem": puzzle}).json()["decision"] == "accept"


# ---- nothing is shared between keys ----------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(names=st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=4), samples=st.integers(1, 2))
def test_a_request_never_reuses_what_another_key_paid_for(names, samples):
    """In whatever order two keys ask, each pays once for what it gets."""
    limits, store = KeyLimits(LimitArgs()), CandidateStore(":memory:")
    paid = set()
    for name in names:
        key = keyring().owner(f"Bearer {KEYS[name]}")
        with limits.open(key) as use:
            wanted = [f"c{index}" for index in range(samples)]
            stored = store.find(use.owner, wanted, max_age_s=60)
            assert {(name, each) for each in stored} == {(name, each) for each in wanted} & paid
            made = {
                each: Candidate(candidate_id=each, task="t", problem_id="p", generator=name, text=name)
                for each in wanted
                if each not in stored
            }
            store.keep(use.owner, made, limits=ReuseLimits(max_age_s=60, max_bytes=10_000))
            paid |= {(name, each) for each in wanted}
            assert {each.candidate.text for each in stored.values()} <= {name}
    store.close()


def test_two_keys_share_nothing(ask, backend):
    ask("ada")
    assert (ask("bo")["reused"], len(backend.requests)) == (None, 8)
    assert ask("bo")["reused"]["candidates"] == 4


def test_a_key_that_is_issued_anew_under_its_old_name_is_another_caller():
    limits = KeyLimits(LimitArgs())
    owners = []
    for sha256 in ("0" * 64, "1" * 64):
        with limits.open(ApiKey(name="ada", sha256=sha256)) as use:
            owners.append(use.owner)
    assert owners[0] != owners[1]
    assert "" not in owners


def test_another_model_under_the_generators_name_reuses_nothing(reusing, backend, puzzle, client_of):
    store = CandidateStore(":memory:")
    client_of(create_app(TriageService(reusing, backend, candidate_store=store))).post(
        "/v1/triage", {"problem": puzzle}
    )
    ada, bo = reusing.recipe.generators
    recipe = reusing.recipe.model_copy(update={"generators": (ada, bo.model_copy(update={"model": "newer"}))})
    app = create_app(TriageService(replace(reusing, recipe=recipe), backend, candidate_store=store))

    answer = client_of(app).post("/v1/triage", {"problem": puzzle}).json()
    assert {use["name"]: use["reused"] for use in answer["generators"]} == {"ada": 2, "bo": 0}


# ---- money, records, events ------------------------------------------------------------------------------------------


@pytest.fixture
def priced(write_run, recipe):
    """A completion of 64 tokens costs a dollar at most; here each costs half of it."""
    prices = {"usd_per_million_prompt_tokens": 0.0, "usd_per_million_completion_tokens": 15_625.0}
    run_dir = write_run({**recipe, "generators": [{**each, **prices} for each in recipe["generators"]]})
    return lambda **args: load_bundle(AppArgs(run_dir=run_dir, reuse_s=60, **args))


def test_a_days_ceiling_is_charged_once(priced, backend, puzzle, client_of, tmp_path):
    bundle = priced(limits={"per_day": {"usd": 4.0, "candidates": 6}})
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    app = create_app(TriageService(bundle, backend, candidate_store=CandidateStore(":memory:")), ledger=ledger)
    for _ in range(3):
        reply = client_of(app).post("/v1/triage", {"problem": puzzle})
        assert reply.status_code == 200, reply.text

    spent = ledger.spent("service")
    assert (spent.candidates, spent.nano_usd, spent.tokens) == (4, 2_000_000_000, 60)


def test_an_answer_of_reused_candidates_says_what_is_left_of_the_day(priced, backend, puzzle, client_of, tmp_path):
    bundle = priced(limits={"per_day": {"candidates": 6}})
    service = TriageService(bundle, backend, candidate_store=CandidateStore(":memory:"))
    client = client_of(create_app(service, ledger=Ledger(str(tmp_path / "ledger.sqlite"))))

    first, again = (client.post("/v1/triage", {"problem": puzzle}).json() for _ in range(2))

    assert [ceiling["left"] for ceiling in first["ceilings"]] == [2]
    assert (again["ceilings"], again["reused"]["candidates"]) == (first["ceilings"], 4)


def test_where_the_day_is_spent_what_was_paid_for_can_still_be_had(priced, backend, puzzle, client_of, tmp_path):
    bundle = priced(limits={"per_day": {"candidates": 2}})
    app = create_app(
        TriageService(bundle, backend, candidate_store=CandidateStore(":memory:")),
        ledger=Ledger(str(tmp_path / "ledger.sqlite")),
    )
    client_of(app).post("/v1/triage", {"problem": puzzle, "num_samples": 1})
    answer = client_of(app).post("/v1/triage", {"problem": puzzle}).json()

    assert (answer["reused"]["candidates"], len(backend.requests)) == (2, 2)
    assert [use["over_budget"] for use in answer["generators"]] == [1, 1]


def test_max_usd_does_not_count_what_is_reused(priced, backend, puzzle, client_of):
    app = create_app(TriageService(priced(), backend, candidate_store=CandidateStore(":memory:")))
    client_of(app).post("/v1/triage", {"problem": puzzle, "num_samples": 1})
    answer = client_of(app).post("/v1/triage", {"problem": puzzle, "max_usd": 1.0}).json()

    assert (answer["reused"]["candidates"], answer["cost_usd"], len(backend.requests)) == (2, 0.5, 3)


def test_a_budget_counts_what_is_reused(ask, backend):
    ask(num_samples=1)
    answer = ask(budget=3)

    assert (answer["reused"]["candidates"], len(backend.requests)) == (2, 3)


def test_waves_take_what_is_known_first(write_run, backend, puzzle, client_of):
    bundle = load_bundle(AppArgs(run_dir=write_run(policy=Policy(waves=(2,), max_passes=1)), reuse_s=60))
    app = create_app(TriageService(bundle, backend, candidate_store=CandidateStore(":memory:")))
    first, second = (client_of(app).post("/v1/triage", {"problem": puzzle}).json() for _ in range(2))

    assert second["reused"]["candidates"] == first["num_samples"] == second["num_samples"]
    assert (second["stop_reason"], second["stop_words"]) == (first["stop_reason"], first["stop_words"])


def test_the_stored_decision_states_it_and_pays_nothing(reusing, backend, puzzle, client_of, tmp_path, clock):
    writer = DecisionWriter(str(tmp_path / "records"))
    store = CandidateStore(":memory:", clock=clock)
    app = create_app(TriageService(reusing, backend, records=writer, candidate_store=store))
    client_of(app).post("/v1/triage", {"problem": puzzle})
    clock.now += 3
    client_of(app).post("/v1/triage", {"problem": puzzle})
    writer.close()

    reader = DecisionReader(str(tmp_path / "records"))
    newest, oldest = reader.page().rows
    facts = ("num_candidates", "num_reused", "completion_tokens", "cost_usd")
    assert [oldest[name] for name in facts] == [4, 0, 20, 2.0]
    assert [newest[name] for name in facts] == [4, 4, 0, None]
    record = reader.get(newest["record_id"])
    assert set(record.reused.values()) == {3.0}
    assert [scored.candidate.cost_usd for scored in record.outcome.pool] == [0.0] * 4
    assert [replayed.changed for replayed in replay_stored(stored_decisions(reader), Changes())] == [False, False]


def test_a_stream_says_which_candidates_are_reused(reusing, backend, puzzle, client_of, read_events):

    app = create_app(TriageService(reusing, backend, candidate_store=CandidateStore(":memory:")))
    client_of(app).post("/v1/triage", {"problem": puzzle, "num_samples": 1})
    reply = client_of(app).post("/v1/triage", {"problem": puzzle, "stream": True})

    events = [json.loads(data) for _, data in read_events(reply.text) if data.startswith("{")]
    came = [(each["sample_index"], each["reused"]) for each in events if each.get("event") == "candidate"]
    assert sorted(came) == [(0, True), (0, True), (1, False), (1, False)]
