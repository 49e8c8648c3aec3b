"""Parse a traveller's wishes from the words of a query.

In:   the query as typed, and the reference information if there is any.
Out:  the structured fields for the checks, and a sentence for each field that the text leaves open.
Does not know: plans.

Unreadable fields stay empty and are reported; nothing is guessed, except one traveller if no number is given (which is
also reported).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from raydebm.errors import TaskDataError
from raydebm.tasks.travelplanner.trip_reference import TripReference

CUISINES = ("American", "Chinese", "French", "Indian", "Italian", "Mediterranean", "Mexican")
"""Cuisines in the benchmark's wishes."""

MAX_DAYS = 30

_WORDS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
}  # fmt: skip
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_NUMBER = rf"(\d{{1,2}}|{'|'.join(_WORDS)})"
_MONTH = f"({'|'.join(_MONTHS)})"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_JOIN = r"\s*(?:to|and|until|through|till|-|\u2013)\s*(?:the\s+)?"
_NOT_A_PLACE = rf"(?!(?:{'|'.join((*_MONTHS, *CUISINES))}|I|We|My|Our|The|A|An)\b)"
_PLACE_WORD = rf"{_NOT_A_PLACE}(?:(?:St|Ste|Mt|Ft)\.|[A-Z][\w\u2019'-]{{0,30}})"
_PLACE = rf"({_PLACE_WORD}(?: {_PLACE_WORD}){{0,3}})"

