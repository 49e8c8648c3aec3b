"""What every client is asked, and what must come out."""

import os

URL = os.environ["RAYDEBM_URL"]
PUZZLE = os.environ["PUZZLE"]
MODEL, STRICT = "raydebm/knights_knaves", "raydebm/knights_knaves@strict"
MESSAGES = [{"role": "user", "content": PUZZLE}]
RIGHT = 'Ava contradicts herself, so Zoey is right. {"Ava": "knave", "Zoey": "knight"}'
ROLES = {"Ava": "knave", "Zoey": "knight"}
DOCUMENTS = ["I do not know.", 'Both lie. {"Ava": "knave", "Zoey": "knave"}', RIGHT]
"""Without an answer, against a statement of the puzzle, and right."""
ORDER = [2, 1]
"""Places of the two best ones."""


def same(value, expected):
    """Raises AssertionError with both where they differ."""
    assert value == expected, f"{value!r} is not {expected!r}"
