"""KOR-Bench as a task file: our labels beside the verdicts judged again, on a tenth of the recorded answers."""

from raydebm.config.task_file import read_task_file
from raydebm.records import Verdict
from raydebm.run.json_lines import read_json_lines
from raydebm.tasks.declared import DeclaredTask

EVERY = 10


def test_labels_are_the_verdicts_but_for_one_in_sixty(repository, shared_data):
    task = DeclaredTask(read_task_file(repository / "configs" / "tasks" / "kor_bench.yaml"))
    folder = shared_data / "kor_bench"
    known = {
        problem.data["source_id"]: (problem, gold)
        for problem, gold in task.load("test", source=str(folder / "problems_kor.jsonl.gz"))
    }
    rows = [row for _, row in read_json_lines(str(folder / "pool_kor_main.jsonl.gz"))][::EVERY]
    agree = 0
    for row in rows:
        verdict = task.judge(*known[row["problem_id"]], row["text"]).verdict
        agree += (verdict is Verdict.CORRECT) == row["correct"]

    assert len(rows) > 900
    assert agree / len(rows) >= 0.985
