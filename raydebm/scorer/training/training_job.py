"""One adapter's training: input of the worker, and its progress and result on disk."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raydebm.config import AdapterConfig, Recipe
from raydebm.run.directory import RunDir

DONE_FILE = "finished.json"
"""Facts about a finished adapter, in its folder; written last."""
STARTS = "starts.json"
CHECKPOINT = "checkpoint.json"
MAX_RESTARTS = 2
"""Restarts of an adapter after its worker died."""
PROGRESS = "progress"
"""Folder of resumable epochs; removed when the ensemble is complete."""
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEpoch:
    """An epoch from which a training can resume."""

    epoch: int
    """Number of the epoch, from 1."""
    address: str
    """Address of the checkpoint folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """One adapter's training, the worker's input."""

    adapter: AdapterConfig
    recipe: Recipe
    run: RunDir
    stage: str
    plan: str
    """Fingerprint of data and settings, without the backbone's weights."""
    data: str
    device: str
    graph_gib: float | None
    """Memory for a step's activations in GiB. Default: the trainer's own limit."""
    max_restarts: int = MAX_RESTARTS

    @property
    def name(self) -> str:
        """Name of the folder of epochs. Contains the plan, so that other data or settings never resume from it."""
        return f"{self.adapter.name}-{self.plan[:12]}"

    def record_start(self, pid: int) -> None:
        """Record that a worker starts or resumes this adapter."""
        self._write({"pids": [*self._pids(), pid]}, STARTS)

    def num_starts(self) -> int:
        """Number of worker starts for this adapter, including earlier calls."""
        return len(self._pids())

    def record_epoch(self, epoch: int, facts: Mapping[str, Any]) -> None:
        """Store the report of an epoch.

        Args:
            epoch: number of the epoch, from 1.
        """
        self._write(facts, f"{epoch:04d}.json")

    def epoch(self, epoch: int) -> dict[str, Any] | None:
        """Report of an epoch. None if it is not stored."""
        return self._read(f"{epoch:04d}.json")

    def record_checkpoint(self, epoch: int, path: str) -> None:
        """Record the location of an epoch's checkpoint, and keep the record of the one before: Ray Train stores two.

        Args:
            epoch: number of the epoch, from 1. Records of this and later epochs are removed, because a training that
                repeats the epoch could not read them.
            path: path that ends in the folders of the Ray Train run and the checkpoint.
        """
        run, checkpoint = path.rstrip("/").split("/")[-2:]
        before = next((place for place in self._places() if place["epoch"] < epoch), None)
        self._write({"epoch": epoch, "run": run, "checkpoint": checkpoint, "before": before}, CHECKPOINT)

    def checkpoints(self) -> list[StoredEpoch]:
        """The last two stored epochs, newest first. May be fewer."""
        return [
            StoredEpoch(
                epoch=place["epoch"], address=self.run.uri(self.stage, PROGRESS, place["run"], place["checkpoint"])
            )
            for place in self._places()
        ]

    def finished(self) -> dict[str, Any] | None:
        """Facts about the adapter on disk, whatever its data and settings. None if it is not finished."""
        if not self.run.exists(self.stage, self.adapter.name, DONE_FILE):
            return None
        facts: dict[str, Any] = self.run.read_json(self.stage, self.adapter.name, DONE_FILE)
        return facts

    def is_complete(self, backbone_fingerprint: str) -> bool:
        """Whether the adapter on disk was trained with this job's data and settings on this backbone."""
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
