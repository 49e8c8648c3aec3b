"""``task.data: paper``: programs without E_constraint."""

from raydebm.config import TaskConfig
from raydebm.tasks import get_task, task_of


def test_the_papers_programs_have_no_constraint():
    assert task_of(TaskConfig(name="taco", data="paper")).constraints == ()
    assert len(task_of(TaskConfig(name="taco")).constraints) == len(get_task("taco").constraints) == 1
