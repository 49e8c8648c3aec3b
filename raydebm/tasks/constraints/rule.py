"""Base of declarative rules: a name, a weight, a graded penalty, a message; and their conversion to constraints.

Checking is total: for any answer, a rule gives findings with finite penalties above 0, or none; a failed evaluation is
a violation with its reason.

Penalties. Each rule has a severity: for bounds the excess divided by the limit, for lists the share of items that break
the rule. ``graded`` (default) uses it, between a small floor and 1; ``fixed`` uses 1. With several values each counts
1/n. C_j is never above 1.
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
"""Smallest penalty of a violation, so that none rounds to 0."""
MAX_FINDINGS = 20
"""Maximum number of findings per constraint; the last one sums up the rest."""
MAX_COUNTED = 100_000
"""Maximum number of findings that are made and counted, of which ``MAX_FINDINGS`` are listed."""


def checked_by(check: Callable[[Any], Any]) -> AfterValidator:
    """Validator of a field by a check that raises ConstraintError."""

    def validated(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validated)


Expression = Annotated[str, checked_by(parse_expression)]
"""JMESPath that starts at ``answer`` or ``problem``."""


class Strict(Documented):
    """Base of the models of users' files: unknown keys are refused, and types are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True, slots=True)
class Fault:
    """One error of one value."""

    severity: float
    values: dict[str, Any] = field(default_factory=dict)
    message: str | None = None
    """Message of this fault. Default: the rule's own."""


class Rule(Strict):
    """Fields of all rules."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"path", "value"})
    """Names that a message may use."""
    MESSAGE: ClassVar[str] = "{path} breaks the rule"

    name: str = Field(pattern=r"^[A-Za-z][\w -]{0,60}$")
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Weight w_j."""
    penalty: Literal["graded", "fixed"] = "graded"
    """Cost of a violation before the weight: by its severity, or 1."""
    message: str | None = Field(None, min_length=1, max_length=500)
    """A sentence that a model can act on. Default: the rule's own."""

    @model_validator(mode="after")
    def _places_exist(self) -> "Rule":
        if self.message is not None:
            check_template(self.message, self.PLACES)
        return self

    def expressions(self) -> Iterator[str]:
        """Expressions on the whole document."""
        raise NotImplementedError

    def findings(self, document: RuleInput) -> Iterator[Finding]:
        """Violations of the rule; EvaluationError if an expression cannot be evaluated."""
        raise NotImplementedError

    def finding(self, fault: Fault, share: float, **values: Any) -> Finding:
        """Finding for a fault of one value. ``share`` is 1 divided by the number of values."""
        cost = 1.0 if self.penalty == "fixed" else min(1.0, max(FLOOR, fault.severity))
        return Finding(penalty=max(FLOOR, cost * share), values=values | fault.values, message=fault.message)

    def missing(self, path: str, share: float) -> Finding:
        """Finding for a missing value, with the penalty of the worst value."""
        return self.finding(Fault(math.inf, message="{path} is missing"), share, path=path)


class ValuesRule(Rule):
    """A rule about one or several values.

    Without ``each``, the values are the result of ``value``, or its items if it is a list. With ``each``, ``value`` is
    evaluated on every item of that list, so that an item without the value is noticed (a projection such as
    ``items[].price`` would drop it).
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
        """Name of all values together in messages."""
        return self.value if self.each is None else f"{self.each}[].{self.value}"

    def expressions(self) -> Iterator[str]:
        yield self.value if self.each is None else self.each

    def placed_values(self, document: RuleInput) -> list[tuple[str, Any]]:
        """(name in messages, value to check) of each value, with None for a missing one.

        Raises EvaluationError if ``each`` is not a list.
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
        """Checker of single values, made once for all values of an answer."""
        raise NotImplementedError


def compile_rule(rule: Rule, *, view: Callable[[Any], Any] = lambda answer: answer) -> Constraint:
    """Constraint of a validated rule; ``view`` gives the task's answer as JSON."""

    def check(problem: Problem, answer: Any) -> list[Finding]:
        return _rule_findings(rule, RuleInput({"answer": view(answer), "problem": dict(problem.data)}))

    # The sentence is built here from bounded templates; the constraint's own template only passes it on.
    return Constraint(name=rule.name, check=check, message="{text}", weight=rule.weight)


def _rule_findings(rule: Rule, document: RuleInput) -> list[Finding]:
    """Findings of a rule; the value ``text`` is the whole sentence. Never raises for a JSON document."""
    try:
        findings = [_with_text(rule, finding) for finding in islice(rule.findings(document), MAX_COUNTED)]
    except (EvaluationError, RecursionError) as error:
        reason = str(error) if isinstance(error, EvaluationError) else "the answer is nested too deeply"
        return [Finding(penalty=1.0, values={"text": f"{rule.name}: {reason}"})]
    return _shortened(_capped(findings))


def _with_text(rule: Rule, finding: Finding) -> Finding:
    template = rule.message or finding.message or rule.MESSAGE
    if finding.message is not None and not set(places_in(template)) <= set(finding.values):
        template = finding.message  # the user's sentence names a value that is missing here
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
