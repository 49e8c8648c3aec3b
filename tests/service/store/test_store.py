"""Storing decisions and reading them back."""

import asyncio
import errno
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from raydebm.errors import ScoringError
from raydebm.records import Decision, Energies, Problem
from raydebm.run.folder import Folder
from raydebm.service.core import TriageService, request_context
from raydebm.service.routes.bodies import triage_answer
from raydebm.service.settings import Overrides
from raydebm.service.store import parquet_folder
from raydebm.service.store.outcomes import LINES, OutcomeLog, ReportedOutcome, verdicts_of
from raydebm.service.store.parquet_folder import MERGE_FILES, FolderReader, file_name, record_files
from raydebm.service.store.reader import DecisionReader
from raydebm.service.store.record import (
    DECISIONS,
    DecisionWriter,
    RecordsArgs,
    new_record_id,
    problem_key,
    record_of,
    record_row,
)

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def template(bundle, backend, puzzle, script, texts):
    """A record of a two-pass decision that the service itself made."""
    records = []

    class Sink:
        def put(self, record):
            records.append(record)
            return True

    script(lambda request: texts["wrong"] if request.pass_index == 1 else texts["right"])
    service = TriageService(bundle, backend, records=Sink())
    context = request_context(bundle, Overrides(num_samples=2), request_id="abc", task_name=None, problem=puzzle)
    asyncio.run(service.triage(context))
    return records[0]


@pytest.fixture
def make_record(template):
    """Records that differ in time, sigma, task and decision."""

    def make(index=0, *, sigma=None, task=None, decision=None, **changes):
        moment = START + timedelta(seconds=index)
        outcome = template.outcome
        if sigma is not None:
            best = replace(
                outcome.best,
                energies=Energies(candidate_id=outcome.best.candidate.candidate_id, members=(-sigma, sigma)),
            )
            pool = [best if scored is outcome.best else scored for scored in outcome.pool]
            outcome = replace(outcome, best=best, pool=tuple(pool))
        if task is not None:
            outcome = replace(outcome, problem=Problem(task=task, problem_id=f"p{index}", prompt="why?"))
        if decision is not None:
            outcome = replace(outcome, decision=decision)
        made = {"record_id": new_record_id(moment), "time": moment, "outcome": outcome, "request_id": f"r{index}"}
        return replace(template, **(made | changes))

    return make


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "records")


@pytest.fixture
def stored(folder):
    """Writes records, a flush after every ``per_file``; returns a reader."""

    def store(records, *, per_file=1000):
        writer = DecisionWriter(folder, flush_s=3600, clock=START.timestamp)
        for index, record in enumerate(records, start=1):
            assert writer.put(record)
            if index % per_file == 0:
                assert writer.flush(), writer.last_error
        writer.close()
        return DecisionReader(folder)

    return store


# ---- one record --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scored_prompt", "changes", "is_same"),
    [
        (None, {"problem_id": "another id"}, True),
        (None, {"prompt": "  WHAT is\n5?"}, True),
        (None, {"prompt": "What is 6?"}, False),
        (None, {"data": {"n": 1}}, False),
        (None, {"task": "math500"}, False),
        ("Add 2 and 3. What is 5?", {}, False),
    ],
    ids=["another id", "case and white space", "text", "data", "task", "earlier turns"],
)
def test_a_problem_is_the_same_by_what_was_asked(scored_prompt, changes, is_same):
    problem = Problem(task="gsm8k", problem_id="p", prompt="What is 5?")

    assert (problem_key(replace(problem, **changes), scored_prompt) == problem_key(problem, None)) is is_same


def test_a_record_comes_back_from_a_file_as_it_was(template, stored):
    assert stored([template]).get(template.record_id) == template


def test_what_a_lost_pass_cost_stands_in_the_record(bundle, backend, puzzle, script, texts):
    """Four candidates of pass 1 and two of pass 2, for half a dollar and five tokens each; then the scorer breaks."""
    script(lambda request: texts["wrong"] if request.pass_index == 1 else texts["right"])
    score, records = backend.score, []

    async def once(texts):
        backend.score = gone
        return await score(texts)

    async def gone(texts):
        raise ScoringError("the scorer is gone")

    backend.score = once
    sink = SimpleNamespace(put=records.append)
    context = request_context(bundle, Overrides(), request_id="abc", task_name=None, problem=puzzle)
    answer = triage_answer(asyncio.run(TriageService(bundle, backend, records=sink).triage(context)))

    row = record_row(records[0])
    assert (row["cost_usd"], row["completion_tokens"], row["num_candidates"], row["num_failed"]) == (3.0, 30, 6, 2)
    assert (row["cost_usd"], row["completion_tokens"]) == (answer.cost_usd, answer.usage.completion_tokens)
    assert len(record_of(row).outcome.pool) == 4


