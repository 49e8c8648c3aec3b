"""Storing decisions and reading them back."""

import errno
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from decisions_by_hand import START, record, report, scored

from raydebm.errors import ScoringError
from raydebm.records import Decision, Problem
from raydebm.run.folder import Folder
from raydebm.service.routes.bodies import triage_answer
from raydebm.service.store import parquet_folder
from raydebm.service.store.outcomes import LINES, OutcomeLog, verdicts_of
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


def made(index=0, *, pool=None, **changes):
    """A decision by hand, ``index`` seconds after START."""
    return record(index, *(pool or [scored("a", -2.0, 0.5)]), **changes)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "records")


@pytest.fixture
def writer(folder):
    """A writer that writes when it is told to."""
    return DecisionWriter(folder, flush_s=3600, clock=START.timestamp)


@pytest.fixture
def stored(folder, writer):
    """Writes records, each into a file of its own if asked; returns a reader."""

    def store(records, *, apart=False):
        for each in records:
            assert writer.put(each)
            if apart:
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


def test_a_record_comes_back_from_a_file_as_it_was(decided, script, texts, stored):
    """After two passes, with feedback."""
    script(lambda request: texts["wrong"] if request.pass_index == 1 else texts["right"])
    record = decided().record
    assert stored([record]).get(record.record_id) == record


def test_what_a_lost_pass_cost_stands_in_the_record(decided, backend, script, texts):
    """Four candidates of pass 1 and two of pass 2, for half a dollar and five tokens each; then the scorer breaks."""
    script(lambda request: texts["wrong"] if request.pass_index == 1 else texts["right"])
    score = backend.score

    async def once(texts):
        backend.score = gone
        return await score(texts)

    async def gone(texts):
        raise ScoringError("the scorer is gone")

    backend.score = once
    result = decided()
    answer, row = triage_answer(result), record_row(result.record)

    assert (row["cost_usd"], row["completion_tokens"], row["num_candidates"], row["num_failed"]) == (3.0, 30, 6, 2)
    assert (row["cost_usd"], row["completion_tokens"]) == (answer.cost_usd, answer.usage.completion_tokens)
    assert len(record_of(row).outcome.pool) == 4


def test_an_unparsed_candidate_keeps_its_infinite_penalty(stored):
    unparsed = replace(scored("b", 0.0, 0.0, penalty=float("inf")), energies=None)
    record = made(pool=[scored("a", -2.0, 0.5), unparsed])

    assert stored([record]).get(record.record_id).outcome.pool[1] == unparsed


# ---- writing -----------------------------------------------------------------------------------------------------


def test_small_files_are_merged_and_nothing_is_lost_or_doubled(stored, folder):
    records = [made(index) for index in range(MERGE_FILES * 2 + 3)]
    reader = stored(records, apart=True)

    assert sorted(file.level for file in record_files(folder)) == [0, 0, 0, 1, 1]
    assert sorted(record.request_id for record in reader.records()) == sorted(record.request_id for record in records)


def test_a_crash_between_merging_and_removing_doubles_nothing(stored, folder, writer, monkeypatch):
    monkeypatch.setattr(writer._folder, "_remove", lambda name: None)
    reader = stored([made(index) for index in range(MERGE_FILES)], apart=True)

    assert len(record_files(folder)) == MERGE_FILES + 1
    assert reader.page().total == MERGE_FILES


def test_reading_goes_on_while_files_are_merged(folder, writer):
    """Every list that is read while a writer merges is complete: as many decisions as were written before it."""
    records = [made(index) for index in range(40)]
    done, counts = threading.Event(), []

    def read():
        reader = DecisionReader(folder)
        is_last = False
        while not is_last:
            is_last, least = done.is_set(), writer.num_written
            counts.append((least, reader.page().total, sum(1 for _ in reader.records(batch_size=1))))

    thread = threading.Thread(target=read)
    thread.start()
    for each in records:
        writer.put(each)
        assert writer.flush()
    done.set()
    thread.join()

    assert counts[-1] == (40, 40, 40)
    assert all(least <= count and least <= rows for least, count, rows in counts)
    assert DecisionReader(folder).page().total == 40


