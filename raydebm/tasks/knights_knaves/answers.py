"""Find the assignment in a completion, in any of the usual forms."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from raydebm.tasks.knights_knaves.wording import KNIGHTS, Roles

_BRACES = re.compile(r"\{[^{}]*\}")
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.IGNORECASE | re.DOTALL)
_MARKS = r"[\s*_`\"']*"
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")
_QUOTED_WORD = re.compile(r"[\"“](\w+)[\"”]")
_NOT_STATED = re.compile(
    r"\b(?:if|suppos\w*|assum\w*|case|scenario|possibility|either|would|contradict\w*|said|says?|statement that)\b"
    r"|[?\"“”]",
    re.IGNORECASE,
)
"""Signs of a sentence that supposes, asks or quotes."""
_SUPPOSES = re.compile(r"\b(?:if|suppos\w*|assum\w*)\b[^.!?\n{}]*\Z", re.IGNORECASE)
_MAX_BEFORE = 80
_ENDED = re.compile(r"[.!?][\s*_`\"')]*\Z")
"""End of a complete sentence: a truncated text ends within its reasoning."""
_LINES_AROUND = 3
"""Lines of a conclusion, in addition to one per name."""


def find_answer(text: str, names: Sequence[str], roles: Roles, *, marked_only: bool = False) -> dict[str, bool] | None:
    """Assignment of the text; None if it leaves a name open or contradicts itself.

    Looks first at JSON-like objects, of which the last complete one counts; then at the last ``<answer>`` part; then at
    the sentences at the text's end ("Zoey must be a knight", "(1) Zoey: knave"), backwards until every name has a role,
    and no further than the first that supposes, asks or quotes something: reasoning consists of such sentences.

    Args:
        marked_only: ignore sentences outside an ``<answer>`` part.
    """
    for written in _objects(text):
        answer = _settle(_pairs(written, names, roles, joint=":"), names)
        if answer is not None:
            return answer
    joint = r"is|must be|has to be|=|:|->|→|[-\u2013\u2014|]"
    tagged = _ANSWER_TAG.findall(text)
    if tagged:
        return _settle(_pairs(tagged[-1], names, roles, joint=joint), names)
    if marked_only:
        return None

    def pairs(part: str) -> Sequence[tuple[str, bool]]:
        return _pairs(part, names, roles, joint=joint)

    return _settle(_last_of_each(pairs(_stated_at_end(text, len(names), pairs)), names), names)


def _objects(text: str) -> list[str]:
    """JSON-like objects, the last one first; supposed ones ("if {...}, then") after all others."""
    objects = [
        (_SUPPOSES.search(text, max(0, match.start() - _MAX_BEFORE), match.start()) is not None, match[0])
        for match in reversed(list(_BRACES.finditer(text)))
    ]
    return [written for _, written in sorted(objects, key=lambda entry: entry[0])]


def _stated_at_end(text: str, num_names: int, pairs: Callable[[str], Sequence[tuple[str, bool]]]) -> str:
    """Sentences of the last lines after the last one without a statement, ignoring a closing remark."""
    lines = [line for line in text.splitlines() if line.strip()][-num_names - _LINES_AROUND :]
    sentences = [sentence for line in lines for sentence in _SENTENCE_END.split(line)]
    while sentences and _ENDED.search(sentences[-1]) and not pairs(sentences[-1]):
        sentences.pop()
    stated = takewhile(lambda sentence: not _NOT_STATED.search(_QUOTED_WORD.sub(r"\1", sentence)), reversed(sentences))
    return "\n".join(reversed(list(stated)))


def _pairs(text: str, names: Sequence[str], roles: Roles, *, joint: str) -> Sequence[tuple[str, bool]]:
    """Every "name is role" in order, except for "knight or knave", which repeats the question; and "role: names" at the
    start of a line or a clause.

    The puzzle's own role words and knight/knave are understood.
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


def _last_of_each(pairs: Sequence[tuple[str, bool]], names: Sequence[str]) -> Sequence[tuple[str, bool]]:
    """The shortest end of ``pairs`` that covers every name; all of them if none does."""
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
