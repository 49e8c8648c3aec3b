"""A traveller's request, from a problem's data.

In:   ``Problem.data``.
Out:  a Trip.
Does not know: plans, catalogues.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PLAN_FIELDS = ("current_city", "transportation", "breakfast", "attraction", "lunch", "dinner", "accommodation")
"""Fields of a day, in the order of plans."""
MEALS = ("breakfast", "lunch", "dinner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """Structured fields of a query. None for a preference that is not stated, or a field that could not be parsed."""

    org: str | None
    """The city of departure."""
    dest: str | None
    """The city of a three-day trip, the state of a longer one."""
    days: int
    visiting_city_number: int | None = None
    people: int = 1
    budget: float | None = None
    """Dollars for everyone together."""
    house_rule: str | None = None
    cuisine: tuple[str, ...] = ()
    room_type: str | None = None
    transportation: str | None = None
    date: tuple[str, ...] = ()
    """One ISO date per day; empty if unknown."""

    @property
    def within_a_state(self) -> bool:
        """True for longer trips, which visit several cities of one state; ``dest`` is then that state."""
        return self.days > 3


def trip_of(data: Mapping[str, Any]) -> Trip:
    """Read the trip from a problem's data."""
    wishes = data.get("local_constraint") or {}
    return Trip(
        org=data.get("org"),
        dest=data.get("dest"),
        days=int(data["days"]),
        visiting_city_number=data.get("visiting_city_number"),
        people=int(data.get("people_number") or 1),
        budget=data.get("budget"),
        house_rule=wishes.get("house rule"),
        cuisine=tuple(wishes.get("cuisine") or ()),
        room_type=wishes.get("room type"),
        transportation=wishes.get("transportation"),
        date=tuple(data.get("date") or ()),
    )
