"""A toy task and fakes for the loop: completions are ``<number>`` or ``<number>!<amount>`` (a violated constraint)."""

import math
import sys
from pathlib import Path

import pytest

from raydebm.decision.sampling.checks import check_candidate
from raydebm.errors import GenerationError
from raydebm.records import Candidate, Energies, Problem, Verdict
from raydebm.tasks.base import Judgement, TaskDefaults
from raydebm.tasks.constraints import Constraint, Finding

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside this one


class ToyTask:
    name = "toy"
    defaults = TaskDefaults(max_length=64, batch_size=1, patience=1, lambda_=3.0)
    constraints = (
        Constraint(
            name="limit",
            check=lambda problem, answer: [Finding(penalty=answer[1], values={"by": answer[1]})] if answer[1] else [],
            message="over the limit by {by:g}",
        ),
    )

    def load(self, split, *, source=None, limit=None, seed=0):
        return iter(())

    def messages(self, problem):
        return ({"role": "user", "content": problem.prompt},)

    def problem_from_text(self, text):
        return Problem(task=self.name, problem_id=text, prompt=text)

    def parse(self, problem, text):
        if text == "crash":
            raise RuntimeError("boom")
        number, _, amount = text.partition("!")
        return (int(number), float(amount or 0)) if number.isdigit() else None

    def render(self, problem, answer):
        return f"{answer[0]}!{answer[1]:g}" if answer[1] else str(answer[0])

    def vote_key(self, problem, answer):
        return str(answer[0])

    def judge(self, problem, gold, text):
        return Judgement(verdict=Verdict.CORRECT)


class ScriptedSource:
    """Each pass is a list of candidates, or an exception to raise. Keeps the chats it was given."""

    def __init__(self, *passes):
        self.passes = passes
        self.chats = []

    async def generate(self, problem, *, pass_index, messages, arrived, waves=None):
        self.chats.append(messages)
        drawn = self.passes[pass_index - 1]
        if isinstance(drawn, Exception):
            raise drawn
        return list(drawn)


class TaskChecker:
    def __init__(self, task):
        self.task = task

    async def check(self, problem, candidates):
        return [check_candidate(self.task, problem, candidate) for candidate in candidates]


class TableScorer:
    """Members by candidate id; NaN becomes None, as every scorer must do."""

    def __init__(self, members):
        self.members = members

    async def score(self, problem, candidates):
        energies = []
        for candidate in candidates:
            members = self.members[candidate.candidate_id]
            broken = any(math.isnan(energy) for energy in members)
            energies.append(None if broken else Energies(candidate_id=candidate.candidate_id, members=members))
        return energies


def candidate(candidate_id, text, *, pass_index=1, problem_id="p", error="HTTP 500", **fields):
    return Candidate(
        candidate_id=candidate_id,
        task="toy",
        problem_id=problem_id,
        generator="g",
        text=text,
        error=error if text is None else None,
        pass_index=pass_index,
        **fields,
    )


@pytest.fixture(scope="session")
def task():
    return ToyTask()


@pytest.fixture(scope="session")
def problem():
    return Problem(task="toy", problem_id="p", prompt="6 x 7?")


@pytest.fixture(scope="session")
def make_candidate():
    return candidate


@pytest.fixture(scope="session")
def make_source():
    return ScriptedSource


@pytest.fixture(scope="session")
def make_scorer():
    return TableScorer


@pytest.fixture(scope="session")
def checker(task):
    return TaskChecker(task)


@pytest.fixture
def down():
    return GenerationError("endpoint is down")
