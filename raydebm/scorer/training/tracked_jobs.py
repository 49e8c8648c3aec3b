"""Report the progress of training jobs to experiment trackers."""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from raydebm import __version__
from raydebm.identity import content_id
from raydebm.scorer.pairs import TrainingGroup
from raydebm.scorer.tracking import TrackedAdapter, TrackedTraining, Tracking
from raydebm.scorer.training.training_job import PROGRESS, TrainingJob
from raydebm.tasks import task_of

TOKEN_FILE = "tracking.json"
"""File with the identity of a training, in the folder of resumable epochs. The folder is removed when the training is
complete."""
REPORTED = ("best_epoch", "train_loss", "validation_loss", "validation_accuracy", "seconds", "restarts")
"""Fields of a finished adapter's summary that trackers receive."""


class TrackedJobs:
    """Connection between the jobs of a training and its trackers."""

    def __init__(self, tracking: Tracking) -> None:
        self._tracking = tracking

    def epoch(self, adapter: str, facts: Mapping[str, Any]) -> None:
        """Send the metrics of an adapter's epoch."""
        numbers = dict(facts["metrics"])
        self._tracking.epoch(adapter, numbers.pop("epoch"), numbers)

    def finish(self, jobs: Iterable[TrainingJob]) -> None:
        """Report these jobs as trained. At the end, jobs that were not reported count as failed."""
        for job in jobs:
            summary = (job.finished() or {}).get("summary", {})
            self._tracking.finish(job.adapter.name, {key: summary.get(key) for key in REPORTED})


@contextmanager
def tracked(
    jobs: Sequence[TrainingJob], *, train: Sequence[TrainingGroup], validation: Sequence[TrainingGroup]
) -> Iterator[TrackedJobs]:
    """Open the recipe's trackers for the jobs (at least one) of a training, and close them at the end."""
    recipe = jobs[0].recipe
    if not recipe.training.report_to:
        yield TrackedJobs(Tracking((), _training(jobs, {}, token="")))
        return
    shared = _settings(jobs[0], train=train, validation=validation)
    tracking = Tracking(recipe.training.report_to, _training(jobs, shared, token=training_identity(jobs[0])))
    try:
        yield TrackedJobs(tracking)
    finally:
        tracking.close()


def training_identity(job: TrainingJob) -> str:
    """Random id of a training. A resumed training has the same id."""
    if not job.run.exists(job.stage, PROGRESS, TOKEN_FILE):
        job.run.write_json({"token": secrets.token_hex(8)}, job.stage, PROGRESS, TOKEN_FILE)
    return str(job.run.read_json(job.stage, PROGRESS, TOKEN_FILE)["token"])


def _training(jobs: Sequence[TrainingJob], shared: Mapping[str, Any], *, token: str) -> TrackedTraining:
    recipe = jobs[0].recipe
    return TrackedTraining(
        project="raydebm",
        run_name=recipe.name,
        run=jobs[0].run,
        adapters={
            job.adapter.name: TrackedAdapter(
                identity=content_id(token, job.adapter.name, job.plan, length=16),
                settings={
                    **shared,
                    "adapter.rank": job.adapter.rank,
                    "adapter.alpha": job.adapter.alpha,
                    "adapter.targets": ",".join(job.adapter.targets),
                    "adapter.dropout": job.adapter.dropout,
                },
            )
            for job in jobs
        },
    )


def _settings(
    job: TrainingJob, *, train: Sequence[TrainingGroup], validation: Sequence[TrainingGroup]
) -> dict[str, str | int | float]:
    """Training settings of the recipe, with the task's defaults for absent values."""
    recipe, defaults = job.recipe, task_of(job.recipe.task).defaults
    training, scorer = recipe.training, recipe.scorer
    values: dict[str, str | int | float | None] = {
        "raydebm": __version__,
        "recipe": recipe.name,
        "task": recipe.task.name,
        "seed": recipe.training_seed,
        "data": job.data,
        "problems.train": len(train),
        "problems.validation": len(validation),
        "pairs.train": sum(len(group.pairs) for group in train),
        "pairs.validation": sum(len(group.pairs) for group in validation),
        "scorer.dtype": scorer.dtype,
        "scorer.backbone": scorer.backbone,
        "scorer.max_length": scorer.max_length or defaults.max_length,
        "scorer.pooling": scorer.pooling,
        "training.learning_rate": training.learning_rate or defaults.learning_rate,
        "training.batch_size": training.batch_size or defaults.batch_size,
        "training.patience": training.patience or defaults.patience,
        "training.max_epochs": training.max_epochs,
    }
    return {key: value for key, value in values.items() if value is not None}
