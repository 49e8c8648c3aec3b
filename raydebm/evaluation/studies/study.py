"""All results about one task and one pool for a report: description of the pool, evaluation, and all studies."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np

from raydebm.decision.table import Floats, PoolTable
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.stats.json_results import JsonResults
from raydebm.evaluation.studies.generators import GeneratorRow, energy_spread, generator_rows, in_best_quarter
from raydebm.evaluation.studies.scorers import Agreement, RatedPicks, judge_agreement, rated_picks
from raydebm.evaluation.studies.sizes import EnsembleSize, PoolSize, ensemble_sizes, pool_sizes
from raydebm.evaluation.studies.two_terms import Decomposition, VariancePartition, decomposition, variance_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverview:
    num_problems: int
    fewest: int
    most: int
    generators: tuple[str, ...]
    accuracy: Estimate
    mean_violation: Estimate
    mixed: Estimate
    """Share of problems with both a correct and an incorrect candidate. Selection matters only for these."""
    solvable: Estimate
    """Share of problems with at least one correct candidate (oracle)."""
    constraints: dict[str, int]

    @property
    def size(self) -> str:
        """Number of candidates per problem, in words."""
        return str(self.most) if self.fewest == self.most else f"{self.fewest} to {self.most}"


def overview(pools: PoolTable, bootstrap: Bootstrap) -> PoolOverview:
    """Describe pools: sizes, random accuracy, oracle, and share of problems where selection matters."""
    chance = pools.by_chance()
    best = np.where(pools.labelled, pools.any(pools.correct == 1), np.nan)
    mixed = np.where(np.isnan(chance), np.nan, (chance > 0) & (chance < 1))
    return PoolOverview(
        num_problems=pools.num_pools,
        fewest=int(pools.sizes.min()),
        most=int(pools.sizes.max()),
        generators=pools.authors,
        accuracy=bootstrap.proportion(chance),
        mean_violation=bootstrap.mean(pools.mean_of(pools.violation)),
        mixed=bootstrap.proportion(mixed),
        solvable=bootstrap.proportion(best),
        constraints={name: int((~np.isnan(column)).sum()) for name, column in sorted(pools.broken.items())},
    )


MAX_RESAMPLES = 500
"""Maximum number of resamples. A training pool is large: more resamples cost memory and change no printed digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPool:
    """Labelled candidates of the training problems, including validation, as in the paper's data tables."""

    num_problems: int
    accuracy: Estimate
    by_generator: dict[str, Estimate]
    """Share correct by generator, mean over problems."""
    best_quarter: dict[str, Estimate]
    """Share of each generator's candidates in the best quarter of their pool. Empty without violation scores."""
    num_all_correct: int


def training_pool(pools: PoolTable, *, seed: int) -> TrainingPool | None:
    """Quality of the candidates by generator. None without pools."""
    if not pools.num_pools:
        return None
    bootstrap = Bootstrap.of(pools.num_pools, num_bootstrap=MAX_RESAMPLES, seed=seed)
    within = {name: pools.author_of_row == index for index, name in enumerate(pools.authors)}
    best = in_best_quarter(pools)
    return TrainingPool(
        num_problems=pools.num_pools,
        accuracy=bootstrap.proportion(pools.by_chance()),
        by_generator={name: bootstrap.proportion(pools.by_chance(mask)) for name, mask in within.items()},
        best_quarter={name: bootstrap.proportion(pools.mean_of(best, mask)) for name, mask in within.items()}
        if not np.isnan(best).all()
        else {},
        num_all_correct=int((pools.by_chance() == 1).sum()),
    )


EXCERPT = 240
"""Length of a text's excerpt in an example, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolExample:
    """Problem and its selection by E, as one-line excerpts."""

    problem_id: str
    prompt: str
    text: str
    """End of the candidate, where the answer is."""
    generator: str
    correct: bool | None
    violation: float | None
    """Violation score of the label. None if the task has none."""
    energy: float


def example_of(pools: PoolTable, *, lambda_: float) -> PoolExample | None:
    """First pool with right and wrong candidates, else the first with a selection by E. None without energies. The
    choice is independent of the selection's correctness."""
    picked = pools.select(lambda_)
    is_mixed = pools.any(pools.correct == 1) & pools.any(pools.correct == 0)
    chosen = [pool for mixed in (True, False) for pool in np.flatnonzero((is_mixed == mixed) & (picked >= 0))]
    if not chosen:
        return None
    problem, row = pools.problems[chosen[0]], picked[chosen[0]]
    best, correct, violation = pools.candidates[row].candidate, float(pools.correct[row]), float(pools.violation[row])
    return PoolExample(
        problem_id=problem.problem_id,
        prompt=_excerpt(problem.prompt),
        text=_excerpt(best.text or "", from_end=True),
        generator=best.generator,
        correct=None if math.isnan(correct) else correct == 1.0,
        violation=None if math.isnan(violation) else violation,
        energy=float(pools.energy(lambda_)[row]),
    )


