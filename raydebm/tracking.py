"""Experiment trackers: the curves of a training, sent to TensorBoard or Weights & Biases while it runs.

In:   the adapters that are trained, their settings, one dict of numbers per epoch.
Out:  nothing that raydebm reads: the record of a training is ``training.json`` of each adapter, with or without these.
Does not know: Ray, torch. Workers know nothing of trackers; the driver reads epochs from the run directory and tells.

A tracker is a function that starts its runs and returns another one, ``tell``. It runs on a thread of its own and can
neither slow a training down nor end it: one that fails is named in a warning and left out from then on.
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
"""How long the end of a training waits for trackers that are still sending."""

Tell = Callable[[str, int | None, Mapping[str, Any] | None], None]
"""(adapter, epoch from 1, its numbers); without an epoch the adapter is trained and these are the numbers of the epoch
that it keeps, or it has failed and there are none. Epochs of an interrupted training are told again from the first."""


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
    run: RunDir
    """The run directory, for trackers that write files."""
    adapters: Mapping[str, TrackedAdapter]
    """Those that are trained now, by name; adapters that are kept from before were told about then."""


def tensorboard(training: TrackedTraining) -> Tell:
    """Write an event file per adapter: ``<run directory>/tensorboard/<run>/<adapter>``.

    A file is written afresh by every training. Where the run directory is a URL, it is made here and copied there.
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
    """Start a run of Weights & Biases per adapter, in one group. Its own variables (WANDB_MODE ...) are honoured.

    Runs have fixed ids, so that an interrupted training goes on in them; epochs told twice are dropped there. Files of
    runs lie in the run directory when that is local, unless WANDB_DIR says otherwise.
    """
    import wandb as package

    if os.environ.get("WANDB_MODE", "online") == "online" and not package.api.api_key:
        # It would ask on the terminal, between the progress bars.
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
    """Refuse trackers whose package is not installed, before anything costs time or money.

    Raises:
        ConfigError: a package is missing; the message says what to install.
    """
    specs = {name: importlib.util.find_spec(name) for name in names}
    # Without an origin it is a mere folder of that name, such as the ./wandb that runs leave behind.
    missing = [name for name, spec in specs.items() if spec is None or spec.origin is None]
    if missing:
        raise ConfigError(
            f"training.report_to names {', '.join(missing)}, which cannot be imported here: run "
            f"`pip install {' '.join(missing)}`, or take it out of training.report_to"
        )


class Tracking:
    """All trackers of one training. No method raises or waits, but ``close``, which waits for a while."""

    def __init__(self, names: Iterable[TrackerName], training: TrackedTraining) -> None:
        self._unfinished = set(training.adapters)
        self._senders = [_Sender(name, training) for name in names]
        for sender in self._senders:
            sender.start()

    def epoch(self, adapter: str, epoch: int, metrics: Mapping[str, float | None]) -> None:
        """Tell one epoch, counted from 1; numbers that are None are left out."""
        self._tell(adapter, epoch, metrics)

    def finish(self, adapter: str, summary: Mapping[str, Any]) -> None:
        """The adapter is trained; ``summary`` has the numbers of its best epoch."""
        self._unfinished.discard(adapter)
        self._tell(adapter, None, summary)

    def close(self, *, limit_s: float = CLOSE_LIMIT_S) -> None:
        """Adapters that were not finished have failed. Waits until everything is sent, for each tracker so long."""
        for adapter in sorted(self._unfinished):
            self._tell(adapter, None, None)
        for sender in self._senders:
            sender.todo.put(None)
        for sender in self._senders:
            sender.join(limit_s)
            if sender.is_alive():
                LOG.warning("tracker %s is still sending after %.0f s and is left behind", sender.name, limit_s)

    def _tell(self, adapter: str, epoch: int | None, numbers: Mapping[str, Any] | None) -> None:
        known = None if numbers is None else {key: value for key, value in numbers.items() if value is not None}
        for sender in self._senders:
            sender.todo.put((adapter, epoch, known))


class _Sender(threading.Thread):
    """Opens one tracker, then tells it what is in its queue, in order, up to a None."""

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
                "tracker %s failed and gets nothing more of this training: %s: %s",
                self.name, type(error).__name__, error,
            )  # fmt: skip
