"""POST /v1/triage/batch: every request for itself."""

import asyncio
from types import SimpleNamespace

import pytest

from raydebm.decision.policy import policy_id
from raydebm.serving.api.triage.problem_batch import BatchRequest, triage_batch
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle


def test_results_come_in_the_order_of_the_requests(client, puzzle):
    reply = client.post(
        "/v1/triage/batch",
        {"requests": [{"problem": puzzle, "seed": seed} for seed in (5, 6, 7)]},
        headers={"X-Request-ID": "mine"},
    )
    data = reply.json()["data"]
    assert [entry["result"]["seed"] for entry in data] == [5, 6, 7]
    assert [entry["result"]["request_id"] for entry in data] == ["mine-0", "mine-1", "mine-2"]
    assert reply.json()["num_failed"] == 0


def test_what_cannot_be_answered_sinks_no_other(client, puzzle, script):
    script(lambda request: None)
    requests = [
        {"problem": puzzle},
        {"problem": "What is 2 + 2?"},
        {"problm": puzzle},
        {"problem": puzzle, "task": "x"},
    ]
    body = client.post("/v1/triage/batch", {"requests": requests}).json()
    assert [(entry["index"], entry["status"], entry["error"]["code"]) for entry in body["data"]] == [
        (0, 503, "generation_failed"),
        (1, 422, "not_a_problem"),
        (2, 400, "invalid_request"),
        (3, 404, "unknown_task"),
    ]
    assert body["num_failed"] == 4


def test_no_more_than_max_parallel_are_worked_on_at_once(client, puzzle, backend, texts):
    running, most = set(), []

    def write(request):
        most.append(len(running))
        return texts["right"]

    backend.write, original = write, backend.generate

    async def generate(requests, on_candidate, *, hedge):
        running.add(id(requests))
        try:
            return await original(requests, on_candidate, hedge=hedge)
        finally:
            running.discard(id(requests))

    backend.generate, backend.pause_s = generate, 0.001
    requests = [{"problem": puzzle, "seed": seed} for seed in range(9)]
    client.post("/v1/triage/batch", {"requests": requests, "max_parallel": 3})
    assert max(most) == 3


@pytest.mark.parametrize("body", [{"requests": []}, {"requests": [{}] * 257}, {"requests": ["x"]}, {}])
def test_bad_batches(client, body):
    assert client.post("/v1/triage/batch", body).status_code in (400, 413)


def test_headers_hold_for_every_request(client, puzzle):
    body = {"requests": [{"problem": puzzle}, {"problem": puzzle, "lambda": 5}]}
    data = client.post("/v1/triage/batch", body, headers={"X-RayDEBM-Lambda": "3"}).json()["data"]
    assert [entry["result"]["policy"]["lambda"] for entry in data] == [3.0, 3.0]


def test_a_fault_of_the_service_sinks_no_other(client, puzzle, script, texts, caplog):
    seeds = {}
    script(lambda request: ZeroDivisionError() if seeds.setdefault(request.seed, len(seeds)) == 0 else texts["right"])
    requests = [{"problem": puzzle, "seed": seed} for seed in (5, 6)]
    reply = client.post("/v1/triage/batch", {"requests": requests, "max_parallel": 1}, headers={"X-Request-ID": "mine"})
    broken, good = reply.json()["data"]
    assert (broken["status"], broken["error"]["code"], good["status"]) == (500, "internal", 200)
    assert "under request id mine-0" in broken["error"]["message"]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


@pytest.fixture
def batch_within(write_run, backend, puzzle, run_virtually):
    """Answers of equal requests, one after the other, that take four seconds each; and when the batch was over."""
    backend.pause_s = 1.0

    def run(seconds, count, **overrides):
        service = TriageService(load_bundle(AppArgs(run_dir=write_run(), max_deadline_s=seconds)), backend)
        asked = [{"problem": puzzle, "seed": seed, **overrides} for seed in range(count)]

        async def work():
            batch = BatchRequest(requests=asked, max_parallel=1)
            reply = await triage_batch(service, batch, request_id="r", headers={})
            return reply.data, asyncio.get_running_loop().time()

        return run_virtually(work())

    return run


def late_of(entry):
    return sum(generator.late for generator in entry.result.generators)


def test_a_batch_is_over_in_time_and_says_what_was_not_begun(batch_within):
    entries, ended_s = batch_within(10, 5)

    assert [entry.status for entry in entries] == [200, 200, 200, 503, 503]
    assert [late_of(entry) for entry in entries[:3]] == [0, 0, 3]  # the third one has the two seconds that are left
    assert [entry.error["code"] for entry in entries[3:]] == ["not_begun"] * 2
    assert "the 10 s that a batch may take were nearly over" in entries[3].error["message"]
    assert ended_s < 10


def test_what_a_batch_leaves_of_its_time_is_said_and_is_no_other_policy(write_run, backend, puzzle, run_virtually):
    bundle, records = load_bundle(AppArgs(run_dir=write_run(), max_deadline_s=10)), []
    backend.pause_s = 1.0
    sink = SimpleNamespace(put=lambda record: records.append(record) or True)
    batch = BatchRequest(requests=[{"problem": puzzle}, {"problem": puzzle, "seed": 1}], max_parallel=1)

    answer = run_virtually(
        triage_batch(TriageService(bundle, backend, records=sink), batch, request_id="r", headers={})
    )

    # the first one takes the second of each of its four candidates
    assert [entry.result.policy["deadline_ms"] for entry in answer.data] == [10_000, 6_000]
    assert {policy_id(record.policy) for record in records} == set(bundle.answering)


def test_nothing_is_paid_for_that_is_not_begun(batch_within, backend):
    batch_within(10, 50)
    assert len(backend.requests) == 4 + 4 + 2


def test_a_deadline_for_each_request_leaves_time_for_the_others(batch_within):
    entries, _ = batch_within(10, 5, deadline_ms=1500)
    assert [(entry.status, late_of(entry)) for entry in entries] == [(200, 3)] * 5


def test_a_batch_may_take_for_ever_where_requests_may(batch_within):
    entries, ended_s = batch_within(None, 5)
    assert ([entry.status for entry in entries], ended_s) == ([200] * 5, 20.0)
