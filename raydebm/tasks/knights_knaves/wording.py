"""Write and parse the text of puzzles: names, roles, speeches and claims, as in the published data sets."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.errors import TaskDataError
from raydebm.tasks.knights_knaves.logic import MAX_PEOPLE, Statement

NAMES: tuple[str, ...] = (
    "Abigail", "Aiden", "Alexander", "Amelia", "Aria", "Aurora", "Ava", "Avery", "Benjamin", "Charlotte", "Chloe",
    "Daniel", "David", "Elizabeth", "Ella", "Emily", "Emma", "Ethan", "Evelyn", "Grace", "Harper", "Henry", "Isabella",
    "Jack", "Jackson", "Jacob", "James", "Joseph", "Liam", "Lily", "Logan", "Lucas", "Luke", "Mason", "Matthew", "Mia",
    "Michael", "Noah", "Oliver", "Olivia", "Owen", "Penelope", "Riley", "Samuel", "Scarlett", "Sebastian", "Sofia",
    "Sophia", "Victoria", "William", "Zoey",
)  # fmt: skip

SPEECHES: tuple[str, ...] = (
    '"{claim}," {name} declared.',
    '"{claim}," {name} claimed.',
    '"{claim}," {name} mentioned.',
    '"{claim}" - {name}.',
    '{name} was heard saying, "{claim}".',
    '{name} noted, "{claim}".',
    '{name} commented, "{claim}".',
    '{name} remarked, "{claim}".',
    '{name} stated, "{claim}".',
    '{name} said, "{claim}."',
    '{name} asserted: "{claim}".',
    "{name} said that {claim}.",
    "{name} expressed that {claim}.",
    "{name} told you that {claim}.",
    'As {name} put it, "{claim}".',
    'According to {name}, "{claim}".',
    'In a statement by {name}: "{claim}".',
    'In {name}\'s words: "{claim}".',
)


@dataclass(frozen=True, slots=True)
class Roles:
    """Singular nouns for the two kinds of inhabitants."""

    truthful: str = "knight"
    lying: str = "knave"

    def word(self, is_knight: bool) -> str:
        """The puzzle's word for a knight or a knave."""
        return self.truthful if is_knight else self.lying

    def phrase(self, is_knight: bool) -> str:
        """The word with its article: ``a knight``, ``an egoist``."""
        word = self.word(is_knight)
        return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}"


KNIGHTS = Roles()


def claim_text(statement: Statement, names: Sequence[str], roles: Roles = KNIGHTS) -> str:
    """The statement in words, with parentheses around parts that are neither atoms nor negated atoms."""
    operator, *parts = statement
    if operator in ("telling-truth", "lying"):
        return f"{names[parts[0]]} is {roles.phrase(operator == 'telling-truth')}"
    if operator == "not":
        inner = parts[0]
        if inner[0] in ("telling-truth", "lying"):
            return f"{names[inner[1]]} is not {roles.phrase(inner[0] == 'telling-truth')}"
        return f"it is not the case that ({claim_text(inner, names, roles)})"
    words = [_part_text(part, names, roles) for part in parts]
    if operator == "->":
        return f"If {words[0]} then {words[1]}"
    return {"and": " and ", "or": " or ", "<=>": " if and only if "}[operator].join(words)


def _part_text(part: Statement, names: Sequence[str], roles: Roles) -> str:
    text = claim_text(part, names, roles)
    is_atom = part[0] in ("telling-truth", "lying") or (part[0] == "not" and part[1][0] in ("telling-truth", "lying"))
    return text if is_atom else f"({text})"


def quiz_text(names: Sequence[str], speeches: Sequence[str], roles: Roles = KNIGHTS) -> str:
    """Text of a whole puzzle. Speeches are complete sentences, one per person."""
    truthful, lying = f"{roles.truthful}s", f"{roles.lying}s"
    return (
        f"A very special island is inhabited only by {truthful} and {lying}. "
        f"{truthful.capitalize()} always tell the truth, and {lying} always lie. "
        f"You meet {len(names)} inhabitants: {', '.join(names[:-1])}, and {names[-1]}. {' '.join(speeches)} "
        f"So who is {roles.phrase(True)} and who is {roles.phrase(False)}?"
    )


