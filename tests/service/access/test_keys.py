"""API keys: who may call, and that nothing ever shows one."""

import hashlib
import logging
import pickle

import pytest
import yaml

from raydebm.errors import ConfigError
from raydebm.service.access import ApiKey, Keyring, load_keyring

KEY = "c0ffee" * 8
HASH = hashlib.sha256(KEY.encode()).hexdigest()


@pytest.fixture
def keys_file(tmp_path):
    def write(*entries):
        path = tmp_path / "keys.yaml"
        path.write_text(yaml.safe_dump({"keys": list(entries)}))
        return str(path)

    return write


@pytest.fixture
def app(bundle, app_of):
    return app_of(bundle, keyring=Keyring([ApiKey(name="team-a", sha256=HASH)]))


def asked(client, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    return client.get("/v1/models", headers=headers)


@pytest.mark.parametrize("wrong", [None, "Bearer", f"Bearer {KEY}0", f"Basic {KEY}", f"Bearer {HASH}"])
def test_anything_else_is_401_in_openais_form(client, wrong):
    reply = asked(client, wrong)
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert reply.json()["error"]["code"] == "invalid_api_key"
    assert KEY[:12] not in reply.text


def test_health_tells_strangers_no_reason(client, backend):
    backend.ready = False
    replies = [client.get("/health", headers=headers) for headers in ({}, {"Authorization": f"Bearer {KEY}"})]
    assert [reply.status_code for reply in replies] == [503, 503]
    stranger, owner = (reply.json()["error"]["message"] for reply in replies)
    assert stranger == "the service is not ready; send an API key to see the reason"
    assert owner != stranger


@pytest.mark.parametrize(
    ("path", "status"),
    [("/p/health", 200), ("/p/", 200), ("/p", 307), ("/p/v1/models", 401), ("/p/p/health", 401), ("/phealth", 401)],
)
def test_below_a_route_prefix_the_same_needs_no_key(client, app, path, status):
    client.app = lambda scope, receive, send: app({**scope, "root_path": "/p"}, receive, send)
    assert client.get(path).status_code == status


def test_a_stranger_is_refused_before_its_body_is_read(client):
    async def body():
        raise AssertionError("the body was read")
        yield b""

    assert client.request("POST", "/v1/triage", content=body()).status_code == 401


def test_a_keys_file_is_read(keys_file):
    path = keys_file({"name": "a", "sha256": HASH.upper(), "decisions": False})
    owner = load_keyring(path).owner(f"Bearer {KEY}")
    assert (owner.name, owner.decisions) == ("a", False)


def test_the_environment_holds_keys_with_or_without_names():
    ring = load_keyring(None, {"RAYDEBM_API_KEYS": f"team={KEY}, {KEY[::-1]}"})
    assert [ring.owner(f"Bearer {key}").name for key in (KEY, KEY[::-1])] == ["team", "key-1"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"name": "a", "sha256": KEY}], "sha256"),
        ([{"name": "a", "sha256": HASH, "key": KEY}], "key"),
        ([{"name": "a b", "sha256": HASH}], "name"),
        ([{"name": "a", "sha256": HASH}, {"name": "a", "sha256": HASH}], "two API keys"),
        ([{"name": "a", "sha256": HASH}, {"name": "b", "sha256": HASH.upper()}], "'a' and 'b' have the same API key"),
        ([], "keys"),
    ],
)
def test_a_bad_keys_file_is_refused_without_a_word_of_its_secrets(keys_file, entries, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load_keyring(keys_file(*entries))
    assert KEY[:12] not in str(caught.value)
    assert HASH[:12] not in str(caught.value)


def test_a_keys_file_with_a_field_that_stands_twice_is_refused_without_quoting_it(tmp_path):
    path = tmp_path / "keys.yaml"
    path.write_text(f"keys:\n- name: a\n  sha256: {HASH}\n  decisions: false\n  decisions: true\n")
    with pytest.raises(ConfigError, match=r"keys\.yaml': a field is given twice, in lines 4 and 5; remove one of them"):
        load_keyring(str(path))


def test_keys_are_never_logged(client, caplog):
    with caplog.at_level(logging.DEBUG):
        asked(client, f"Bearer {KEY}")
        asked(client, f"Bearer {KEY}x")
    text = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert KEY[:12] not in text
    assert HASH[:12] not in text
    assert "team-a" in text


def test_what_goes_to_replicas_holds_no_key(bundle, monkeypatch):
    monkeypatch.setenv("RAYDEBM_API_KEYS", KEY)
    assert KEY.encode() not in pickle.dumps(bundle)


def test_a_key_does_not_show_its_hash():
    assert HASH not in repr(ApiKey(name="a", sha256=HASH))
