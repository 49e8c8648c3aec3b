"""Everything about one task and one pool that a report of results needs: the evaluation and all studies of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.studies.author_energies import energy_spread
from raydebm.evaluation.studies.decomposition import Decomposition, LambdaRow, decomposition, lambda_sweep
from raydebm.evaluation.studies.ensemble_size import EnsembleSize, ensemble_sizes
from raydebm.evaluation.studies.generator_table import GeneratorRow, PoolKind, generator_rows, pool_kinds
from raydebm.evaluation.studies.judges import Agreement, RatedPicks, judge_agreement, rated_picks
from raydebm.evaluation.studies.overview import PoolExample, PoolOverview, TrainingPool, overview, training_pool
from raydebm.evaluation.studies.pool_size import PoolSize, pool_sizes
from raydebm.evaluation.studies.variance import VariancePartition, variance_partition

NUM_BINS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Ridge:
    """Densities of mu of correct and incorrect candidates (``pool.with_trained_labels``), on common bins."""

    name: str
    edges: tuple[float, ...]
    correct: tuple[float, ...]
    """Share of the correct candidates per bin; empty without any."""
    incorrect: tuple[float, ...]
    num_correct: int
    num_incorrect: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a scorer was trained on, and how it went."""

    num_usable: int
    """Problems with pairs, validation included."""
    num_pairs: int
    losses: tuple[float, ...]
    """Lowest validation loss of each adapter; empty without validation."""
    num_epochs: tuple[int, ...]
    """Epochs of each adapter until it stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults(JsonResults):
    """One task, one pool, one scorer: every table and figure that follows from its scored candidates."""

    KIND: ClassVar[str] = "a study"

    name: str
    """The pool's name, such as ``validation plans, nine models``."""
    evaluation: Evaluation
    overview: PoolOverview
    generators: tuple[GeneratorRow, ...]
    energy_spread: Estimate
    """Standard deviation over generators of the mean mu of correct candidates."""
    ensemble_sizes: tuple[EnsembleSize, ...]
    pool_sizes: tuple[PoolSize, ...]
    pool_kinds: tuple[PoolKind, ...]
    lambdas: tuple[LambdaRow, ...]
    decomposition: Decomposition | None
    variance: VariancePartition | None
    """Partition of sigma squared; None without constraints that tell candidates apart."""
    judges: tuple[Agreement, ...]
    rated: tuple[RatedPicks, ...]
    """What other scorers say of our selections and of the oracle's."""
    ridges: tuple[Ridge, ...]
    training: TrainingPool | None
    """Candidates of the training problems; None where they were not given."""
    example: PoolExample | None
    """A problem and its selection in words; None where no texts were given."""
    num_train: int | None
    """Problems the scorer was trained on; None where unknown."""
    backbone: str
    """The scorer's backbone; empty where unknown."""
    repaired: bool
    """The scorer's heads were refitted on group-balanced data (the paper's DFR)."""
    notes: tuple[str, ...]
    """What a reader must know about this pool, stated with its figures."""
    data: str = ""
    """File or folder of the test problems; empty for the task's own data set."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Name of a generator or outside scorer -> its model and version."""
    fit: Fit | None = None
    findings: Mapping[str, Estimate] = field(default_factory=dict)
    """Further figures by name: of the confounding report, and of the reasons of labels."""

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.evaluation.task


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a study is about, in words: the pool and the scorer."""

    name: str = ""
    """The pool's name, such as ``validation plans, nine models``; the evaluation's title by default."""
    backbone: str = ""
    num_train: int | None = None
    """Problems the scorer was trained on; None where unknown."""
    repaired: bool = False
    """The scorer's heads were refitted by ``raydebm confounding --repair``."""
    notes: tuple[str, ...] = ()
    """Caveats to print with the figures."""
    data: str = ""
    """File or folder of the test problems; empty for the task's own data set."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Name of a generator or outside scorer -> its model and version."""
    fit: Fit | None = None
    findings: Mapping[str, Estimate] = field(default_factory=dict)
    """See ``StudyResults.findings``."""


