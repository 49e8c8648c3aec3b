"""All results about one task and one pool for a report: the evaluation and all studies."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np

from raydebm.decision.groups import Floats
from raydebm.decision.table import PoolTable
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.studies.generators import GeneratorRow, PoolKind, energy_spread, generator_rows, pool_kinds
from raydebm.evaluation.studies.overview import (
    PoolExample,
    PoolOverview,
    TrainingPool,
    example_of,
    overview,
    training_pool,
)
from raydebm.evaluation.studies.scorers import Agreement, RatedPicks, judge_agreement, rated_picks
from raydebm.evaluation.studies.sizes import EnsembleSize, PoolSize, ensemble_sizes, pool_sizes
from raydebm.evaluation.studies.two_terms import (
    Decomposition,
    LambdaRow,
    VariancePartition,
    decomposition,
    lambda_sweep,
    variance_partition,
)

NUM_BINS = 32
MAX_RIDGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Ridge:
    """Densities of mu of correct and incorrect candidates (``PoolTable.with_trained_labels``), on common bins."""

    name: str
    edges: tuple[float, ...]
    correct: tuple[float, ...]
    """Share of the correct candidates per bin. Empty without any."""
    incorrect: tuple[float, ...]
    num_correct: int
    num_incorrect: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Training data and results of a scorer."""

    num_usable: int
    """Problems with pairs, including validation."""
    num_pairs: int
    losses: tuple[float, ...]
    """Lowest validation loss of each adapter. Empty without validation."""
    num_epochs: tuple[int, ...]
    """Epochs of each adapter until it stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Description of a study's pool and scorer."""

    name: str = ""
    """Name of the pool, such as ``validation plans, nine models``. Default: the evaluation's title."""
    backbone: str = ""
    """Backbone of the scorer. Empty if unknown."""
    num_train: int | None = None
    """Number of training problems of the scorer. None if unknown."""
    repaired: bool = False
    """Whether the scorer's heads were refitted by ``raydebm confounding --repair`` (the paper's DFR)."""
    notes: tuple[str, ...] = ()
    """Caveats printed with the figures."""
    data: str = ""
    """File or folder of the test problems. Empty for the task's own data set."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model and version by name of a generator or outside scorer."""
    fit: Fit | None = None
    findings: Mapping[str, Estimate] = field(default_factory=dict)
    """Further figures by name, from the confounding report and the reasons of labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults(Subject, JsonResults):
    """One task, one pool, one scorer: all tables and figures computed from its scored candidates."""

    KIND: ClassVar[str] = "a study"

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
    """Partition of sigma squared. None if constraints are constant within every problem."""
    judges: tuple[Agreement, ...]
    rated: tuple[RatedPicks, ...]
    """Ratings of our selections and of the oracle's by other scorers."""
    ridges: tuple[Ridge, ...]
    training: TrainingPool | None
    """Candidates of the training problems. None if they were not given."""
    example: PoolExample | None
    """Problem and its selection in words. None without energies."""

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.evaluation.task


def study(
    evaluation: Evaluation,
    pools: PoolTable,
    *,
    subject: Subject = Subject(),
    train: PoolTable | None = None,
) -> StudyResults:
    """Study an evaluated pool: data, generators, ensemble, the two terms, and thresholds.

    Args:
        evaluation: Evaluation of these pools, with lambda, seed, and the number of bootstrap resamples.
        pools: Test problems, with other scorers' columns (``PoolTable.scores``) if any.
        subject: Description of the pool and the scorer.
        train: Labelled pools of the training problems, for the data tables. Energies are not used.
    """
    lambda_, seed, num_bootstrap = evaluation.policy["lambda"], evaluation.seed, evaluation.num_bootstrap
    trained = pools.with_trained_labels()
    bootstrap = Bootstrap.of(pools.num_pools, num_bootstrap=num_bootstrap, seed=seed)
    described = {field.name: getattr(subject, field.name) for field in fields(subject)}
    return StudyResults(
        **described | {"name": subject.name or evaluation.title},
        evaluation=evaluation,
        overview=overview(pools, bootstrap),
        generators=generator_rows(pools, lambda_=lambda_, bootstrap=bootstrap, trained=trained),
        energy_spread=energy_spread(trained, bootstrap),
        ensemble_sizes=ensemble_sizes(
            pools, lambda_=lambda_, bootstrap=bootstrap, seed=seed, theory=evaluation.theory, trained=trained
        ),
        pool_sizes=pool_sizes(pools, lambda_=lambda_, bootstrap=bootstrap, seed=seed),
        pool_kinds=pool_kinds(pools, lambda_=lambda_, bootstrap=bootstrap, seed=seed),
        lambdas=lambda_sweep(pools, bootstrap=bootstrap, chosen=lambda_),
        decomposition=decomposition(pools, lambda_=lambda_, bootstrap=bootstrap, seed=seed),
        variance=variance_partition(pools, lambda_=lambda_, bootstrap=bootstrap),
        judges=judge_agreement(pools, bootstrap),
        rated=rated_picks(pools, lambda_=lambda_, bootstrap=bootstrap),
        ridges=ridges(trained),
        training=None if train is None else training_pool(train, num_bootstrap=num_bootstrap, seed=seed),
        example=example_of(pools, lambda_=lambda_),
    )


def ridges(pools: PoolTable) -> tuple[Ridge, ...]:
    """Ridges of all candidates, then of each generator (those with the most candidates). Empty without energies."""
    if pools.num_members == 0:
        return ()
    mu = pools.mu
    known = mu[~np.isnan(mu)]
    if not len(known):
        return ()
    # A few extreme energies must not press all others into one bin.
    low, high = np.quantile(known, [0.002, 0.998])
    edges = np.linspace(low, high if high > low else low + 1.0, NUM_BINS + 1)
    counts = np.bincount(pools.author_of_row, minlength=len(pools.authors)).tolist()
    largest = sorted(sorted(range(len(counts)), key=lambda index: -counts[index])[:MAX_RIDGES])
    parts = [("all", np.ones(len(mu), dtype=np.bool_))]
    if len(pools.authors) > 1:
        parts += [(pools.authors[index], pools.author_of_row == index) for index in largest]
    return tuple(
        _ridge(name, mu[mask & (pools.correct == 1)], mu[mask & (pools.correct == 0)], edges) for name, mask in parts
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
