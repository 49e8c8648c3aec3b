"""Fixtures of ``reported_decisions`` for every test here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for the module next to this one

from reported_decisions import reader  # noqa: F401 - a fixture
