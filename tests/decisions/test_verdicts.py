"""What counts of many reports."""

import pyarrow as pa

from raydebm.decisions.outcomes.log import LINES, verdicts_of


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
