"""A client of the service names no address: whatever it writes into a field, nothing is opened and nothing is called.

Endpoints, folders and files come from the recipe and the application's arguments alone, so there is no address of a
client's to check. This test fails when a field changes that.
"""

import contextlib
import copy
import sys
from pathlib import Path

import pytest
from hand_written_run import chat_body

from raydebm.service.store.record import DecisionWriter

HOST = "metadata.probe.invalid"
FILE = "/etc/probe-of-a-client"
URL = f"http://{HOST}/latest/meta-data"
ADDRESSES = (URL, f"s3://{HOST}/run", f"file://{FILE}", f"../../../..{FILE}")
ROUTES = (
    "/v1/chat/completions", "/v1/triage", "/v1/score", "/v1/rerank", "/get_reward",
    "/v1/responses",
    "/v1/decisions/{record_id}/outcome",
)  # fmt: skip
"""What takes a body."""
_EVENTS = ("open", "os.", "socket.", "subprocess.", "urllib.", "http.", "shutil.", "glob.", "pathlib.")
_seen = []
_documents = []


def _watch(event, arguments):
    """Audit hooks cannot be taken away, so there is one for the session, which notes what names the probe."""
    if event.startswith(_EVENTS) and (HOST in repr(arguments) or FILE in repr(arguments)):
        _seen.append((event, repr(arguments)[:200]))


sys.addaudithook(_watch)


@contextlib.contextmanager
def nothing_opened():
    _seen.clear()
    yield
    assert _seen == []


def places_of(value, path=()):
    """The path of every text in a body."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from places_of(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from places_of(inner, (*path, place))


def changed(body, path, value):
    body = copy.deepcopy(body)
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return body


def example_of(document, route):
    """The first example of a body, and the top-level fields that it may leave out."""
    content = document["paths"][route]["post"]["requestBody"]["content"]["application/json"]
    example = next(iter(content["examples"].values()))["value"]
    return example, document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]["properties"]


@pytest.fixture
def document(client):
    """The OpenAPI document, written once for all tests."""
    if not _documents:
        _documents.append(client.get("/openapi.json").json())
    return _documents[0]


@pytest.fixture
def send(bundle, client_of, puzzle):
    """Sends a body to a service with one stored decision."""
    records = DecisionWriter(bundle.records.folder)
    client = client_of(bundle, records=records)
    record_id = client.post("/v1/triage", {"problem": puzzle}).json()["record_id"]
    records.flush()
    return lambda route, body: client.post(route.replace("{record_id}", record_id), body)


def test_the_watch_sees_what_it_is_for():
    _seen.clear()
    with contextlib.suppress(OSError):
        Path(FILE).read_bytes()
    assert [event for event, _ in _seen] == ["open"]


def test_every_route_that_takes_a_body_is_tried(document):
    assert {path for path, methods in document["paths"].items() if {"post", "put", "patch"} & {*methods}} == {*ROUTES}


@pytest.mark.parametrize("route", ROUTES)
def test_the_examples_that_are_changed_are_answered(document, send, route):
    example, _ = example_of(document, route)
    reply = send(route, example)
    assert (route, reply.status_code) == (route, 200), reply.text


@pytest.mark.parametrize("address", [URL, FILE])
@pytest.mark.parametrize("route", ROUTES)
def test_no_text_of_a_body_is_an_address(document, send, route, address):
    example, fields = example_of(document, route)
    bodies = [changed(example, path, address) for path in places_of(example)]
    bodies += [{**example, name: value} for name in fields for value in (address, {"url": address})]
    with nothing_opened():
        statuses = {send(route, body).status_code for body in bodies}
    assert max(statuses) < 500


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_header_and_no_path_is_an_address(client, puzzle, address):
    with nothing_opened():
        assert client.post("/v1/triage", {"problem": puzzle}, headers={"X-Request-ID": address}).status_code < 500
        assert client.get(f"/v1/decisions/{address.replace('/', '%2F')}").status_code < 500
        assert client.get(f"/v1/models/{address}").status_code < 500


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_schema_refers_to_no_other_document(client, puzzle, address):
    schema = {"type": "object", "properties": {"a": {"$ref": address}}, "$schema": address, "$id": address}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with nothing_opened():
        reply = client.post("/v1/chat/completions", chat_body(puzzle, response_format=wanted))
    assert reply.status_code in (200, 400)


def test_a_task_file_of_a_client_is_not_read(client, puzzle, tmp_path):
    file = tmp_path / "task.yaml"
    file.write_text("name: mine\n")
    reply = client.post("/v1/triage", {"problem": puzzle, "task": str(file)})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_task")
