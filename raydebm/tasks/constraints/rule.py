"""Base classes of declarative rules, and the conversion of rules to constraints.

Checks are total: for any answer, a rule returns findings with finite penalties above 0, or none. If an expression
cannot be evaluated, the reason is a violation.

Penalties: a rule defines the severity of its faults, such as the excess divided by the limit for bounds. A fault costs
its severity, between ``FLOOR`` and 1, if the rule's penalty is ``graded`` (default), and 1 if it is ``fixed``. With n
values each counts 1/n. The sum of a rule's penalties, C_j, is at most 1.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from raydebm.config.section import Documented
from raydebm.records import Problem
from raydebm.tasks.constraints import Constraint, Finding
from raydebm.tasks.constraints.expressions import EvaluationError, RuleInput, kind_of, parse_expression
from raydebm.tasks.constraints.templates import check_template, fill, places_in

FLOOR = 1e-6
"""Minimum penalty of a violation, so that none rounds to 0."""
MAX_FINDINGS = 20
"""Maximum number of findings per constraint; the last one is the sum of the rest."""
MAX_COUNTED = 100_000
"""Maximum number of findings that are counted; ``MAX_FINDINGS`` of them are listed."""


def checked_by(check: Callable[[Any], Any]) -> AfterValidator:
    """Validator of a field by a function that raises ConstraintError."""

    def validated(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validated)


Expression = Annotated[str, checked_by(parse_expression)]
"""JMESPath expression that starts at ``answer`` or ``problem``."""


class Strict(Documented):
    """Base class for users' files: unknown keys are refused, and types are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one value."""

    severity: float
    values: dict[str, Any] = field(default_factory=dict)
    message: str | None = None
    """Message about this fault. Default: the rule's own."""


class Rule(Strict):
    """Fields of all rules."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"path", "value"})
    """Placeholders that a message may use."""
    MESSAGE: ClassVar[str] = "{path} breaks the rule"

    name: str = Field(pattern=r"^[A-Za-z][\w -]{0,60}$")
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Weight w_j."""
    penalty: Literal["graded", "fixed"] = "graded"
    """Cost of a violation before the weight: by its severity, or 1."""
    message: str | None = Field(None, min_length=1, max_length=500)
    """Sentence that a model can act on. Default: the rule's own."""

    @model_validator(mode="after")
    def _places_exist(self) -> "Rule":
        if self.message is not None:
            check_template(self.message, self.PLACES)
        return self

    def expressions(self) -> Iterator[str]:
        """Expressions of the rule on the whole document."""
        raise NotImplementedError

    def findings(self, document: RuleInput) -> Iterator[Finding]:
        """Violations of the rule. Raises EvaluationError if an expression cannot be evaluated."""
        raise NotImplementedError

    def finding(self, fault: Fault, share: float, **values: Any) -> Finding:
        """Finding for a fault, with at most ``share`` as its penalty, usually 1 divided by the number of values."""
        cost = 1.0 if self.penalty == "fixed" else min(1.0, max(FLOOR, fault.severity))
        return Finding(penalty=max(FLOOR, cost * share), values=values | fault.values, message=fault.message)

    def missing(self, path: str, share: float) -> Finding:
        """Finding for a missing value, with the maximum penalty of a value."""
        return self.finding(Fault(math.inf, message="{path} is missing"), share, path=path)


