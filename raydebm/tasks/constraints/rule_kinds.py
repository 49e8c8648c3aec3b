"""Declarative rules: a small language for users' constraints (paper section 3.4).

In:   one mapping per constraint, from YAML or JSON: ``{name, rule, ..., weight, penalty, message}``.
Out:  a rule, which ``rule.compile_rule`` converts to a ``Constraint``.

A rule reads ``{"answer": ..., "problem": ...}``: the parsed answer and ``Problem.data``. Neither contains gold.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, model_validator

from raydebm.identity import canonical_json
from raydebm.tasks.constraints import Finding
from raydebm.tasks.constraints.expressions import EvaluationError, RuleInput, is_number, key_of, kind_of, number_of
from raydebm.tasks.constraints.patterns import compile_pattern, is_found
from raydebm.tasks.constraints.rule import Expression, Fault, Rule, Strict, ValuesRule, checked_by
from raydebm.tasks.constraints.schemas import check_schema, schema_faults
from raydebm.tasks.constraints.templates import short_text

Pattern = Annotated[str, checked_by(compile_pattern)]
Schema = Annotated[dict[str, Any], checked_by(check_schema)]
Operand = bool | int | Annotated[float, Field(allow_inf_nan=False)] | Expression
"""A number, true, false, or an expression. A literal text is an expression: ``"'yes'"``."""

_HOLDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "at_most": ("at most", operator.le),
    "at_least": ("at least", operator.ge),
    "less_than": ("less than", operator.lt),
    "more_than": ("more than", operator.gt),
}
_EQUALITY = {"equal": "equal to", "not_equal": "other than"}
_BOUND_PLACES = frozenset({"limit", "excess", "bound"})


class Bounds(Strict):
    """Limits of a value. Each is a literal or an expression. Texts are compared letter by letter, as for ISO dates."""

    at_most: Operand | None = None
    at_least: Operand | None = None
    less_than: Operand | None = None
    more_than: Operand | None = None
    equal: Operand | None = None
    not_equal: Operand | None = None
    tolerance: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Maximum difference of equal numbers, for ``equal`` and ``not_equal``."""

    @model_validator(mode="after")
    def _some_limit(self) -> "Bounds":
        if not self.operands():
            raise ValueError(f"give at least one of {', '.join([*_HOLDS, *_EQUALITY])}")
        return self

    def operands(self) -> dict[str, bool | int | float | str]:
        """The limits that are set."""
        limits = {name: getattr(self, name) for name in (*_HOLDS, *_EQUALITY)}
        return {name: operand for name, operand in limits.items() if operand is not None}

    def limit_expressions(self) -> Iterator[str]:
        """Limits that are expressions, not literals."""
        return (operand for operand in self.operands().values() if isinstance(operand, str))

    def bound_checker(self, document: RuleInput) -> Callable[[Any], Iterator[Fault]]:
        """Function that checks one value. Severity: excess / limit, or the excess if the limit is 0. Raises
        EvaluationError if a limit is missing or cannot be evaluated."""
        limits = {name: _limit(operand, document) for name, operand in self.operands().items()}

        def faults_of(value: Any) -> Iterator[Fault]:
            for name, limit in limits.items():
                if name in _HOLDS:
                    yield from _order_fault(name, value, limit)
                else:
                    yield from _equality_fault(name, value, limit, self.tolerance)

        return faults_of


def _limit(operand: bool | int | float | str, document: RuleInput) -> Any:
    limit = document.value_of(operand) if isinstance(operand, str) else operand
    if limit is None:
        raise EvaluationError(f"the limit {operand} is not there")
    return limit


def _order_fault(name: str, value: Any, limit: Any) -> Iterator[Fault]:
    words, holds = _HOLDS[name]
    values = {"limit": limit, "excess": "", "bound": words}
    if isinstance(value, str) and isinstance(limit, str):
        if not holds(value, limit):
            yield Fault(math.inf, values)
    elif not (is_number(value) and is_number(limit)):
        yield Fault(math.inf, values, "{path} is {value}, which cannot be compared with {limit}")
    elif not holds(value, limit):
        excess = abs(number_of(value) - number_of(limit))
        yield Fault(excess / (abs(limit) or 1.0), values | {"excess": excess})


