"""What a tracker is told, and what it must do with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from raydebm.run.directory import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedAdapter:
    """One adapter's training."""

    identity: str
    """The same when an interrupted training goes on, another one when it begins again."""
    settings: Mapping[str, Any]
    """Flat: dotted names to JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedTraining:
    """A training of several adapters."""

    project: str
    run_name: str
    identity: str
    """As that of an adapter, for all of them."""
    run: RunDir
    """The run directory, for trackers that write files."""
    adapters: Mapping[str, TrackedAdapter]
    """Those that are trained now, by name; adapters that are kept from before were told about then."""

    def name_of(self, adapter: str) -> str:
        """Name of an adapter's curve."""
        return f"{self.run_name}/{adapter}"


class Tracker(Protocol):
    """Its constructor takes the ``TrackedTraining`` and starts a run per adapter. May raise anything, anywhere.

    When a training goes on after an interruption, the epochs before it are told again, from the first on: a tracker
    takes care that each stands once in its curves.
    """

    def epoch(self, adapter: str, epoch: int, metrics: Mapping[str, float]) -> None:
        """Record the numbers of an adapter's epoch."""
        ...

    def finish(self, adapter: str, summary: Mapping[str, Any]) -> None:
        """The adapter is trained."""
        ...

    def fail(self, adapter: str) -> None:
        """The adapter's training ended without a result."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...
