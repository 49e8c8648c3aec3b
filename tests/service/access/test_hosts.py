"""Names under which a service without keys answers."""

import json

import pytest
from decisions_by_hand import bearer, keyring
from hand_written_run import chat_body
from starlette.datastructures import Headers

from raydebm.errors import ServiceError
from raydebm.service.access import check_host

ALLOWED = [
    "localhost",
    "LOCALHOST.:8000",
    "app.localhost:8000",
    "10.0.0.5:8000",
    "127.1.2.3",
    "[::1]:8000",
    "[::1]",
    "verifier.internal:80",
]
REFUSED = [
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evillocalhost",
    "verifier.internal.evil.example",
    "127.0.0.1:8000:evil.example",
    "[evil.example]",
]


@pytest.mark.parametrize("host", ALLOWED)
def test_localhost_addresses_and_allowed_names_are_answered(host):
    check_host(Headers({"host": host}), {"verifier.internal"})


@pytest.mark.parametrize("headers", [[(b"host", host.encode())] for host in REFUSED], ids=REFUSED)
def test_other_names_are_refused(headers):
    with pytest.raises(ServiceError, match="allowed_hosts") as caught:
        check_host(Headers(raw=headers), {"verifier.internal"})
    assert (caught.value.status, caught.value.code) == (403, "unknown_host")


@pytest.mark.parametrize("headers", [[], [(b"host", b"localhost"), (b"host", b"evil.example")]], ids=["none", "two"])
def test_a_request_says_exactly_once_to_whom_it_goes(headers):
    with pytest.raises(ServiceError):
        check_host(Headers(raw=headers), ())


EVIL = {"Host": "evil.example:8000"}


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/openapi.json", "/", "/nowhere"])
def test_without_keys_nothing_is_told_to_another_name(client, path):
    reply = client.get(path, headers=EVIL)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "unknown_host")


BODIES = ("/v1/triage", "/v1/chat/completions", "/v1/responses", "/v1/decisions/x/outcome")


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
@pytest.mark.parametrize("path", BODIES)
def test_a_page_of_another_site_has_nothing_run(client, backend, puzzle, path, kind):
    """A browser sends these types, and a body of no type, to any address without asking the service first."""
    content = json.dumps(chat_body(puzzle, problem=puzzle, input=puzzle, outcome="right"))
    reply = client.request("POST", path, content=content, headers={} if kind is None else {"Content-Type": kind})
    assert (reply.status_code, reply.json()["error"]["code"], backend.requests) == (400, "invalid_json", [])
    assert "Content-Type: application/json" in reply.json()["error"]["message"]


def test_allowed_hosts_are_an_argument(bundle_of, client_of):
    bundle = bundle_of(allowed_hosts=("Verifier.Internal",))
    app_client = client_of(bundle)
    assert app_client.get("/v1/models", headers={"Host": "verifier.internal:80"}).status_code == 200
    assert app_client.get("/v1/models", headers=EVIL).status_code == 403


def test_with_keys_the_name_does_not_matter(bundle, client_of):
    keyed = client_of(bundle, keyring=keyring("ada"))
    assert keyed.get("/v1/models", headers=EVIL | bearer("ada")).status_code == 200
