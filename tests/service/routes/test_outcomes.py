"""Outcomes: reported over HTTP, stored beside the decisions, counted by policy, and held against a guarantee."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from decisions_by_hand import START, stored_in
from decisions_by_hand import report as file_report

from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.decision.policy import Policy, policy_id
from raydebm.records import Decision
from raydebm.run.folder import Folder
from raydebm.service.core import TriageService
from raydebm.service.routes import stored as desk_module
from raydebm.service.routes.stored import OutcomeRequest, RecordsDesk
from raydebm.service.store.outcomes import REFRESH_S, Claim, ClaimMonitor, OutcomeLog
from raydebm.service.store.record import DecisionWriter, new_record_id


@pytest.fixture
def decisions(decided):
    """As the service made it with the right answer: two accepted, one refused, one without any selection; a second
    apart."""
    template = decided().record
    refused = replace(template.outcome, decision=Decision.ABSTAIN)
    kinds = [template.outcome, template.outcome, refused, replace(refused, best=None)]
    moments = [START + timedelta(seconds=index) for index in range(len(kinds))]
    return [
        replace(template, record_id=new_record_id(moment), time=moment, outcome=kind)
        for moment, kind in zip(moments, kinds, strict=True)
    ]


@pytest.fixture
def folder(bundle, decisions):
    stored_in(bundle.records.folder, decisions)
    return bundle.records.folder


@pytest.fixture
def report(client, folder, decisions):
    """Posts an outcome of decision ``index``; returns the answer."""

    def post(index, correct, by="ada", **more):
        path = f"/v1/decisions/{decisions[index].record_id}/outcome"
        return client.post(path, {"correct": correct, "by": by, **more})

    return post


def told(reply):
    body = reply.json()
    return reply.status_code, body["status"], body["outcome"], body["disputed"], body["reports"]


# ---- reporting -----------------------------------------------------------------------------------------------------


def test_an_outcome_is_stored_with_what_it_is_about(report, folder, decisions):
    report(0, True, note="looked it up")
    (outcome,) = OutcomeLog(folder).reports()
    told = (outcome.record_id, outcome.correct, outcome.by, outcome.note)
    assert told == (decisions[0].record_id, True, "ada", "looked it up")
    selected = decisions[0].outcome.best.candidate.candidate_id
    assert (outcome.task, outcome.decision, outcome.selected) == ("knights_knaves", "accept", selected)
    assert outcome.policy_id == policy_id(decisions[0].policy)


def test_a_decision_that_still_waits_to_be_written_can_be_reported(bundle, puzzle, client_of):
    writer = DecisionWriter(bundle.records.folder, flush_s=3600)
    own = client_of(bundle, records=writer)
    answer = own.post("/v1/triage", {"problem": puzzle}).json()
    assert told(own.post(f"/v1/decisions/{answer['record_id']}/outcome", {"correct": True, "by": "ada"}))[0] == 200
    writer.close()


@pytest.mark.parametrize(
    ("index", "body", "code", "param"),
    [
        (3, {"correct": True}, "no_answer", "correct"),
        (0, {"correct": False, "fields": {"Bo": {"correct": False}}}, "unknown_field", "fields.Bo"),
        (0, {"correct": True, "fields": {"Ava": {"correct": False}}}, "contradiction", "fields.Ava"),
        (0, {"correct": False, "fields": {"Ava": {"correct": False, "value": "knave"}}}, "contradiction", "fields.Ava"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_report_that_contradicts_itself_is_422(report, index, body, code, param):
    reply = report(index, **body)
    assert (reply.status_code, reply.json()["error"]["code"], reply.json()["error"]["param"]) == (422, code, param)


def test_an_outcome_of_a_field_is_stored_and_shown(report, client, folder, decisions):
    fields = {"Ava": {"correct": False, "value": "knight"}, "Zoey": {"correct": True}}

    assert told(report(0, False, fields=fields))[:2] == (200, "created")
    assert told(report(0, False, fields=fields))[1] == "unchanged"
    assert told(report(0, False, fields={"Zoey": {"correct": True}}))[1] == "replaced"
    shown = client.get(f"/v1/decisions/{decisions[0].record_id}").json()["outcomes"]
    assert [each["fields"] for each in shown] == [fields, {"Zoey": {"correct": True}}]


def test_a_decision_takes_so_many_reports_at_most(report, monkeypatch):
    monkeypatch.setattr(desk_module, "MAX_REPORTS", 2)
    report(0, True)
    report(0, False)
    reply = report(0, True)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "too_many_outcomes")
    assert told(report(0, False))[1] == "unchanged"


def test_a_disk_that_is_full_is_503_and_the_report_can_be_sent_again(report, folder, monkeypatch):
    room = Folder.write_bytes

    def full(self, content, *parts):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "write_bytes", full)
    reply = report(0, True)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "outcomes_unavailable")
    assert int(reply.headers["retry-after"]) > 0
    monkeypatch.setattr(Folder, "write_bytes", room)
    assert told(report(0, True))[:2] == (200, "created")


# ---- many at once, and clocks --------------------------------------------------------------------------------------


@pytest.fixture
def desk(bundle, backend, folder):
    return RecordsDesk(TriageService(bundle, backend), ClaimMonitor(OutcomeLog(folder), {}))


def test_reports_that_come_together_all_count(desk, folder, decisions):
    async def run():
        bodies = [OutcomeRequest(correct=True, by=f"name{index}") for index in range(20)]
        return await asyncio.gather(*(desk.report(decisions[0].record_id, body) for body in bodies))

    assert sorted(receipt.reports for receipt in asyncio.run(run())) == list(range(1, 21))
    assert len(list(OutcomeLog(folder).reports())) == 20


def test_who_goes_away_does_not_undo_the_reports_of_others(desk, folder, decisions):
    async def run():
        tasks = [
            asyncio.create_task(desk.report(decisions[0].record_id, OutcomeRequest(correct=True, by=name)))
            for name in ("ada", "bo")
        ]
        while not desk.num_waiting:
            await asyncio.sleep(0)
        tasks[0].cancel()
        return await tasks[1]

    assert asyncio.run(run()).status == "created"


def test_too_many_waiting_reports_are_refused_for_now(report, monkeypatch):
    monkeypatch.setattr(desk_module, "MAX_WAITING", 0)
    reply = report(0, True)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "overloaded")


def test_a_clock_that_is_set_back_lets_no_older_report_win(tmp_path):
    moment = [START.timestamp()]
    log = OutcomeLog(str(tmp_path), clock=lambda: moment[0])
    file_report(log, "a", True)
    moment[0] -= 86_400
    later = file_report(log, "a", False)
    assert later.time == START - timedelta(days=1)
    assert log.verdicts().to_pylist() == [{"record_id": "a", "outcome": "wrong", "disputed": False}]
    assert [outcome.correct for outcome in log.history("a")] == [True, False]


def test_replicas_whose_clocks_differ_agree(tmp_path):
    ahead = OutcomeLog(str(tmp_path), clock=lambda: START.timestamp() + 3600)
    behind = OutcomeLog(str(tmp_path), clock=START.timestamp)
    file_report(ahead, "a", True)
    file_report(behind, "a", False, by="bo")
    for log in (ahead, behind, OutcomeLog(str(tmp_path))):
        assert log.verdicts().to_pylist() == [{"record_id": "a", "outcome": "wrong", "disputed": True}]


# ---- live accuracy -------------------------------------------------------------------------------------------------


def test_accuracy_and_coverage_by_policy(report, client, decisions):
    """Two of four answered, of which one right and one wrong; one of the two refused ones would have been right."""
    report(0, True)
    report(1, False)
    report(2, True)
    summary = client.get("/v1/outcomes").json()
    (policy,) = summary["policies"]
    assert (summary["decisions"], summary["with_outcome"], summary["disputed"]) == (4, 3, 0)
    assert policy["policy_id"] == policy_id(decisions[0].policy)
    assert policy["served"]
    counts = {"accepted": 2, "coverage": 0.5, "right": 1, "wrong": 1, "accuracy": 0.5}
    assert {name: policy[name] for name in counts} == counts
    # At the upper end p^2 = 0.975, and at the lower one (1 - p)^2.
    assert (policy["accuracy_low"], policy["accuracy_high"]) == pytest.approx((1 - 0.975**0.5, 0.975**0.5))
    assert (policy["refused_right"], policy["refused_wrong"], policy["claim"]) == (1, 0, None)


def test_outcomes_of_decisions_that_are_no_longer_stored_count(tmp_path, bundle_of, client_of):
    bundle = bundle_of(records={"folder": str(tmp_path)})
    file_report(OutcomeLog(str(tmp_path)), "gone", False)
    summary = client_of(bundle).get("/v1/outcomes").json()
    assert [(each["policy_id"], each["decisions"], each["wrong"], each["served"]) for each in summary["policies"]] == [
        ("p", 0, 1, False)
    ]


# ---- the claim -----------------------------------------------------------------------------------------------------


CLAIM = Claim(max_error=0.1, delta=0.05)


def test_an_alarm_suspends_the_claim_of_its_policy_alone(tmp_path):
    log, seen = OutcomeLog(str(tmp_path)), []
    monitor = ClaimMonitor(log, {"p": CLAIM, "q": CLAIM}, on_change=lambda policy, watch: seen.append((policy, watch)))
    for index in range(9):
        file_report(log, f"r{index}", False)
    monitor.refresh()
    assert monitor.suspension("p")
    assert not monitor.suspension("q")
    assert monitor.suspension("p").startswith("9 of 9 reported answers are wrong")
    assert seen == [("p", ErrorWatch(alpha=0.1).after_all([True] * 9)), ("q", ErrorWatch(alpha=0.1))]
    assert [reason.partition(":")[0] for reason in monitor.reasons()] == ["the guarantee of policy p is suspended"]


def test_abstentions_and_other_reporters_are_not_bet_on(tmp_path):
    log = OutcomeLog(str(tmp_path))
    monitor = ClaimMonitor(log, {"p": Claim(max_error=0.1, by=("audit",))})
    for index in range(9):
        file_report(log, f"a{index}", False, decision="abstain", by="audit")
        file_report(log, f"b{index}", False)
    file_report(log, "c", True, by="audit")
    monitor.refresh()
    ((_, watch),) = monitor.watches().values()
    assert (watch.num, watch.num_wrong) == (1, 0)


def test_a_problem_that_was_asked_again_is_bet_on_once_by_its_first_request(tmp_path):
    log = OutcomeLog(str(tmp_path))
    monitor = ClaimMonitor(log, {"p": CLAIM})
    for name, correct, problem in (("a", True, "x"), ("b", False, "y"), ("c", False, "x")):
        file_report(log, name, correct, problem_key=problem)
    monitor.refresh()
    assert monitor.watches()["p"][1] == ErrorWatch(alpha=0.1).after_all([False, True])


def test_a_correction_is_bet_on_anew(tmp_path):
    log = OutcomeLog(str(tmp_path))
    monitor = ClaimMonitor(log, {"p": CLAIM})
    for index in range(9):
        file_report(log, f"r{index}", False)
        monitor.refresh()
    assert monitor.watches()["p"][1] == ErrorWatch(alpha=0.1).after_all([True] * 9)
    for index in range(9):
        file_report(log, f"r{index}", True)
    monitor.refresh()
    assert monitor.watches()["p"][1] == ErrorWatch(alpha=0.1).after_all([False] * 9)
    assert not monitor.suspension("p")


def test_asking_never_waits_and_looks_again_after_a_while(tmp_path, eventually):
    log, now = OutcomeLog(str(tmp_path)), [0.0]
    monitor = ClaimMonitor(log, {"p": CLAIM}, clock=lambda: now[0])
    monitor.refresh()
    for index in range(9):
        file_report(log, f"r{index}", False)
    assert not monitor.suspension("p")
    now[0] += REFRESH_S
    monitor.suspension("p")
    assert eventually(lambda: monitor.suspension("p"))


def test_outcomes_that_cannot_be_read_leave_the_claim_as_it_was(tmp_path, caplog):
    (tmp_path / "outcomes").write_text("no folder")
    monitor = ClaimMonitor(OutcomeLog(str(tmp_path)), {"p": CLAIM})
    monitor.look()
    assert not monitor.suspension("p")
    assert "outcomes cannot be read" in caplog.text


def test_the_service_watches_the_policy_that_it_serves(puzzle, bundle_of, client_of):
    """Answers to nine problems that users call wrong, at a guaranteed error rate of 10 %; one problem comes twice."""
    guarantee = {"max_error": 0.1, "confidence": 0.9, "certified": True, "problems": 500}
    policy = Policy(max_passes=1, guarantee=guarantee)
    bundle = bundle_of(policy=policy)
    writer = DecisionWriter(bundle.records.folder, flush_s=3600)
    own = client_of(bundle, records=writer)
    for number in (*range(9), 0):
        answer = own.post("/v1/triage", {"problem": f"{puzzle} ({number})"}).json()
        own.post(f"/v1/decisions/{answer['record_id']}/outcome", {"correct": False, "by": "ada"})
    (policy,) = own.get("/v1/outcomes").json()["policies"]
    writer.close()
    assert policy["served"]
    assert (policy["claim"]["outcomes"], policy["claim"]["wrong"], policy["claim"]["suspended"]) == (9, 9, True)
    assert policy["wrong"] == 10
    assert policy["claim"]["log10_wealth"] > policy["claim"]["log10_alarm"] == pytest.approx(1.30103)
    assert own.post("/v1/triage", {"problem": puzzle}).json()["decision"] == "accept", "the service goes on"