def test_an_unparsed_candidate_keeps_its_infinite_penalty(make_record, stored, texts, template):
    unparsed = replace(template.outcome.pool[0].report, answer=None, vote_key=None, penalty=float("inf"), violations=())
    pool = (replace(template.outcome.pool[0], report=unparsed, energies=None), *template.outcome.pool[1:])
    record = make_record(outcome=replace(template.outcome, pool=pool))

    stored_record = stored([record]).get(record.record_id)

    assert stored_record.outcome.pool[0].report.penalty == float("inf")
    assert stored_record.outcome.pool[0].energies is None


# ---- writing -----------------------------------------------------------------------------------------------------


def test_small_files_are_merged_and_nothing_is_lost_or_doubled(make_record, stored, folder):
    records = [make_record(index) for index in range(MERGE_FILES * 2 + 3)]
    reader = stored(records, per_file=1)

    assert sorted(file.level for file in record_files(folder)) == [0, 0, 0, 1, 1]
    assert sorted(record.request_id for record in reader.records()) == sorted(record.request_id for record in records)


def test_a_crash_between_merging_and_removing_doubles_nothing(make_record, folder, monkeypatch):
    writer = DecisionWriter(folder, flush_s=3600, clock=START.timestamp)
    monkeypatch.setattr(writer._folder, "_remove", lambda name: None)
    for index in range(MERGE_FILES):
        writer.put(make_record(index))
        writer.flush()

    assert len(record_files(folder)) == MERGE_FILES + 1
    assert DecisionReader(folder).page().total == MERGE_FILES


def test_reading_goes_on_while_files_are_merged(make_record, folder):
    """Every list that is read while a writer merges is complete: as many decisions as were written before it."""
    writer = DecisionWriter(folder, flush_s=3600, clock=START.timestamp)
    records = [make_record(index) for index in range(40)]
    done, counts = threading.Event(), []

    def read():
        reader = DecisionReader(folder)
        is_last = False
        while not is_last:
            is_last, least = done.is_set(), writer.num_written
            counts.append((least, reader.page().total, sum(1 for _ in reader.records(batch_size=1))))

    thread = threading.Thread(target=read)
    thread.start()
    for record in records:
        writer.put(record)
        assert writer.flush()
    done.set()
    thread.join()

    assert counts[-1] == (40, 40, 40)
    assert all(least <= count and least <= rows for least, count, rows in counts)
    assert DecisionReader(folder).page().total == 40


def test_a_file_that_is_missing_in_one_listing_is_found_in_the_next(make_record, folder, monkeypatch):
    """As where a merge removes it between the listing of names and that of sizes."""
    writer = DecisionWriter(folder, flush_s=3600, clock=START.timestamp)
    writer.put(make_record(0))
    assert writer.flush()
    first, listed = [[]], parquet_folder.record_files

    def listing(root, *, kind):
        return first.pop() if first else listed(root, kind=kind)

    monkeypatch.setattr(parquet_folder, "record_files", listing)

    assert DecisionReader(folder).page().total == 1


def test_decisions_are_written_by_themselves_after_a_while(make_record, folder):
    writer = DecisionWriter(folder, flush_s=0.05, clock=START.timestamp)
    writer.put(make_record(0))
    deadline = time.monotonic() + 60
    while writer.num_written == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert DecisionReader(folder).page().total == 1
    writer.close()


def test_a_full_disk_fails_no_request_and_the_decisions_are_written_when_there_is_room(
    make_record, folder, monkeypatch
):
    writer = DecisionWriter(folder, flush_s=3600, clock=START.timestamp)
    room = Folder.write_bytes

    def full(self, content, *parts):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Folder, "write_bytes", full)
    assert writer.put(make_record(0))
    assert not writer.flush()
    assert "No space left on device" in writer.last_error
    monkeypatch.setattr(Folder, "write_bytes", room)
    assert writer.put(make_record(1))
    assert writer.flush()
    assert writer.last_error is None
    assert DecisionReader(folder).page().total == 2


