"""Names under which a service without keys answers."""

import hashlib
import json
import shutil
import threading
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler

import pytest

from raydebm.errors import ServiceError
from raydebm.service.access import ApiKey, Keyring, check_host

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
    check_host([(b"host", host.encode())], {"verifier.internal"})


@pytest.mark.parametrize("headers", [[(b"host", host.encode())] for host in REFUSED], ids=REFUSED)
def test_other_names_are_refused(headers):
    with pytest.raises(ServiceError, match="allowed_hosts") as caught:
        check_host(headers, {"verifier.internal"})
    assert (caught.value.status, caught.value.code) == (403, "unknown_host")


@pytest.mark.parametrize("headers", [[], [(b"host", b"localhost"), (b"host", b"evil.example")]], ids=["none", "two"])
def test_a_request_says_exactly_once_to_whom_it_goes(headers):
    with pytest.raises(ServiceError):
        check_host(headers, ())


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
    chat = {"model": "raydebm/knights_knaves", "messages": [{"role": "user", "content": puzzle}]}
    content = json.dumps({"problem": puzzle, "input": puzzle, "outcome": "right", **chat})
    reply = client.request("POST", path, content=content, headers={} if kind is None else {"Content-Type": kind})
    assert (reply.status_code, reply.json()["error"]["code"], backend.requests) == (400, "invalid_json", [])
    assert "Content-Type: application/json" in reply.json()["error"]["message"]


def test_allowed_hosts_are_an_argument(bundle_of, client_of):
    bundle = bundle_of(allowed_hosts=("Verifier.Internal",))
    app_client = client_of(bundle)
    assert app_client.get("/v1/models", headers={"Host": "verifier.internal:80"}).status_code == 200
    assert app_client.get("/v1/models", headers=EVIL).status_code == 403


def test_with_keys_the_name_does_not_matter(bundle, client_of):
    key = "k" * 32
    ring = Keyring([ApiKey(name="a", sha256=hashlib.sha256(key.encode()).hexdigest())])
    keyed = client_of(bundle, keyring=ring)
    assert keyed.get("/v1/models", headers={**EVIL, "Authorization": f"Bearer {key}"}).status_code == 200


# ---- in a browser ----------------------------------------------------------------------------------------------------

READ = "async () => { const reply = await fetch('/v1/models'); return [reply.status, await reply.text()] }"


@pytest.fixture(scope="module")
def rebound():
    """A Chromium to which evil.example is 127.0.0.1, as after a rebinding, and which does not guard local addresses
    itself. Yields a function: (page at evil.example:port) -> what the page's script gets of the service there."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no browser found: apt-get install chromium")
    arguments = ["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
    arguments.append("--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments, timeout=120_000)
        yield browser
        browser.close()


@pytest.mark.slow
@pytest.mark.parametrize(("allowed", "status"), [((), 403), (("evil.example",), 200)], ids=["refused", "allowed"])
def test_a_page_whose_name_is_rebound_reads_nothing(
    rebound, free_port, listening, allowed, status, bundle_of, app_of, tmp_path
):
    bundle = bundle_of(allowed_hosts=allowed)
    page = rebound.new_page()
    page.set_default_timeout(60_000)
    server = HTTPServer(("127.0.0.1", free_port), partial(SimpleHTTPRequestHandler, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    page.goto(f"http://evil.example:{free_port}/")  # a list of no files
    server.shutdown()
    server.server_close()
    with listening(app_of(bundle), free_port):
        seen = page.evaluate(READ)
    page.close()
    assert seen[0] == status
    assert ("knights_knaves" in seen[1]) == (status == 200)
