"""Knights & Knaves: find out from everyone's statements who tells the truth (paper section 4.1).

A loaded puzzle has exactly one solution, so its statements are an exact constraint, without gold: the penalty is 0 only
for the right answer. A typed puzzle may have several solutions or none; then the constraint is not exact.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

from raydebm.errors import TaskDataError
from raydebm.identity import canonical_json
from raydebm.records import Gold, Message, Problem
from raydebm.tasks.base import Answer, Judgement, TaskDefaults, instructed, judgement, required_field
from raydebm.tasks.constraints import Constraint, Finding
from raydebm.tasks.fields import compare_fields, leaves
from raydebm.tasks.file_backed import question_of, source_id_of
from raydebm.tasks.knights_knaves.answers import find_answer
from raydebm.tasks.knights_knaves.logic import Statement, broken_statements, check_statement, solutions
from raydebm.tasks.knights_knaves.puzzles import rows
from raydebm.tasks.knights_knaves.wording import Roles, claim_text, read_quiz
from raydebm.tasks.sources import Row

__all__ = ["KnightsKnaves", "problem_of"]

TASK = "knights_knaves"

_INSTRUCTIONS = (
    "Solve the puzzle. Every inhabitant is either {truthful}, who always tells the truth, or {lying}, who always lies. "
    "Reason step by step and check your solution against every statement. Then end with one JSON object that gives "
    "every inhabitant's role, and write nothing after it: {example}"
)


def _broken_statements(problem: Problem, answer: Answer) -> Iterator[Finding]:
    """One finding per broken statement. The penalties add up to the share of broken statements."""
    names, roles, statements = _names(problem), _roles(problem), _statements(problem)
    knights = tuple(answer[name] == "knight" for name in names)
    for person in broken_statements(statements, knights):
        values = {
            "name": names[person],
            "claim": claim_text(statements[person], names, roles),
            "truth": "false" if knights[person] else "true",
            "role": roles.phrase(knights[person]),
            "path": names[person],
        }
        yield Finding(penalty=1 / len(names), values=values)


@lru_cache(maxsize=1024)
def _num_solutions(statements: tuple[Statement, ...]) -> int:
    """Number of solutions. Cached, because it is needed for every candidate of a puzzle."""
    return len(solutions(statements))


def _exactness(problem: Problem) -> str:
    """Reason why the constraint is not exact; empty for a puzzle with one solution."""
    count = _num_solutions(_statements(problem))
    if count == 0:
        return "the puzzle has no solution: every answer contradicts a statement"
    return "" if count == 1 else f"the puzzle has {count} solutions: an answer that fits the statements is one of them"


class KnightsKnaves:
    """The task. An answer is ``{name: "knight" | "knave"}`` in the order of the names, whatever the puzzle's roles."""

    name: ClassVar[str] = TASK
    defaults: ClassVar[TaskDefaults] = TaskDefaults(max_length=1536, batch_size=16, patience=3, learning_rate=2e-5)
    constraints: ClassVar[tuple[Constraint, ...]] = (
        Constraint(
            name="statements",
            check=_broken_statements,
            message='{name} said "{claim}". With your answer that is {truth}, but your answer makes {name} {role}.',
            exactness=_exactness,
        ),
    )

    def load(
        self, split: str, *, source: str | None = None, limit: int | None = None, seed: int = 0
    ) -> Iterator[tuple[Problem, Gold]]:
        """Yield puzzles with gold. Generated test puzzles share no logic form with generated training puzzles.

        The source is None or ``"generate:2-8"`` for generated puzzles of alternating sizes; a ``.jsonl`` or
        ``.jsonl.gz`` file (or a folder with a file named after the split) with the field quiz (or question) and
        optionally solution, which must be the puzzle's; or ``"hub:K-and-K/knights-and-knaves"``.
        """
        pairs = (_problem_and_gold(row, where) for where, row in rows(split, source, limit=limit, seed=seed))
        return islice(pairs, limit)

    def messages(self, problem: Problem) -> tuple[Message, ...]:
        _statements(problem)  # fails before anyone pays for an answer that cannot be checked
        roles = _roles(problem)
        either = f"{roles.word(True)} or {roles.word(False)}"
        instructions = _INSTRUCTIONS.format(
            truthful=roles.phrase(True),
            lying=roles.phrase(False),
            example=json.dumps(dict.fromkeys(_names(problem), either), ensure_ascii=False),
        )
        return instructed(instructions, problem.prompt)

    def problem_from_text(self, text: str) -> Problem:
        """Parse a puzzle in the published wording. Errors quote the text that cannot be parsed."""
        return problem_of(text)

    def parse(self, problem: Problem, text: str) -> dict[str, str] | None:
        """Role of each inhabitant; None if one has no role or two."""
        assignment = find_answer(text, _names(problem), _roles(problem))
        return None if assignment is None else {name: _word(is_knight) for name, is_knight in assignment.items()}

    def render(self, problem: Problem, answer: Answer) -> str:
        """A JSON object in the order of the names, with the puzzle's own role words."""
        roles = _roles(problem)
        return json.dumps({name: roles.word(answer[name] == "knight") for name in _names(problem)}, ensure_ascii=False)

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        return canonical_json(answer)

    def fields(self, problem: Problem, answer: Answer) -> dict[str, str]:
        return leaves(answer)

    def gold_from_answer(self, problem: Problem, text: str) -> Gold | None:
        answer = self.parse(problem, text)
        return None if answer is None else Gold(task=TASK, problem_id=problem.problem_id, value={"roles": answer})

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Correct if every role is right."""
        answer = self.parse(problem, text)
        if answer is None:
            return judgement(False, "no answer for every inhabitant")
        roles = gold.value["roles"]
        fields = compare_fields(leaves(answer), leaves(roles))
        wrong = [name for name, role in roles.items() if answer.get(name) != role]
        return judgement(not wrong, f"wrong role: {', '.join(wrong)}", fields=fields)


def problem_of(text: str, *, source_id: str | None = None) -> Problem:
    """Problem of a whole quiz; its id depends on the text alone.

    Raises:
        TaskDataError: the text cannot be parsed.
    """
    reading = read_quiz(text.strip())
    return question_of(
        TASK,
        text,
        difficulty=f"{len(reading.names)} people",
        names=list(reading.names),
        roles=[reading.roles.truthful, reading.roles.lying],
        statements=[_as_lists(statement) for statement in reading.statements],
        source_id=source_id,
    )


def _problem_and_gold(row: Row, where: str) -> tuple[Problem, Gold]:
    quiz = required_field(row, "quiz", where, "question")
    try:
        problem = problem_of(str(quiz), source_id=source_id_of(row))
        assignments = solutions(_statements(problem))
    except TaskDataError as error:
        raise TaskDataError(f"{where}: {error}") from error
    if len(assignments) != 1:
        raise TaskDataError(f"{where}: a puzzle must have exactly one solution, this one has {len(assignments)}")
    solution = assignments[0]
    if "solution" in row and tuple(map(bool, row["solution"])) != solution:
        raise TaskDataError(f"{where}: solution {row['solution']} is not the puzzle's one solution {list(solution)}")
    roles = {name: _word(is_knight) for name, is_knight in zip(_names(problem), solution, strict=True)}
    return problem, Gold(task=TASK, problem_id=problem.problem_id, value={"roles": roles})


def _names(problem: Problem) -> tuple[str, ...]:
    return tuple(problem.data["names"])


def _roles(problem: Problem) -> Roles:
    return Roles(*problem.data["roles"])


def _statements(problem: Problem) -> tuple[Statement, ...]:
    return tuple(check_statement(said, len(problem.data["names"])) for said in problem.data["statements"])


def _as_lists(statement: Statement) -> list[Any]:
    return [_as_lists(part) if isinstance(part, tuple) else part for part in statement]


def _word(is_knight: bool) -> str:
    return "knight" if is_knight else "knave"
