"""Who may report outcomes by which name."""

import pytest
from decisions_by_hand import bearer, key_of, keyring

from raydebm.service.access import load_keyring
from raydebm.service.core import TriageService
from raydebm.service.routes.application import create_app
from raydebm.service.settings import AppArgs, load_bundle
from raydebm.service.store.record import DecisionWriter

NAMES = {"auditors": ["audit"], "testers": ["nightly-tests"], "others": None}


@pytest.fixture
def keys_file(tmp_path):
    """Two keys that reserve a name, and one that does not."""
    return keyring(tmp_path, **{name: {} if names is None else {"reports_as": names} for name, names in NAMES.items()})


@pytest.fixture
def reported(write_run, backend, client, puzzle, tmp_path):
    """Has a decision made, and a report about it sent; returns status and error code."""

    def report(ring, key, by):
        args = AppArgs(run_dir=write_run(), records={"folder": str(tmp_path / "kept")}, auditors=["audit", "audit-2"])
        bundle = load_bundle(args)
        writer = DecisionWriter(bundle.records.folder, bundle.records)
        service = TriageService(bundle, backend, records=writer)
        asked = type(client)(create_app(service, keyring=ring))
        headers = bearer(key)
        record_id = asked.post("/v1/triage", {"problem": puzzle}, headers=headers).json()["record_id"]
        writer.flush()
        body = {"correct": False, "by": by}
        reply = asked.post(f"/v1/decisions/{record_id}/outcome", body, headers=headers)
        writer.close()
        return reply.status_code, reply.json().get("error", {})

    return report


@pytest.mark.parametrize(
    ("key", "by", "status"),
    [
        ("auditors", "audit", 200),
        ("auditors", "ada", 200),
        ("auditors", "nightly-tests", 403),
        ("testers", "nightly-tests", 200),
        ("testers", "audit", 403),
        ("others", "audit", 403),
        ("others", "audit-2", 403),  # no key lists it
        ("others", "nightly-tests", 403),
        ("others", "ada", 200),
    ],
)
def test_a_watched_or_reserved_name_needs_a_key_that_lists_it(reported, keys_file, key, by, status):
    given, error = reported(keys_file, key, by)
    assert given == status
    if status == 403:
        assert (error["code"], error["param"]) == ("not_allowed", "by")
        assert f"keys with {by!r} under `reports_as`" in error["message"]


@pytest.mark.parametrize("key", [None, "others"])
def test_without_a_keys_file_every_name_is_free(reported, key):
    ring = load_keyring(None, {} if key is None else {"RAYDEBM_API_KEYS": f"others={key_of('others')}"})
    assert reported(ring, key, "audit") == (200, {})
