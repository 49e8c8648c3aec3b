"""What counts of many reports."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from raydebm.service.store.outcomes import LINES, OutcomeLog, ReportedOutcome, verdicts_of


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
