"""Task files for recorded pools: our labels beside the recorded verdicts, on a part of the answers."""

import pytest
from task_data import differing, read, relabelled

from raydebm.config.task import read_task_file
from raydebm.tasks.declared import DeclaredTask


@pytest.mark.parametrize(
    ("name", "problems", "pool", "every", "least"),
    [
        ("mmlu_pro", "problems_mmlu_pro", "pool_mmlu_pro", 20, 1400),
        ("kor_bench", "problems_kor", "pool_kor_main", 10, 900),
    ],
)
def test_labels_are_the_verdicts_but_for_one_in_sixty(repository, shared_data, name, problems, pool, every, least):
    task = DeclaredTask(read_task_file(repository / "configs" / "tasks" / f"{name}.yaml"))
    folder = shared_data / name
    rows = read(folder / f"{pool}.jsonl.gz")[::every]
    others = differing(relabelled(task, folder / f"{problems}.jsonl.gz", rows))
    assert len(rows) > least
    assert 1 - len(others) / len(rows) >= 0.985
