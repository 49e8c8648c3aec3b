"""What an export reads of a run directory, and what in it no longer belongs together."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raydebm import __version__
from raydebm.config import Recipe, parse_recipe
from raydebm.decision.policy import Policy
from raydebm.distributed.fingerprints import current_manifest
from raydebm.errors import ConfigError
from raydebm.evaluation.results import Evaluation
from raydebm.store import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A run directory, for reading."""

    run: RunDir
    recipe: Recipe

    @classmethod
    def read(cls, folder: str) -> "FinishedRun":
        """Raises ConfigError when the folder holds no run."""
        run = RunDir(folder if "://" in folder else str(Path(folder).resolve()))
        if not run.exists("recipe.json"):
            raise ConfigError(
                f"{run.uri('recipe.json')} does not exist; give the directory of a run (`raydebm run` or `make demo`)"
            )
        try:
            tree = run.read_json("recipe.json")
        except json.JSONDecodeError as error:
            raise ConfigError(f"{run.uri('recipe.json')} is not JSON: {error}; run the recipe again") from error
        return cls(run=run, recipe=parse_recipe(tree, where=run.uri("recipe.json")))

    def is_current(self, stage: str) -> bool:
        """Whether the stage is complete and was made with the settings that the run has now.

        Another version of this package would fingerprint everything differently; what it made is believed.
        """
        manifest = self.run.manifest(stage)
        if manifest is None:
            return False
        made_here = manifest.get("version") == __version__
        return not made_here or current_manifest(stage, self.recipe, self.run) is not None

    def evaluation(self) -> Evaluation | None:
        """None when the scorer was not evaluated as it is now."""
        if not (self.is_current("scorer") and self.is_current("evaluation")):
            return None
        return Evaluation.from_json(self.run.read_json("evaluation", "metrics.json"))

    def policy(self) -> Policy | None:
        """The calibrated policy; None when there is none for the scorer as it is now."""
        if not (self.is_current("scorer") and self.is_current("calibration")):
            return None
        return Policy.from_json(self.run.read_json("calibration", "policy.json"))

    def facts(self, stage: str) -> dict[str, Any]:
        """Of the stage's manifest; empty while it is not complete."""
        facts: dict[str, Any] = (self.run.manifest(stage) or {}).get("facts", {})
        return facts
