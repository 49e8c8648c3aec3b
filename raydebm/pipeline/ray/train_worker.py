"""Cluster side of the training: reading the backbone, each slot's worker, and the assembly of the ensemble.

A slot's worker maps the shared weights and trains its adapters in turn, each on its own bag of problems. Every epoch
is reported to Ray Train with a checkpoint, from which another worker can resume; complete adapters are kept.
"""

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
import ray.train

from raydebm import __version__
from raydebm.config import Recipe
from raydebm.config.scorer import BAG_FRAC
from raydebm.cpus import usable_cpus
from raydebm.errors import CheckpointError, RaydebmError, StorageError, TrainingError
from raydebm.pipeline.ray.placement import gpu_share
from raydebm.run.addresses import local_copy
from raydebm.run.ensemble_file import ENSEMBLE_FILE
from raydebm.scorer.pairs import TrainingGroup, bag
from raydebm.scorer.training.refused_writes import is_refused, writing_to
from raydebm.scorer.training.training_job import DONE_FILE, StoredEpoch, TrainingJob
from raydebm.tasks import task_of

LOG = logging.getLogger(__name__)


@ray.remote(num_cpus=0.1, num_returns=2)
def read_backbone(recipe: Recipe) -> tuple[dict[str, Any], str]:
    """The frozen weights for the object store, and their fingerprint. A task, because the driver needs no torch.

    Raises:
        ConfigError: an adapter of the recipe does not fit its backbone.
        CheckpointError: the backbone cannot be read.
    """
    from raydebm.scorer.model.backbone import frozen_weights, load_backbone
    from raydebm.scorer.training.member import check_member
    from raydebm.scorer.training.settings import TrainingSettings

    name = recipe.scorer.backbone
    weights = frozen_weights(name)
    backbone = load_backbone(name, weights=weights, device="cpu", dtype="float32")
    settings = TrainingSettings.from_recipe(recipe, task_of(recipe.task).defaults)
    for adapter in recipe.scorer.adapters:
        check_member(adapter, backbone, pooling=settings.pooling, max_length=settings.max_length)
    return weights, backbone.fingerprint


@ray.remote(num_cpus=0.1)
def assemble(jobs: Sequence[TrainingJob]) -> None:
    """Assemble the adapters' folders into an ensemble (see ``scorer.checkpoint``).

    Raises:
        StorageError: the ensemble cannot be written.
    """
    _write_ensemble(jobs)


