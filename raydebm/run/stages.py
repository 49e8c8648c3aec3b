"""The stages of a run in order, with their dependencies and files.

Fingerprints, the runner, retries and the plan of a dry run are derived from this module.
"""

from dataclasses import dataclass
from typing import Literal

StageName = Literal[
    "problems", "candidates", "labels", "pairs", "scorer", "energies", "scores", "calibration", "passes", "baselines",
    "evaluation",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of a run, which reads the output of other stages."""

    name: StageName
    upstream: "Stage | None" = None
    """The stage whose output this one continues: its settings count here too, and remaking it makes this one stale."""
    also_reads: "tuple[Stage, ...]" = ()
    """Further stages whose remaking makes this one stale. Their settings do not count here."""
    sections: tuple[str, ...] = ()
    """Sections of the recipe that matter to this stage and to no earlier one."""
    writes: tuple[str, ...]
    """Files in the stage's folder. The manifest is written last."""
    given_by: "tuple[Given, ...]" = ()
    """Kinds of run directories that got this stage from elsewhere, and cannot make it themselves."""

    @property
    def settings(self) -> tuple[str, ...]:
        """Sections of the recipe that matter to this stage: its own and those of all earlier stages."""
        return (*(self.upstream.settings if self.upstream else ()), *self.sections)

    @property
    def inputs(self) -> "tuple[Stage, ...]":
        """Stages whose remaking makes this one stale."""
        return (*(() if self.upstream is None else (self.upstream,)), *self.also_reads)

    @property
    def chain(self) -> "tuple[Stage, ...]":
        """The stages that this one depends on, in order, then this one."""
        return tuple(dict.fromkeys((*(stage for before in self.inputs for stage in before.chain), self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Kind of run directory that got a stage from elsewhere, such as imported decisions."""

    marker: str
    """The file that marks such a run directory."""
    is_what: str
    """Predicate for messages, such as "holds imported decisions"."""
    remedy: str


IMPORTED = Given(
    marker="imported.json",
    is_what="holds imported decisions",
    remedy="use its recipe.json, or run `raydebm import-decisions` again",
)
REPAIRED = Given(
    marker="repaired.json",
    is_what="is the directory of a repair",
    remedy="run `raydebm confounding --repair` on the original run again",
)

_PROBLEMS = Stage(
    name="problems",
    sections=("task", "seed"),
    writes=("problems.parquet", "golds.parquet"),
    given_by=(IMPORTED,),
)
_CANDIDATES = Stage(
    name="candidates",
    upstream=_PROBLEMS,
    sections=("generators", "generation"),
    writes=("candidates.parquet", "journal/"),
    given_by=(IMPORTED,),
)
_LABELS = Stage(name="labels", upstream=_CANDIDATES, writes=("labels.parquet", "reports.parquet"), given_by=(IMPORTED,))
_PAIRS = Stage(name="pairs", upstream=_LABELS, sections=("pairs",), writes=("train.parquet", "validation.parquet"))
_SCORER = Stage(
    name="scorer",
    upstream=_PAIRS,
    sections=("scorer", "training"),
    writes=("ensemble.json", "a0…a4/"),
    given_by=(REPAIRED,),
)
_ENERGIES = Stage(name="energies", upstream=_SCORER, writes=("energies.parquet",))
_SCORES = Stage(name="scores", upstream=_PAIRS, writes=("<name>.parquet",))
"""Scores of the evidence baselines. ``fingerprints`` adds their settings, which are in no section of this stage."""
_CALIBRATION = Stage(
    name="calibration",
    upstream=_ENERGIES,
    also_reads=(_SCORES,),
    sections=("decision",),
    writes=("policy.json", "grid.json", "decision.json"),
)
_PASSES = Stage(name="passes", upstream=_CALIBRATION, writes=("regenerated/test-<n>/",))
_BASELINES = Stage(name="baselines", upstream=_PAIRS, sections=("baselines",), writes=("scores/<name>.parquet",))
"""Scores of the other baselines: a separate stage, so that a change of one does not make calibration stale."""
_EVALUATION = Stage(
    name="evaluation",
    upstream=_PASSES,
    also_reads=(_BASELINES,),
    writes=("metrics.json", "report.md", "report.html"),
)

STAGES = tuple(_EVALUATION.chain)
_BY_NAME = {stage.name: stage for stage in STAGES}


def givers_of(folder: str) -> tuple[Given, ...]:
    """Kinds of run directories that got this stage from elsewhere."""
    return next((stage.given_by for stage in STAGES if stage.name == folder), ())


def stage_named(name: StageName) -> Stage:
    """Look up a stage."""
    return _BY_NAME[name]
