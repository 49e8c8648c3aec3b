"""Statements about knights and knaves: their form, their truth, and the exact solver.

Statements have the published data set's logic form: ``("telling-truth", i)`` or ``("lying", i)`` about person ``i``, or
``("not", s)``, ``("and", s, ...)``, ``("or", s, ...)``, ``("->", s, s)``, ``("<=>", s, s)`` about statements ``s``.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

from raydebm.errors import TaskDataError

Statement = tuple[Any, ...]
Assignment = tuple[bool, ...]
"""True for a knight, in the order of the names."""

MAX_PEOPLE = 12
"""Limit because the solver evaluates 2**n worlds."""

_ATOMS = ("telling-truth", "lying")
_ARITY: dict[str, tuple[int, int]] = {"not": (1, 1), "and": (1, 9), "or": (1, 9), "->": (2, 2), "<=>": (2, 2)}


def is_true(statement: Statement, knights: Sequence[bool]) -> bool:
    """Truth of the statement under an assignment."""
    return bool(_worlds(statement, knights, 1))


def broken_statements(statements: Sequence[Statement], knights: Sequence[bool]) -> list[int]:
    """People whose statement contradicts their role: a knight's is false, or a knave's is true."""
    return [person for person, said in enumerate(statements) if is_true(said, knights) != knights[person]]


def solutions(statements: Sequence[Statement]) -> list[Assignment]:
    """Assignments under which no statement is broken, in counting order.

    All 2**n assignments (worlds) are evaluated at once: bit ``w`` of an integer is the truth in world ``w``.
    """
    num_people = len(statements)
    num_worlds = 1 << num_people
    everything = (1 << num_worlds) - 1
    knight_in = [sum(1 << world for world in range(num_worlds) if world >> person & 1) for person in range(num_people)]
    consistent = everything
    for person, statement in enumerate(statements):
        consistent &= ~(_worlds(statement, knight_in, everything) ^ knight_in[person])
    return [
        tuple(bool(world >> person & 1) for person in range(num_people))
        for world in range(num_worlds)
        if consistent >> world & 1
    ]


def _worlds(statement: Statement, knight_in: Sequence[int], everything: int) -> int:
    """Worlds in which the statement is true, as bits of an integer."""
    operator, *parts = statement
    if operator == "telling-truth":
        return knight_in[parts[0]]
    if operator == "lying":
        return everything ^ knight_in[parts[0]]
    values = [_worlds(part, knight_in, everything) for part in parts]
    if operator == "not":
        return everything ^ values[0]
    if operator == "and":
        return reduce(and_, values)
    if operator == "or":
        return reduce(or_, values)
    if operator == "->":
        return (everything ^ values[0]) | values[1]
    return everything ^ values[0] ^ values[1]


def check_statement(value: object, num_people: int) -> Statement:
    """Validate a statement, given as a JSON value (lists) or a Python literal (tuples).

    Raises:
        TaskDataError: the value does not have the logic form, or refers to an unknown person.
    """
    if not isinstance(value, list | tuple) or len(value) < 2 or not isinstance(value[0], str):
        raise TaskDataError(f"not a statement: {value!r}; expected (operator, part, ...)")
    operator, *parts = value
    if operator in _ATOMS:
        person = parts[0]
        if len(parts) != 1 or type(person) is not int or not 0 <= person < num_people:
            raise TaskDataError(f"not a statement: {value!r}; expected ({operator!r}, person below {num_people})")
        return (operator, person)
    if operator not in _ARITY:
        raise TaskDataError(f"not a statement: {value!r}; operators are {', '.join((*_ATOMS, *_ARITY))}")
    least, most = _ARITY[operator]
    if not least <= len(parts) <= most:
        raise TaskDataError(f"not a statement: {value!r}; {operator!r} takes {least} to {most} parts")
    return (operator, *(check_statement(part, num_people) for part in parts))
