"""A run directory: the tables and files of each stage, each with a manifest written last.

Layout: ``<run_dir>/<stage>/<table>.parquet`` (or a folder of part files) and ``<run_dir>/<stage>/manifest.json``. A
stage is complete if and only if its manifest exists.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from pyarrow import fs

from raydebm.config import Recipe, parse_recipe
from raydebm.errors import ConfigError, PoolError
from raydebm.records import Candidate, CandidateScore, ConstraintReport, Gold, Label, Pair
from raydebm.run.addresses import filesystem_of, resolved
from raydebm.run.folder import Folder, StoredTable
from raydebm.run.stages import givers_of
from raydebm.run.tables import (
    CANDIDATES,
    ENERGIES,
    GOLDS,
    LABELS,
    PAIRS,
    PROBLEMS,
    REPORTS,
    SCORES,
    EnergyRow,
    SplitProblem,
)

MANIFEST = "manifest.json"
RECIPE = "recipe.json"
SCORES_FOLDER = "scores"


@dataclass(frozen=True, slots=True)
class RunDir(Folder):
    """The directory of one run. Stages of later passes keep the tables of ``candidates``, ``labels`` and ``energies``
    in one folder."""

    def absolute(self) -> Self:
        """The same directory at an absolute address, valid in any working directory."""
        return replace(self, root=resolved(self.root))

    # ---- tables --------------------------------------------------------------------------------------------------

    def problems(self) -> tuple[SplitProblem, ...]:
        """The problems with their splits, in their order."""
        return self.read_records(PROBLEMS, "problems", "problems.parquet")

    def write_problems(self, problems: Iterable[SplitProblem]) -> int:
        """Write the problems; returns their number."""
        return self.write_records(PROBLEMS, problems, "problems", "problems.parquet")

    def has_problems(self) -> bool:
        """Whether there is a table of problems. A run that only serves needs none."""
        return self.exists("problems", "problems.parquet")

    def golds(self) -> tuple[Gold, ...]:
        """Gold of every problem. Never read for decisions or serving."""
        return self.read_records(GOLDS, "problems", "golds.parquet")

    def write_golds(self, golds: Iterable[Gold]) -> int:
        """Write gold; returns the number of rows."""
        return self.write_records(GOLDS, golds, "problems", "golds.parquet")

    def candidates(self, stage: str = "candidates") -> tuple[Candidate, ...]:
        """The candidates of a stage, such as ``regenerated/test-2``."""
        return self.read_records(CANDIDATES, stage, "candidates.parquet")

    def stored_candidates(self, stage: str = "candidates") -> StoredTable[Candidate]:
        """The candidates of a stage, read in batches each time they are iterated."""
        return StoredTable(self, CANDIDATES, (stage, "candidates.parquet"))

    def write_candidates(self, candidates: Iterable[Candidate], stage: str = "candidates") -> int:
        """Write a stage's candidates; returns their number."""
        return self.write_records(CANDIDATES, candidates, stage, "candidates.parquet")

    def labels(self, stage: str = "labels") -> tuple[Label, ...]:
        """The labels of a stage's candidates."""
        return self.read_records(LABELS, stage, "labels.parquet")

    def stored_labels(self, stage: str = "labels") -> StoredTable[Label]:
        """The labels of a stage's candidates, read in batches each time they are iterated."""
        return StoredTable(self, LABELS, (stage, "labels.parquet"))

    def write_labels(self, labels: Iterable[Label], stage: str = "labels") -> int:
        """Write a stage's labels; returns their number."""
        return self.write_records(LABELS, labels, stage, "labels.parquet")

    def reports(self, stage: str = "labels") -> tuple[ConstraintReport, ...]:
        """The constraint reports of a stage's candidates."""
        return self.read_records(REPORTS, stage, "reports.parquet")

    def write_reports(self, reports: Iterable[ConstraintReport], stage: str = "labels") -> int:
        """Write a stage's constraint reports; returns their number."""
        return self.write_records(REPORTS, reports, stage, "reports.parquet")

    def pairs(self, split: str) -> tuple[Pair, ...]:
        """Training pairs of a split, ``train`` or ``validation``."""
        return self.read_records(PAIRS, "pairs", f"{split}.parquet")

    def stored_pairs(self, split: str) -> StoredTable[Pair]:
        """Pairs of ``train`` or ``validation``, read in batches each time they are iterated."""
        return StoredTable(self, PAIRS, ("pairs", f"{split}.parquet"))

    def write_pairs(self, pairs: Iterable[Pair], split: str) -> int:
        """Write the pairs of a split; returns their number."""
        return self.write_records(PAIRS, pairs, "pairs", f"{split}.parquet")

    def energies(self, stage: str = "energies") -> tuple[EnergyRow, ...]:
        """The energies of a stage's candidates."""
        return self.read_records(ENERGIES, stage, "energies.parquet")

    def scores(self, baseline: str, folder: str = SCORES_FOLDER) -> tuple[CandidateScore, ...]:
        """A baseline's scores. Later passes have their own folders."""
        return self.read_records(SCORES, folder, f"{baseline}.parquet")

    def write_scores(self, scores: Iterable[CandidateScore], baseline: str, folder: str = SCORES_FOLDER) -> int:
        """Write a baseline's scores; returns their number."""
        return self.write_records(SCORES, scores, folder, f"{baseline}.parquet")

    def has_scores(self, baseline: str, folder: str = SCORES_FOLDER) -> bool:
        """Whether a baseline has scores."""
        return self.exists(folder, f"{baseline}.parquet")

    def baseline_uri(self, baseline: str) -> str:
        """The folder of a baseline's checkpoint, if it has one."""
        return self.uri(SCORES_FOLDER, f"{baseline}.model")

    # ---- the recipe ----------------------------------------------------------------------------------------------

    def write_recipe(self, recipe: Recipe) -> None:
        """Write ``recipe.json``, the recipe for later stages and the service."""
        self.write_json(recipe.model_dump(mode="json", by_alias=True), RECIPE)

    def recipe(self) -> Recipe:
        """The recipe of the run.

        Raises:
            ConfigError: recipe.json is missing or invalid.
        """
        where = self.uri(RECIPE)
        tree = self.read_object(RECIPE, remedy="run the recipe again")
        if tree is None:
            remedy = "make a run first (`raydebm run` or `make demo`), or give the directory of one"
            raise ConfigError(f"{where} does not exist; {remedy}")
        try:
            return parse_recipe(tree, where=where)
        except ConfigError as error:
            raise ConfigError(
                f"{error}. If another version made the run, run its recipe again with this one"
            ) from error

    def learns_out_of_bag(self, recipe: Recipe) -> bool:
        """Whether the posterior also learns from training problems, with energies of adapters that did not see them.

        Only adapters trained in this run have bags; the heads of a repaired scorer saw all training problems.
        """
        return recipe.wants_out_of_bag and not any(self.exists(given.marker) for given in givers_of("scorer"))

    # ---- manifests -----------------------------------------------------------------------------------------------

    def manifest(self, stage: str) -> dict[str, Any] | None:
        """The stage's manifest; None if the stage is incomplete.

        Raises:
            ConfigError: the file is corrupt.
        """
        return self.read_object(stage, MANIFEST, remedy="remove it and run the recipe again to recreate this stage")

    def facts(self, stage: str) -> dict[str, Any]:
        """Facts in the stage's manifest; empty if the stage is incomplete."""
        facts: dict[str, Any] = (self.manifest(stage) or {}).get("facts", {})
        return facts

    def scoring_type(self, stated: str) -> str:
        """The scoring dtype. ``auto`` gives the dtype of the run's energies, so that later scores are comparable, and
        stays ``auto`` if there are none."""
        return str(self.facts("energies").get("dtype", stated)) if stated == "auto" else stated

    def finish(self, stage: str, manifest: Mapping[str, Any]) -> None:
        """Write the stage's manifest. Call last: its presence marks the stage as complete."""
        self.write_json(dict(manifest), stage, MANIFEST)

    def reopen(self, stage: str) -> None:
        """Remove the stage's manifest, which makes the stage incomplete."""
        self.remove(stage, MANIFEST)

    def _remedy(self, *parts: str) -> str:
        given = next((given for given in givers_of(parts[0]) if self.exists(given.marker)), None)
        if given is not None:
            return given.remedy
        folders = (parts[:depth] for depth in range(len(parts) - 1, 0, -1))
        manifest = next((self.uri(*folder, MANIFEST) for folder in folders if self.exists(*folder, MANIFEST)), None)
        return f"remove {manifest or self.uri(*parts)} and run the recipe again to recreate it"

    def copy_stage(self, stage: str, other: "RunDir") -> None:
        """Copy a complete stage into another run directory, its manifest last.

        Raises:
            PoolError: the stage is incomplete.
        """
        manifest = self.manifest(stage)
        if manifest is None:
            raise PoolError(f"{self.uri(stage)} has no manifest, so the stage is not complete; run it first")
        other.remove(stage)
        self._copy_files(stage, other)
        other.finish(stage, manifest)

    def copy_scores(self, other: "RunDir") -> None:
        """Copy baseline scores, with the judges' paid answers, to a run directory that has none."""
        if self.names(SCORES_FOLDER) and not other.names(SCORES_FOLDER):
            self._copy_files(SCORES_FOLDER, other)

    def _copy_files(self, stage: str, other: "RunDir") -> None:
        """Copy the files of a stage except its manifest."""
        (source_fs, source), (target_fs, target) = filesystem_of(self.root), filesystem_of(other.root)
        folder = f"{source}/{stage}"
        for info in source_fs.get_file_info(fs.FileSelector(folder, recursive=True)):
            if info.type == fs.FileType.File and info.path != f"{folder}/{MANIFEST}":
                copied = f"{target}/{stage}/{info.path.removeprefix(folder + '/')}"
                target_fs.create_dir(copied.rsplit("/", 1)[0], recursive=True)
                fs.copy_files(info.path, copied, source_filesystem=source_fs, destination_filesystem=target_fs)