def _equality_fault(name: str, value: Any, limit: Any, tolerance: float) -> Iterator[Fault]:
    values = {"limit": limit, "excess": "", "bound": _EQUALITY[name]}
    if not (is_number(value) and is_number(limit)):
        if (key_of(value) == key_of(limit)) != (name == "equal"):
            yield Fault(math.inf, values)
        return
    gap = abs(number_of(value) - number_of(limit))
    if (gap <= tolerance) != (name == "equal"):
        severity = gap / (abs(number_of(limit)) or 1.0) if name == "equal" else math.inf
        yield Fault(severity, values | {"excess": gap})


class Compare(ValuesRule, Bounds):
    """Every value is within its limits."""

    PLACES: ClassVar[frozenset[str]] = ValuesRule.PLACES | _BOUND_PLACES
    MESSAGE: ClassVar[str] = "{path} is {value}; it must be {bound} {limit}"
    rule: Literal["compare"]

    def expressions(self) -> Iterator[str]:
        yield from super().expressions()
        yield from self.limit_expressions()

    def checker(self, document: RuleInput) -> Callable[[Any], Iterable[Fault]]:
        return self.bound_checker(document)


class Sum(Compare):
    """The sum of all values is within its limits. A value that is missing or not a number is a violation."""

    PLACES: ClassVar[frozenset[str]] = Compare.PLACES - {"index"}
    MESSAGE: ClassVar[str] = "the sum of {path} is {value}; it must be {bound} {limit}"
    rule: Literal["sum"]  # type: ignore[assignment]

    def findings(self, document: RuleInput) -> Iterator[Finding]:
        places = self.placed_values(document)
        for path, value in places:
            if value is None:
                yield self.missing(path, 1.0)
                return
            if not is_number(value):
                raise EvaluationError(f"{path} must be a number, got {kind_of(value)}")
        # Not fsum, which raises OverflowError.
        total = number_of(sum(number_of(value) for _, value in places))
        for fault in self.checker(document)(total):
            yield self.finding(fault, 1.0, path=self.path, value=total, count=len(places))


class Count(Rule, Bounds):
    """The number of items of a list, or of fields of an object, is within its limits. A missing value has 0."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"path", "value"}) | _BOUND_PLACES
    MESSAGE: ClassVar[str] = "{path} has {value} item(s); it must have {bound} {limit}"
    rule: Literal["count"]
    of: Expression

    def expressions(self) -> Iterator[str]:
        yield self.of
        yield from self.limit_expressions()

    def findings(self, document: RuleInput) -> Iterator[Finding]:
        items = document.value_of(self.of)
        if items is not None and not isinstance(items, list | dict):
            raise EvaluationError(f"{self.of} must be a list, got {kind_of(items)}")
        for fault in self.bound_checker(document)(len(items or ())):
            yield self.finding(fault, 1.0, path=self.of, value=len(items or ()))


class Unique(ValuesRule):
    """No value is repeated. Penalty: the share of values that repeat an earlier one."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"path", "value", "times", "count"})
    MESSAGE: ClassVar[str] = "{path} has {value} {times} times; each may occur only once"
    rule: Literal["unique"]

    def findings(self, document: RuleInput) -> Iterator[Finding]:
        places = self.placed_values(document)
        groups: dict[str, list[Any]] = {}
        for path, value in places:
            if value is None:
                yield self.missing(path, 1 / len(places))
            else:
                groups.setdefault(key_of(value), []).append(value)
        for group in groups.values():
            if len(group) > 1:
                values = {"path": self.path, "value": group[0], "times": len(group), "count": len(places)}
                yield self.finding(Fault(1.0), (len(group) - 1) / len(places), **values)


