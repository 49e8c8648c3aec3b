"""What an export reads of a run directory, and what in it no longer belongs together."""

from dataclasses import dataclass
from typing import Any

from raydebm import __version__
from raydebm.config import Recipe
from raydebm.decision.policy import Policy
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.pipeline.stages.evaluation import read_evaluation
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import current_manifest
from raydebm.run.stages import StageName


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A run directory, for reading."""

    run: RunDir
    recipe: Recipe

    @classmethod
    def read(cls, folder: str) -> "FinishedRun":
        """Raises ConfigError when the folder holds no run."""
        run = RunDir(folder).absolute()
        return cls(run=run, recipe=run.recipe())

    def is_current(self, stage: StageName) -> bool:
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
        return read_evaluation(self.run)

    def policy(self) -> Policy | None:
        """The calibrated policy; None when there is none for the scorer as it is now."""
        if not (self.is_current("scorer") and self.is_current("calibration")):
            return None
        return Policy.from_json(self.run.needed_object("calibration", "policy.json"))

    def facts(self, stage: str) -> dict[str, Any]:
        """The facts in the stage's manifest; empty while it is not complete."""
        return self.run.facts(stage)
