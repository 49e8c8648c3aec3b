"""Wording of puzzles: names, roles, speech and claims, as in the published data sets."""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.tasks.knights_knaves.logic import Statement

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
    """The statement in words, with parentheses around parts that are not atoms."""
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
    """The whole puzzle; ``speeches`` are complete sentences, one per person."""
    truthful, lying = f"{roles.truthful}s", f"{roles.lying}s"
    return (
        f"A very special island is inhabited only by {truthful} and {lying}. "
        f"{truthful.capitalize()} always tell the truth, and {lying} always lie. "
        f"You meet {len(names)} inhabitants: {', '.join(names[:-1])}, and {names[-1]}. {' '.join(speeches)} "
        f"So who is {roles.phrase(True)} and who is {roles.phrase(False)}?"
    )
