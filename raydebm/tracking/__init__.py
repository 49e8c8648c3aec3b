"""Experiment trackers: the curves of a training, sent to TensorBoard or Weights & Biases while it runs.

In:   the adapters that are trained, their settings, one dict of numbers per epoch.
Out:  nothing that raydebm reads: the record of a training is ``training.json`` of each adapter, with or without these.
Does not know: Ray, torch. Workers know nothing of trackers; the driver reads epochs from the run directory and tells.

A tracker runs on a thread of its own and can neither slow a training down nor end it: one that fails is named in a
warning and left out from then on.
"""

import importlib.util
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

from raydebm.config import TrackerName
from raydebm.errors import ConfigError
from raydebm.tracking.protocol import TrackedAdapter, TrackedTraining, Tracker

__all__ = ["TrackedAdapter", "TrackedTraining", "Tracker", "Tracking", "check_trackers", "open_tracker"]

LOG = logging.getLogger(__name__)

CLOSE_LIMIT_S = 120.0
"""How long the end of a training waits for trackers that are still sending."""


def check_trackers(names: Iterable[TrackerName]) -> None:
    """Refuse trackers whose package is not installed, before anything costs time or money.

    Raises:
        ConfigError: a package is missing; the message says what to install.
    """
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        raise ConfigError(
            f"training.report_to names {', '.join(missing)}, which cannot be imported here: run "
            f"`pip install {' '.join(missing)}`, or take it out of training.report_to"
        )


def _is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    # Without an origin it is a mere folder of that name, such as the ./wandb that runs leave behind.
    return spec is not None and spec.origin is not None


def open_tracker(name: TrackerName, training: TrackedTraining) -> Tracker:
    """Start the tracker's runs. Raises what the tracker's package raises."""
    if name == "tensorboard":
        from raydebm.tracking.tensorboard_files import TensorBoardFiles

        return TensorBoardFiles(training)
    from raydebm.tracking.wandb_runs import WandbRuns

    return WandbRuns(training)


class Tracking:
    """All trackers of one training. No method raises or waits, but ``close``, which waits for a while."""

    def __init__(
        self,
        names: Iterable[TrackerName],
        training: TrackedTraining,
        *,
        open_tracker: Callable[[TrackerName, TrackedTraining], Tracker] = open_tracker,
    ) -> None:
        self._unfinished = set(training.adapters)
        self._senders = [_Sender(name, partial(open_tracker, name, training)) for name in names]
        for sender in self._senders:
            sender.start()

    def epoch(self, adapter: str, epoch: int, metrics: Mapping[str, float | None]) -> None:
        """Tell one epoch, counted from 1; numbers that are None are left out."""
        known = {key: float(value) for key, value in metrics.items() if value is not None}
        self._tell(lambda tracker: tracker.epoch(adapter, epoch, known))

    def finish(self, adapter: str, summary: Mapping[str, Any]) -> None:
        """The adapter is trained; ``summary`` has the numbers of its best epoch."""
        self._unfinished.discard(adapter)
        known = {key: value for key, value in summary.items() if value is not None}
        self._tell(lambda tracker: tracker.finish(adapter, known))

    def close(self, *, limit_s: float = CLOSE_LIMIT_S) -> None:
        """Adapters that were not finished have failed. Waits until everything is sent, for each tracker so long."""
        for adapter in sorted(self._unfinished):
            self._tell(partial(_fail, adapter))
        for sender in self._senders:
            sender.todo.put(None)
        for sender in self._senders:
            sender.join(limit_s)
            if sender.is_alive():
                LOG.warning("tracker %s is still sending after %.0f s and is left behind", sender.name, limit_s)

    def _tell(self, action: Callable[[Tracker], None]) -> None:
        for sender in self._senders:
            sender.todo.put(action)


def _fail(adapter: str, tracker: Tracker) -> None:
    tracker.fail(adapter)


class _Sender(threading.Thread):
    """Opens one tracker, then does what is in its queue, in order, up to a None."""

    def __init__(self, name: str, open_it: Callable[[], Tracker]) -> None:
        super().__init__(name=name, daemon=True)
        self.todo: SimpleQueue[Callable[[Tracker], None] | None] = SimpleQueue()
        self._open = open_it

    def run(self) -> None:
        try:
            tracker = self._open()
            while (action := self.todo.get()) is not None:
                action(tracker)
            tracker.close()
        except Exception as error:  # noqa: BLE001 - other people's packages and services; training must not notice
            LOG.warning(
                "tracker %s failed and gets nothing more of this training: %s: %s",
                self.name, type(error).__name__, error,
            )  # fmt: skip
