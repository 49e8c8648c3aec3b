"""Weights & Biases: one run per adapter, in one group. Its own variables (WANDB_MODE, WANDB_ENTITY ...) are honoured.

Files of runs lie in the run directory when that is local, unless WANDB_DIR says otherwise.
"""

import os
from collections.abc import Mapping
from typing import Any

import wandb

from raydebm.errors import ConfigError
from raydebm.tracking.protocol import TrackedTraining


class WandbRuns:
    """Runs have fixed ids, so that an interrupted training goes on in them; epochs told twice are dropped there."""

    def __init__(self, training: TrackedTraining) -> None:
        if os.environ.get("WANDB_MODE", "online") == "online" and not wandb.api.api_key:
            # wandb would ask on the terminal, between the progress bars.
            raise ConfigError("not logged in; run `wandb login`, set WANDB_API_KEY, or set WANDB_MODE=offline")
        local = training.run.root if training.run.is_local else None
        self._runs: dict[str, Any] = {
            name: wandb.init(
                project=training.project,
                group=training.run_name,
                name=training.name_of(name),
                job_type="adapter",
                id=adapter.identity,
                resume="allow",
                config=dict(adapter.settings),
                dir=os.environ.get("WANDB_DIR", local),
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off"),
            )
            for name, adapter in training.adapters.items()
        }

    def epoch(self, adapter: str, epoch: int, metrics: Mapping[str, float]) -> None:
        self._runs[adapter].log(dict(metrics), step=epoch)

    def finish(self, adapter: str, summary: Mapping[str, Any]) -> None:
        run = self._runs.pop(adapter)
        run.summary.update({f"kept/{key}": value for key, value in summary.items()})
        run.finish()

    def fail(self, adapter: str) -> None:
        self._runs.pop(adapter).finish(exit_code=1)

    def close(self) -> None:
        for name in list(self._runs):
            self.fail(name)