def test_a_file_that_is_missing_in_one_listing_is_found_in_the_next(stored, monkeypatch):
    """As where a merge removes it between the listing of names and that of sizes."""
    reader = stored([made()])
    first, listed = [[]], parquet_folder.record_files

    def listing(root, *, kind):
        return first.pop() if first else listed(root, kind=kind)

    monkeypatch.setattr(parquet_folder, "record_files", listing)

    assert reader.page().total == 1


def test_decisions_are_written_by_themselves_after_a_while(folder, eventually):
    writer = DecisionWriter(folder, flush_s=0.05, clock=START.timestamp)
    writer.put(made())
    assert eventually(lambda: writer.num_written)
    assert DecisionReader(folder).page().total == 1
    writer.close()


def test_a_full_disk_fails_no_request_and_the_decisions_are_written_when_there_is_room(folder, writer, monkeypatch):
    room = Folder.write_bytes

    def full(self, content, *parts):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Folder, "write_bytes", full)
    assert writer.put(made(0))
    assert not writer.flush()
    assert "No space left on device" in writer.last_error
    monkeypatch.setattr(Folder, "write_bytes", room)
    assert writer.put(made(1))
    assert writer.flush()
    assert writer.last_error is None
    assert DecisionReader(folder).page().total == 2


def test_a_killed_process_loses_only_what_waited(folder, tmp_path):
    """A process writes one decision, queues another and is killed: the first is there, and no file is incomplete."""
    (tmp_path / "record.pickle").write_bytes(pickle.dumps(made()))
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


def test_memory_is_bounded_while_nothing_can_be_written(writer, monkeypatch):
    monkeypatch.setattr("raydebm.service.store.record.MAX_WAITING", 3)
    assert [writer.put(made(index)) for index in range(5)] == [True, True, True, False, False]
    assert (writer.num_waiting, writer.num_dropped) == (3, 2)


@pytest.mark.parametrize(
    "where", [{"prompt": "x" * 600_000}, {"data": {"rows": [["x" * 300_000], {"a": "x" * 300_000}]}}]
)
def test_the_size_of_what_waits_is_bounded(writer, where, monkeypatch):
    monkeypatch.setattr("raydebm.service.store.record.MAX_WAITING_CHARS", 1_000_000)
    long = Problem(**{"task": "t", "problem_id": "p", "prompt": "6 x 7?", **where})
    assert [writer.put(made(index, problem=long)) for index in range(2)] == [True, False]


def test_a_decision_that_cannot_be_stored_sinks_no_other(folder, writer):
    bad = Problem(task="t", problem_id="p", prompt="6 x 7?", data={"nan": float("nan")})
    for each in (made(0), made(1, problem=bad), made(2)):
        writer.put(each)
    assert writer.flush()
    assert (writer.num_written, writer.num_dropped) == (2, 1)
    assert DecisionReader(folder).page().total == 2


def test_lone_surrogates_of_a_model_become_replacement_characters(stored):
    record = made(pool=[scored("a", -2.0, 0.5, text="a\ud800b")])
    assert stored([record]).get(record.record_id).outcome.pool[0].candidate.text == "a\ufffdb"


def test_old_files_go(folder):
    later = (START + timedelta(days=3)).timestamp()
    for clock, args, index in ((START.timestamp(), RecordsArgs(), 0), (later, RecordsArgs(max_days=2), 3 * 86_400)):
        writer = DecisionWriter(folder, args, clock=lambda moment=clock: moment)
        writer.put(made(index))
        writer.close()
    assert [row.request_id for row in DecisionReader(folder).page().data] == ["r259200"]


def test_the_oldest_files_go_when_all_are_too_large(stored, folder):
    stored([made(index) for index in range(3)], apart=True)
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


