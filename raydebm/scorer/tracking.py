"""Experiment trackers: training curves in TensorBoard or Weights & Biases during a training.

In:   the adapters in training, their settings, one dict of numbers per epoch.
Out:  nothing that raydebm reads: the record of a training is each adapter's ``training.json``.
Does not know: Ray, torch. Workers know nothing of trackers; the driver reads epochs from the run directory.

A tracker is a function that starts its runs and returns a function ``Tell``. It runs in its own thread, so that it can
neither slow a training down nor end it: after an error it is named in a warning and disabled.
"""

import importlib.util
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from raydebm.config import TrackerName
from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir

LOG = logging.getLogger(__name__)
CLOSE_LIMIT_S = 120.0
"""Longest wait at the end of a training for trackers that are still sending."""

Tell = Callable[[str, int | None, Mapping[str, Any] | None], None]
"""Function of (adapter, epoch from 1, numbers of the epoch). Without an epoch the adapter is finished: with the numbers
of its best epoch, or with None after a failure. An interrupted training repeats its epochs from the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedAdapter:
    """One adapter's training."""

    identity: str
    """Stable when an interrupted training resumes; new when it restarts."""
    settings: Mapping[str, Any]
    """Flat: dotted names to JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedTraining:
    """A training of several adapters."""

    project: str
    run_name: str
    run: RunDir
    """The run directory, for trackers that write files."""
    adapters: Mapping[str, TrackedAdapter]
    """Adapters in training by name, without those kept from an earlier training."""


def tensorboard(training: TrackedTraining) -> Tell:
    """Write an event file per adapter: ``<run directory>/tensorboard/<run>/<adapter>``.

    Every training replaces the file. If the run directory is a URL, the file is written locally and copied there.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    run = training.run
    root = Path(run.root if run.is_local else tempfile.mkdtemp(prefix="raydebm-tensorboard-"))
    writers = {}
    for name, adapter in training.adapters.items():
        where = ("tensorboard", training.run_name, name)
        run.remove(*where)
        writers[name] = EventFileWriter(str(root.joinpath(*where)))
        settings = hparams_pb(dict(adapter.settings), trial_id=name)
        writers[name].add_event(Event(wall_time=time.time(), summary=settings))

    def tell(adapter: str, epoch: int | None, numbers: Mapping[str, Any] | None) -> None:
        prefix = "" if epoch is not None else "kept/"
        values = [
            Summary.Value(tag=prefix + key, simple_value=float(value))
            for key, value in (numbers or {}).items()
            if isinstance(value, int | float)
        ]
        writer = writers[adapter]
        writer.add_event(Event(wall_time=time.time(), step=epoch or 0, summary=Summary(value=values)))
        writer.flush() if epoch is not None else writer.close()
        if not run.is_local:
            for file in root.joinpath("tensorboard", training.run_name, adapter).iterdir():
                run.write_bytes(file.read_bytes(), "tensorboard", training.run_name, adapter, file.name)
            if epoch is None:
                shutil.rmtree(file.parent, ignore_errors=True)

    return tell


def wandb(training: TrackedTraining) -> Tell:
    """Start a Weights & Biases run per adapter, in one group. Its own variables (WANDB_MODE ...) apply.

    Runs have fixed ids, so an interrupted training resumes them; repeated epochs are dropped there. Run files are in
    the run directory if that is local, unless WANDB_DIR is set.
    """
    import wandb as package

    if os.environ.get("WANDB_MODE", "online") == "online" and not package.api.api_key:
        # It would prompt on the terminal, between the progress bars.
        raise ConfigError("not logged in; run `wandb login`, set WANDB_API_KEY, or set WANDB_MODE=offline")
    runs: dict[str, Any] = {
        name: package.init(
            project=training.project,
            group=training.run_name,
            name=f"{training.run_name}/{name}",
            job_type="adapter",
            id=adapter.identity,
            resume="allow",
            config=dict(adapter.settings),
            dir=os.environ.get("WANDB_DIR", training.run.root if training.run.is_local else None),
            reinit="create_new",
            settings=package.Settings(silent=True, console="off"),
        )
        for name, adapter in training.adapters.items()
    }

    def tell(adapter: str, epoch: int | None, numbers: Mapping[str, Any] | None) -> None:
        if epoch is not None:
            runs[adapter].log(dict(numbers or {}), step=epoch)
            return
        runs[adapter].summary.update({f"kept/{key}": value for key, value in (numbers or {}).items()})
        runs[adapter].finish(exit_code=int(numbers is None))

    return tell


TRACKERS: Mapping[TrackerName, Callable[[TrackedTraining], Tell]] = {"tensorboard": tensorboard, "wandb": wandb}


def check_trackers(names: Iterable[TrackerName]) -> None:
    """Refuse trackers without their package, before anything costs time or money.

    Raises:
        ConfigError: a package is missing; the message says what to install.
    """
    specs = {name: importlib.util.find_spec(name) for name in names}
    # Without an origin it is a plain folder of that name, such as the ./wandb of earlier runs.
    missing = [name for name, spec in specs.items() if spec is None or spec.origin is None]
    if missing:
        raise ConfigError(
            f"training.report_to names {', '.join(missing)}, which cannot be imported here: run "
            f"`pip install {' '.join(missing)}`, or take it out of training.report_to"
        )


class Tracking:
    """All trackers of one training. No method raises, and only ``close`` waits."""

    def __init__(self, names: Iterable[TrackerName], training: TrackedTraining) -> None:
        self._unfinished = set(training.adapters)
        self._senders = [_Sender(name, training) for name in names]
        for sender in self._senders:
            sender.start()

    def epoch(self, adapter: str, epoch: int, metrics: Mapping[str, float | None]) -> None:
        """Send one epoch, counted from 1, without None values."""
        self._tell(adapter, epoch, metrics)

    def finish(self, adapter: str, summary: Mapping[str, Any]) -> None:
        """Finish an adapter; ``summary`` has the numbers of its best epoch."""
        self._unfinished.discard(adapter)
        self._tell(adapter, None, summary)

    def close(self, *, limit_s: float = CLOSE_LIMIT_S) -> None:
        """Mark unfinished adapters as failed, and wait until each tracker has sent everything, up to the limit."""
        for adapter in sorted(self._unfinished):
            self._tell(adapter, None, None)
        for sender in self._senders:
            sender.todo.put(None)
        for sender in self._senders:
            sender.join(limit_s)
            if sender.is_alive():
                LOG.warning(
                    "tracker %s is still sending after %.0f s; the rest of its data is lost", sender.name, limit_s
                )

    def _tell(self, adapter: str, epoch: int | None, numbers: Mapping[str, Any] | None) -> None:
        known = None if numbers is None else {key: value for key, value in numbers.items() if value is not None}
        for sender in self._senders:
            sender.todo.put((adapter, epoch, known))


class _Sender(threading.Thread):
    """Thread of one tracker: start it, then send its queue in order, up to a None."""

    def __init__(self, name: TrackerName, training: TrackedTraining) -> None:
        super().__init__(name=name, daemon=True)
        self.todo: SimpleQueue[tuple[str, int | None, Mapping[str, Any] | None] | None] = SimpleQueue()
        self._tracker, self._training = name, training

    def run(self) -> None:
        try:
            tell = TRACKERS[self._tracker](self._training)
            while (told := self.todo.get()) is not None:
                tell(*told)
        except Exception as error:  # noqa: BLE001 - other people's packages and services; training must not notice
            LOG.warning(
                "tracker %s failed and receives nothing more from this training: %s: %s",
                self.name, type(error).__name__, error,
            )  # fmt: skip
