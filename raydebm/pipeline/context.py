"""The input of every stage: a recipe, its run directory, and what follows from both."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from raydebm.config import Recipe, RecordedGenerator
from raydebm.generators.pool_files import Pool, read_pool_file
from raydebm.generators.requests import PassRequests, RequestsByProblem
from raydebm.identity import text_key
from raydebm.records import Gold, Problem
from raydebm.run.addresses import resolved
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import basis
from raydebm.run.stages import REPAIRED, StageName
from raydebm.scorer.pairs import held_out, split_problems
from raydebm.tasks import task_of
from raydebm.tasks.base import Task

TRAIN: Final = "train"
VALIDATION: Final = "validation"
TEST: Final = "test"

Facts = dict[str, Any]
"""Facts of a stage for its manifest, as JSON values."""


Progress = Callable[[str], Callable[[int, int], None]]
"""Function that starts a stage's progress bar, and returns the function to call with (done, total)."""


@dataclass(frozen=True)
class StageContext:
    """One run of a recipe. Stages that use Ray need it initialised."""

    recipe: Recipe
    progress: Progress = lambda stage: lambda done, total: None
    command: str | None = None
    """Command for the report. Default: this process's command line."""
    payer: RunDir | None = None
    """Run whose journals of later passes and judges are shared, so that no answer is paid twice and one budget holds
    for all runs on the same candidates. Default: this run."""

    @cached_property
    def run(self) -> RunDir:
        """The run directory, at an absolute path."""
        # Workers have their own working directories, so a relative path would be another place there.
        return RunDir(resolved(self.recipe.resolved_run_dir))

    @cached_property
    def task(self) -> Task:
        """The recipe's task."""
        return task_of(self.recipe.task)

    @cached_property
    def passes(self) -> PassRequests:
        """The requests of each pass."""
        return PassRequests(recipe=self.recipe, task=self.task)

    @cached_property
    def recorded_replies(self) -> Pool | None:
        """Recorded replies to feedback, which are the run's later passes; None if there are none.

        Later passes are replayed under the paper's rule alone: the posterior's thresholds depend on the value of a
        further pass, and the pool lacks that pass wherever another answer is selected than at its recording.

        Raises:
            TaskDataError: the pool cannot be read.
        """
        config = self.passes.regenerator
        if not isinstance(config, RecordedGenerator) or self.recipe.decision.rule != "paper":
            return None
        pool = read_pool_file(config.pool, "", config.text_fields, (config.model,))
        return pool if any(candidate.pass_index > 1 for candidate in pool[0]) else None

    @property
    def name(self) -> str:
        """The run's name in reports."""
        change = ", repaired" if self.is_repaired else ""
        return f"{self.recipe.name}{change} ({self.recipe.task.name})"

    @property
    def is_repaired(self) -> bool:
        """True if ``raydebm confounding --repair`` made the run's scorer from another run's, by refitting the heads."""
        return self.run.exists(REPAIRED.marker)

    def basis(self, stage: StageName) -> str:
        """An id of the stage's current state, for results that depend on it but are not stages."""
        return basis(stage, self.recipe, self.run)

    def problems(self) -> dict[str, Problem]:
        """The run's problems, by problem id."""
        return {row.problem.problem_id: row.problem for row in self.run.problems()}

    def golds(self) -> dict[str, Gold]:
        """The run's golds, by problem id."""
        return {gold.problem_id: gold for gold in self.run.golds()}

    def splits(self) -> dict[str, list[str]]:
        """Problem ids of ``train``, ``validation`` and ``test``. The splits are disjoint, and training problems with
        the text of a test problem (ignoring case and whitespace) are in none of them."""
        rows = self.run.problems()
        prompts, test = {row.problem.problem_id: row.problem.prompt for row in rows}, held_out(rows, self.recipe)
        texts = {text_key(prompts[problem_id]) for problem_id in test}
        train, validation = split_problems(
            {problem_id: prompt for problem_id, prompt in prompts.items() if text_key(prompt) not in texts},
            validation_frac=self.recipe.pairs.validation_frac,
            seed=self.recipe.training_seed,
        )
        tested = [problem_id for problem_id in prompts if problem_id in test]
        return {TRAIN: train, VALIDATION: validation, TEST: tested}

    def problems_of(self, split: str) -> list[Problem]:
        """The problems of a split, in its order."""
        problems = self.problems()
        return [problems[problem_id] for problem_id in self.splits()[split]]

    def requests(self, problems: Collection[Problem]) -> RequestsByProblem:
        """Every request of the first pass: the samples of each generator, and its greedy one."""
        return RequestsByProblem(problems, partial(self.passes.first, greedy=self.recipe.generation.greedy))
