"""Schema of a task file: one pydantic model per part. Unknown keys are refused.

Relative data files are looked up in the folder of the task file (``folder``).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from raydebm.config.section import faults_in
from raydebm.errors import ConfigError
from raydebm.tasks.base import FEEDBACK, RULES
from raydebm.tasks.constraints.expressions import problem_fields
from raydebm.tasks.constraints.rule import Expression, Rule, Strict
from raydebm.tasks.constraints.rule_kinds import AnyRule, Pattern, Schema, read_rule
from raydebm.tasks.constraints.templates import places_in

NAME = re.compile(r"[a-z][a-z0-9_]{1,59}")
RESERVED = frozenset({"source_id"})
"""A field of ``Problem.data`` filled by the package itself."""


def _prompt(template: str) -> str:
    if not places_in(template):
        raise ValueError("the prompt needs at least one field of the data, such as {question}")
    return template


class Output(Strict):
    """Format of the answer in a completion."""

    format: Literal["json", "number", "choice", "pattern", "text"] = "text"
    """json: the last JSON object (array, if that is the schema's type); number: after ``####``, in a JSON field
    ``answer`` or ``\\boxed{}``, after "the answer is", or the last one in the last line; choice: one of ``choices``, in
    the same places or alone on the last line; pattern: a match of one of ``patterns``; text: the whole completion."""
    json_schema: Schema | None = Field(None, alias="schema")
    """For json: a JSON Schema. An answer that does not match it still counts as an answer; each fault violates the
    constraint ``schema``. ``x-key`` in the schema of a list names the property that identifies an item (``sku``), so
    that items are compared by it, not by position."""
    choices: list[str] = Field(default_factory=list)
    """For choice: the possible answers, each a single line. Case does not matter, and a completion may add the meaning
    of a letter or number: ``B) Paris``."""
    choices_field: str | None = None
    """For choice: column with the list of choices that a row allows. Default: every row allows all ``choices``."""
    patterns: list[Pattern] = Field(default_factory=list)
    """For pattern: RE2 expressions, most reliable first. The first one with a match other than whitespace decides. The
    answer is its last such match: the first group, or else the whole match, without surrounding whitespace."""

    @model_validator(mode="after")
    def _fits_the_format(self) -> Self:
        if self.json_schema is not None and self.format != "json":
            raise ValueError(f"schema goes with format json, not {self.format}")
        if bool(self.choices) != (self.format == "choice"):
            raise ValueError("format choice needs choices, and no other format has them")
        if self.choices_field is not None and self.format != "choice":
            raise ValueError(f"choices_field goes with format choice, not {self.format}")
        if bool(self.patterns) != (self.format == "pattern"):
            raise ValueError("format pattern needs patterns, and no other format has them")
        names = [choice.strip().casefold() for choice in self.choices]
        if len(set(names)) < len(names) or not all(names) or any("\n" in name for name in names):
            raise ValueError(f"choices must be different single lines, got {self.choices}")
        return self


class AnswerComparison(Strict):
    """Rule for the comparison of answers with the reference answer."""

    match: Literal["exact", "number", "set", "json", "latex"] = "exact"
    """exact: the same text or number, or, for the formats number and choice, the same answer; number: the same number
    ("$1,080" is 1080); set: the same items in any order; json: the same JSON value; latex: equivalent formulas, as in
    MATH, or the same text."""
    ignore_case: bool = False
    """Ignore the case of letters."""
    ignore_space: bool = False
    """Ignore whitespace, and a full stop at the end. Votes ignore them, too."""
    tolerance: float = Field(0.0, ge=0, allow_inf_nan=False)
    """For number: allowed difference. For json: allowed difference of every number. Within it, fields of different
    candidates have the same value, too."""

    @model_validator(mode="after")
    def _tolerance_fits_the_match(self) -> Self:
        if self.tolerance and self.match not in ("number", "json"):
            raise ValueError(f"tolerance goes with match number or json, not {self.match}")
        return self


class GoldRule(AnswerComparison):
    """Column of the reference answer, and the comparison of answers with it."""

    field: str
    """Column of the data. It is removed from a row before the problem is built from it."""
    value: Expression = "answer"
    """Expression on the answer, for the value to compare."""
    by_kind: dict[str, AnswerComparison] = Field(default_factory=dict)
    """Comparisons for some kinds of question (``data.kind``), in place of the common one."""

    def of_kind(self, kind: str) -> "GoldRule":
        """The rule for problems of a kind."""
        other = self.by_kind.get(kind)
        return self if other is None else self.model_copy(update=dict(other))


class Data(Strict):
    """Files and columns of the problems."""

    train: str | None = None
    """File of the split ``train``: .jsonl, .json or .csv, each optionally with .gz, or .parquet. A recipe's ``source``
    overrides it."""
    test: str | None = None
    """File of the split ``test``, in one of the same formats. A recipe's ``source`` overrides it."""
    id: str | None = None
    """Column with the source's own id of a row, by which recorded pools are joined."""
    fields: list[str] = Field(default_factory=list)
    """Columns that constraints may read as ``problem.<field>``, in addition to those in the prompt."""
    difficulty: str | None = None
    """Column by which reports group results."""
    kind: str | None = None
    """Column with the kind of question, such as its subject. Authors' skills are estimated by kind."""


class Defaults(Strict):
    """Settings of training and generation; a recipe may override each."""

    max_length: int = Field(2048, ge=16)
    """Maximum number of tokens of a problem with its answer for the scorer."""
    batch_size: int = Field(16, ge=1)
    """Number of pairs per training step."""
    patience: int = Field(2, ge=1)
    """Number of epochs without a better validation loss before training stops."""
    learning_rate: float = Field(5e-5, gt=0)
    """Learning rate of AdamW."""
    lambda_: float = Field(1.0, ge=0, alias="lambda")
    """Weight of E_constraint."""
    max_tokens: int = Field(1024, ge=1)
    """Maximum number of tokens of a candidate."""


