"""POST /v1/triage/batch: every request for itself."""

import pytest


def test_results_come_in_the_order_of_the_requests(client, puzzle):
    reply = client.post(
        "/v1/triage/batch",
        {"requests": [{"problem": puzzle, "seed": seed} for seed in (5, 6, 7)]},
        headers={"X-Request-ID": "mine"},
    )
    data = reply.json()["data"]
    assert [item["result"]["seed"] for item in data] == [5, 6, 7]
    assert [item["result"]["request_id"] for item in data] == ["mine-0", "mine-1", "mine-2"]
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
    assert [(item["index"], item["status"], item["error"]["code"]) for item in body["data"]] == [
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
    assert [item["result"]["policy"]["lambda"] for item in data] == [3.0, 3.0]
