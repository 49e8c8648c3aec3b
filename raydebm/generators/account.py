"""What a run has cost: ``generation.max_usd`` is one limit for all of its stages, and each stage has a journal."""

from dataclasses import dataclass
from pathlib import Path

from raydebm.config import Recipe
from raydebm.generators.endpoint.rate_limits import Budget
from raydebm.generators.journal import Journal, local_folder, spent_usd
from raydebm.run.directory import RunDir

JOURNALS = ("candidates/journal", "regenerated/*/journal", "scores/*.journal", "confounding/journal")
"""Below a run directory. Other runs may lie in it (``seed-1``, ``repair``); theirs are partly copies of these."""


SHARED_PASSES = ("regenerated", "shared", "journal")
"""The one journal of later passes of several runs on the same candidates, whichever split each asks for."""


@dataclass(frozen=True, slots=True)
class JournalAccount:
    """A journal, and the run whose limit counts what stands in it."""

    run: RunDir
    journal: tuple[str, ...]
    """Parts of its path below the run directory."""

    @property
    def folder(self) -> str:
        """Where the journal lies."""
        return self.run.uri(*self.journal)

    def elsewhere_usd(self, recipe: Recipe) -> float:
        """What the run has spent by its other journals, in US dollars."""
        return spent_elsewhere_usd(recipe, self.run, journal=self.folder)


def journal_and_budget(recipe: Recipe, run: RunDir, *parts: str) -> tuple[Journal | None, Budget]:
    """The journal ``<run>/<parts>`` of a stage that begins to ask, and what is left of the run's budget for it.

    A run on a file system that cannot append has no journals, and each of its stages a budget of its own.
    """
    if not run.is_local:
        return None, Budget(recipe.generation.max_usd)
    journal = Journal(run.uri(*parts))
    elsewhere_usd = spent_elsewhere_usd(recipe, run, journal=run.uri(*parts))
    return journal, Budget(recipe.generation.max_usd, journal, elsewhere_usd=elsewhere_usd)


def spent_elsewhere_usd(recipe: Recipe, run: RunDir, *, journal: str | Path) -> float:
    """What the run has spent by its other journals; 0 without a limit, because it is not needed then.

    Stages that ask run one after another, so it stays the same while one of them runs.

    Args:
        journal: that of the stage which begins. Its budget sees what stands there, and what is added.
    """
    if recipe.generation.max_usd is None:
        return 0.0
    root = local_folder(run.root)
    folders = {folder for pattern in JOURNALS for folder in root.glob(pattern)}
    return spent_usd(folders - {local_folder(journal)})