def test_a_killed_process_loses_only_what_waited(make_record, folder, tmp_path):
    """A process writes one decision, queues another and is killed: the first is there, whole, and nothing is torn."""
    (tmp_path / "record.pickle").write_bytes(pickle.dumps(make_record(0)))
    code = (
        "import os, pickle, signal, sys\n"
        "from raydebm.service.store.record import DecisionWriter, RecordsArgs\n"
        "record = pickle.load(open(sys.argv[1], 'rb'))\n"
        "writer = DecisionWriter(sys.argv[2], RecordsArgs(max_days=None), flush_s=3600)\n"
        "writer.put(record); writer.flush(); writer.put(record)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "record.pickle"), folder], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [record.request_id for record in DecisionReader(folder).records()] == ["r0"]


def test_memory_is_bounded_while_nothing_can_be_written(make_record, folder, monkeypatch):
    monkeypatch.setattr("raydebm.service.store.record.MAX_WAITING", 3)
    writer = DecisionWriter(folder, flush_s=3600)
    assert [writer.put(make_record(index)) for index in range(5)] == [True, True, True, False, False]
    assert (writer.num_waiting, writer.num_dropped) == (3, 2)


@pytest.mark.parametrize(
    "where", [{"prompt": "x" * 600_000}, {"data": {"rows": [["x" * 300_000], {"a": "x" * 300_000}]}}]
)
def test_the_size_of_what_waits_is_bounded(make_record, folder, template, where, monkeypatch):
    monkeypatch.setattr("raydebm.service.store.record.MAX_WAITING_CHARS", 1_000_000)
    long = replace(template.outcome, problem=replace(template.outcome.problem, **where))
    writer = DecisionWriter(folder, flush_s=3600)
    assert [writer.put(make_record(index, outcome=long)) for index in range(2)] == [True, False]


def test_a_decision_that_cannot_be_stored_sinks_no_other(make_record, folder, template):
    bad = replace(template.outcome, problem=replace(template.outcome.problem, data={"nan": float("nan")}))
    writer = DecisionWriter(folder, flush_s=3600, clock=START.timestamp)
    for record in (make_record(0), make_record(1, outcome=bad), make_record(2)):
        writer.put(record)
    assert writer.flush()
    assert (writer.num_written, writer.num_dropped) == (2, 1)
    assert DecisionReader(folder).page().total == 2


def test_lone_surrogates_of_a_model_become_replacement_characters(make_record, folder, template):
    first, *others = template.outcome.pool
    odd = replace(first, candidate=replace(first.candidate, text="a\ud800b"))
    record = make_record(outcome=replace(template.outcome, pool=(odd, *others)))
    writer = DecisionWriter(folder, flush_s=3600, clock=START.timestamp)
    writer.put(record)
    assert writer.flush()
    assert DecisionReader(folder).get(record.record_id).outcome.pool[0].candidate.text == "a\ufffdb"


def test_old_files_go(make_record, folder):
    later = (START + timedelta(days=3)).timestamp()
    for clock, args, index in ((START.timestamp(), RecordsArgs(), 0), (later, RecordsArgs(max_days=2), 3 * 86_400)):
        writer = DecisionWriter(folder, args, clock=lambda moment=clock: moment)
        writer.put(make_record(index))
        writer.close()
    assert [row.request_id for row in DecisionReader(folder).page().data] == ["r259200"]


def test_the_oldest_files_go_when_all_are_too_large(make_record, folder):
    for index in range(3):
        writer = DecisionWriter(folder, flush_s=3600, clock=START.timestamp)
        writer.put(make_record(index))
        writer.close()
    sizes = [file.size for file in record_files(folder)]
    writer = DecisionWriter(folder, RecordsArgs(max_mb=(sum(sizes[1:]) + 10) / 1e6), clock=START.timestamp)
    writer.flush()
    assert [row.request_id for row in DecisionReader(folder).page().data] == ["r2", "r1"]


def test_other_files_of_the_folder_are_left_alone(folder, tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "notes.txt").write_text("mine")
    DecisionWriter(folder, RecordsArgs(max_mb=0.000001, max_days=0.00001)).flush()
    assert record_files(folder) == []
    assert (tmp_path / "records" / "notes.txt").exists()


def test_the_example_of_the_page_runs_as_it_stands(make_record, stored, folder, repository, capsys):
    now = datetime.now(UTC)
    stored([make_record(0, sigma=2.0, decision=Decision.ABSTAIN, time=now, record_id=new_record_id(now))])
    page = (repository / "docs" / "records.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    exec(code.replace("runs/demo/records", folder), {})

    assert "1 abstentions" in capsys.readouterr().out


# ---- in the service ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1])
def test_a_file_that_is_no_table_hides_no_others(make_record, stored, folder, level, caplog):
    """A machine that loses its power may leave an empty one."""
    reader = stored([make_record(0)])
    late = 1_800_000_000_000_000
    (Path(folder) / file_name(late, late, writer="abc", sequence=0, level=level)).write_bytes(b"")

    assert (reader.page().total, len(list(reader.records()))) == (1, 1)
    assert sum("is skipped" in record.message for record in caplog.records) == 1


def test_a_damaged_file_is_read_as_far_as_it_can_be_and_never_raises(make_record, stored, folder):
    """200 ways of damage: bytes changed, cut off, or written twice."""
    stored([make_record(index) for index in range(3)])
    [name] = [file.name for file in record_files(folder)]
    whole = (Path(folder) / name).read_bytes()
    for seed in range(200):
        (Path(folder) / name).write_bytes(damaged(whole, random.Random(seed)))
        reader = DecisionReader(folder)
        reader.page()
        list(reader.records())


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "0"], ids=["open", "deep", "number"])
def test_a_decision_whose_damaged_text_is_no_json_is_left_out(make_record, stored, folder, monkeypatch, text):
    records = [make_record(index) for index in range(3)]
    reader, rows = stored(records), [record_row(record) for record in records]
    broken = pa.RecordBatch.from_pylist([rows[0], {**rows[1], "record_json": text}, rows[2]], schema=DECISIONS)
    monkeypatch.setattr(reader._folder, "batches", lambda **options: iter([broken]))

    whole = [records[0].record_id, records[2].record_id]
    assert [record.record_id for record in reader.records()] == whole


