"""What two policies chose about stored decisions, and what reports say of both choices."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.policy_history import PolicyHistory
from raydebm.decisions.outcomes.log import OutcomeLog, ReportedOutcome
from raydebm.decisions.paired import paired_decisions
from raydebm.decisions.reader import DecisionReader
from raydebm.decisions.record import new_record_id
from raydebm.decisions.writer import DecisionWriter, RecordsArgs
from raydebm.run.directory import RunDir
from raydebm.serving.core.request import request_context
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.serving.settings.overrides import Overrides
from raydebm.tasks import get_task
from raydebm.tasks.declared import DeclaredTask

FIRST, SECOND = Policy(max_passes=1), Policy(lambda_=0.0, max_passes=1)
"""The second one does not weigh constraints, so it selects the wrong answer of the lower energy."""
KEPT = RecordsArgs(max_days=None)
START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
THIRD_ANSWER = '{"Ava": "knight", "Zoey": "knight"}'


@pytest.fixture
def template(write_run, script, texts, puzzle):
    """A decision that the service made: the first policy gives the right answer, its shadow would give a wrong one."""
    records = []
    backend = script(
        lambda request: texts["right" if request.generator == "ada" else "wrong"],
        lambda text: (-1.0, -1.0) if "contradicts" in text else (-1.1, -1.1),
    )
    root = write_run(policy=FIRST)
    PolicyHistory(RunDir(root)).try_policy(SECOND, percent=0)
    bundle = load_bundle(AppArgs(run_dir=root))
    service = TriageService(bundle, backend, records=SimpleNamespace(put=lambda record: records.append(record) or True))
    context = request_context(bundle, Overrides(), request_id="r", task_name=None, problem=puzzle)
    asyncio.run(service.triage(context))
    return records[0]


@pytest.fixture
def pair_of(template, tmp_path):
    """Stores the decision, changed, with reports of (correct, answer) by Ada or a third name, and reads the pair."""

    def pair(*reports, shadow=None, **changes):
        root = str(tmp_path / "records")
        record = replace(template, record_id=new_record_id(START), time=START, **changes)
        if shadow is not None:
            record = replace(record, shadow=replace(record.shadow, **shadow))
        writer, log = DecisionWriter(root, KEPT), OutcomeLog(root)
        writer.put(record)
        writer.close()
        for place, (correct, answer, *name) in enumerate(reports):
            (by,) = name or ["ada"]
            log.append([
                ReportedOutcome(
                    outcome_id=new_record_id(START + timedelta(seconds=place)), record_id=record.record_id,
                    correct=correct, by=by, content=str(place), task=record.problem.task, policy_id="p",
                    decision="accept", time=START, answer=answer,
                )
            ])  # fmt: skip
        (decision,) = paired_decisions(DecisionReader(root), get_task)
        return decision

    return pair


def test_both_choices_are_read(pair_of):
    pair = pair_of()
    assert pair.versions == (policy_id(FIRST), policy_id(SECOND))
    assert (pair.role, pair.agrees, pair.has_outcome) == ("first", False, False)
    assert (pair.first.answered, pair.second.answered) == (True, True)
    assert (pair.first.num_candidates, pair.second.num_candidates) == (4, 4)
    assert (pair.first.cost_usd, pair.second.cost_usd) == (2.0, 2.0)


def test_a_canary_is_the_second_policy_and_its_shadow_the_first(pair_of, template):
    versions = {**template.versions, "policy": "second"}
    pair = pair_of(policy_role="canary", versions=versions, shadow={"version": "first"})
    assert (pair.versions, pair.role) == (("first", "second"), "canary")


def test_nobody_judged_anything_without_a_report(pair_of):
    pair = pair_of()
    assert (pair.first.right, pair.second.right, pair.is_judged) == (None, None, False)


def test_another_answer_than_the_right_one_is_wrong(pair_of):
    pair = pair_of((True, None))
    assert (pair.first.right, pair.second.right, pair.second.wrong, pair.is_judged) == (True, False, True, True)


def test_another_answer_than_a_right_one_may_be_right_where_a_task_file_has_no_gold(pair_of, tmp_path):
    pair_of((True, None))
    task = DeclaredTask({"name": "knights", "instructions": "Answer.", "prompt": "{question}"})

    (pair,) = paired_decisions(DecisionReader(str(tmp_path / "records")), lambda name: task)

    assert (pair.first.right, pair.second.right, pair.is_judged) == (True, None, False)


def test_a_wrong_answer_says_nothing_of_another_one(pair_of):
    pair = pair_of((False, None))
    assert (pair.first.right, pair.second.right, pair.is_judged) == (False, None, False)


@pytest.mark.parametrize(
    ("answer", "expected"), [('{"Ava": "knave", "Zoey": "knave"}', True), (THIRD_ANSWER, False), ("no idea", None)]
)
def test_a_correct_answer_judges_the_other_one(pair_of, answer, expected):
    assert pair_of((False, answer)).second.right is expected


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ((False, '{"Ava": "knave", "Zoey": "knave"}'), (True, None)),
        ((True, '{"Ava": "knave", "Zoey": "knight"}'), (False, None)),
    ],
)
def test_reports_that_contradict_each_other_judge_no_other_answer(pair_of, first, last):
    """Ada gives the other policy's answer as the right one, then Bob calls the selected one right; and the reverse."""
    pair = pair_of((*first, "ada"), (*last, "bob"))

    assert (pair.first.right, pair.second.right, pair.is_judged) == (last[0], None, False)


def test_the_same_answer_has_the_same_verdict(pair_of):
    pair = pair_of((False, None), shadow={"same_answer": True, "agrees": True})
    assert (pair.first.right, pair.second.right, pair.is_judged) == (False, False, True)


def test_the_last_report_counts(pair_of):
    assert pair_of((False, None), (True, None)).first.right is True


def test_who_refuses_is_neither_right_nor_wrong(pair_of):
    pair = pair_of((True, None), shadow={"decision": "abstain", "agrees": False})
    assert (pair.second.answered, pair.second.right, pair.second.wrong) == (False, False, False)


def test_a_choice_that_is_not_known_is_not_judged(pair_of):
    pair = pair_of((True, None), shadow={"decision": "regenerate", "agrees": None})
    assert not pair.is_judged


def test_decisions_of_one_policy_are_no_pairs(template, tmp_path):
    writer = DecisionWriter(str(tmp_path / "records"), KEPT)
    writer.put(replace(template, policy_role=None, shadow=None))
    writer.close()
    assert list(paired_decisions(DecisionReader(str(tmp_path / "records")), get_task)) == []