class Member(ValuesRule):
    """Every value is in a table. Penalty: the share of values that are not."""

    PLACES: ClassVar[frozenset[str]] = ValuesRule.PLACES | {"allowed"}
    MESSAGE: ClassVar[str] = "{path} is {value}, which is not one of {allowed}"
    rule: Literal["member"]
    table: Expression | list[Any]
    """List of the allowed values, or an expression such as ``problem.catalog[].id``."""

    def expressions(self) -> Iterator[str]:
        yield from super().expressions()
        if isinstance(self.table, str):
            yield self.table

    def checker(self, document: RuleInput) -> Callable[[Any], Iterable[Fault]]:
        rows = document.value_of(self.table) if isinstance(self.table, str) else self.table
        if not isinstance(rows, list):
            raise EvaluationError(f"the table {self.table} must be a list, got {kind_of(rows)}")
        known = {key_of(row) for row in rows}
        shown = ", ".join(short_text(row)[:40] for row in rows[:10]) + (", ..." if len(rows) > 10 else "")

        def faults_of(value: Any) -> Iterator[Fault]:
            if key_of(value) not in known:
                yield Fault(1.0, {"allowed": shown or "nothing"})

        return faults_of


class Matches(ValuesRule):
    """Every value is a text that matches a pattern (RE2). Penalty: the share of values that do not."""

    PLACES: ClassVar[frozenset[str]] = ValuesRule.PLACES | {"pattern"}
    MESSAGE: ClassVar[str] = "{path} is {value}, which does not match {pattern}"
    rule: Literal["matches"]
    pattern: Pattern
    negate: bool = False
    """True if the pattern must not match."""

    def checker(self, document: RuleInput) -> Callable[[Any], Iterable[Fault]]:
        values = {"pattern": self.pattern}
        message = "{path} is {value}, which must not match {pattern}" if self.negate and self.message is None else None

        def faults_of(value: Any) -> Iterator[Fault]:
            if not isinstance(value, str):
                yield Fault(1.0, values, "{path} must be text, got {value}")
            elif is_found(self.pattern, value) == self.negate:
                yield Fault(1.0, values, message)

        return faults_of


class SchemaRule(Rule):
    """A value is valid under a JSON Schema. Severity: n / (n + 1) for n faults, so each further fault costs more."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"path", "reason"})
    MESSAGE: ClassVar[str] = "{path}: {reason}"
    rule: Literal["schema"]
    value: Expression = "answer"
    json_schema: Schema = Field(alias="schema")

    def expressions(self) -> Iterator[str]:
        yield self.value

    def findings(self, document: RuleInput) -> Iterator[Finding]:
        faults = schema_faults(canonical_json(self.json_schema), document.value_of(self.value))
        severity = len(faults) / (len(faults) + 1)
        for fault in faults:
            path = f"{self.value}.{fault.path}".replace(".[", "[") if fault.path else self.value
            yield self.finding(Fault(severity), 1 / len(faults), path=path, reason=fault.reason)


class Holds(Rule):
    """An expression is true; for conditions that no other rule covers. Penalty: 1."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"path"})
    MESSAGE: ClassVar[str] = "{path} does not hold"
    rule: Literal["holds"]
    that: Expression

    def expressions(self) -> Iterator[str]:
        yield self.that

    def findings(self, document: RuleInput) -> Iterator[Finding]:
        if document.value_of(self.that) is not True:
            yield self.finding(Fault(1.0), 1.0, path=self.that)


AnyRule = Annotated[Compare | Sum | Count | Unique | Member | Matches | SchemaRule | Holds, Field(discriminator="rule")]
_RULES: TypeAdapter[Any] = TypeAdapter(AnyRule)


def read_rule(tree: Mapping[str, Any]) -> Rule:
    """Parse a rule.

    Raises:
        pydantic.ValidationError: a key is unknown or a value is wrong; the location names the key.
    """
    rule: Rule = _RULES.validate_python(tree)
    return rule