def damaged(content, rng):
    """The content with a few bytes changed, or a part of it gone or doubled."""
    place, length = rng.randrange(len(content)), rng.randrange(1, 200)
    if rng.random() < 0.2:
        return content[:place]
    if rng.random() < 0.2:
        return content[:place] + content[place : place + length] + content[place:]
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 8)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def test_a_file_that_was_still_being_copied_is_read_when_it_is_whole(make_record, stored, folder):
    reader = stored([make_record(0)])
    [name] = [file.name for file in record_files(folder)]
    whole = (Path(folder) / name).read_bytes()
    (Path(folder) / name).write_bytes(whole[: len(whole) // 2])
    assert DecisionReader(folder).page().total == 0
    copying = DecisionReader(folder)
    copying.page()
    (Path(folder) / name).write_bytes(whole)

    assert (copying.page().total, reader.page().total) == (1, 1)


def test_one_decision_is_found_without_opening_other_files(make_record, stored, monkeypatch):
    records = [make_record(index) for index in range(3)]
    reader, opened, scan = stored(records, per_file=1), [], FolderReader._scan
    monkeypatch.setattr(
        FolderReader,
        "_scan",
        lambda self, file, *rest, **options: opened.append(file) or scan(self, file, *rest, **options),
    )

    assert reader.get(records[1].record_id) == records[1]
    assert len(opened) == 1


def test_what_lists_show_is_read_once_and_cut(make_record, stored, monkeypatch, template):
    best = replace(template.outcome.best, report=replace(template.outcome.best.report, answer="\u00e4" * 500))
    record = make_record(0, outcome=replace(template.outcome, best=best, pool=(best,)))
    reader = stored([record])
    assert reader.page().data[0].answer == "\u00e4" * 200
    monkeypatch.setattr(FolderReader, "_scan", lambda self, file, *rest, **options: iter(()))
    assert reader.page().total == 1


def report(outcome_id):
    return ReportedOutcome(
        outcome_id=outcome_id, record_id=f"r{outcome_id}", correct=True, by="ada", content="c", task="t",
        policy_id="p", decision="accept", time=datetime.now(UTC), note=outcome_id * 40,
    )  # fmt: skip


def test_reports_in_a_damaged_file_are_left_out_and_the_others_are_read(tmp_path):
    """All of the first file but its footer is turned around."""
    log = OutcomeLog(str(tmp_path))
    for _ in range(2):
        log.append([report(name) for name in log.new_ids(20)[0]])
    file = min(Path(log.root).glob("*.parquet"))
    content = file.read_bytes()
    third = len(content) // 3
    file.write_bytes(content[:4] + bytes(255 - byte for byte in content[4:third]) + content[third:])

    assert len(list(OutcomeLog(str(tmp_path)).reports())) == 20


def test_of_many_decisions_those_are_disputed_about_which_two_people_differ():
    """300 decisions. About every seventh a second person says the opposite, and reports come for earlier ones again."""
    reports = []
    for number in range(300):
        reports.append((f"r{number:03d}", "ada", True))
        if number % 7 == 0:
            reports.append((f"r{number:03d}", "bob", False))
        if number % 5 == 0:
            reports.append((f"r{number // 2:03d}", "cy", True))
    same = {"content": "c", "task": "t", "policy_id": "p", "decision": "accept"}
    lines = [
        {"outcome_id": f"{place:06d}", "record_id": record_id, "by": by, "correct": correct, **same}
        for place, (record_id, by, correct) in enumerate(reports)
    ]

    verdicts = verdicts_of(pa.Table.from_pylist(lines, schema=LINES)).to_pylist()

    wrong = [verdict["record_id"] for verdict in verdicts if verdict["outcome"] == "wrong"]
    last = {record_id: correct for record_id, _, correct in reports}
    assert [verdict["record_id"] for verdict in verdicts if verdict["disputed"]] == [
        f"r{number:03d}" for number in range(0, 300, 7)
    ]
    assert wrong == sorted(record_id for record_id, correct in last.items() if not correct)
