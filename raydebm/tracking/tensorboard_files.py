"""TensorBoard: event files below the run directory, ``tensorboard/<run>/<adapter>``.

Look at them with ``tensorboard --logdir <run directory>/tensorboard``. An adapter's folder is written afresh by every
training of it, because all its epochs are told again when an interrupted training goes on.
"""

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from raydebm.tracking.protocol import TrackedTraining

STAGE = "tensorboard"


class TensorBoardFiles:
    """One event file per adapter. Where the run directory is a URL, files are written here and copied there."""

    def __init__(self, training: TrackedTraining) -> None:
        self._training = training
        self._scratch = None if training.run.is_local else tempfile.mkdtemp(prefix="raydebm-tensorboard-")
        self._writers = {name: self._start(name) for name in training.adapters}

    def _start(self, adapter: str) -> EventFileWriter:
        training = self._training
        where = (STAGE, training.run_name, adapter)
        training.run.remove(*where)
        writer = EventFileWriter(str(Path(self._scratch or training.run.root, *where)))
        writer.add_event(_event(hparams_pb(dict(training.adapters[adapter].settings), trial_id=adapter)))
        return writer

    def epoch(self, adapter: str, epoch: int, metrics: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=key, simple_value=value) for key, value in metrics.items()]
        self._writers[adapter].add_event(_event(Summary(value=values), step=epoch))
        self._flush(adapter)

    def finish(self, adapter: str, summary: Mapping[str, Any]) -> None:
        numbers = {key: value for key, value in summary.items() if isinstance(value, int | float)}
        values = [Summary.Value(tag=f"kept/{key}", simple_value=float(value)) for key, value in numbers.items()]
        self._writers[adapter].add_event(_event(Summary(value=values)))
        self._flush(adapter)

    def fail(self, adapter: str) -> None:
        self._flush(adapter)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _flush(self, adapter: str) -> None:
        self._writers[adapter].flush()
        if self._scratch is not None:
            for file in Path(self._scratch, STAGE, self._training.run_name, adapter).iterdir():
                content = file.read_bytes()
                self._training.run.write_bytes(content, STAGE, self._training.run_name, adapter, file.name)


def _event(summary: Summary, *, step: int = 0) -> Event:
    return Event(wall_time=time.time(), step=step, summary=summary)
