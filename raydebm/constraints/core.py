"""What a constraint is: a name, a weight, a check that needs no gold, and a message (paper section 3.4).

``E_constraint = sum_j w_j C_j``. A check yields one finding for each place where its constraint does not hold, and
``C_j`` is the sum of their penalties; no finding means that the constraint is satisfied.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raydebm.errors import ConstraintError
from raydebm.records import Problem, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place where a constraint does not hold."""

    penalty: float
    """Its share of C_j, above 0; it grows with the violation."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What the message's template names, such as ``{"day": 2, "field": "dinner"}``."""
    message: str | None = None
    """A template of its own, where the constraint's does not fit."""


Check = Callable[[Problem, Any], Iterable[Finding]]
"""A pure function of the problem and a parsed answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A gold-free check of an answer."""

    name: str
    check: Check
    message: str = ""
    """A sentence that a model can act on, with ``{name}`` where a finding's value goes; values are not templates."""
    weight: float = 1.0
    """w_j, finite and at least 0."""


def violations_of(constraints: Sequence[Constraint], problem: Problem, answer: Any) -> tuple[Violation, ...]:
    """Every violation of the constraints by an answer, in the constraints' order; empty when all hold.

    Raises:
        ConstraintError: a constraint's weight or penalty is not a finite number in its range, or its message names a
            value that the finding does not have.
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
            f"constraint {constraint.name!r}: the message {template!r} does not go with the values "
            f"{', '.join(sorted(finding.values)) or '(none)'}: {error!r}"
        ) from error
    return Violation(constraint=constraint.name, penalty=finding.penalty, weight=constraint.weight, message=message)