def _write_ensemble(jobs: Sequence[TrainingJob]) -> None:
    from raydebm.scorer.checkpoint import CARD_FILE, write_ensemble

    first = jobs[0]
    recipe = first.recipe
    meta = {"recipe": recipe.name, "task": recipe.task.name, "seed": recipe.training_seed, "raydebm": __version__}
    names = tuple(job.adapter.name for job in jobs)
    with writing_to(_folder(first), part="the ensemble", finished=names), local_copy(_folder(first)) as folder:
        write_ensemble(folder, {name: folder / name for name in names}, meta)
        if not first.run.is_local:
            for file in (CARD_FILE, ENSEMBLE_FILE):
                first.run.write_bytes((folder / file).read_bytes(), first.stage, file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An adapter that cannot be trained, with the reason."""

    adapter: str
    reason: str
    refuses_all: bool = False
    """True if the slot's other adapters would fail for the same reason, such as a full disk."""


def train_loop(config: Mapping[str, Any]) -> Refusal | None:
    """Train a slot's incomplete adapters in turn; stops at the first refused one.

    Errors of this package and of the disk would occur again on a new worker, so they are returned, not raised: restarts
    are for workers that die.
    """
    jobs: Sequence[TrainingJob] = config["jobs"]
    job = jobs[0]
    loaded: _Loaded | None = None
    try:
        for job in jobs:
            if loaded is None:
                loaded = _load(job, [*config["weights"], *config["groups"]])
            if not job.is_complete(loaded.backbone.fingerprint):
                _train(job, loaded)
    except TrainingError as error:
        reason = "; ".join(error.failed.values())
        return Refusal(adapter=job.adapter.name, reason=reason, refuses_all=isinstance(error, StorageError))
    except RaydebmError as error:
        return Refusal(adapter=job.adapter.name, reason=f"{type(error).__name__}: {error}")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """Shared data of a slot's adapters."""

    backbone: Any
    train: Sequence[TrainingGroup]
    validation: Sequence[TrainingGroup]


def _load(job: TrainingJob, inputs: Sequence[Any]) -> _Loaded:
    import torch

    from raydebm.scorer.model.backbone import load_backbone

    torch.set_num_threads(min(job.recipe.ray.threads, usable_cpus()))
    weights, (train, validation) = ray.get(list(inputs))
    backbone = load_backbone(job.recipe.scorer.backbone, weights=weights, device=job.device, dtype="float32")
    return _Loaded(backbone=backbone, train=train, validation=validation)


def _train(job: TrainingJob, loaded: _Loaded) -> None:
    name = job.adapter.name
    with writing_to(_folder(job), part=name):
        job.record_start(os.getpid())
    with (
        writing_to(f"{tempfile.gettempdir()} (TMPDIR)", part=name),
        tempfile.TemporaryDirectory(prefix=f"raydebm-{name}-") as folder,
    ):
        record = _run_epochs(job, loaded, out_dir=Path(folder))
        facts = json.dumps(_facts(job, loaded, record), indent=2) + "\n"
        (Path(folder) / DONE_FILE).write_text(facts, encoding="utf-8")
        with writing_to(_folder(job), part=name):
            job.run.publish(Path(folder), job.stage, name, last=DONE_FILE)


def _facts(job: TrainingJob, loaded: _Loaded, record: Any) -> dict[str, Any]:
    """Inputs and results of the adapter's training."""
    best = record.best
    return {
        "plan": job.plan,
        "backbone_fingerprint": loaded.backbone.fingerprint,
        "summary": {
            "num_epochs": len(record.epochs),
            "best_epoch": record.best_epoch,
            "train_loss": best.train_loss,
            "validation_loss": best.validation_loss,
            "validation_accuracy": best.validation_accuracy,
            "seconds": round(sum(epoch.seconds for epoch in record.epochs), 2),
            "restarts": job.num_starts() - 1,
            "gpu": _gpu(),
        },
    }


def _folder(job: TrainingJob) -> str:
    return job.run.uri(job.stage)


def _run_epochs(job: TrainingJob, loaded: _Loaded, *, out_dir: Path) -> Any:
    """Train on this adapter's bag, resuming after its last readable epoch, if any."""
    from raydebm.scorer.training.adapter import train_adapter
    from raydebm.scorer.training.schedule import AdapterData
    from raydebm.scorer.training.settings import TrainingSettings

    recipe, name = job.recipe, job.adapter.name
    settings = TrainingSettings.from_recipe(recipe, task_of(recipe.task).defaults)
    prompts = {group.problem_id: group.prompt for group in loaded.train}
    bagged = set(bag(prompts, bag_frac=BAG_FRAC, seed=recipe.training_seed, adapter=name))

    def report(epoch: Any) -> None:
        with writing_to(_folder(job), part=name):
            _store(job, epoch)

    def run(resume_from: Path | None) -> Any:
        return train_adapter(
            job.adapter,
            AdapterData(
                train=[group for group in loaded.train if group.problem_id in bagged],
                validation=loaded.validation,
                fingerprint=job.data,
            ),
            backbone=loaded.backbone,
            settings=replace(settings, graph_gib=job.graph_gib, gpu_share=gpu_share(recipe.ray)),
            out_dir=out_dir,
            report=report,
            resume_from=resume_from,
        ).record

    return _resumed(job, run)


def _store(job: TrainingJob, epoch: Any) -> None:
    """Report an epoch to Ray Train, which stores its checkpoint, and to the driver."""
    metrics = epoch.metrics.model_dump()
    job.record_epoch(metrics["epoch"], {"metrics": metrics, "is_last": epoch.is_last, "pid": os.getpid()})
    checkpoint = ray.train.Checkpoint.from_directory(str(epoch.checkpoint))
    ray.train.report(metrics | {"adapter": job.adapter.name}, checkpoint=checkpoint)
    stored = ray.train.get_checkpoint()  # its address, which Ray Train has chosen only now
    if stored is not None:
        job.record_checkpoint(metrics["epoch"], stored.path)


def _resumed(job: TrainingJob, run: Callable[[Path | None], Any]) -> Any:
    """The result of ``run`` for the newest readable checkpoint, else for None."""
    stored = job.checkpoints()
    while stored:
        newest = stored.pop(0)
        try:
            with _copied(newest) as folder:
                return run(folder)
        except CheckpointError as error:
            remedy = f"going back to epoch {stored[0].epoch}" if stored else "starting again"
            LOG.warning(
                "adapter %s: cannot go on after epoch %d, %s: %s", job.adapter.name, newest.epoch, remedy, error
            )
    return run(None)


@contextmanager
def _copied(stored: StoredEpoch) -> Iterator[Path]:
    """The checkpoint's folder on this machine.

    Raises:
        CheckpointError: it cannot be copied.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(local_copy(stored.address))
        except OSError as error:
            if is_refused(error):  # by the disk that takes the copy
                raise
            raise CheckpointError(f"{stored.address} cannot be read: {error}") from error
        yield folder


def _gpu() -> str | None:
    ids = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    return ids[0] if ids else None
