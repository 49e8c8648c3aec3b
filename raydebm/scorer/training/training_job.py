"""One adapter's training: what its worker is told, and where its progress and its end stand on disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raydebm.config import AdapterConfig, Recipe
from raydebm.run.directory import RunDir

DONE_FILE = "finished.json"
"""In an adapter's folder, written last: what it was trained from, and how that went."""
PROGRESS = "progress"
"""Folder of resumable epochs; removed when the ensemble is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """One adapter's training, as its worker gets it."""

    adapter: AdapterConfig
    recipe: Recipe
    run: RunDir
    stage: str
    plan: str
    """Fingerprint of data and settings; the backbone's weights have their own."""
    data: str
    device: str
    graph_gib: float | None
    """Memory for a step's activations; None: what the trainer takes by itself."""

    @property
    def name(self) -> str:
        """Name of the Ray Train run. Holds the plan, so that other data or settings never resume from these epochs."""
        return f"{self.adapter.name}-{self.plan[:12]}"

    def record_epoch(self, epoch: int, facts: Mapping[str, Any]) -> None:
        self.run.write_json(dict(facts), self.stage, PROGRESS, f"{self.name}.epochs", f"{epoch:04d}.json")

    def epoch(self, epoch: int) -> dict[str, Any] | None:
        parts = (self.stage, PROGRESS, f"{self.name}.epochs", f"{epoch:04d}.json")
        if not self.run.exists(*parts):
            return None
        facts: dict[str, Any] = self.run.read_json(*parts)
        return facts

    def finished(self) -> dict[str, Any] | None:
        if not self.run.exists(self.stage, self.adapter.name, DONE_FILE):
            return None
        facts: dict[str, Any] = self.run.read_json(self.stage, self.adapter.name, DONE_FILE)
        return facts