def test_the_example_of_the_page_runs_as_it_stands(stored, folder, repository, capsys):
    now = datetime.now(UTC)
    stored([replace(made(decision=Decision.ABSTAIN), time=now, record_id=new_record_id(now))])
    page = (repository / "docs" / "records.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    exec(code.replace("runs/demo/records", folder), {})

    assert "1 abstentions" in capsys.readouterr().out


# ---- in the service ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1])
def test_a_file_that_is_no_table_hides_no_others(stored, folder, level, caplog):
    """A machine that loses its power may leave an empty one."""
    reader = stored([made()])
    late = 1_800_000_000_000_000
    (Path(folder) / file_name(late, late, writer="abc", sequence=0, level=level)).write_bytes(b"")

    assert (reader.page().total, len(list(reader.records()))) == (1, 1)
    assert sum("is skipped" in record.message for record in caplog.records) == 1


def test_a_damaged_file_is_read_as_far_as_it_can_be_and_never_raises(stored, folder):
    """200 ways of damage: bytes changed, cut off, or written twice."""
    stored([made(index) for index in range(3)])
    [name] = [file.name for file in record_files(folder)]
    whole = (Path(folder) / name).read_bytes()
    for seed in range(200):
        (Path(folder) / name).write_bytes(damaged(whole, random.Random(seed)))
        reader = DecisionReader(folder)
        reader.page()
        list(reader.records())


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "0"], ids=["open", "deep", "number"])
def test_a_decision_whose_damaged_text_is_no_json_is_left_out(stored, monkeypatch, text):
    records = [made(index) for index in range(3)]
    reader, rows = stored(records), [record_row(record) for record in records]
    broken = pa.RecordBatch.from_pylist([rows[0], {**rows[1], "record_json": text}, rows[2]], schema=DECISIONS)
    monkeypatch.setattr(reader._folder, "batches", lambda *span, **options: iter([broken]))

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


def test_a_file_that_was_still_being_copied_is_read_when_it_is_whole(stored, folder):
    reader = stored([made()])
    [name] = [file.name for file in record_files(folder)]
    whole = (Path(folder) / name).read_bytes()
    (Path(folder) / name).write_bytes(whole[: len(whole) // 2])
    assert DecisionReader(folder).page().total == 0
    copying = DecisionReader(folder)
    copying.page()
    (Path(folder) / name).write_bytes(whole)

    assert (copying.page().total, reader.page().total) == (1, 1)


def test_one_decision_is_found_without_opening_other_files(stored, monkeypatch):
    records = [made(index) for index in range(3)]
    reader, opened, scan = stored(records, apart=True), [], FolderReader._scan
    monkeypatch.setattr(
        FolderReader,
        "_scan",
        lambda self, file, *rest, **options: opened.append(file) or scan(self, file, *rest, **options),
    )

    assert reader.get(records[1].record_id) == records[1]
    assert len(opened) == 1


def test_what_lists_show_is_read_once_and_cut(stored, monkeypatch):
    reader = stored([made(pool=[scored("a", -2.0, 0.5, key="\u00e4" * 500)])])
    assert reader.page().data[0].answer == "\u00e4" * 200
    monkeypatch.setattr(FolderReader, "_scan", lambda self, file, *rest, **options: iter(()))
    assert reader.page().total == 1


def test_reports_in_a_damaged_file_are_left_out_and_the_others_are_read(tmp_path):
    """The first third of the first file is turned around."""
    log = OutcomeLog(str(tmp_path))
    for name in ("a", "b"):
        report(log, name, True, note=name * 4000)
    file = min(Path(log.root).glob("*.parquet"))
    content = file.read_bytes()
    third = len(content) // 3
    file.write_bytes(content[:4] + bytes(255 - byte for byte in content[4:third]) + content[third:])

    assert [outcome.record_id for outcome in OutcomeLog(str(tmp_path)).reports()] == ["b"]


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
