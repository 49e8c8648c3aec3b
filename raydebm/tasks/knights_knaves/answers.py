"""Find the assignment in a completion: a JSON object, or an ``<answer>`` part."""

import re
from collections.abc import Iterable, Sequence

from raydebm.tasks.knights_knaves.wording import KNIGHTS, Roles

_BRACES = re.compile(r"\{[^{}]*\}")
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.IGNORECASE | re.DOTALL)
_MARKS = r"[\s*_`\"']*"
_SUPPOSES = re.compile(r"\b(?:if|suppos\w*|assum\w*)\b[^.!?\n{}]*\Z", re.IGNORECASE)
_MAX_BEFORE = 80


def find_answer(text: str, names: Sequence[str], roles: Roles) -> dict[str, bool] | None:
    """Assignment in the text; None if it is incomplete or contradicts itself.

    The last complete JSON-like object counts, and suppositions ("if {...}, then") only without any other. Without such
    an object the last ``<answer>`` part counts, which may be in words ("Zoey must be a knight", "(1) Zoey: knave").
    """
    objects = [
        (_SUPPOSES.search(text, max(0, match.start() - _MAX_BEFORE), match.start()) is not None, match[0])
        for match in reversed(list(_BRACES.finditer(text)))
    ]
    for _, written in sorted(objects, key=lambda entry: entry[0]):
        answer = _settle(_pairs(written, names, roles, joint=":"), names)
        if answer is not None:
            return answer
    tagged = _ANSWER_TAG.findall(text)
    joint = r"is|must be|has to be|=|:|->|→|[-\u2013\u2014|]"
    return _settle(_pairs(tagged[-1], names, roles, joint=joint), names) if tagged else None


def _pairs(text: str, names: Sequence[str], roles: Roles, *, joint: str) -> Sequence[tuple[str, bool]]:
    """(name, True for a knight) of each "name is role", in order, and "role: names" at the start of a line or clause.

    The role may be one of the puzzle's words, knight or knave. "knight or knave" is skipped: it repeats the question.
    """
    value_of = {KNIGHTS.truthful: True, KNIGHTS.lying: False, roles.truthful: True, roles.lying: False}
    name_of = {name.lower(): name for name in names}
    name, role = ("|".join(map(re.escape, words)) for words in (names, value_of))
    behind = rf"{_MARKS}(?:(?:an?|the)\b{_MARKS})?"
    pattern = re.compile(
        rf"\b(?P<name>{name}){_MARKS}(?:{joint}){behind}(?P<role>{role})\b(?!\s*(?:/|or\b))"
        rf"|(?:^|[;,.])[\s*_#>|-]{{0,20}}(?P<group>{role})s?{_MARKS}[:|]"
        rf"(?P<names>(?:{_MARKS}(?:(?:,|&|and\b){_MARKS})?\b(?:{name})\b)+)(?!{_MARKS}(?:{joint}){behind}(?:{role}))",
        re.IGNORECASE | re.MULTILINE,
    )
    one_name = re.compile(rf"\b(?:{name})\b", re.IGNORECASE)
    return [
        (name_of[found.lower()], value_of[(match["role"] or match["group"]).lower()])
        for match in pattern.finditer(text)
        for found in one_name.findall(match["name"] or match["names"])
    ]


def _settle(pairs: Iterable[tuple[str, bool]], names: Sequence[str]) -> dict[str, bool] | None:
    answer: dict[str, bool] = {}
    for name, is_knight in pairs:
        if answer.setdefault(name, is_knight) != is_knight:
            return None
    return {name: answer[name] for name in names} if len(answer) == len(names) else None
