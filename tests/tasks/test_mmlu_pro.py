"""MMLU-Pro as a task file: our labels beside the recorded verdicts, on a twentieth of the recorded answers."""

from raydebm.config.task_file import read_task_file
from raydebm.records import Verdict
from raydebm.run.json_lines import read_json_lines
from raydebm.tasks.declared import DeclaredTask

EVERY = 20


def test_labels_are_the_recorded_verdicts_but_for_one_in_sixty(repository, shared_data):
    task = DeclaredTask(read_task_file(repository / "configs" / "tasks" / "mmlu_pro.yaml"))
    folder = shared_data / "mmlu_pro"
    known = {
        problem.data["source_id"]: (problem, gold)
        for problem, gold in task.load("test", source=str(folder / "problems_mmlu_pro.jsonl.gz"))
    }
    rows = [row for _, row in read_json_lines(str(folder / "pool_mmlu_pro.jsonl.gz"))][::EVERY]
    agree = 0
    for row in rows:
        verdict = task.judge(*known[row["problem_id"]], row["text"]).verdict
        agree += (verdict is Verdict.CORRECT) == row["correct"]

    assert len(rows) > 1400
    assert agree / len(rows) >= 0.985
