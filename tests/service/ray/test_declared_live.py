"""The starter task, from its file to labels on Ray Data and answers of Ray Serve, which run when the file is gone."""

import json

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_workers_label_and_check_without_the_file(labelled, declared_folder):
    assert not (declared_folder / "task.yaml").exists()
    labels = labelled.labels()
    reports = labelled.reports()

    assert sum(row.verdict == "correct" for row in labels) == 27
    assert sum(row.verdict == "incorrect" for row in labels) == 21
    assert sum(row.penalty == 0 for row in reports) == 24


def test_the_service_checks_gives_feedback_and_accepts(local_service):
    answer = local_service.typed

    assert (answer["decision"], json.loads(answer["answer"])["refund"]) == ("accept", 20)
    assert [pass_["decision"] for pass_ in answer["passes"]] == ["regenerate", "accept"]
    assert "- the refund is 30.00; it must be at most 20.00" in answer["feedback"][0]
    assert "- the reply neither thanks nor apologises" in answer["feedback"][0]


def test_the_chat_route_names_what_is_missing(local_service):
    answer = local_service.untyped

    assert answer.status_code == 422
    assert "needs the fields message, paid" in answer.json()["error"]["message"]
