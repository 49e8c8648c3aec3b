"""Tasks declared in a YAML file or in a few lines of Python, without changes to the package.

In:   a ``TaskDefinition``: prompt, output format, constraints as declarative rules, optional gold, data files.
Out:  a ``Task`` like the built-in ones.

Gold is removed from a data row before the problem is built from it, and a definition is refused if its prompt, fields,
id, difficulty or kind name the column of gold.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from raydebm.errors import ConfigError, TaskDataError
from raydebm.identity import canonical_json, content_id
from raydebm.records import Gold, Message, Problem
from raydebm.tasks.base import Answer, Judgement, TaskDefaults, instructed, judgement, required_field, unlabeled
from raydebm.tasks.constraints import Constraint, violations_of
from raydebm.tasks.constraints.expressions import EvaluationError, RuleInput, key_of, problem_fields, reads_answer
from raydebm.tasks.constraints.rule import compile_rule
from raydebm.tasks.constraints.templates import fill, full_text, short_text
from raydebm.tasks.declared.answer_reading import find_answer, named_choice, seen_by_rules, write_answer
from raydebm.tasks.declared.definition import GoldRule, TaskDefinition, read_definition
from raydebm.tasks.declared.matching import check_gold, compared, mismatch
from raydebm.tasks.fields import compare_fields, leaves
from raydebm.tasks.libraries import LibraryError
from raydebm.tasks.sources import check_split, distinct, file_rows, json_object, local_file

__all__ = ["DeclaredTask", "declared_task", "read_definition"]

SPLITS = ("train", "test")
SOURCE_ID = "source_id"
_MAX_WORD = 12
"""Maximum length of a reference answer that may occur in a problem by chance."""


class DeclaredTask:
    """Task of a ``TaskDefinition``."""

    def __init__(
        self, definition: TaskDefinition | Mapping[str, Any], *, constraints: Sequence[Constraint] = ()
    ) -> None:
        """Args:
            definition: a checked definition, or a tree of YAML values.
            constraints: checks in Python, in addition to the definition's rules.

        Raises:
            ConfigError: the definition is wrong; the message lists every error with its path.
        """
        self.definition = definition if isinstance(definition, TaskDefinition) else read_definition(definition)
        declared = (compile_rule(rule, view=self._seen_by_rules) for rule in self.definition.rules)
        self.constraints: Sequence[Constraint] = (*declared, *constraints)
        if self.labels_by_constraints and not self.constraints:
            raise ConfigError(f"task {self.name!r}: labels: constraints needs at least one constraint")

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def defaults(self) -> TaskDefaults:
        """The definition's settings; answers do not compete if labels come from constraints."""
        # With such labels every answer without violations is right, so several answers can be right.
        competing = not self.labels_by_constraints
        settings = self.definition.defaults.model_dump()
        return TaskDefaults(**settings, answers_compete=competing, feedback=self.definition.feedback)

    @property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of an answer, for endpoints with constrained decoding, or None."""
        return self.definition.output.json_schema

    def _seen_by_rules(self, answer: Answer) -> Any:
        return seen_by_rules(self.definition.output, answer)

    # ---- problems ----------------------------------------------------------------------------------------------

    def load(
        self, split: str, *, source: str | None = None, limit: int | None = None, seed: int = 0
    ) -> Iterator[tuple[Problem, Gold]]:
        """Yield problems in the order of the source, without repetitions. The source is a file, or a folder with a
        file named after the split. Default: the definition's file of the split."""
        check_split(split, SPLITS, task=self.name)
        rows = file_rows(self.file_of(split, source))
        return islice(distinct(self.problem_and_gold(row, where) for where, row in rows), limit)

    def file_of(self, split: str, source: str | None) -> Path:
        """Data file of a split, from the source or else from the definition."""
        if source is None:
            named = getattr(self.definition.data, split)
            if named is None:
                raise TaskDataError(
                    f"task {self.name!r} has no data for {split}; set data.{split} in the task file, or the source "
                    "in the recipe"
                )
            source = str(Path(self.definition.folder) / named)
        return local_file(source, split, otherwise="a file or a folder")

    def problem_and_gold(self, row: Mapping[str, Any], where: str) -> tuple[Problem, Gold]:
        """Problem and gold of a data row. Raises TaskDataError, with ``where`` as the name of the row."""
        rule, value = self.definition.gold, {}
        if rule is not None and row.get(rule.field) is not None:
            kind = "" if self.definition.data.kind is None else str(row.get(self.definition.data.kind))
            check_gold(rule.of_kind(kind), self.definition.output, row[rule.field], where)
            value = {"answer": row[rule.field]}
        problem = self._problem_of(
            {name: cell for name, cell in row.items() if rule is None or name != rule.field}, where
        )
        return problem, Gold(task=self.name, problem_id=problem.problem_id, value=value)

    def _problem_of(self, row: Mapping[str, Any], where: str) -> Problem:
        columns = self.definition.data
        data = {name: _clean(required_field(row, name, where), name, where) for name in self.definition.fields}
        prompt = fill(self.definition.prompt, data, render=full_text).strip()
        problem_id = content_id(self.name, prompt, data)
        if columns.id is not None and row.get(columns.id) is not None:
            data[SOURCE_ID] = str(row[columns.id])
        groups = {
            group: str(row[column])
            for group, column in (("difficulty", columns.difficulty), ("kind", columns.kind))
            if column is not None and row.get(column) is not None
        }
        return Problem(task=self.name, problem_id=problem_id, prompt=prompt, data=data, **groups)

    def problem_from_text(self, text: str) -> Problem:
        """Parse a client's text: a JSON object with the task's fields, or the text of the only field."""
        row = json_object(text)
        fields = self.definition.fields
        if row is not None and set(fields) <= set(row):
            kind = self.definition.data.kind
            return self._problem_of({name: row[name] for name in row if name in fields or name == kind}, "the text")
        if len(fields) > 1:
            raise TaskDataError(
                f"task {self.name!r} needs the fields {', '.join(fields)}: send a JSON object with them as the text, "
                "or a problem with prompt and data"
            )
        if not text.strip():
            raise TaskDataError(f"task {self.name!r} needs a text for {fields[0]}, got an empty one")
        return self._problem_of({fields[0]: self._without_frame(text)}, "the text")

    def _without_frame(self, text: str) -> str:
        """The field's own text, even if the client sent the whole prompt."""
        (field,) = self.definition.fields
        marker = "\0"
        before, _, after = fill(self.definition.prompt, {field: marker}).strip().partition(marker)
        stripped = text.strip()
        framed = len(stripped) > len(before) + len(after) and marker not in after
        if framed and stripped.startswith(before) and stripped.endswith(after):
            return stripped[len(before) : len(stripped) - len(after)]
        return stripped

    def empty_operands(self, problems: Sequence[Problem]) -> Iterator[tuple[str, str, int]]:
        """Yield (constraint, expression, number of problems without a value) for expressions that read the problem
        alone and lack a value in some problems."""
        for rule in self.definition.rules:
            for text in rule.expressions():
                if problem_fields(text) and not reads_answer(text):
                    count = sum(_value(text, problem, None) is None for problem in problems)
                    if count:
                        yield rule.name, text, count

    def shows_gold(self, problem: Problem, gold: Gold) -> bool:
        """True if the problem's data contains the reference answer, unless this is a number or short text."""
        value = gold.value.get("answer")
        if not (isinstance(value, list | dict) or (isinstance(value, str) and len(value) > _MAX_WORD)):
            return False
        parts: list[Any] = [dict(problem.data)]
        for part in parts:
            if isinstance(part, list | dict):
                parts += part.values() if isinstance(part, dict) else part
        return any(part == value for part in parts)

    def messages(self, problem: Problem) -> tuple[Message, ...]:
        """Chat of the first pass. Raises TaskDataError if the problem lacks a declared field."""
        for name in self.definition.fields:
            required_field(problem.data, name, f"a problem of task {self.name!r}")
        return instructed(self.definition.instructions.strip(), problem.prompt)

    # ---- answers -----------------------------------------------------------------------------------------------

    def fields(self, problem: Problem, answer: Answer) -> Mapping[str, Any]:
        """Leaves of a JSON answer by path; empty for other output formats."""
        output = self.definition.output
        return leaves(answer, output.json_schema) if output.format == "json" else {}

    def field_tolerance(self, problem: Problem) -> float:
        """Allowed difference of numbers in fields: the tolerance for gold, if gold is a whole JSON answer, else 0."""
        rule = self._gold_rule(problem)
        return rule.tolerance if rule is not None and rule.match == "json" and rule.value == "answer" else 0.0

    def parse(self, problem: Problem, text: str) -> Answer | None:
        return find_answer(self.definition.output, text, self._choices(problem))

    def _choices(self, problem: Problem) -> list[str] | None:
        """Choices that the row allows, or None for all of them. If it allows none, no completion has an answer."""
        output = self.definition.output
        if output.choices_field is None:
            return None
        allowed = problem.data.get(output.choices_field)
        names = {named_choice(output.choices, str(name)) for name in allowed} if isinstance(allowed, list) else set()
        return [choice for choice in output.choices if choice in names]

    def render(self, problem: Problem, answer: Answer) -> str:
        return write_answer(self.definition.output, answer)

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        """Key of the value of ``vote``, or of the whole answer if ``vote`` has no value."""
        vote = self._value_at(self.definition.vote, problem, answer)
        value = answer if vote is None else vote
        rule = self._gold_rule(problem)
        return key_of(value) if rule is None or not rule.ignore_space else compared(rule, value)

    @property
    def labels_by_constraints(self) -> bool:
        """True if the constraints define the right answers."""
        return self.definition.labels == "constraints"

    @property
    def labels_by_gold(self) -> bool:
        """True if gold defines the right answers, so that all of them are equal."""
        return self.definition.gold is not None and not self.labels_by_constraints

    def gold_from_answer(self, problem: Problem, text: str) -> Gold | None:
        """See ``GoldFromAnswer``. Also None if gold does not define the right answers."""
        rule, answer = self._gold_rule(problem), self.parse(problem, text)
        if rule is None or answer is None or not self.labels_by_gold:
            return None
        value = self._value_at(rule.value, problem, answer)
        try:
            check_gold(rule, self.definition.output, value, "the given answer")
        except TaskDataError:
            return None
        return Gold(task=self.name, problem_id=problem.problem_id, value={"answer": value})

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Judge by gold or by constraints, depending on the definition's ``labels``."""
        if self.labels_by_constraints:
            return self._judge_by_constraints(problem, text)
        rule = self._gold_rule(problem)
        if rule is None:
            return unlabeled("the task declares neither gold nor `labels: constraints`")
        if "answer" not in gold.value:
            return unlabeled("no reference answer in the data row")
        answer = self.parse(problem, text)
        if answer is None:
            return judgement(False, "no answer in the requested format")
        value = self._value_at(rule.value, problem, answer)
        try:
            fault = mismatch(rule, self.definition.output, value, gold.value["answer"])
        except LibraryError as error:
            return unlabeled(f"{short_text(value)}: {error}")
        fields = self._field_verdicts(problem, rule, answer, gold)
        # Unlike whole answers, fields are compared within the tolerance, and items by their key.
        is_same = fault is None or (bool(fields) and all(fields.values()))
        return judgement(is_same, fault or "", fields=fields)

    def _field_verdicts(self, problem: Problem, rule: GoldRule, answer: Answer, gold: Gold) -> dict[str, bool]:
        """Verdict on each field, if the reference answer is a whole JSON answer; else empty."""
        if rule.value != "answer" or rule.match != "json":
            return {}
        wanted = leaves(gold.value["answer"], self.definition.output.json_schema)
        return compare_fields(self.fields(problem, answer), wanted, tolerance=rule.tolerance) if wanted else {}

    def _value_at(self, expression: str, problem: Problem, answer: Answer) -> Any:
        return answer if expression == "answer" else _value(expression, problem, self._seen_by_rules(answer))

    def _gold_rule(self, problem: Problem) -> GoldRule | None:
        rule = self.definition.gold
        return None if rule is None else rule.of_kind(problem.kind)

    def _judge_by_constraints(self, problem: Problem, text: str) -> Judgement:
        # The penalties of a rule add up to at most 1, so its maximum cost is its weight.
        whole = math.fsum(constraint.weight for constraint in self.constraints) or 1.0
        answer = self.parse(problem, text)
        if answer is None:
            parts = {constraint.name: constraint.weight / whole for constraint in self.constraints}
            return judgement(False, "no answer in the requested format", violation_score=1.0, parts=parts)
        violations = violations_of(self.constraints, problem, answer)
        costs = {constraint.name: 0.0 for constraint in self.constraints}
        for violation in violations:
            costs[violation.constraint] += violation.weight * violation.penalty
        return judgement(
            not violations,
            "; ".join(violation.message for violation in violations[:3]),
            violation_score=min(1.0, math.fsum(costs.values()) / whole),
            parts={name: min(1.0, cost / whole) for name, cost in costs.items()},
        )


def declared_task(tree: Mapping[str, Any]) -> DeclaredTask:
    """Task of a tree of YAML values; the same object for equal trees."""
    return _declared_task(canonical_json(dict(tree)))


@lru_cache(maxsize=16)
def _declared_task(text: str) -> DeclaredTask:
    return DeclaredTask(json.loads(text))


def _value(expression: str, problem: Problem, seen: Any) -> Any:
    try:
        return RuleInput({"answer": seen, "problem": dict(problem.data)}).value_of(expression)
    except EvaluationError:
        return None


def _clean(value: Any, name: str, where: str) -> Any:
    """Value of a column, without surrounding whitespace. Raises TaskDataError for a value that JSON lacks."""
    try:
        canonical_json(value).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise TaskDataError(f"{where}: field {name!r} is not JSON: {error}") from error
    return value.strip() if isinstance(value, str) else value
