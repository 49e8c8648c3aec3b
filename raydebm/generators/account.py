"""Cost of a run: ``generation.max_usd`` is one limit for all of its stages, and each stage has a journal."""

from dataclasses import dataclass
from pathlib import Path

from raydebm.config import Recipe
from raydebm.generators.endpoint.rate_limits import Budget
from raydebm.generators.journal import Journal, local_folder, spent_usd
from raydebm.run.directory import RunDir

JOURNALS = ("candidates/journal", "regenerated/*/journal", "scores/*.journal", "confounding/journal")
"""Journals below a run directory. Those of nested runs (``seed-1``, ``repair``) do not count, because some are
copies."""
SHARED_PASSES = ("regenerated", "shared", "journal")
"""Journal of later passes that several runs on the same candidates share, for all splits."""


@dataclass(frozen=True, slots=True)
class JournalAccount:
    """A journal, and the run whose limit counts its costs."""

    run: RunDir
    journal: tuple[str, ...]
    """Path of the journal below the run directory."""

    @property
    def folder(self) -> str:
        return self.run.uri(*self.journal)

    def elsewhere_usd(self, recipe: Recipe) -> float:
        """US dollars in the run's other journals. 0 without a limit, which needs no such amount.

        Constant while a stage runs, because stages that spend money run one after another. The stage's budget adds the
        costs in its own journal.
        """
        if recipe.generation.max_usd is None:
            return 0.0
        return spent_usd(_journals(self.run) - {local_folder(self.folder)})


def paid_usd(run: RunDir) -> float | None:
    """US dollars in all of the run's journals. None if no cost is known, or on a file system that cannot append."""
    return (spent_usd(_journals(run)) or None) if run.is_local else None


def _journals(run: RunDir) -> set[Path]:
    root = local_folder(run.root)
    return {folder for pattern in JOURNALS for folder in root.glob(pattern)}


def journal_and_budget(recipe: Recipe, run: RunDir, *parts: str) -> tuple[Journal | None, Budget]:
    """The journal ``<run>/<parts>`` of a stage, and the rest of the run's budget.

    On a file system that cannot append there are no journals, and each stage has its own budget.
    """
    if not run.is_local:
        return None, Budget(recipe.generation.max_usd)
    account = JournalAccount(run, parts)
    journal = Journal(account.folder)
    return journal, Budget(recipe.generation.max_usd, journal, elsewhere_usd=account.elsewhere_usd(recipe))
