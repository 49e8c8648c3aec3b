"""Training with Ray Train: one run per slot (a share of a GPU, or a CPU), all sharing one copy of each frozen backbone.

In:   training groups, a recipe.
Out:  ``<run>/<stage>/``: one folder per adapter, ``ensemble.json`` and the model card (see ``scorer.checkpoint``).

A slot's worker trains its adapters one after another, and each stops, fails and resumes alone (``slots``). The weights
are in Ray's object store once per node. CPU workers map them; on a GPU each worker has its own copy on the device.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

import ray

from raydebm import __version__
from raydebm.config import AdapterConfig, Recipe
from raydebm.errors import PoolError, TrainingError
from raydebm.identity import content_id
from raydebm.pipeline.ray.placement import at_once, cluster_nodes, graph_gib, share_of
from raydebm.pipeline.ray.session import get_or_raise, is_own_cluster
from raydebm.pipeline.ray.slots import SharedBackbone, SlotContext, fit_all
from raydebm.pipeline.ray.train_worker import assemble, read_backbone
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import ENSEMBLE_FILE
from raydebm.scorer.pairs import TrainingGroup
from raydebm.scorer.training.curves import Curves
from raydebm.scorer.training.training_job import MAX_RESTARTS, PROGRESS, TrainingJob
from raydebm.tasks import task_of

LOG = logging.getLogger(__name__)


def train_ensemble(
    *,
    recipe: Recipe,
    run: RunDir,
    train: Sequence[TrainingGroup],
    validation: Sequence[TrainingGroup],
    stage: str = "scorer",
    max_restarts: int = MAX_RESTARTS,
    on_progress: Callable[[int, int], None] | None = None,
    on_epoch: Callable[[str, Mapping[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Train the recipe's adapters and write ``<run>/<stage>/``; returns facts of each for the manifest. Ray must be
    initialised.

    Adapters that are complete with the same data and settings are kept; others resume after their last epoch.

    Args:
        on_progress: called with (epochs done, maximum epochs) over all adapters; an early stop counts as done.
        on_epoch: called with an adapter and ``{"metrics", "is_last", "pid"}`` of each finished epoch.

    Raises:
        PoolError: there is nothing to train on.
        CheckpointError: the backbone cannot be read.
        ConfigError: the backbone's name is wrong, or an adapter does not fit it.
        ResourceError: no node of the cluster can hold one worker.
        TrainingError: some adapters failed, or a disk is full; the others are complete, and a rerun trains the rest.
    """
    started = time.monotonic()
    if not train:
        raise PoolError("nothing to train on: no problem has a correct and an incorrect candidate")
    nodes = cluster_nodes()
    share = share_of(recipe.ray, nodes)
    own = is_own_cluster()
    num_slots = at_once(share, nodes, is_own_cluster=own)
    memory = graph_gib(share, nodes, num_workers=min(num_slots, len(recipe.scorer.adapters)))
    device = "auto" if share.gpus else "cpu"
    data = content_id(
        [[[group.problem_id, group.prompt, group.texts, group.pairs] for group in part] for part in (train, validation)]
    )
    jobs = [
        TrainingJob(
            adapter=adapter,
            recipe=recipe,
            run=run.absolute(),
            stage=stage,
            plan=_plan(recipe, adapter, data),
            data=data,
            device=device,
            graph_gib=memory,
            max_restarts=max_restarts,
        )
        for adapter in recipe.scorer.adapters
    ]
    backbone = _read_backbone(recipe)
    reused = [job for job in jobs if _is_complete(job, backbone)]
    waiting = [job for job in jobs if job not in reused]
    watch = _Watch(jobs, reused, max_epochs=recipe.training.max_epochs, on_progress=on_progress)
    if waiting:
        run.remove(stage, ENSEMBLE_FILE)
        groups = ray.put((list(train), list(validation)))
        context = SlotContext(groups=groups, backbone=backbone, share=share, is_own_cluster=own)
        curves = Curves(waiting)
        watch.on_epoch = [curves.epoch, *([] if on_epoch is None else [on_epoch])]
        failed = fit_all(waiting, context, num_slots=num_slots, look=watch.look)
        curves.finish([job for job in waiting if job.adapter.name not in failed])
        if failed:
            finished = tuple(job.adapter.name for job in jobs if job.adapter.name not in failed)
            raise TrainingError(failed, finished)
    get_or_raise(assemble.remote(jobs))
    run.remove(stage, PROGRESS)
    adapters = {job.adapter.name: {"reused": job in reused, **(job.finished() or {})["summary"]} for job in jobs}
    return {"adapters": adapters, "seconds": round(time.monotonic() - started, 1)}


def _read_backbone(recipe: Recipe) -> SharedBackbone:
    weights, fingerprint = cast("Any", read_backbone).remote(recipe)
    return SharedBackbone(weights=weights, fingerprint=fingerprint)


def _plan(recipe: Recipe, adapter: AdapterConfig, data: str) -> str:
    """Fingerprint of the adapter's training inputs, without those of other adapters."""
    return content_id(
        __version__,
        data,
        recipe.scorer.model_dump(mode="json", exclude={"adapters", "micro_batch_tokens"}),
        recipe.training.model_dump(mode="json"),
        recipe.training_seed,
        asdict(task_of(recipe.task).defaults),
        adapter.model_dump(mode="json"),
    )


def _is_complete(job: TrainingJob, backbone: SharedBackbone) -> bool:
    """True if the adapter on disk was trained with the job's data, settings and backbone. Logs a warning if not."""
    done = job.finished()
    if done is None:
        return False
    if job.is_complete(get_or_raise(backbone.fingerprint)):
        return True
    what = "on other backbone weights" if done["plan"] == job.plan else "from other data or settings"
    LOG.warning("adapter %s was trained %s: training it again", job.adapter.name, what)
    return False


class _Watch:
    """Reader of the epochs in the run directory, the only place that all nodes share."""

    def __init__(
        self,
        jobs: Sequence[TrainingJob],
        reused: Sequence[TrainingJob],
        *,
        max_epochs: int,
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self.on_epoch: Sequence[Callable[[str, Mapping[str, Any]], None]] = ()
        self._max_epochs, self._on_progress = max_epochs, on_progress
        self._jobs = {job.adapter.name: job for job in jobs if job not in reused}
        self._done = {job.adapter.name: max_epochs if job in reused else 0 for job in jobs}
        self._read = dict.fromkeys(self._jobs, 0)

    def look(self) -> None:
        """Report progress since the last call."""
        before = dict(self._done)
        for name, job in self._jobs.items():
            while (facts := job.epoch(self._read[name] + 1)) is not None:
                self._take(name, facts)
        if self._on_progress is not None and self._done != before:
            self._on_progress(sum(self._done.values()), len(self._done) * self._max_epochs)

    def _take(self, name: str, facts: Mapping[str, Any]) -> None:
        self._read[name] += 1
        self._done[name] = self._max_epochs if facts["is_last"] else self._read[name]
        for report in self.on_epoch:
            report(name, facts)
