"""A small made-up world for TravelPlanner: five days from Ada to Bree and Cole in Westland, and a plan without fault.

The plan costs $960: flights (100 + 110) * 2 people, a taxi $60, nine meals * $10 * 2, two nights at $80, two at $70.
"""

import copy
import csv
from pathlib import Path
from typing import Any

from raydebm.tasks.travelplanner.plans import canonical_plan, trip_of
from raydebm.tasks.travelplanner.trip_reference import read_items
from raydebm.tasks.travelplanner.trips import problem_of_row
from raydebm.tasks.travelplanner.view import PlanView, Purpose, view_of

QUERY = (
    "Please plan a 5-day trip for 2 people departing from Ada and visiting 2 cities in Westland from March 1st to "
    "March 5th, 2022, with a budget of $1,000. We bring our pets, want private rooms, Indian and French cuisine, and "
    "do not want to drive ourselves."
)
COST = 960


def _restaurant(name: str, city: str, cost: int = 10, cuisines: str = "American, Tea") -> dict[str, Any]:
    return {"Name": name, "Average Cost": cost, "Cuisines": cuisines, "Aggregate Rating": 4.0, "City": city}


def _stay(name: str, city: str, price: float, **other: Any) -> dict[str, Any]:
    return {
        "NAME": name,
        "price": price,
        "room type": other.get("room", "Private room"),
        "house_rules": other.get("rules", "No smoking"),
        "minimum nights": other.get("nights", 1.0),
        "maximum occupancy": 2,
        "review rate number": 4.0,
        "city": city,
    }


def _attraction(name: str, city: str) -> dict[str, Any]:
    return {
        "Name": name,
        "Latitude": 1.0,
        "Longitude": 2.0,
        "Address": f"1 Main St, {city}",
        "Phone": "Unknown",
        "Website": "Unknown",
        "City": city,
    }


def _flight(number: str, origin: str, destination: str, date: str, price: int) -> dict[str, Any]:
    return {
        "Flight Number": number,
        "Price": price,
        "DepTime": "08:00",
        "ArrTime": "09:00",
        "ActualElapsedTime": "1 hours 0 minutes",
        "FlightDate": date,
        "OriginCityName": origin,
        "DestCityName": destination,
        "Distance": 300.0,
    }


RESTAURANTS = {
    "Bree": [
        _restaurant("Bree Bistro", "Bree"),
        _restaurant("Bree Bakery", "Bree"),
        _restaurant("Bree Curry", "Bree", cuisines="Indian, Cafe"),
        _restaurant("Bree Grill", "Bree"),
        _restaurant("Bree Palace", "Bree", cost=400),
    ],
    "Cole": [
        _restaurant("Cole Corner", "Cole"),
        _restaurant("Cole Creperie", "Cole", cuisines="French"),
        _restaurant("Cole Cafe", "Cole"),
        _restaurant("Cole Kitchen", "Cole"),
        _restaurant("Cole Diner", "Cole"),
    ],
}
ATTRACTIONS = {
    "Bree": [_attraction("Bree Museum", "Bree"), _attraction("Bree Park", "Bree")],
    "Cole": [_attraction("Cole Castle", "Cole")],
}
STAYS = {
    "Bree": [
        _stay("Bree Loft", "Bree", 80.0),
        _stay("Bree Villa", "Bree", 80.0, room="Entire home/apt"),
        _stay("Bree Quiet House", "Bree", 80.0, rules="No pets & No parties"),
        _stay("Bree Long Stay", "Bree", 80.0, nights=30.0),
        _stay("Bree Tower", "Bree", 900.0),
    ],
    "Cole": [_stay("Cole Nest", "Cole", 70.0), _stay("Cole Dorm", "Cole", 20.0, room="Shared room")],
}
FLIGHTS = [
    _flight("F1000001", "Ada", "Bree", "2022-03-01", 100),
    _flight("F1000009", "Ada", "Bree", "2022-03-02", 100),
    _flight("F1000002", "Cole", "Ada", "2022-03-05", 110),
]
DRIVES = [
    ("Bree", "Cole", "1 hour 0 mins", 60),
    ("Ada", "Bree", "3 hours 10 mins", 300),
    ("Cole", "Ada", "3 hours", 310),
]
STATES = {"Ada": "Eastland", "Bree": "Westland", "Cole": "Westland", "Dell": "Eastland"}