_DATES = re.compile(rf"{_MONTH}\s+{_DAY}(?:,?\s*(\d{{4}}))?{_JOIN}(?:{_MONTH}\s+)?{_DAY}(?:,?\s*(\d{{4}}))?")
_DATES_OF = re.compile(rf"{_DAY}(?:\s+of\s+{_MONTH})?{_JOIN}{_DAY}\s+of\s+{_MONTH},?\s*(\d{{4}})")
_DATES_APART = re.compile(
    rf"{_MONTH}\s+{_DAY}(?:,?\s*(\d{{4}}))?,?\s+and\s+(?:end\w*|conclud\w*|finish\w*)\s+(?:on\s+)?{_MONTH}\s+{_DAY},?\s*(\d{{4}})"
)
_DURATION = re.compile(rf"\b{_NUMBER}(?:[\s-]+|\s+full\s+)days?\b", re.IGNORECASE)
_BUDGET = re.compile(r"\$\s?(\d{1,3}(?:,\d{3})+|\d{1,7})(\.\d\d)?")
_CITIES = re.compile(rf"\b{_NUMBER}\s+(?:[a-z]+\s+){{0,2}}cit(?:y|ies)\b", re.IGNORECASE)
_GROUP = re.compile(
    rf"\b(?:group|party|family|team|total)\s+of\s+{_NUMBER}\b"
    rf"|\b{_NUMBER}\s+(?:people|persons?|individuals?|travell?ers?|adults?|participants?|friends|guests|of\s+us)\b"
    rf"|\bfor\s+{_NUMBER}(?=\s*[,.?]|\s+(?:departing|leaving|starting|from|to|including|beginning)\b)",
    re.IGNORECASE,
)
_ALONE = re.compile(
    r"\b(?:solo|alone|by myself|single (?:person|travell?er|individual)|individual travell?er"
    r"|(?:plan|itinerary|trip|journey) for me|I'll|I am|I'm|I will|I have|I want|I wish|I would|my (?:\w+ )?budget)\b"
)
_PAIR = re.compile(r"\b(?:couple|pair|duo)\b", re.IGNORECASE)
_ORG = (
    re.compile(
        r"\b(?:[Dd]epart(?:ing|s|ure)?|[Ll]eav(?:e|es|ing)|[Oo]riginat(?:e|es|ing)|[Ss]et(?:ting)? off"
        rf"|[Ss]tart(?:s|ing)?|[Bb]egin(?:s|ning)?|[Cc]ommenc(?:e|es|ing)|[Ll]aunching|[Jj]ourney|[Tt]ravell?ing)\s+(?:off\s+|out\s+)?"
        rf"(?:our\s+journey\s+|my\s+journey\s+)?(?:from\s+|in\s+|at\s+|out\s+of\s+)?{_PLACE}"
    ),
    re.compile(rf"\b[Ff]rom\s+{_PLACE}"),
)
_DEST = (
    re.compile(rf"\bcit(?:y|ies)\s+(?:there\s+)?(?:in|within|across|of|throughout)\s+(?:the\s+state\s+of\s+)?{_PLACE}"),
    re.compile(
        r"\b(?:head(?:ing|ed)?\s+(?:to|towards|for)|mov(?:e|ing)\s+to|proceed(?:ing)?\s+to|end(?:ing|s)?\s+in"
        rf"|arriv(?:e|ing)\s+(?:in|at)|visit(?:ing)?|destination\s+is|bound\s+for|explor(?:e|ing)|towards?|travell?ing\s+to|journey\s+to|trip\s+to)\s+{_PLACE}"
    ),
    re.compile(rf"\bto\s+{_PLACE}"),
    re.compile(rf"\b(?:with)?in\s+{_PLACE}"),
)
_HOUSE_RULES: Mapping[str, re.Pattern[str]] = {
    "smoking": re.compile(r"\bsmok", re.IGNORECASE),
    "parties": re.compile(
        r"\bparties\b|\bparty[\s-]friendly\b|\b(?:throw|host|hold|have)\s+a\s+party\b", re.IGNORECASE
    ),
    "children under 10": re.compile(r"\bchild|\bkids?\b", re.IGNORECASE),
    "visitors": re.compile(r"\bvisitors?\b", re.IGNORECASE),
    "pets": re.compile(r"\bpets?\b", re.IGNORECASE),
}
_ROOM_TYPES: Mapping[str, re.Pattern[str]] = {
    "not shared room": re.compile(
        r"\bnon-?\s?shared\b|\b(?:not|n't|neither|no|without|avoid(?:ing)?|isn't|aren't)\b[^.;]{0,40}?\bshar(?:ed|ing)\b",
        re.IGNORECASE,
    ),
    "entire room": re.compile(
        r"\bentire\s+(?:room|home|place|apartment|unit|house)|\brooms?\s+entirely\b", re.IGNORECASE
    ),
    "private room": re.compile(r"\bprivate\s+(?:room|accommodation)", re.IGNORECASE),
    "shared room": re.compile(r"\bshared\s+(?:room|accommodation)", re.IGNORECASE),
}
_NEGATION = (
    r"(?:\b(?:no|not|non|without|avoid\w*|rather than|never|cannot|exclud\w*|refrain\w*|instead of|free of)\b|n't\b)"
)
_TRANSPORT: Mapping[str, re.Pattern[str]] = {
    "no flight": re.compile(
        rf"{_NEGATION}[^.;]{{0,60}}?\b(?:flights?|fly(?:ing)?|air(?:line|\s)?\s*(?:travel|transport\w*)|(?:air)?planes?)\b"
        r"|\b(?:flights?|flying|air travel)\b[^.;]{0,40}?\b(?:is|are|should be)\s+(?:not|ruled out|off|excluded)\b",
        re.IGNORECASE,
    ),
    "no self-driving": re.compile(rf"{_NEGATION}[^.;]{{0,60}}?\b(?:self-?\s?driv\w*|driv(?:e|ing)\b)", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReading:
    """Parsed query."""

    fields: Mapping[str, Any]
    """Fields by the benchmark's names, such as org, dest, days, people_number, budget and local_constraint."""
    unread: tuple[str, ...]
    """A sentence for each field that the text leaves open."""


def read_query(text: str, *, reference: TripReference | None = None) -> QueryReading:
    """Wishes of a query; the reference information determines the cities if the words do not.

    Raises:
        TaskDataError: the text does not say how long the trip is or where it goes.
    """
    days, dates = _days(text)
    if days is None:
        raise TaskDataError(
            "the text does not say how many days the trip takes; write, for example, 'a 3-day trip from Boston to "
            "Denver from March 12th to March 14th, 2022, for 2 people with a budget of $1,600'"
        )
    org, dest = _places(text, reference)
    if dest is None:
        raise TaskDataError(f"the {days}-day trip has no destination; write, for example, 'from Boston to Denver'")
    people, budget = _people(text), _budget(text)
    number = _CITIES.search(text)
    cities = _count(number[1]) if number and days > 3 else (1 if days <= 3 else None)
    unread = []
    if org is None:
        unread.append(
            "The place of departure could not be read: it is not checked that the trip starts and ends there."
        )
    if cities is None:
        unread.append("The number of cities could not be read: it is not checked.")
    if people is None:
        unread.append("The number of travellers could not be read: costs are counted for one.")
    if budget is None:
        unread.append("There is no budget in the text: costs are not checked.")
    fields = {
        "org": org,
        "dest": dest,
        "days": days,
        "visiting_city_number": cities,
        "date": dates,
        "people_number": people or 1,
        "budget": budget,
        "local_constraint": {
            "house rule": _first(_HOUSE_RULES, text),
            "cuisine": [name for name in sorted(CUISINES, key=text.find) if re.search(rf"\b{name}\b", text)] or None,
            "room type": _first(_ROOM_TYPES, text),
            "transportation": _first(_TRANSPORT, text),
        },
    }
    return QueryReading(fields=fields, unread=tuple(unread))


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _WORDS[word.lower()]


def _first(patterns: Mapping[str, re.Pattern[str]], text: str) -> str | None:
    return next((name for name, pattern in patterns.items() if pattern.search(text)), None)


def _days(text: str) -> tuple[int | None, list[str]]:
    """(days, one ISO date per day); the dates are left out if they contradict a stated duration."""
    span = _span(text)
    stated = _DURATION.search(text)
    days = _count(stated[1]) if stated else 7 if re.search(r"\b(?:week-long|one[- ]week|a week)\b", text) else None
    if span is not None:
        length = (span[1] - span[0]).days + 1
        if 0 < length <= MAX_DAYS and days in (None, length):
            return length, [(span[0] + timedelta(days=offset)).isoformat() for offset in range(length)]
    return (days if days is not None and 0 < days <= MAX_DAYS else None), []


def _span(text: str) -> tuple[date, date] | None:
    try:
        if match := _DATES.search(text):
            year = match[3] or match[6]
            if year:
                first = _date(year, match[1], match[2])
                return first, _date(match[6] or year, match[4] or match[1], match[5])
        if match := _DATES_OF.search(text):
            return _date(match[5], match[2] or match[4], match[1]), _date(match[5], match[4], match[3])
        if match := _DATES_APART.search(text):
            return _date(match[3] or match[6], match[1], match[2]), _date(match[6], match[4], match[5])
    except ValueError:  # March 32nd
        return None
    return None


def _date(year: str, month: str, day: str) -> date:
    return date(int(year), _MONTHS.index(month) + 1, int(day))


def _people(text: str) -> int | None:
    match = _GROUP.search(_CITIES.sub("", text))
    if match:
        return _count(next(group for group in match.groups() if group))
    if _PAIR.search(text):
        return 2
    return 1 if _ALONE.search(text) else None


def _budget(text: str) -> float | int | None:
    amounts = _BUDGET.findall(text)
    if not amounts:
        return None
    amount = float(amounts[-1][0].replace(",", "") + amounts[-1][1])
    return int(amount) if amount.is_integer() else amount


def _places(text: str, reference: TripReference | None) -> tuple[str | None, str | None]:
    org = next((_clean(match[1]) for pattern in _ORG if (match := pattern.search(text))), None)
    visited: set[str] = set()
    if reference is not None:
        visited = set(reference.catalogue().cities)
        ends = dict.fromkeys(drive.origin for drive in reference.drives if drive.origin not in visited)
        org = next(iter(ends)) if len(ends) == 1 else org
    dest = next((place for pattern in _DEST if (place := _other(pattern, text, org)) is not None), None)
    if len(visited) == 1:
        dest = next(iter(visited))
    return org, dest


def _other(pattern: re.Pattern[str], text: str, org: str | None) -> str | None:
    places = (_clean(match[1]) for match in pattern.finditer(text))
    return next((place for place in places if place != org), None)


def _clean(place: str) -> str:
    return re.sub(r"(?:'s|\u2019s|[.'\u2019-])+$", "", place)
