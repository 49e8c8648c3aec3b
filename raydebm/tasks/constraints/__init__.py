"""Constraints: gold-free checks of an answer, with the same declaration for built-in and users' ones.

A constraint has a name, a weight, a check and a message (paper section 3.4). ``E_constraint = sum_j w_j C_j``: a check
yields one finding per violation, and ``C_j`` is the sum of their penalties. A satisfied constraint has no findings.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raydebm.errors import ConstraintError
from raydebm.records import Problem, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One violation of a constraint."""

    penalty: float
    """Part of C_j, above 0, higher for a worse violation."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values for the message template, such as ``{"day": 2, "field": "dinner"}``. ``path`` is the field of the answer
    that the finding is about."""
    message: str | None = None
    """Message template of this finding. Default: the constraint's."""


Check = Callable[[Problem, Any], Iterable[Finding]]
"""Pure function of a problem and a parsed answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A gold-free check of an answer."""

    name: str
    check: Check
    message: str = ""
    """Sentence that a model can act on, with ``{name}`` in place of a finding's value. Values are not templates."""
    weight: float = 1.0
    """w_j, finite and at least 0."""
    exactness: Callable[[Problem], str] | None = None
    """Reason why the constraint is not exact for a problem, such as ``"the puzzle has 2 solutions"``. Empty if it is
    exact: an answer that satisfies it is right, and one that violates it is wrong. Default: never exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Verdict of a task's exact constraints on one answer."""

    holds: bool | None
    """True for proven right, False for proven wrong, None if no constraint is exact for this problem."""
    note: str = ""
    """Reasons why constraints that can be exact are not exact for this problem."""


def proof_of(constraints: Sequence[Constraint], problem: Problem, violations: Sequence[Violation]) -> Proof:
    """Verdict on an answer by the constraints that are exact for its problem.

    An answer is proven wrong if it violates an exact constraint, and right if exact ones exist and it satisfies all.
    """
    notes = {
        constraint.name: constraint.exactness(problem) for constraint in constraints if constraint.exactness is not None
    }
    note = "; ".join(filter(None, notes.values()))
    exact = {name for name, reason in notes.items() if not reason}
    if not exact:
        return Proof(holds=None, note=note)
    return Proof(holds=exact.isdisjoint(violation.constraint for violation in violations), note=note)


def violations_of(constraints: Sequence[Constraint], problem: Problem, answer: Any) -> tuple[Violation, ...]:
    """Violations of an answer, in the constraints' order; empty if all hold.

    Raises:
        ConstraintError: a constraint's weight or penalty is not a finite number in its range, or its message names a
            value that the finding lacks.
    """
    return tuple(
        _violation(constraint, finding) for constraint in constraints for finding in constraint.check(problem, answer)
    )


def _violation(constraint: Constraint, finding: Finding) -> Violation:
    if not (0 < finding.penalty < math.inf and 0 <= constraint.weight < math.inf):
        raise ConstraintError(
            f"constraint {constraint.name!r} has penalty {finding.penalty} and weight {constraint.weight}; "
            "a violation needs a finite penalty above 0 and a finite weight of at least 0"
        )
    template = constraint.message if finding.message is None else finding.message
    try:
        message = template.format_map(finding.values)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ConstraintError(
            f"constraint {constraint.name!r}: the message {template!r} does not fit the values "
            f"{', '.join(sorted(finding.values)) or '(none)'}: {error!r}"
        ) from error
    return Violation(
        constraint=constraint.name,
        penalty=finding.penalty,
        weight=constraint.weight,
        message=message,
        path=str(finding.values.get("path", "")),
    )
