"""response_format: the content is the task's answer in the client's JSON, or the request is refused."""

import json
import threading

import pytest
from hand_written_run import chat_body

from raydebm.errors import ServiceError
from raydebm.service.routes import chat as forms
from raydebm.service.routes.bodies import ResponseFormat
from raydebm.service.routes.chat import JsonForm, format_for_endpoints, json_form
from raydebm.tasks import get_task

ROLE = {"enum": ["knight", "knave"]}
ROLES = {"type": "object", "properties": {"Ava": ROLE, "Zoey": ROLE}, "required": ["Ava", "Zoey"]}
ANSWER = {"Ava": "knave", "Zoey": "knight"}
NUMBER = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


@pytest.mark.parametrize(
    ("schema", "answer", "content"),
    [
        (None, '{"a": 1}', {"a": 1}),
        (None, "18", {"answer": 18}),
        (None, "1/3", {"answer": "1/3"}),
        (None, "[1]", {"answer": [1]}),
        (None, "NaN", {"answer": "NaN"}),
        (None, "1e999", {"answer": "1e999"}),
        (None, '"half of \\ud83d"', {"answer": "half of \ufffd"}),
        (NUMBER, "18", {"total": 18}),
        ({"type": "object", "properties": {"total": {"type": "string"}}, "required": ["total"]}, "18", {"total": "18"}),
        ({"type": "string"}, "18", "18"),
        ({"type": "object", "required": ["answer"]}, "B", {"answer": "B"}),
        ({"$defs": {"n": {"type": "number"}}, "$ref": "#/$defs/n"}, "2.5", 2.5),
    ],
)
def test_an_answer_is_given_in_the_shape_that_was_asked_for(schema, answer, content):
    assert json.loads(JsonForm(schema).content(answer)) == content


@pytest.mark.parametrize("answer", ["1/3", '{"other": 1}', ""])
def test_an_answer_of_another_shape_is_refused(answer):
    with pytest.raises(ServiceError, match="cannot be given in this response_format") as caught:
        JsonForm(NUMBER).content(answer)
    assert (caught.value.status, caught.value.code) == (400, "unsupported_response_format")


def steps_without_end():
    """A short schema whose check takes more steps than anybody has."""
    twice = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    return {"$defs": {**twice, "a40": {"type": "object"}}, "$ref": "#/$defs/a0"}


def test_a_long_schema_is_refused_at_no_cost(backend, puzzle, bundle_of, client_of):
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(3000)}}
    size = len(json.dumps(schema))
    body = chat_body(puzzle, response_format=schema_format(schema))
    reply = client_of(bundle_of()).post("/v1/chat/completions", body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unsupported_response_format")
    assert f"has {size} characters; at most 64000" in reply.json()["error"]["message"]
    assert backend.requests == []


def test_the_choices_of_a_request_share_the_steps_of_its_schema():
    form = JsonForm(NUMBER)
    assert json.loads(form.content("18")) == {"total": 18}
    form.steps.take(form.steps.limit - form.steps.taken)
    with pytest.raises(ServiceError, match="more than 5000 steps"):
        form.content("18")


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_is_read_and_checked_off_the_event_loop(client, puzzle, monkeypatch, stream):
    threads = []

    def noting(work):
        def noted(*args):
            threads.append(threading.current_thread() is threading.main_thread())
            return work(*args)

        return noted

    monkeypatch.setattr(forms, "check_schema", noting(forms.check_schema))
    monkeypatch.setattr(forms, "faults_of", noting(forms.faults_of))
    body = chat_body(puzzle, response_format=schema_format(steps_without_end()), stream=stream)
    reply = client.post("/v1/chat/completions", body)
    assert "more than 5000 steps" in reply.text
    assert len(threads) > 1
    assert not any(threads)


def test_an_answer_that_breaks_the_schema_is_an_error_in_both_ways(client, puzzle, read_events):
    body = chat_body(puzzle, response_format=schema_format(NUMBER))
    reply = client.post("/v1/chat/completions", body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "response_format")
    events = read_events(client.post("/v1/chat/completions", {**body, "stream": True}).text)
    assert any('"unsupported_response_format"' in data for _, data in events)


def test_endpoints_are_offered_the_tasks_own_schema(declared_recipe):
    from raydebm.tasks import task_of

    task, wanted = task_of(declared_recipe.task), ResponseFormat(**schema_format(NUMBER))
    offered = format_for_endpoints(wanted, task)
    assert offered["json_schema"] == {"name": "reply", "schema": task.definition.output.json_schema}
    assert format_for_endpoints(wanted, get_task("gsm8k")) is None
    assert format_for_endpoints(ResponseFormat(type="json_object"), get_task("gsm8k")) == {"type": "json_object"}
    assert format_for_endpoints(None, task) is None
    assert json_form(None) is None
