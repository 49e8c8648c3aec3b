"""Finds the assignment in a completion, whichever way the model wrote it."""

import re
from collections.abc import Iterable, Mapping, Sequence

from raydebm.tasks.knights_knaves.wording import KNIGHTS, Roles

_BRACES = re.compile(r"\{[^{}]*\}")
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.IGNORECASE | re.DOTALL)
_MARKS = r"[\s*_`\"']*"


def find_answer(text: str, names: Sequence[str], roles: Roles, *, marked_only: bool = False) -> dict[str, bool] | None:
    """Who is a knight, or None when the text does not settle it for every name without contradiction.

    Looks at JSON-like objects first, the last complete one wins; then at the last ``<answer>`` part; then at the
    sentences at the text's end ("Zoey is a knight", "(1) Zoey: knave"), read backwards until every name has a role.

    Args:
        marked_only: do not read sentences outside an ``<answer>`` part.
    """
    for match in reversed(list(_BRACES.finditer(text))):
        answer = _settle(_pairs(match[0], names, roles, joint=":"), names)
        if answer is not None:
            return answer
    joint = r"is|=|:|->|→|-"
    tagged = _ANSWER_TAG.findall(text)
    if tagged:
        return _settle(_pairs(tagged[-1], names, roles, joint=joint), names)
    if marked_only:
        return None
    return _settle(_last_of_each(list(_pairs(text, names, roles, joint=joint)), names), names)


def _pairs(text: str, names: Sequence[str], roles: Roles, *, joint: str) -> Iterable[tuple[str, bool]]:
    """Every "name is role" in order, but not "knight or knave", which repeats the question.

    The puzzle's own role words and knight/knave are understood.
    """
    value_of = {KNIGHTS.truthful: True, KNIGHTS.lying: False, roles.truthful: True, roles.lying: False}
    name_of = {name.lower(): name for name in names}
    pattern = re.compile(
        rf"\b({'|'.join(map(re.escape, names))}){_MARKS}(?:{joint}){_MARKS}(?:(?:an?|the)\b{_MARKS})?"
        rf"({'|'.join(map(re.escape, value_of))})\b(?!\s*(?:/|or\b))",
        re.IGNORECASE,
    )
    return [(name_of[name.lower()], value_of[role.lower()]) for name, role in pattern.findall(text)]


def _last_of_each(pairs: Sequence[tuple[str, bool]], names: Sequence[str]) -> Sequence[tuple[str, bool]]:
    """The shortest end of ``pairs`` that covers every name; all of them when none does."""
    covered: set[str] = set()
    for start in range(len(pairs) - 1, -1, -1):
        covered.add(pairs[start][0])
        if len(covered) == len(names):
            return pairs[start:]
    return pairs


def _settle(pairs: Iterable[tuple[str, bool]], names: Sequence[str]) -> dict[str, bool] | None:
    answer: dict[str, bool] = {}
    for name, is_knight in pairs:
        if answer.setdefault(name, is_knight) != is_knight:
            return None
    return {name: answer[name] for name in names} if len(answer) == len(names) else None


def named_assignment(answer: Mapping[str, bool], names: Sequence[str]) -> tuple[bool, ...]:
    """The answer in the order of the names."""
    return tuple(answer[name] for name in names)
