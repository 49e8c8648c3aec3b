"""Ordinary chat behind the service: one generator answers what is no problem, and nothing is decided about it."""

import asyncio
import hashlib

import httpx
import openai
import pytest

from raydebm.config import parse_recipe
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.decisions.writer import DecisionWriter
from raydebm.errors import ConfigError, UnknownNameError
from raydebm.run.directory import RunDir
from raydebm.serving.access.keys import ApiKey, Keyring
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.serving.spending.ledger import Ledger

CHAT = "/v1/chat/completions"


def hello(**changes):
    return {"model": "raydebm/auto", "messages": [{"role": "user", "content": "Hello"}], **changes}


@pytest.fixture
def open_client(write_run, backend, client):
    """A client of a service that passes chats on to bo."""

    def make(recipe=None, *, keyring=None, ledger=None, records=None, **args):
        run = write_run() if recipe is None else write_run(recipe)
        bundle = load_bundle(AppArgs(run_dir=run, passthrough="bo", max_problem_chars=2000, **args))
        service = TriageService(bundle, backend, records=records)
        return type(client)(create_app(service, keyring=keyring, ledger=ledger))

    return make


def test_it_is_off_and_the_refusal_says_how_to_switch_it_on(client, backend):
    reply = client.post(CHAT, hello())
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], backend.requests) == (422, "not_a_problem", [])
    assert "raydebm serve --passthrough ada" in error["message"]


def test_one_generator_answers_and_the_answer_says_that_nothing_was_checked(open_client, script):
    backend = script(write=lambda request: "Good day!")
    body = open_client().post(CHAT, hello()).json()

    assert [request.generator for request in backend.requests] == ["bo"]
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Good day!", "refusal": None}
    facts = body["raydebm"]
    assert (body["model"], facts["task"], facts["decision"]) == ("raydebm/auto", "passthrough", "passthrough")
    assert "bo answered it as ordinary chat; nothing was checked" in facts["reason"]
    assert (facts["confidence"], facts["guarantee"], facts["answers"], facts["energy"]) == (None, None, [], None)
    assert (facts["usage"]["total_tokens"], facts["cost_usd"], facts["num_passes"]) == (15, 0.5, 1)
    assert (backend.scored, facts["policy"]) == ([], {"deadline_ms": 240_000})


def test_a_problem_is_triaged_as_before(open_client, backend, puzzle):
    body = open_client().post(CHAT, hello(messages=[{"role": "user", "content": puzzle}])).json()
    assert (body["raydebm"]["decision"], len(backend.requests)) == ("accept", 4)


def test_a_follow_up_takes_the_whole_conversation_along(open_client, script, puzzle):
    backend = script(write=lambda request: "Yes.")
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": puzzle},
        {"role": "assistant", "content": "Ava is a knave."},
        {"role": "user", "content": "Are you sure?"},
    ]
    body = open_client().post(CHAT, hello(messages=turns, model="raydebm/knights_knaves")).json()
    assert (body["raydebm"]["decision"], body["choices"][0]["message"]["content"]) == ("passthrough", "Yes.")
    (request,) = backend.requests
    assert [dict(message) for message in request.messages] == turns


def test_the_clients_sampling_counts_as_it_is(open_client, backend):
    open_client().post(CHAT, hello(temperature=0, top_p=0.5, max_tokens=7, stop="x", seed=3))
    (request,) = backend.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.stop) == (0.0, 0.5, 7, ("x",))


def test_a_client_asks_for_no_more_tokens_than_the_recipe_allows(open_client, backend):
    open_client().post(CHAT, hello(max_tokens=5000))
    assert backend.requests[0].sampling.max_tokens == 64


def test_it_streams(open_client, script, chunks_of, read_events):
    script(write=lambda request: "word " * 40)
    reply = open_client().post(CHAT, hello(stream=True, stream_options={"include_usage": True}))
    chunks = chunks_of(reply.text)
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1]) == "word " * 40
    assert chunks[-2]["raydebm"]["decision"] == "passthrough"
    assert chunks[-1]["usage"]["total_tokens"] == 15
    assert read_events(reply.text)[-1] == (None, "[DONE]")


def test_the_official_client_reads_it(write_run, backend):
    bundle = load_bundle(AppArgs(run_dir=write_run(), passthrough="ada"))
    backend.write = lambda request: "Good day!"

    async def call():
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app=create_app(TriageService(bundle, backend))))
        client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="x", http_client=http)
        return await client.chat.completions.create(**hello())

    assert asyncio.run(call()).choices[0].message.content == "Good day!"


@pytest.mark.parametrize(("text", "status"), [('{"mood": "good"}', 200), ("good", 400), ("{}", 400)])
def test_a_response_format_goes_to_the_endpoint_and_holds_for_the_answer(open_client, script, text, status):
    """What the generator wrote is given out as it is, or not at all."""
    schema = {"type": "object", "properties": {"mood": {"type": "string"}}, "required": ["mood"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "m", "schema": {**schema, "additionalProperties": False}}}
    backend = script(write=lambda request: text)
    reply = open_client().post(CHAT, hello(response_format=wanted))
    assert reply.status_code == status
    assert '"mood"' in backend.requests[0].response_format


@pytest.mark.parametrize("text", ['{"mood": NaN}', '{"mood": 1e999}'])
def test_a_generators_json_that_only_python_reads_is_refused(open_client, script, text):
    script(write=lambda request: text)
    reply = open_client().post(CHAT, hello(response_format={"type": "json_object"}))
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unsupported_response_format")


