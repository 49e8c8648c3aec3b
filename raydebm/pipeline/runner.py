"""Bring a run to a stage: make every missing or stale stage up to it, and reuse the others."""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from raydebm.config import Recipe
from raydebm.errors import ConfigError
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.generators import check_keys
from raydebm.pipeline.context import Facts, StageContext
from raydebm.pipeline.stages.calibration import Calibrated, calibrate_run, keep_guarantees, make_calibration
from raydebm.pipeline.stages.energies import make_energies, make_scorer
from raydebm.pipeline.stages.evaluation import make_evaluation, read_evaluation
from raydebm.pipeline.stages.pairs import make_pairs
from raydebm.pipeline.stages.passes import forget_failed_passes, make_passes
from raydebm.pipeline.stages.problems import make_candidates, make_labels, make_problems
from raydebm.pipeline.stages.scores import ask_failed_again, check_judges, evidence_names, make_baselines, make_scores
from raydebm.pipeline.writing_lock import write_lock
from raydebm.run.fingerprints import NOT_COMPLETE, current_manifest, new_manifest, why_not_current
from raydebm.run.stages import STAGES, Stage, StageName, stage_named
from raydebm.tasks import task_of

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """Summary of a finished stage for display."""

    stage: str
    reused: bool
    seconds: float
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Pipeline(StageContext):
    """One run of a recipe. Stages that use Ray need it initialised (see ``pipeline.ray.session``)."""

    on_stage: Callable[[StageReport], None] = lambda report: None

    def make(self, stage: StageName) -> None:
        """Bring the run to a stage: make what is missing or stale up to it.

        Raises:
            ConfigError: an imported stage does not match the recipe and cannot be made here, a certified guarantee
                would be lost, or another process is writing the run directory.
        """
        self._make(stage_named(stage).chain)

    def _make(self, stages: Iterable[Stage]) -> None:
        with ExitStack() as held:
            for each in stages:
                self._bring(each, held)
        # Also keep settings that no stage depends on (prices, placement), unless the recipe would make a stage stale.
        if all(self._is_kept(each) for each in STAGES):
            self.run.write_recipe(self.recipe)

    def evaluate(self) -> Evaluation:
        """Compare all selectors and baselines on the test split, and write the report."""
        self.make("evaluation")
        return read_evaluation(self.run)

    def certify(self, recipe: Recipe, *, force: bool = False) -> Calibrated:
        """Calibrate with the guarantee of this pipeline's recipe, and store the policy under another recipe.

        Args:
            recipe: the same recipe without the guarantee. The stage is current for it, so that its next run keeps the
                policy.
            force: also write a policy that is not certified, or has lost a guarantee. Default: leave the stage
                unchanged.

        Raises:
            ConfigError: the policy in force would lose a certified guarantee.
        """
        self._make(stage_named("calibration").chain[:-1])
        with write_lock(self.run):
            if not force:
                keep_guarantees(self, "another guarantee is asked for")
            calibrated = calibrate_run(self)
            if calibrated.is_certified or force:
                self.run.reopen("calibration")
                calibrated.write(self.run)
                manifest = new_manifest("calibration", recipe, self.run, facts=calibrated.facts)
                self.run.finish("calibration", manifest)
                self.run.write_recipe(recipe)
        return calibrated

    def _bring(self, stage: Stage, held: ExitStack) -> None:
        current = current_manifest(stage.name, self.recipe, self.run)
        if current is None:
            reason = why_not_current(stage.name, self.recipe, self.run)
            if reason is not None and reason != NOT_COMPLETE:
                _LOG.warning("%s is made again: %s", self.run.uri(stage.name), reason)
            self._check_may_be_made(stage, reason or NOT_COMPLETE)
            held.enter_context(write_lock(self.run))
            current = current_manifest(stage.name, self.recipe, self.run)  # another process may have made it meanwhile
        if current is None:
            self.run.reopen(stage.name)
            self.run.remove_partial(stage.name)
            started = time.monotonic()
            facts = MAKERS[stage.name](self)
            self.run.finish(stage.name, new_manifest(stage.name, self.recipe, self.run, facts=facts))
            self.run.write_recipe(self.recipe)
            seconds = time.monotonic() - started
        else:
            facts, seconds = current.get("facts", {}), 0.0
        self.on_stage(StageReport(stage=stage.name, reused=current is not None, seconds=seconds, facts=facts))

    def _is_kept(self, stage: Stage) -> bool:
        """True if the stage is incomplete, or current for the recipe."""
        manifest = self.run.manifest(stage.name)
        return manifest is None or manifest == current_manifest(stage.name, self.recipe, self.run)

    def _check_may_be_made(self, stage: Stage, reason: str) -> None:
        task_of(self.recipe.task)  # an unknown one is refused before anything is written
        for given in stage.given_by:
            if self.run.exists(given.marker):
                raise ConfigError(
                    f"{self.run.root} {given.is_what}, and its stage {stage.name!r} is missing or was made with other "
                    f"settings, files or versions than this recipe's; {given.remedy}"
                )
        if stage.name == "calibration":
            keep_guarantees(self, reason)

    def check_keys(self, *, judges: bool = True) -> None:
        """Check API keys before a cluster is started.

        Args:
            judges: also check the judges' keys.

        Raises:
            MissingKeyError: an endpoint has yet to be asked, and its key is not in the environment.
        """
        are_sampled = current_manifest("candidates", self.recipe, self.run) is not None
        if not are_sampled:
            greedy = self.recipe.generation.greedy
            check_keys([config for config in self.passes.configs if greedy or config.num_samples != 0])
        if judges:
            check_judges(self.recipe, self.run, basis=self.basis("pairs") if are_sampled else None)

    def forget_failed(self) -> None:
        """Mark failed requests for candidates and baseline scores, in all passes, to be retried. Answers are kept."""
        if not self.run.exists():
            return
        with write_lock(self.run):
            if self.run.facts("candidates").get("num_failed"):
                self.run.reopen("candidates")
            forget_failed_passes(self)
            failed, evidence = ask_failed_again(self.recipe, self.run), evidence_names(self.recipe)
            if failed & evidence:
                self.run.reopen("scores")
            if failed - evidence:
                self.run.reopen("baselines")


