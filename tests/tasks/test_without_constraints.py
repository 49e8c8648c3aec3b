"""``task.constraints: none``: a task without E_constraint, as the paper has programs."""

import cloudpickle
import pytest

from raydebm.config import TaskConfig
from raydebm.errors import ConfigError
from raydebm.tasks import add_task, get_task, task_of
from raydebm.tasks.constraints import Constraint, Finding
from raydebm.tasks.gsm8k import Gsm8k
from raydebm.testing import check

SHOP = {
    "name": "shop",
    "instructions": "Answer.",
    "prompt": "Message: {message}",
    "output": {"format": "json", "schema": {"type": "object", "required": ["refund"]}},
    "constraints": [{"name": "limit", "rule": "compare", "value": "answer.refund", "at_most": 3}],
}


class Even(Gsm8k):
    """Sums whose result has to be even."""

    name = "even-sums"

    constraints = (Constraint(name="even", check=lambda problem, answer: [Finding(penalty=1.0)]),)


add_task("even-sums", Even)


def penalty(task):
    return check(task, "How much is 1 + 2?", "#### 3").penalty


@pytest.mark.parametrize(("constraints", "expected"), [(None, 1.0), ("none", 0.0)])
def test_a_broken_constraint_counts_only_where_there_are_constraints(constraints, expected):
    assert penalty(task_of(TaskConfig(name="even-sums", constraints=constraints))) == expected


def test_the_task_itself_keeps_its_constraints():
    task_of(TaskConfig(name="even-sums", constraints="none"))
    assert penalty(get_task("even-sums")) == 1.0


@pytest.mark.parametrize("name", ["taco", "knights_knaves", "travelplanner"])
def test_every_kind_of_task_can_be_without(name):
    bare = task_of(TaskConfig(name=name, constraints="none"))
    assert (bare.name, tuple(bare.constraints)) == (name, ())
    assert get_task(name).constraints


def test_it_travels_to_other_processes():
    bare = cloudpickle.loads(cloudpickle.dumps(task_of(TaskConfig(name="knights_knaves", constraints="none"))))
    assert bare.constraints == ()


def test_labels_that_are_constraints_cannot_do_without():
    config = TaskConfig(name="shop", definition={**SHOP, "labels": "constraints"}, constraints="none")
    with pytest.raises(ConfigError, match=r"task\.constraints: none: the labels of task 'shop' are its constraints"):
        task_of(config)


def test_a_declared_task_with_other_labels_can():
    assert task_of(TaskConfig(name="shop", definition=SHOP, constraints="none")).constraints == ()
