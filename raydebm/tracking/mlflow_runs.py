"""MLflow: one run per adapter below a parent run, in the store that MLFLOW_TRACKING_URI names."""

from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Experiment

from raydebm.tracking.protocol import TrackedTraining

IDENTITY = "raydebm.identity"
PARENT = "mlflow.parentRunId"
"""MLflow's own tag."""


class MlflowRuns:
    """An interrupted training finds its runs again by a tag, and skips the epochs that they have."""

    def __init__(self, training: TrackedTraining) -> None:
        self._client = MlflowClient()
        self._experiment = _experiment(self._client, training.project)
        self._parent = self._run(training.run_name, training.identity, {})
        self._children: dict[str, str] = {}
        for name, adapter in training.adapters.items():
            child = self._run(training.name_of(name), adapter.identity, {PARENT: self._parent})
            self._children[name] = child
            for key, value in adapter.settings.items():
                self._client.log_param(child, key, value)
        self._last = {name: self._last_epoch(child) for name, child in self._children.items()}
        self._failed = False

    def _run(self, name: str, identity: str, tags: Mapping[str, str]) -> str:
        """The id of the run with this identity; a new one where no run has it."""
        runs = self._client.search_runs([self._experiment], filter_string=f"tags.`{IDENTITY}` = '{identity}'")
        if runs:
            self._client.update_run(runs[0].info.run_id, status="RUNNING")
            return str(runs[0].info.run_id)
        run = self._client.create_run(self._experiment, run_name=name, tags={IDENTITY: identity, **tags})
        return str(run.info.run_id)

    def _last_epoch(self, run: str) -> int:
        return max((metric.step for metric in self._client.get_metric_history(run, "train_loss")), default=0)

    def epoch(self, adapter: str, epoch: int, metrics: Mapping[str, float]) -> None:
        if epoch > self._last[adapter]:
            for key, value in metrics.items():
                self._client.log_metric(self._children[adapter], key, value, step=epoch)

    def finish(self, adapter: str, summary: Mapping[str, Any]) -> None:
        for key, value in summary.items():
            if isinstance(value, int | float):
                self._client.log_metric(self._children[adapter], f"kept_{key}", float(value))
        self._client.set_terminated(self._children[adapter], status="FINISHED")

    def fail(self, adapter: str) -> None:
        self._failed = True
        self._client.set_terminated(self._children[adapter], status="FAILED")

    def close(self) -> None:
        self._client.set_terminated(self._parent, status="FAILED" if self._failed else "FINISHED")


def _experiment(client: MlflowClient, name: str) -> str:
    experiment: Experiment | None = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if experiment is None else experiment.experiment_id)