class TaskDefinition(Strict):
    """A whole task. Constraints read the answer and the declared fields (``problem.<field>``), not gold."""

    name: str
    """Lowercase letters, digits and _."""
    description: str = ""
    """One line, for ``raydebm task list``."""
    instructions: str = Field(min_length=1)
    """The system message, word for word. It should describe the task and the format of the answer."""
    prompt: Annotated[str, AfterValidator(_prompt)]
    """The question, with ``{field}`` in place of the value of a column; every other brace is text."""
    output: Output = Output()
    """Format of the answer."""
    constraints: list[AnyRule] = Field(default_factory=list)
    """Checks without gold, one rule per constraint (docs/constraints.md)."""
    feedback: str = FEEDBACK
    """Message for the next pass about an answer that violates constraints. ``{rules}`` is replaced by the messages of
    the constraints, one per line. The message should say what to reply with."""
    vote: Expression = "answer"
    """Expression on the answer. Answers with the same value count as the same answer."""
    gold: GoldRule | None = None
    """Reference answers. Without them, gold does not label answers."""
    labels: Literal["gold", "constraints"] | None = None
    """Source of the candidates' labels. ``constraints``: an answer without violations is correct, and the violation
    score is the weighted penalty divided by its maximum. Default: ``gold`` if it is declared, else no labels."""
    data: Data = Data()
    """Data files and their columns."""
    defaults: Defaults = Defaults()
    """Settings for recipes that do not set their own."""
    folder: str = "."
    """Folder of relative data files. Default: the folder of the task file; a task written in Python must set it."""

    @property
    def rules(self) -> list[Rule]:
        """The constraints, with the schema of answers as one of them."""
        schema = self.output.json_schema
        own = [] if schema is None else [read_rule({"name": "schema", "rule": "schema", "schema": schema})]
        return [*self.constraints, *own]

    @property
    def fields(self) -> tuple[str, ...]:
        """Columns that become ``Problem.data``."""
        own = [] if self.output.choices_field is None else [self.output.choices_field]
        return tuple(dict.fromkeys([*places_in(self.prompt), *self.data.fields, *own]))

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        complaints = list(self._complaints())
        if complaints:
            raise ValueError("; ".join(complaints))
        return self

    def _complaints(self) -> Iterator[str]:
        if RULES not in self.feedback:
            yield f"feedback must contain {RULES}, where the broken rules are listed; got {self.feedback!r}"
        if not NAME.fullmatch(self.name):
            yield f"name {self.name!r} must be lowercase letters, digits and _, such as support_reply"
        names = [rule.name for rule in self.rules]
        for name in {name for name in names if names.count(name) > 1}:
            yield f"constraints need different names, but {name!r} occurs twice"
        yield from self._complaints_about_gold()
        for name in RESERVED & set(self.fields):
            yield f"field {name!r} is reserved; give the column as data.id, or rename it"
        for where, text in self._expressions():
            for name in sorted(problem_fields(text) - set(self.fields) - RESERVED):
                yield (
                    f"{where} reads problem.{name}, which is not among the fields {', '.join(self.fields)}; "
                    "add it to data.fields"
                )

    def _complaints_about_gold(self) -> Iterator[str]:
        if self.gold is None:
            if self.labels == "gold":
                yield "labels: gold needs a gold section"
            return
        if self.gold.by_kind and self.data.kind is None:
            yield "gold.by_kind needs data.kind, the column with the kinds"
        seen = {
            "the prompt, data.fields or output.choices_field": self.fields,
            "data.id": [self.data.id],
            "data.difficulty": [self.data.difficulty],
            "data.kind": [self.data.kind],
        }
        for where, columns in seen.items():
            if self.gold.field in columns:
                yield (f"gold.field {self.gold.field!r} is also in {where}; models and constraints must not see gold")

    def _expressions(self) -> Iterator[tuple[str, str]]:
        for rule in self.rules:
            for text in rule.expressions():
                yield f"constraint {rule.name!r}", text
        yield "vote", self.vote
        if self.gold is not None:
            yield "gold.value", self.gold.value


def read_definition(tree: Mapping[str, Any], *, where: str = "task") -> TaskDefinition:
    """Validate a task given as a tree of YAML values.

    Raises:
        ConfigError: a key is unknown, or a type or value is wrong; the message lists every error with its path.
    """
    try:
        return TaskDefinition.model_validate(dict(tree))
    except ValidationError as error:
        faults = "".join(f"\n  {line}" for line in faults_in(error, root="task", tree=tree))
        raise ConfigError(f"{where} is not a valid task:{faults}") from error


_PAGE_HEAD = """# Task files

A task file is a YAML file that defines the question, the format of an answer, the rules that it must follow, and which
answers are right. [A tutorial](tutorials/a_task.md) builds one by hand; [constraints.md](constraints.md) has the rules.
Unknown keys are refused, and values are not converted: `"1"` is not a number.

This page is the output of `raydebm reference --task-file`.
"""


def reference_page() -> str:
    """Every key of a task file with its type, default and meaning, as Markdown (docs/task_file.md)."""
    from raydebm.config.recipe_reference import page

    schema: dict[str, Any] = TaskDefinition.model_json_schema(by_alias=True)
    rules = schema["properties"]["constraints"]
    # docs/constraints.md describes the rules.
    keys = schema["properties"] | {"constraints": rules | {"items": {"type": "object"}, "default": []}}
    return page(schema | {"properties": keys}, head=_PAGE_HEAD, title="The task")
