"""TensorBoard curves of a running training.

The driver writes them from the epochs that workers store in the run directory. Errors must not end the training: the
first one is logged as a warning, and ends the curves.
"""

import logging
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raydebm.scorer.training.training_job import TrainingJob

LOG = logging.getLogger(__name__)
REPORTED = ("best_epoch", "train_loss", "validation_loss", "validation_accuracy", "seconds", "restarts")
"""Fields of a finished adapter's summary that are shown."""


class Curves:
    """An event file per adapter: ``<run directory>/tensorboard/<recipe>/<adapter>``. Errors of writing are logged only.

    Training an adapter replaces its file; if it is resumed, its epochs are reported again, from the first. If the run
    directory is a URL, files are written locally and copied there.
    """

    def __init__(self, jobs: Sequence[TrainingJob]) -> None:
        """Open a file per job, if TensorBoard is installed. The jobs, at least one, belong to one training."""
        self._run, self._name = jobs[0].run, jobs[0].recipe.name
        self._writers: dict[str, Any] = {}
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            return
        run = self._run
        self._root = Path(run.root if run.is_local else tempfile.mkdtemp(prefix="raydebm-tensorboard-"))
        try:
            for name in (job.adapter.name for job in jobs):
                run.remove("tensorboard", self._name, name)
                self._writers[name] = EventFileWriter(str(self._root / "tensorboard" / self._name / name))
        except Exception as error:  # noqa: BLE001 - another package's; the training must not notice
            self._give_up(error)

    def epoch(self, adapter: str, facts: Mapping[str, Any]) -> None:
        """Add the metrics of an adapter's epoch."""
        numbers = dict(facts["metrics"])
        self._add(adapter, numbers.pop("epoch"), numbers)

    def finish(self, jobs: Iterable[TrainingJob]) -> None:
        """Add the summary of each trained job, and close its file."""
        for job in jobs:
            summary = (job.finished() or {}).get("summary", {})
            self._add(job.adapter.name, None, {f"kept/{key}": summary.get(key) for key in REPORTED})

    def _add(self, adapter: str, epoch: int | None, numbers: Mapping[str, float | None]) -> None:
        """Add an epoch's numbers. Without an epoch, add those of the finished adapter and close the file."""
        if adapter not in self._writers:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        writer, known = self._writers[adapter], {key: value for key, value in numbers.items() if value is not None}
        try:
            values = [Summary.Value(tag=key, simple_value=value) for key, value in known.items()]
            writer.add_event(Event(wall_time=time.time(), step=epoch or 0, summary=Summary(value=values)))
            writer.flush() if epoch is not None else writer.close()
            if not self._run.is_local:
                folder = self._root / "tensorboard" / self._name / adapter
                for file in folder.iterdir():
                    self._run.write_bytes(file.read_bytes(), "tensorboard", self._name, adapter, file.name)
                if epoch is None:
                    shutil.rmtree(folder, ignore_errors=True)
        except Exception as error:  # noqa: BLE001 - another package's; the training must not notice
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        LOG.warning("TensorBoard receives nothing more from this training: %s: %s", type(error).__name__, error)
        self._writers = {}