class ValuesRule(Rule):
    """A rule about one or several values.

    Without ``each``, the value is the result of ``value``; if that is a list, its items are the values. With ``each``,
    ``value`` is evaluated on every item of that list, so that an item without the value is a violation; a projection
    such as ``items[].price`` would drop it.
    """

    PLACES: ClassVar[frozenset[str]] = frozenset({"path", "value", "index", "count"})

    each: Expression | None = None
    value: str

    @model_validator(mode="after")
    def _value_is_readable(self) -> "ValuesRule":
        parse_expression(self.value, at_root=self.each is None)
        return self

    @property
    def path(self) -> str:
        """Name of the values as a whole in messages."""
        return self.value if self.each is None else f"{self.each}[].{self.value}"

    def expressions(self) -> Iterator[str]:
        yield self.value if self.each is None else self.each

    def placed_values(self, document: RuleInput) -> list[tuple[str, Any]]:
        """(name in messages, value) of each value, with None for a missing value.

        Raises EvaluationError if ``each`` is not a list or an expression cannot be evaluated.
        """
        if self.each is None:
            result = document.value_of(self.value)
            if not isinstance(result, list):
                return [(self.value, result)]
            return [(f"{self.value}[{index}]", element) for index, element in enumerate(result)]
        items = document.value_of(self.each)
        if not isinstance(items, list):
            raise EvaluationError(f"{self.each} must be a list, got {kind_of(items)}")
        below = "" if self.value == "@" else f".{self.value}"
        return [
            (f"{self.each}[{index}]{below}", document.value_in(element, self.value))
            for index, element in enumerate(items)
        ]

    def findings(self, document: RuleInput) -> Iterator[Finding]:
        places = self.placed_values(document)
        faults_of = self.checker(document)
        for index, (path, value) in enumerate(places):
            if value is None:
                yield self.missing(path, 1 / len(places))
                continue
            for fault in faults_of(value):
                yield self.finding(fault, 1 / len(places), path=path, value=value, index=index, count=len(places))

    def checker(self, document: RuleInput) -> Callable[[Any], Iterable[Fault]]:
        """Function that checks one value, created once for all values of an answer."""
        raise NotImplementedError


def compile_rule(rule: Rule, *, view: Callable[[Any], Any] = lambda answer: answer) -> Constraint:
    """Constraint of a validated rule. ``view`` converts the task's answer to JSON."""

    def check(problem: Problem, answer: Any) -> list[Finding]:
        return _rule_findings(rule, RuleInput({"answer": view(answer), "problem": dict(problem.data)}))

    # ``_with_text`` builds the whole sentence from bounded templates.
    return Constraint(name=rule.name, check=check, message="{text}", weight=rule.weight)


def _rule_findings(rule: Rule, document: RuleInput) -> list[Finding]:
    """Findings of a rule, with the whole sentence as the value ``text``. Does not raise for a JSON document."""
    try:
        findings = [_with_text(rule, finding) for finding in islice(rule.findings(document), MAX_COUNTED)]
    except (EvaluationError, RecursionError) as error:
        reason = str(error) if isinstance(error, EvaluationError) else "the answer is nested too deeply"
        return [Finding(penalty=1.0, values={"text": f"{rule.name}: {reason}"})]
    return _shortened(_capped(findings))


def _with_text(rule: Rule, finding: Finding) -> Finding:
    template = rule.message or finding.message or rule.MESSAGE
    if finding.message is not None and not set(places_in(template)) <= set(finding.values):
        template = finding.message  # the user's message needs a value that this finding lacks
    # Tables cannot store lone surrogates.
    text = fill(template, finding.values).encode("utf-8", "replace").decode("utf-8")
    return Finding(penalty=finding.penalty, values={"text": text, "path": _field(finding.values.get("path", ""))})


def _field(path: str) -> str:
    """Field at a rule's path, such as ``items`` for ``answer.items[].price``; empty for the whole answer."""
    return path.removeprefix("answer").lstrip(".").partition("[]")[0]


def _capped(findings: list[Finding]) -> list[Finding]:
    total = math.fsum(finding.penalty for finding in findings)
    if total <= 1.0:
        return findings
    return [
        Finding(penalty=max(finding.penalty / total, FLOOR / len(findings)), values=finding.values)
        for finding in findings
    ]


def _shortened(findings: list[Finding]) -> list[Finding]:
    if len(findings) <= MAX_FINDINGS:
        return findings
    shown, rest = findings[: MAX_FINDINGS - 1], findings[MAX_FINDINGS - 1 :]
    penalty = math.fsum(finding.penalty for finding in rest)
    return [*shown, Finding(penalty=penalty, values={"text": f"and {len(rest)} more places like these"})]
