"""Training slots: a share of a GPU or a CPU, with one process that trains the slot's adapters in turn.

In:   training jobs, dealt to slots; references to the shared weights and the data.
Out:  adapter folders (see ``train_worker``), and the reasons for final failures.

Each slot is a Ray Train run. In one run with a rank per slot, a rank that dies would restart all, and one that stops
early would leave the others waiting in ``report``. A run per adapter would cost a controller, a synchronization actor
and a worker each, which wait for a core if there are more adapters than slots.
"""

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import ray
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from raydebm.errors import last_line
from raydebm.pipeline.ray.placement import WorkerShare
from raydebm.pipeline.ray.session import get_or_raise
from raydebm.pipeline.ray.train_worker import Refusal, train_loop
from raydebm.scorer.training.refused_writes import with_remedy
from raydebm.scorer.training.training_job import PROGRESS, TrainingJob

LOG = logging.getLogger(__name__)

POLL_S = 0.5
START_LIMIT = 5
"""Limit on failed worker starts; Ray Train's default is unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBackbone:
    """One frozen backbone, read on the cluster."""

    weights: Any
    """Reference to the weights."""
    fingerprint: Any
    """Reference to the fingerprint of the weights; its task fails if the backbone cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotContext:
    """Shared state of all slots of a training."""

    groups: Any
    """Reference to (training groups, validation groups)."""
    backbone: SharedBackbone
    share: WorkerShare
    """Resources of a slot's worker."""
    is_own_cluster: bool

    def is_complete(self, job: TrainingJob) -> bool:
        """True if the adapter on disk was trained with the job's data, settings and backbone weights."""
        return job.is_complete(get_or_raise(self.backbone.fingerprint))


class _LeanTrainer(DataParallelTrainer):
    """Ray's trainer without a process group and without useless helper processes.

    Each helper is a separate Python process per slot. The data set manager has no data sets to manage. The cleaner
    frees the resources of a dead driver; raydebm's own cluster ends with the driver anyway. If Ray renames this hook,
    the helpers are back and nothing else changes.
    """

    needless: frozenset[str] = frozenset()
    """Class names of callbacks to leave out."""

    def _create_default_callbacks(self) -> list[Any]:
        return [one for one in super()._create_default_callbacks() if type(one).__name__ not in self.needless]


def deal(jobs: Sequence[TrainingJob], num_slots: int) -> list[tuple[TrainingJob, ...]]:
    """The jobs of each slot, dealt in turn: a0, a2, a4 and a1, a3 for five jobs in two slots. No slot is empty."""
    return [tuple(jobs[first::num_slots]) for first in range(min(num_slots, len(jobs)))]


def fit_all(
    jobs: Sequence[TrainingJob], context: SlotContext, *, num_slots: int, look: Callable[[], None]
) -> dict[str, str]:
    """Train the jobs, each slot in a thread of this process; returns the reasons for failures by adapter.

    Args:
        look: function that is called twice a second while workers train.

    Raises:
        CheckpointError: the backbone cannot be read.
        ConfigError: the backbone's name is wrong, or an adapter does not fit it.
    """
    slots = deal(jobs, num_slots)
    ended: SimpleQueue[dict[str, str] | BaseException] = SimpleQueue()
    given_up = threading.Event()

    def work(slot: tuple[TrainingJob, ...]) -> None:
        try:
            ended.put(_fit_slot(slot, context, given_up))
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits
            ended.put(error)

    # Daemon threads, because Python joins the threads of an executor at exit: after Ctrl-C or an unreadable backbone, a
    # trainer would keep the process waiting for a Ray cluster that is gone.
    for number, slot in enumerate(slots):
        threading.Thread(target=work, args=(slot,), name=f"slot_{number}", daemon=True).start()
    failed: dict[str, str] = {}
    num_ended = 0
    try:
        while num_ended < len(slots):
            with contextlib.suppress(Empty):
                outcome = ended.get(timeout=POLL_S)
                num_ended += 1
                if isinstance(outcome, BaseException):
                    raise outcome
                failed |= outcome
            look()
            if ray.wait([context.backbone.fingerprint], timeout=0)[0]:
                get_or_raise(context.backbone.fingerprint)  # an unreadable backbone is not an adapter's own failure
    finally:
        given_up.set()
    return failed


def _fit_slot(slot: Sequence[TrainingJob], context: SlotContext, given_up: threading.Event) -> dict[str, str]:
    """Train the slot's jobs; returns the reasons for failures by adapter name.

    A run ends with the first adapter that fails after all its restarts, and another run trains the rest. Restarts are
    limited per adapter, but counted per run: if several adapters used up a run's restarts, another run continues.
    """
    failed: dict[str, str] = {}
    waiting = list(slot)
    starts_before = {job.name: job.num_starts() for job in slot}
    while waiting and not given_up.is_set():
        starts = {job.name: job.num_starts() for job in waiting}
        try:
            refusal = _fit(waiting, context)
        except ray.train.WorkerGroupError as error:
            waiting = [job for job in waiting if not context.is_complete(job)]
            started = [job for job in waiting if job.num_starts() > starts[job.name]]
            if started and started[-1].num_starts() - starts_before[started[-1].name] <= started[-1].max_restarts:
                continue
            refusal = _refusal((started[-1:] or waiting[:1]), next(iter(error.worker_failures.values()), error))
        except (ray.train.ControllerError, ray.exceptions.RayError) as error:
            return failed | {job.adapter.name: _in_words(error) for job in waiting}
        if refusal is None:
            break
        failed[refusal.adapter] = refusal.reason
        LOG.error("adapter %s failed and is not restarted: %s", refusal.adapter, refusal.reason)
        waiting = [job for job in waiting if job.adapter.name != refusal.adapter and not context.is_complete(job)]
        if refusal.refuses_all:
            return failed | {job.adapter.name: refusal.reason for job in waiting}
    return failed


def _refusal(blamed: Sequence[TrainingJob], error: BaseException) -> Refusal | None:
    return Refusal(adapter=blamed[0].adapter.name, reason=_in_words(error)) if blamed else None


def _fit(jobs: Sequence[TrainingJob], context: SlotContext) -> Refusal | None:
    """Train the jobs in one Ray Train run; returns the refused adapter, if any."""
    first = jobs[0]
    trainer = _LeanTrainer(
        train_loop,
        # References are in lists, so that Ray does not resolve them.
        train_loop_config={
            "jobs": list(jobs),
            "groups": [context.groups],
            "weights": [context.backbone.weights],
        },
        scaling_config=ray.train.ScalingConfig(
            num_workers=1, use_gpu=context.share.gpus > 0, resources_per_worker=context.share.resources
        ),
        run_config=ray.train.RunConfig(
            # A unique name: Ray Train would resume an earlier run of the same name, which may be another adapter's.
            # Each adapter itself records where the checkpoint of its last epoch is.
            name=f"slot-{secrets.token_hex(6)}",
            storage_path=first.run.uri(first.stage, PROGRESS),
            failure_config=ray.train.FailureConfig(  # type: ignore[call-arg]  # typed as of Ray Train v1
                max_failures=first.max_restarts, controller_failure_limit=START_LIMIT
            ),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    trainer.needless = frozenset(
        ["DatasetsCallback", *(["PlacementGroupCleanerCallback"] if context.is_own_cluster else [])]
    )
    refusal: Refusal | None = trainer.fit().return_value  # type: ignore[attr-defined]
    return refusal


def _in_words(error: BaseException) -> str:
    return with_remedy(f"{type(error).__name__}: {last_line(str(error)) or 'no message'}")