def _excerpt(text: str, *, from_end: bool = False) -> str:
    line = " ".join(text.split())
    if len(line) <= EXCERPT:
        return line
    return "... " + line[-EXCERPT:] if from_end else line[:EXCERPT] + " ..."


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
    num_usable: int
    """Problems with pairs, including validation."""
    num_pairs: int
    losses: tuple[float, ...]
    """Lowest validation loss of each adapter. Empty without validation."""
    num_epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    name: str = ""
    """Name of the pool, such as ``validation plans, nine models``. Default: the evaluation's title."""
    backbone: str = ""
    num_train: int | None = None
    repaired: bool = False
    """Whether the scorer's heads were refitted by ``raydebm confounding --repair`` (the paper's DFR)."""
    notes: tuple[str, ...] = ()
    data: str = ""
    """File or folder of the test problems. Empty for the task's own data set."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model and version by name of a generator or baseline."""
    fit: Fit | None = None
    findings: Mapping[str, Estimate] = field(default_factory=dict)
    """Further numbers by name, from the confounding report and the reasons for labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults(Subject, JsonResults):
    """Numbers for all tables and figures about one pool of one task, scored by one scorer."""

    KIND: ClassVar[str] = "a study"

    evaluation: Evaluation
    overview: PoolOverview
    generators: tuple[GeneratorRow, ...]
    energy_spread: Estimate
    """Standard deviation over generators of the mean mu of correct candidates."""
    ensemble_sizes: tuple[EnsembleSize, ...]
    pool_sizes: tuple[PoolSize, ...]
    decomposition: Decomposition | None
    variance: VariancePartition | None
    """Partition of sigma squared. None with a single adapter, or if E_constraint is constant within every problem."""
    judges: tuple[Agreement, ...]
    rated: tuple[RatedPicks, ...]
    ridges: tuple[Ridge, ...]
    training: TrainingPool | None
    example: PoolExample | None

    @property
    def task(self) -> str:
        return self.evaluation.task


def study(
    evaluation: Evaluation, pools: PoolTable, *, subject: Subject = Subject(), train: PoolTable | None = None
) -> StudyResults:
    """Study an evaluated pool: data, generators, sizes of ensemble and pool, the two terms of E, and other scorers.

    Args:
        evaluation: Evaluation of these pools, which provides lambda and the seed.
        pools: Test problems, with other scorers' columns (``PoolTable.scores``) if any.
        subject: Description of the pool and the scorer.
        train: Labelled pools of the training problems, for the data tables. Energies are not used.
    """
    lambda_, seed = evaluation.policy["lambda"], evaluation.seed
    trained = pools.with_trained_labels()
    bootstrap = Bootstrap.of(pools.num_pools, seed=seed)
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
        pool_sizes=pool_sizes(pools, lambda_=lambda_, bootstrap=bootstrap),
        decomposition=decomposition(pools, lambda_=lambda_, bootstrap=bootstrap, seed=seed),
        variance=variance_partition(pools, lambda_=lambda_, bootstrap=bootstrap),
        judges=judge_agreement(pools, bootstrap),
        rated=rated_picks(pools, lambda_=lambda_, bootstrap=bootstrap),
        ridges=ridges(trained),
        training=None if train is None else training_pool(train, seed=seed),
        example=example_of(pools, lambda_=lambda_),
    )


def ridges(pools: PoolTable) -> tuple[Ridge, ...]:
    """Ridges of all candidates, then of the generators with the most candidates. Empty without energies."""
    known = ~np.isnan(pools.mu)
    if not known.any():
        return ()
    # A few extreme energies must not press all others into one bin.
    low, high = np.quantile(pools.mu[known], [0.002, 0.998])
    edges = np.linspace(low, high if high > low else low + 1.0, NUM_BINS + 1)
    parts = {"all": known}
    if len(pools.authors) > 1:
        counts = np.bincount(pools.author_of_row, minlength=len(pools.authors))
        largest = np.sort(np.argsort(-counts, kind="stable")[:MAX_RIDGES])
        parts |= {pools.authors[index]: known & (pools.author_of_row == index) for index in largest}

    def density(values: Floats) -> tuple[float, ...]:
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), bins=edges)
        return tuple((counts / len(values)).tolist()) if len(values) else ()

    rows = []
    for name, inside in parts.items():
        good, bad = (pools.mu[inside & (pools.correct == label)] for label in (1, 0))
        rows.append(
            Ridge(
                name=name,
                edges=tuple(edges.tolist()),
                correct=density(good),
                incorrect=density(bad),
                num_correct=len(good),
                num_incorrect=len(bad),
            )
        )
    return tuple(rows)
