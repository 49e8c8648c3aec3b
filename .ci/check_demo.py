"""Check the decisions that ``raydebm demo --json FILE`` wrote: exit code 1 and one line per fault.

    python .ci/check_demo.py demo.json

The demo must show an accepted right answer, a regeneration that turned a wrong selection into a right one, and a
refusal of a wrong answer; the service must decide as the replay of the evaluation did.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

EXPECTED: dict[str, dict[str, Any]] = {
    "accept": {"decision": "accept", "passes": 1, "last_selection_correct": True},
    "regenerate": {"decision": "accept", "first_selection_correct": False, "last_selection_correct": True},
    "abstain": {"decision": "abstain", "last_selection_correct": False},
}


def faults(decisions: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What is missing or wrong, in words."""
    for kind, expected in EXPECTED.items():
        facts = decisions.get(kind)
        if facts is None:
            yield f"{kind}: the demo shows no such decision"
            continue
        for name, value in {**expected, "as_replayed": True}.items():
            if facts.get(name) != value:
                yield f"{kind}: {name} is {facts.get(name)!r}, expected {value!r}"
        if kind == "regenerate" and facts.get("passes", 0) < 2:
            yield f"regenerate: {facts.get('passes')} pass(es), expected at least 2"


def main(file: str) -> int:
    """Print the faults of a file; returns the exit code."""
    decisions = json.loads(Path(file).read_text(encoding="utf-8"))["decisions"]
    lines = list(faults(decisions))
    sys.stdout.write(
        "".join(f"{line}\n" for line in lines or ["the demo accepted, regenerated and abstained as it should"])
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
