"""One adapter's training: what its worker is told, and where its progress and its end stand on disk."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raydebm.config import AdapterConfig, Recipe
from raydebm.run.directory import RunDir

DONE_FILE = "finished.json"
"""In an adapter's folder, written last: what it was trained from, and how that went."""
STARTS = "starts.json"
CHECKPOINT = "checkpoint.json"
PROGRESS = "progress"
"""Folder of resumable epochs; removed when the ensemble is complete."""
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEpoch:
    """An epoch from which a training can go on."""

    epoch: int
    """Counts from 1."""
    address: str
    """The folder of its checkpoint."""


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
        """Name of its folder of epochs. Holds the plan, so that other data or settings never resume from these."""
        return f"{self.adapter.name}-{self.plan[:12]}"

    @property
    def backbone(self) -> str:
        """Name of the adapter's backbone."""
        return self.recipe.scorer.backbone_of(self.adapter)

    @property
    def max_restarts(self) -> int:
        """How often a worker that fails is started again."""
        return self.recipe.ray.max_failures

    def record_start(self, pid: int) -> None:
        """Note that a worker begins with this adapter, for the first time or again."""
        self._write({"pids": [*self._pids(), pid]}, STARTS)

    def num_starts(self) -> int:
        """How often workers began with this adapter, those of earlier calls included."""
        return len(self._pids())

    def record_epoch(self, epoch: int, facts: Mapping[str, Any]) -> None:
        """Store what an epoch reported; ``epoch`` counts from 1."""
        self._write(facts, f"{epoch:04d}.json")

    def epoch(self, epoch: int) -> dict[str, Any] | None:
        """What the epoch reported, or None where it is not stored."""
        return self._read(f"{epoch:04d}.json")

    def record_checkpoint(self, epoch: int, path: str) -> None:
        """Note where the epoch is stored, and keep the note of one before it: Ray Train stores the last two.

        Args:
            epoch: counts from 1; notes of this epoch and of later ones go, because a training that makes the epoch
                again could not read them.
            path: ends in the Ray Train run's folder and the checkpoint's.
        """
        run, checkpoint = path.rstrip("/").split("/")[-2:]
        before = next((place for place in self._places() if place["epoch"] < epoch), None)
        self._write({"epoch": epoch, "run": run, "checkpoint": checkpoint, "before": before}, CHECKPOINT)

    def checkpoints(self) -> list[StoredEpoch]:
        """The last two stored epochs, the newest first; fewer where fewer were stored."""
        return [
            StoredEpoch(
                epoch=place["epoch"], address=self.run.uri(self.stage, PROGRESS, place["run"], place["checkpoint"])
            )
            for place in self._places()
        ]

    def finished(self) -> dict[str, Any] | None:
        """What the adapter's folder says it was trained from, whatever that was; None while it is not complete."""
        if not self.run.exists(self.stage, self.adapter.name, DONE_FILE):
            return None
        facts: dict[str, Any] = self.run.read_json(self.stage, self.adapter.name, DONE_FILE)
        return facts

    def is_complete(self, backbone_fingerprint: str) -> bool:
        """Whether the adapter on disk came from this job's data and settings and from these weights."""
        done = self.finished()
        return done is not None and (done["plan"], done["backbone_fingerprint"]) == (self.plan, backbone_fingerprint)

    def _places(self) -> list[dict[str, Any]]:
        try:
            newest = self._read(CHECKPOINT)
        except ValueError as error:
            note = self.run.uri(*self._parts(CHECKPOINT))
            LOG.warning("adapter %s: %s cannot be read, starting again: %s", self.adapter.name, note, error)
            newest = None
        if newest is None:
            return []
        before = newest.pop("before", None)
        return [newest] if before is None else [newest, before]

    def _pids(self) -> list[int]:
        pids: list[int] = (self._read(STARTS) or {"pids": []})["pids"]
        return pids

    def _parts(self, file: str) -> tuple[str, ...]:
        return (self.stage, PROGRESS, f"{self.name}.epochs", file)

    def _write(self, facts: Mapping[str, Any], file: str) -> None:
        self.run.write_json(dict(facts), *self._parts(file))

    def _read(self, file: str) -> dict[str, Any] | None:
        parts = self._parts(file)
        if not self.run.exists(*parts):
            return None
        facts: dict[str, Any] = self.run.read_json(*parts)
        return facts
