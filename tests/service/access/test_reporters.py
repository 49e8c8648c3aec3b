"""Who may report outcomes by which name."""

import pytest
from decisions_by_hand import bearer, key_of, keyring

from raydebm.service.access import load_keyring
from raydebm.service.store.record import DecisionWriter

RESERVING = {"auditors": {"reports_as": ["audit"]}, "testers": {"reports_as": ["nightly-tests"]}}


@pytest.fixture
def reported(bundle_of, client_of, puzzle):
    """Has a decision made, and a report about it sent; returns status and error."""

    def report(ring, key, by):
        bundle = bundle_of(auditors=["audit", "audit-2"])
        writer = DecisionWriter(bundle.records.folder)
        client, headers = client_of(bundle, records=writer, keyring=ring), bearer(key)
        record_id = client.post("/v1/triage", {"problem": puzzle}, headers=headers).json()["record_id"]
        reply = client.post(f"/v1/decisions/{record_id}/outcome", {"correct": False, "by": by}, headers=headers)
        writer.close()
        return reply.status_code, reply.json().get("error", {})

    return report


@pytest.mark.parametrize(
    ("key", "by", "status"),
    [
        ("auditors", "audit", 200),
        ("auditors", "ada", 200),
        ("auditors", "nightly-tests", 403),
        ("others", "audit", 403),
        ("others", "audit-2", 403),  # no key lists it
        ("others", "nightly-tests", 403),
        ("others", "ada", 200),
    ],
)
def test_a_watched_or_reserved_name_needs_a_key_that_lists_it(reported, key, by, status):
    given, error = reported(keyring("others", **RESERVING), key, by)
    assert given == status
    if status == 403:
        assert (error["code"], error["param"]) == ("not_allowed", "by")
        assert f"keys with {by!r} under `reports_as`" in error["message"]


@pytest.mark.parametrize("key", [None, "others"])
def test_without_a_keys_file_every_name_is_free(reported, key):
    ring = load_keyring(None, {} if key is None else {"RAYDEBM_API_KEYS": f"others={key_of('others')}"})
    assert reported(ring, key, "audit") == (200, {})
