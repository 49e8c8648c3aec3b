"""`/v1/decisions`: stored decisions listed, opened, summed up and decided again, for those who may see them."""

import math

import pytest
from decisions_by_hand import record, scored, stored_in

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_id
from raydebm.records import Decision
from raydebm.service.routes import stored as archive
from raydebm.service.routes.stored import stored_decision
from raydebm.service.store.outcomes import ClaimMonitor, OutcomeLog

RECORDS = (
    record(0, scored("a", -2.0, 0.0)),
    record(1, scored("b", -2.0, 1.0), scored("c", -1.0, 0.0, key="43"), prompt="How many LEGS has a spider?"),
    record(2, scored("d", -3.0, 0.5, penalty=0.5, generator="bo"), scored("e", -2.4, 0.5, key="7"), task="trips"),
    record(3, scored("f", -1.0, 2.0), decision=Decision.ABSTAIN, task="trips"),
    record(4, scored("g", -1.0, 0.0, penalty=math.inf, text="<b>?"), decision=Decision.ABSTAIN, best=None),
)
"""Sure; unsure; with a violation (and written by bo); abstained for sigma 2 > 1.5; abstained without any answer."""


@pytest.fixture
def bundle(bundle_of):
    made = bundle_of()
    stored_in(made.records.folder, RECORDS)
    return made


@pytest.fixture
def listed(client):
    """The request ids of a list with this query."""
    return lambda query="": [row["request_id"] for row in client.get(f"/v1/decisions{query}").json()["data"]]


# ---- lists -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["r4", "r3", "r2", "r1", "r0"]),
        ("?descending=false", ["r0", "r1", "r2", "r3", "r4"]),
        ("?decision=abstain", ["r4", "r3"]),
        ("?task=trips", ["r3", "r2"]),
        ("?generator=bo", ["r2"]),
        ("?text=legs", ["r1"]),
        ("?text=6%20x", ["r4", "r3", "r2", "r0"]),
        ("?since=2026-05-01T12:00:03Z", ["r4", "r3"]),
        ("?until=2026-05-01T14:00:01%2B02:00", ["r0"]),
        ("?request_id=r3", ["r3"]),
        ("?sort=sigma", ["r3", "r1", "r2", "r0", "r4"]),
        ("?sort=latency_ms&descending=false&limit=2", ["r0", "r1"]),
        ("?limit=2&offset=3", ["r1", "r0"]),
        ("?offset=100", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_list_is_filtered_sorted_and_cut(listed, query, expected):
    assert listed(query) == expected


def test_a_folder_that_cannot_be_read_is_503(tmp_path, client_of, bundle_of):
    (tmp_path / "file").write_text("no folder")
    client = client_of(bundle_of(records={"folder": str(tmp_path / "file")}))
    reply = client.get("/v1/decisions")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "records_unreadable")


def test_too_many_reads_are_refused_for_now(client, monkeypatch):
    monkeypatch.setattr(archive, "MAX_READS", 0)
    reply = client.get("/v1/decisions")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "overloaded")


# ---- one decision -------------------------------------------------------------------------------------------------


def test_what_did_not_parse_has_no_finite_numbers(client):
    decision = client.get(f"/v1/decisions/{RECORDS[4].record_id}").json()
    (candidate,) = decision["candidates"]
    assert (candidate["energy"], candidate["penalty"], candidate["text"]) == (None, None, "<b>?")
    assert decision["sigma"] is None


# ---- confidence and evidence of one decision ------------------------------------------------------------------------

BY_VOTES = Policy(
    rule="posterior",
    max_passes=1,
    posterior=Posterior(weights={"votes": 1.0}, context_weights={}),
    guarantee={"max_error": 0.1, "confidence": 0.9, "certified": True, "problems": 500},
)
"""p = share / (1 + 1): shares add up to 1, and "none of them" weighs as much."""


def voted():
    pool = (scored("a", -2.0, 0.0, key="43"), scored("b", -1.0, 0.0), scored("c", -1.0, 0.5, generator="bo"))
    return record(5, *pool, best=1, policy=BY_VOTES)


def test_a_stored_decision_has_its_answers_with_their_evidence():
    """log(2/3) and log(1/3) are log(2)/2 from their mean; the log-odds of 1/3 are -log(2), those of 1/6 -log(5)."""
    first, second = stored_decision(voted()).answers
    assert (first.answer, first.num_candidates) == ("42", 2)
    assert (first.authors, first.candidate_ids) == (["ada", "bo"], ["b", "c"])
    assert (first.probability, second.probability) == (pytest.approx(1 / 3), pytest.approx(1 / 6))
    half = math.log(2) / 2
    assert first.evidence == pytest.approx({"votes": half, "base": -math.log(2) - half})
    assert second.evidence == pytest.approx({"votes": -half, "base": -math.log(5) + half})


def test_a_guarantee_that_is_suspended_now_says_so(bundle_of, client_of):
    bundle, stored = bundle_of(policy=BY_VOTES), voted()
    stored_in(bundle.records.folder, [stored])
    claims = ClaimMonitor(OutcomeLog(bundle.records.folder), {})
    claims.suspension = {policy_id(BY_VOTES): "9 of 20 were wrong"}.get
    decision = client_of(bundle, claims=claims).get(f"/v1/decisions/{stored.record_id}").json()
    told = {**BY_VOTES.guarantee, "suspended": True, "reason": "9 of 20 were wrong", "outcomes": None}
    assert decision["guarantee"] == told