def study(
    evaluation: Evaluation,
    stack: Stack,
    *,
    subject: Subject = Subject(),
    train: Stack | None = None,
    example: PoolExample | None = None,
    positive_frac: float = 0.25,
) -> StudyResults:
    """Study what was evaluated: the data, the generators, the ensemble, the two terms, and the thresholds.

    Args:
        evaluation: of these pools; says lambda, seed, and the number of bootstrap resamples.
        stack: the test problems, with other scorers' columns (``Stack.scores``) where there are any.
        subject: what the pool and the scorer are.
        train: labelled pools of the training problems, for the tables of data; energies are not looked at.
        example: of these pools, whose texts a stack does not hold.
        positive_frac: see ``EvaluationInputs``.
    """
    lambda_, seed, num_bootstrap = evaluation.policy["lambda"], evaluation.seed, evaluation.num_bootstrap
    trained = stack.with_trained_labels(positive_frac)
    bootstrap = Bootstrap.of(len(stack.problems), num_bootstrap=num_bootstrap, seed=seed)
    return StudyResults(
        name=subject.name or evaluation.title,
        evaluation=evaluation,
        overview=overview(stack, bootstrap),
        generators=generator_rows(stack, lambda_=lambda_, bootstrap=bootstrap, trained=trained),
        energy_spread=energy_spread(trained, bootstrap),
        ensemble_sizes=ensemble_sizes(
            stack, lambda_=lambda_, bootstrap=bootstrap, seed=seed, theory=evaluation.theory, trained=trained
        ),
        pool_sizes=pool_sizes(stack, lambda_=lambda_, bootstrap=bootstrap, seed=seed),
        pool_kinds=pool_kinds(stack, lambda_=lambda_, bootstrap=bootstrap, seed=seed),
        lambdas=lambda_sweep(stack, bootstrap=bootstrap, chosen=lambda_),
        decomposition=decomposition(stack, lambda_=lambda_, bootstrap=bootstrap, seed=seed),
        variance=variance_partition(stack, lambda_=lambda_, bootstrap=bootstrap),
        judges=judge_agreement(stack, bootstrap),
        rated=rated_picks(stack, lambda_=lambda_, bootstrap=bootstrap),
        ridges=ridges(trained),
        training=None if train is None else training_pool(train, num_bootstrap=num_bootstrap, seed=seed),
        example=example,
        num_train=subject.num_train,
        backbone=subject.backbone,
        repaired=subject.repaired,
        notes=subject.notes,
        data=subject.data,
        models=subject.models,
        fit=subject.fit,
        findings=subject.findings,
    )


def ridges(stack: Stack, *, max_generators: int = 8) -> tuple[Ridge, ...]:
    """Ridges of all candidates, then of each generator (the ones with most candidates); empty without energies."""
    if stack.num_members == 0:
        return ()
    mu = stack.mu()
    known = mu[~np.isnan(mu)]
    if not len(known):
        return ()
    # Extreme energies of a few candidates must not press all others into one bin.
    low, high = np.quantile(known, [0.002, 0.998])
    edges = np.linspace(low, high if high > low else low + 1.0, NUM_BINS + 1)
    counts = [int((stack.generator == index).sum()) for index in range(len(stack.generators))]
    largest = sorted(sorted(range(len(counts)), key=lambda index: -counts[index])[:max_generators])
    parts = [("all", stack.present)]
    if len(stack.generators) > 1:
        parts += [(stack.generators[index], stack.generator == index) for index in largest]
    return tuple(
        _ridge(name, mu[mask & (stack.correct == 1)], mu[mask & (stack.correct == 0)], edges) for name, mask in parts
    )


def _ridge(name: str, good: Floats, bad: Floats, edges: Floats) -> Ridge:
    good, bad = good[~np.isnan(good)], bad[~np.isnan(bad)]
    return Ridge(
        name=name,
        edges=tuple(float(edge) for edge in edges),
        correct=_density(good, edges),
        incorrect=_density(bad, edges),
        num_correct=len(good),
        num_incorrect=len(bad),
    )


def _density(values: Floats, edges: Floats) -> tuple[float, ...]:
    if not len(values):
        return ()
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), bins=edges)
    shares = counts / max(counts.sum(), 1)
    return tuple(0.0 if math.isnan(share) else float(share) for share in shares)