MAKERS: dict[StageName, Callable[[StageContext], Facts]] = {
    "problems": make_problems,
    "candidates": make_candidates,
    "labels": make_labels,
    "pairs": make_pairs,
    "scorer": make_scorer,
    "energies": make_energies,
    "scores": make_scores,
    "calibration": make_calibration,
    "passes": make_passes,
    "baselines": make_baselines,
    "evaluation": make_evaluation,
}
"""Functions that write a stage's files, once the stages before it are complete."""


SHARED = ("problems", "candidates", "labels")
"""Stages copied into nested runs (seeds, folds, variants), so that nothing is generated or labelled twice. Other paid
answers (later passes, judges) are in journals of the parent run, so that nothing is paid for twice."""


def child_run(shared: Pipeline, name: str, recipe: Recipe) -> Pipeline:
    """The run ``<run_dir>/<name>``, whose own stages are reported under its name.

    Args:
        recipe: the child's recipe; its run directory is set here.
    """

    def on_stage(report: StageReport) -> None:
        if report.stage not in SHARED:
            shared.on_stage(replace(report, stage=f"{name} {report.stage}"))

    return Pipeline(
        recipe=recipe.model_copy(update={"run_dir": shared.run.uri(name)}),
        progress=lambda stage: shared.progress(f"{name} {stage}"),
        on_stage=on_stage,
        payer=shared.payer or shared.run,
    )


def share_stages(first: Pipeline, other: Pipeline) -> None:
    """Copy problems, candidates and labels from one run to another, except stages that are already equal."""
    for stage in SHARED:
        share_stage(first, other, stage)


def share_stage(first: Pipeline, other: Pipeline, stage: str) -> None:
    """Copy one stage from one run to another if it differs."""
    theirs, own = (pipeline.run.manifest(stage) for pipeline in (first, other))
    if theirs != own:
        with write_lock(other.run):
            first.run.copy_stage(stage, other.run)