def reference_items() -> list[dict[str, Any]]:
    """In the benchmark's form, tables as lists of objects."""
    items: list[dict[str, Any]] = []
    for city in ("Bree", "Cole"):
        items += [
            {"Description": f"Attractions in {city}", "Content": ATTRACTIONS[city]},
            {"Description": f"Restaurants in {city}", "Content": RESTAURANTS[city]},
            {"Description": f"Accommodations in {city}", "Content": STAYS[city]},
        ]
    items += [
        {"Description": "Flight from Ada to Bree on 2022-03-01", "Content": FLIGHTS[:2]},
        {"Description": "Flight from Bree to Cole on 2022-03-03", "Content": "There is no flight from Bree to Cole."},
        {"Description": "Flight from Cole to Ada on 2022-03-05", "Content": FLIGHTS[2:]},
    ]
    for origin, destination, duration, kilometres in DRIVES:
        way = f"from {origin} to {destination}, duration: {duration}, distance: {kilometres} km"
        items += [
            {"Description": f"Self-driving from {origin} to {destination}", "Content": f"self-driving, {way}, cost: 3"},
            {"Description": f"Taxi from {origin} to {destination}", "Content": f"taxi, {way}, cost: {kilometres}"},
        ]
    return items


def row(**changes: Any) -> dict[str, Any]:
    """A data row in the benchmark's form."""
    return {
        "problem_id": "own/1",
        "query": QUERY,
        "level": "hard",
        "org": "Ada",
        "dest": "Westland",
        "days": 5,
        "visiting_city_number": 2,
        "date": [f"2022-03-0{day}" for day in range(1, 6)],
        "people_number": 2,
        "budget": 1000,
        "local_constraint": {
            "house rule": "pets",
            "cuisine": ["Indian", "French"],
            "room type": "private room",
            "transportation": "no self-driving",
        },
        "reference_information": reference_items(),
        "annotated_plan": good_plan(),
        **changes,
    }


def good_plan() -> list[dict[str, Any]]:
    """Breaks nothing."""
    return copy.deepcopy(_GOOD_PLAN)


def _day(day: int, city: str, transport: str, *rest: str) -> dict[str, Any]:
    names = ("breakfast", "attraction", "lunch", "dinner", "accommodation")
    return {"day": day, "current_city": city, "transportation": transport, **dict(zip(names, rest, strict=True))}


_TO_BREE = "Flight Number: F1000001, from Ada to Bree, Departure Time: 08:00, Arrival Time: 09:00"
_TO_ADA = "Flight Number: F1000002, from Cole to Ada, Departure Time: 08:00, Arrival Time: 09:00"
_GOOD_PLAN = [
    _day(1, "from Ada to Bree", _TO_BREE, "-", "-", "-", "Bree Bistro, Bree", "Bree Loft, Bree"),
    _day(
        2,
        "Bree",
        "-",
        "Bree Bakery, Bree",
        "Bree Museum, Bree;Bree Park, Bree;",
        "Bree Curry, Bree",
        "Bree Grill, Bree",
        "Bree Loft, Bree",
    ),
    _day(
        3,
        "from Bree to Cole",
        "Taxi, from Bree to Cole",
        "-",
        "-",
        "Cole Corner, Cole",
        "Cole Creperie, Cole",
        "Cole Nest, Cole",
    ),
    _day(
        4,
        "Cole",
        "-",
        "Cole Cafe, Cole",
        "Cole Castle, Cole;",
        "Cole Kitchen, Cole",
        "Cole Diner, Cole",
        "Cole Nest, Cole",
    ),
    _day(5, "from Cole to Ada", _TO_ADA, "-", "-", "-", "-", "-"),
]


def plan_view(plan: list[dict[str, Any]], purpose: Purpose = "label", **changes: Any) -> PlanView:
    """A plan for this world's trip, with changed fields of its row."""
    data = row(**changes)
    catalogue = read_items(data["reference_information"], where="row").catalogue()
    return view_of(trip_of(problem_of_row(data, "row").data), canonical_plan(plan).plan, catalogue, purpose=purpose)


def write_database(folder: Path) -> Path:
    """The same world as the benchmark's folder of CSV files."""
    tables = {
        "attractions": [entry for rows in ATTRACTIONS.values() for entry in rows],
        "restaurants": [entry for rows in RESTAURANTS.values() for entry in rows],
        "accommodations": [entry for rows in STAYS.values() for entry in rows],
        "flights": FLIGHTS,
        "googleDistanceMatrix": [
            {"origin": origin, "destination": destination, "cost": "", "duration": duration, "distance": f"{length} km"}
            for origin, destination, duration, length in DRIVES
        ],
    }
    for name, rows in tables.items():
        (folder / name).mkdir(parents=True)
        with (folder / name / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    (folder / "background").mkdir()
    lines = "\n".join(f"{city}\t{state}" for city, state in STATES.items())
    (folder / "background" / "citySet_with_states.txt").write_text(lines, encoding="utf-8")
    return folder