def test_half_a_character_in_a_generators_json_is_marked(open_client, script):
    script(write=lambda request: '{"mood": "\\ud83d"}')
    reply = open_client().post(CHAT, hello(response_format={"type": "json_object"}))
    assert (reply.status_code, reply.json()["choices"][0]["message"]["content"]) == (200, '{"mood": "\ufffd"}')


@pytest.mark.parametrize(("outcome", "status"), [(None, 503), (ValueError, 500)])
def test_a_generator_that_fails_is_an_error(open_client, script, outcome, status):
    script(write=lambda request: None if outcome is None else outcome("broken"))
    reply = open_client().post(CHAT, hello())
    assert reply.status_code == status
    if status == 503:
        assert reply.json()["error"]["message"] == "no generator answered: bo did not answer: HTTP 500"


def test_a_deadline_holds(open_client, backend):
    backend.held = True
    reply = open_client().post(CHAT, hello(raydebm={"deadline_ms": 50}))
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")


PRICES = {"usd_per_million_prompt_tokens": 0.0, "usd_per_million_completion_tokens": 15_625.0}
"""A completion of 64 tokens, the most, costs a dollar; what is written costs half a dollar."""


@pytest.fixture
def priced_recipe(recipe):
    return {**recipe, "generators": [{**generator, **PRICES} for generator in recipe["generators"]]}


def test_ceilings_hold(open_client, priced_recipe, tmp_path, client):
    """Of 1.2 dollars the first answer takes 0.5, so that the worst case of a second does not fit."""
    ring = Keyring([ApiKey(name="a", sha256=hashlib.sha256(b"k" * 32).hexdigest())])
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    service = open_client(priced_recipe, keyring=ring, ledger=ledger, limits={"per_day": {"usd": 1.2}})
    first, second = (service.post(CHAT, hello(), headers={"Authorization": f"Bearer {'k' * 32}"}) for _ in range(2))
    assert first.json()["raydebm"]["ceilings"][0]["left"] == pytest.approx(0.7)
    assert (second.status_code, second.json()["error"]["code"]) == (429, "insufficient_quota")


def test_max_usd_holds(open_client, priced_recipe):
    reply = open_client(priced_recipe).post(CHAT, hello(raydebm={"max_usd": 0.9}))
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "over_budget")


# ---- stored ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(open_client, tmp_path, puzzle):
    """What a service stored of one chat and one problem, and the chat's record id."""
    writer = DecisionWriter(str(tmp_path / "records"))
    client = open_client(records=writer)
    chat = client.post(CHAT, hello()).json()["raydebm"]["record_id"]
    client.post("/v1/triage", {"problem": puzzle})
    writer.close()
    return DecisionReader(writer.root), chat


def test_it_is_stored_without_a_decision(stored):
    reader, chat = stored
    record = reader.get(chat)
    assert (str(record.outcome.decision), record.outcome.problem.prompt) == ("passthrough", "Hello")
    (row,) = reader.page(Filter(decision="passthrough")).rows
    assert (row["record_id"], row["generator"], row["cost_usd"]) == (chat, "bo", 0.5)


def test_whoever_learns_from_decisions_does_not_see_it(stored):
    reader, chat = stored
    assert [record.outcome.problem.task for record in reader.records()] == ["knights_knaves"]
    assert reader.page().total == 1
    assert chat not in reader.table(["record_id"])["record_id"].to_pylist()


@pytest.fixture
def records_client(write_run, backend, client, tmp_path):
    """A service that lists what it stores, after one chat; and the chat's record id."""
    folder = str(tmp_path / "records")
    bundle = load_bundle(AppArgs(run_dir=write_run(), passthrough="bo", records={"folder": folder}))
    writer = DecisionWriter(folder)
    service = type(client)(create_app(TriageService(bundle, backend, records=writer)))
    record_id = service.post(CHAT, hello()).json()["raydebm"]["record_id"]
    writer.flush()
    return service, record_id


def test_it_is_listed_where_it_is_asked_for(records_client):
    client, record_id = records_client
    assert client.get("/v1/decisions").json()["total"] == 0
    (row,) = client.get("/v1/decisions?decision=passthrough").json()["data"]
    assert (row["record_id"], row["decision"], row["task"]) == (record_id, "passthrough", "passthrough")
    assert client.get("/v1/decisions/overview?decision=passthrough").json()["total"] == 1
    assert client.get(f"/v1/decisions/{record_id}").json()["candidates"][0]["text"] is not None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/decisions/{id}/replay", {"max_passes": 1}),
        ("/v1/decisions/replay", {"where": {"decision": "passthrough"}}),
        ("/v1/decisions/{id}/outcome", {"correct": True, "by": "me"}),
    ],
)
def test_nothing_was_decided_that_could_be_decided_again_or_judged(records_client, path, body):
    client, record_id = records_client
    reply = client.post(path.replace("{id}", record_id), body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "no_decision")


# ---- settings --------------------------------------------------------------------------------------------------------


def test_an_unknown_generator_ends_the_start(write_run):
    with pytest.raises(UnknownNameError, match="generator 'nobody'"):
        load_bundle(AppArgs(run_dir=write_run(), passthrough="nobody"))


def test_a_recorded_generator_has_no_answer_to_new_questions(write_run, recipe, tmp_path):
    pool = {"kind": "recorded", "name": "old", "pool": str(tmp_path / "pool.parquet"), "model": "m"}
    root = write_run()
    run = RunDir(root)
    both = parse_recipe({**recipe, "generators": [*recipe["generators"], pool]})
    run.write_json(both.model_dump(mode="json", by_alias=True), "recipe.json")
    with pytest.raises(ConfigError, match="generator 'old' is recorded"):
        load_bundle(AppArgs(run_dir=root, passthrough="old"))
