"""Decisions to store: those of a service whose generators and energies are written by hand."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))

from hand_written_run import (  # noqa: F401 - the fixtures are this module's own
    app,
    backend,
    bundle,
    client,
    client_of,
    energies,
    puzzle,
    recipe,
    script,
    texts,
    write_run,
)