_INHABITED = re.compile(r"inhabited only by (\w+)s and (\w+)s\b")
_WHO = re.compile(r"\bwho is an? (\w+) and who is an? (\w+)\?")
_MEET = re.compile(r"You meet (?:\w+) inhabitants?: ([^.]+)\.")
_SPEECHES = tuple(
    re.compile(pattern)
    for pattern in (
        r'"(?P<claim>[^"]+?)[,.]?" (?:- )?(?P<name>\w+)(?: \w+)?\.',
        r'(?:As|According to) (?P<name>\w+)(?: put it)?, "(?P<claim>[^"]+?)\.?"\.?',
        r"In (?:a statement by )?(?P<name>\w+)(?:'s words)?: \"(?P<claim>[^\"]+?)\.?\"\.?",
        r'(?P<name>\w+) [^".:,]*?[,:] "(?P<claim>[^"]+?)\.?"\.?',
        r'(?P<name>\w+) [^".:,]*?\bthat (?P<claim>[^".]{1,2000}+)\.',
    )
)
_CLAIM_TOKEN = re.compile(
    r"\s*(\(|\)|if and only if\b|it is not the case that\b|if\b|then\b|and\b|or\b|"
    r"(?P<name>\w+) is (?P<negated>not )?an? (?P<role>\w+))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PuzzleReading:
    names: tuple[str, ...]
    roles: Roles
    statements: tuple[Statement, ...]


def read_quiz(text: str) -> PuzzleReading:
    """Parse a whole puzzle.

    Raises:
        TaskDataError: a part of the wording is missing or cannot be parsed; the message names or quotes it.
    """
    roles = _read_roles(text)
    meet = _MEET.search(text)
    if meet is None:
        raise TaskDataError('no inhabitants found: the text must say "You meet 3 inhabitants: A, B, and C."')
    names = tuple(re.split(r",? and |, ", meet[1].strip()))
    if not 1 <= len(names) <= MAX_PEOPLE or len(set(names)) != len(names) or not all(map(str.isidentifier, names)):
        raise TaskDataError(f"expected 1 to {MAX_PEOPLE} different one-word names, got {meet[1]!r}")
    speeches = re.split(r"\bSo,? who is\b", text[meet.end() :], maxsplit=1)[0].strip()
    said = _read_speeches(speeches, names, roles)
    silent = [name for name in names if name not in said]
    if silent:
        raise TaskDataError(f"nothing was said by {', '.join(silent)}; every inhabitant must make one statement")
    return PuzzleReading(names=names, roles=roles, statements=tuple(said[name] for name in names))


def _read_roles(text: str) -> Roles:
    who = _WHO.search(text)
    inhabited = _INHABITED.search(text)
    if who is not None:
        return Roles(who[1].lower(), who[2].lower())
    if inhabited is not None:
        return Roles(inhabited[1].lower(), inhabited[2].lower())
    raise TaskDataError('no roles found: the text must ask "who is a knight and who is a knave?" (any two words)')


def _read_speeches(text: str, names: Sequence[str], roles: Roles) -> dict[str, Statement]:
    said: dict[str, Statement] = {}
    position = 0
    while position < len(text):
        match = next((speech_match for speech in _SPEECHES if (speech_match := speech.match(text, position))), None)
        if match is None or match["name"] not in names:
            raise TaskDataError(f"cannot tell who says what at {text[position : position + 80]!r}")
        if match["name"] in said:
            raise TaskDataError(f"{match['name']} makes two statements; expected one per person")
        said[match["name"]] = read_claim(match["claim"], names, roles)
        position = match.end()
        position += len(text[position:]) - len(text[position:].lstrip())
    return said


def read_claim(text: str, names: Sequence[str], roles: Roles) -> Statement:
    """Parse one claim, such as ``If Zoey is a knight then Luke is not a knave``.

    Raises:
        TaskDataError: words outside the grammar, or an unknown name or role.
    """
    reader = _ClaimReader(text, names, roles)
    try:
        statement = reader.claim()
    except RecursionError as error:
        raise TaskDataError(f"the claim {text[:60]!r}... has too many brackets or negations to be read") from error
    if reader.tokens[reader.position :]:
        raise TaskDataError(f"cannot read the claim {text!r} past {reader.tokens[reader.position]!r}")
    return statement


class _ClaimReader:
    """Recursive-descent parser. A token is an operator word, a parenthesis or a complete atom."""

    def __init__(self, text: str, names: Sequence[str], roles: Roles) -> None:
        self.text = text
        self.position = 0
        self.tokens: list[str | Statement] = []
        person_of = {name.lower(): person for person, name in enumerate(names)}
        start = 0
        while start < len(text.rstrip()):
            match = _CLAIM_TOKEN.match(text, start)
            if match is None:
                raise TaskDataError(f"cannot read the claim {text!r} at {text[start : start + 40]!r}")
            self.tokens.append(_atom(match, person_of, roles) if match["name"] else match[1].lower())
            start = match.end()

    def claim(self) -> Statement:
        if self._take("if"):
            condition = self.claim()
            self._expect("then")
            return ("->", condition, self.claim())
        parts = [self._part()]
        for word, operator in (("and", "and"), ("or", "or"), ("if and only if", "<=>")):
            while (operator != "<=>" or len(parts) < 2) and self._take(word):
                parts.append(self._part())
            if len(parts) > 1:
                return (operator, *parts)
        return parts[0]

    def _part(self) -> Statement:
        if self._take("it is not the case that"):
            return ("not", self._part())
        if self._take("("):
            inner = self.claim()
            self._expect(")")
            return inner
        token = self.tokens[self.position] if self.position < len(self.tokens) else "its end"
        if isinstance(token, str):
            raise TaskDataError(
                f"cannot read the claim {self.text!r}: expected a statement about a person at {token!r}"
            )
        self.position += 1
        return token

    def _take(self, word: str) -> bool:
        taken = self.position < len(self.tokens) and self.tokens[self.position] == word
        self.position += taken
        return taken

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise TaskDataError(f"cannot read the claim {self.text!r}: {word!r} is missing")


def _atom(match: re.Match[str], person_of: dict[str, int], roles: Roles) -> Statement:
    name, role = match["name"].lower(), match["role"].lower()
    if name not in person_of:
        raise TaskDataError(f"{match['name']!r} is not one of the inhabitants")
    if role not in (roles.truthful, roles.lying):
        raise TaskDataError(f"unknown role {match['role']!r}; this puzzle has {roles.truthful} and {roles.lying}")
    atom = ("telling-truth" if role == roles.truthful else "lying", person_of[name])
    return ("not", atom) if match["negated"] else atom
