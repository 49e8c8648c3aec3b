"""What a stage is made with: a recipe, its run directory, and what follows from both."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Protocol

from raydebm.config import Recipe, RecordedGenerator
from raydebm.generators.passes import PassRequests, RequestsByProblem
from raydebm.generators.pool_files import Pool, read_pool_file
from raydebm.pairs import held_out, split_problems, text_key
from raydebm.records import Gold, Problem
from raydebm.run.addresses import resolved
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import basis
from raydebm.run.stages import REPAIRED, StageName
from raydebm.tasks import task_of
from raydebm.tasks.base import Task

TRAIN: Final = "train"
VALIDATION: Final = "validation"
TEST: Final = "test"

Facts = dict[str, Any]
"""What a stage says about its result: JSON values for the manifest."""


class Progress(Protocol):
    """Shows how far a stage is. ``(stage)`` starts a bar and returns ``(done, total)``."""

    def __call__(self, stage: str) -> Callable[[int, int], None]: ...


def silent(stage: str) -> Callable[[int, int], None]:
    """A progress that shows nothing."""
    return lambda done, total: None


@dataclass(frozen=True)
class StageContext:
    """One run of a recipe, as its stages see it. Ray must be initialised for those that use it."""

    recipe: Recipe
    progress: Progress = silent
    command: str | None = None
    """How to repeat this run, for the report; None: this process's command line."""
    payer: RunDir | None = None
    """The run whose journals of later passes and judges this one shares with others on the same candidates, so that
    nothing is paid twice and one budget holds for all; None: this run."""

    @cached_property
    def run(self) -> RunDir:
        """The run directory, at an absolute path."""
        # Workers have a working directory of their own, so that a relative path would mean another place there.
        return RunDir(resolved(self.recipe.resolved_run_dir))

    @cached_property
    def task(self) -> Task:
        """The recipe's task."""
        return task_of(self.recipe.task)

    @cached_property
    def passes(self) -> PassRequests:
        """Makes the requests of each pass."""
        return PassRequests(recipe=self.recipe, task=self.task)

    @cached_property
    def recorded_replies(self) -> Pool | None:
        """Recorded replies to feedback, which are the run's later passes; None without such replies.

        Later passes are replayed under the paper's rule alone: the posterior's thresholds weigh what a further pass
        brings, and would be fitted to passes that are missing wherever another answer was selected.

        Raises:
            TaskDataError: the pool cannot be read.
        """
        config = self.passes.regenerator
        if not isinstance(config, RecordedGenerator) or self.recipe.triage.rule != "paper":
            return None
        pool = read_pool_file(config.pool, "", config.text_fields, (config.model,))
        return pool if any(model == config.model and rank[0] > 1 for _, model, rank, _ in pool[0]) else None

    @property
    def name(self) -> str:
        """The run's name in reports."""
        change = ", repaired" if self.is_repaired else ""
        return f"{self.recipe.name}{change} ({self.recipe.task.name})"

    @property
    def is_repaired(self) -> bool:
        """Whether the run's scorer is another run's, its heads refitted by ``raydebm repair``."""
        return self.run.exists(REPAIRED.marker)

    def basis(self, stage: StageName) -> str:
        """An id of what the stage is now, for what is made from it and is no stage itself."""
        return basis(stage, self.recipe, self.run)

    def problems(self) -> dict[str, Problem]:
        """The run's problems, by problem id."""
        return {row.problem.problem_id: row.problem for row in self.run.problems()}

    def golds(self) -> dict[str, Gold]:
        """The run's golds, by problem id."""
        return {gold.problem_id: gold for gold in self.run.golds()}

    def splits(self) -> dict[str, list[str]]:
        """Problem ids of ``train``, ``validation`` and ``test``. No id is in two of them, and a problem of the training
        source whose text is that of a test problem, but for case and white space, is in none."""
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
        """Every request of the first pass: samples of each generator, and its greedy one."""
        return RequestsByProblem(problems, partial(self.passes.first, greedy=self.recipe.generation.greedy))
