"""Who wrote the candidates: quality and length by generator, who is picked, pools of one generator or of several."""

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from raydebm.evaluation.pools.pool import Bools, Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate
from raydebm.evaluation.studies.ensemble_size import pair_accuracies
from raydebm.evaluation.studies.pool_size import EnergyOrder, of_oracle, of_votes
from raydebm.records import ScoredCandidate

TRUNCATED = ("length", "max_tokens")
MIXED = "all generators"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorRow:
    """The candidates of one generator, and how the energy treats them."""

    name: str
    num_candidates: int
    num_failed: int
    """Requests that brought no candidate."""
    num_unparsed: int
    """Without an answer."""
    num_unlabeled: int
    truncated_frac: float | None
    """Share that ended for length; None where no finish reason is recorded."""
    accuracy: Estimate
    """Mean over problems of the share correct."""
    mean_violation: Estimate
    best_quarter: Estimate
    """Mean over problems of the share that is among the best quarter of the pool by violation score; no value where the
    task has none. The paper makes its pairs of these (``pairs.positive_frac`` 0.25)."""
    characters: float | None
    """Mean length of the text."""
    characters_correct: float | None
    characters_incorrect: float | None
    completion_tokens: float | None
    """Mean as the endpoint counted; None where it did not."""
    cost_usd: float | None
    """Sum over its requests, also those that brought no candidate; None where unknown."""
    share_of_correct: float | None
    """Share of a problem's correct candidates, mean over the problems that have any: what a scorer that knows nothing
    but correctness would pick."""
    picked: Estimate
    """Share of the selections that it wrote, on the same problems."""
    mu_correct: Estimate
    """Mean mu of its correct candidates."""
    pair_accuracy: Estimate
    """Pairs of two candidates of this generator that mu ranks right: what it knows beyond who wrote them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKind:
    """A pool of one generator's candidates, or an equally large random part of the whole pool."""

    name: str
    n: int
    """Candidates per problem (the largest number where it varies)."""
    random: Estimate
    majority: Estimate
    ours: Estimate
    mu_only: Estimate
    """By mu alone."""
    oracle: Estimate
    same_size: Estimate
    """For one generator's pool: ours on as many random candidates of all generators as it gave to each problem, on the
    problems that it answered."""
    whole_minus: Estimate
    """For one generator's pool: ours on the whole pool minus ours on it, paired, on the problems that it answered."""
    mu_whole_minus: Estimate
    """The same by mu alone."""


def generator_rows(
    stack: Stack, *, lambda_: float, bootstrap: Bootstrap, trained: Stack | None = None
) -> tuple[GeneratorRow, ...]:
    """One row per generator.

    Args:
        trained: the same pools as the scorer was trained to see them (``pool.with_trained_labels``): what counts as
            correct in ``share_of_correct``, ``picked``, ``mu_correct`` and ``pair_accuracy``; None: ``stack``.
    """
    trained = stack if trained is None else trained
    picked = stack.select(lambda_) if stack.num_members else np.full(len(stack.pools), -1)
    writer = np.where(picked >= 0, stack.generator[np.arange(len(picked)), picked], -1)
    right = trained.correct == 1
    num_right = right.sum(axis=1).astype(np.float64)
    solved = num_right > 0
    unanswered = [scored.candidate for pool in stack.pools for scored in pool.failed]
    failed = Counter(candidate.generator for candidate in unanswered)
    mu = stack.mu()
    best = np.where(np.isnan(stack.violation), math.nan, best_quarter(stack).astype(float))
    names = (*stack.generators, *sorted(failed.keys() - set(stack.generators)))
    by_writer: dict[int, list[tuple[ScoredCandidate, float]]] = {index: [] for index in range(len(names))}
    for row, pool in enumerate(stack.pools):
        for column, place in enumerate(stack.rows[row]):
            scored = pool.candidates[place]
            by_writer[int(stack.generator[row, column])].append((scored, float(stack.correct[row, column])))
    found = []
    for index, name in enumerate(names):
        within = stack.generator == index
        items = [scored for scored, _ in by_writer[index]]
        good = within & right & ~np.isnan(mu)
        share = np.divide((within & right).sum(axis=1), num_right, where=solved, out=np.full(len(solved), math.nan))
        found.append(
            GeneratorRow(
                name=name,
                num_candidates=len(items),
                num_failed=failed[name],
                num_unparsed=sum(not scored.report.parsed for scored in items),
                num_unlabeled=int(np.isnan(stack.correct[within]).sum()),
                truncated_frac=_truncated(items),
                accuracy=bootstrap.proportion(stack.by_chance(within)),
                mean_violation=bootstrap.mean(stack.violation_by_chance(within)),
                best_quarter=bootstrap.proportion(stack.mean_of(best, within)),
                characters=_length(by_writer[index], None),
                characters_correct=_length(by_writer[index], 1.0),
                characters_incorrect=_length(by_writer[index], 0.0),
                completion_tokens=_known_mean([scored.candidate.completion_tokens for scored in items]),
                cost_usd=_known_sum(
                    [scored.candidate.cost_usd for scored in items]
                    + [candidate.cost_usd for candidate in unanswered if candidate.generator == name]
                ),
                share_of_correct=bootstrap.mean(share).value,
                picked=bootstrap.proportion(
                    np.where((writer >= 0) & solved, (writer == index).astype(float), math.nan)
                ),
                mu_correct=bootstrap.ratio(np.where(good, mu, 0.0).sum(axis=1), good.sum(axis=1).astype(float)),
                pair_accuracy=bootstrap.mean(pair_accuracies(trained, np.where(within, mu, math.nan))),
            )
        )
    return tuple(found)


def best_quarter(stack: Stack) -> Bools:
    """(P, N): the violation score is among the lowest quarter of the pool's; ties at the limit all count."""
    filled = np.where(np.isnan(stack.violation), math.inf, stack.violation)
    count = np.isfinite(filled).sum(axis=1)
    last = np.maximum(np.round(0.25 * count).astype(int), 1) - 1
    limit = np.sort(filled, axis=1)[np.arange(len(filled)), last]
    return np.asarray(np.isfinite(filled) & (filled <= limit[:, None]))


def _truncated(items: list[ScoredCandidate]) -> float | None:
    reasons = [scored.candidate.finish_reason for scored in items if scored.candidate.finish_reason is not None]
    return sum(reason in TRUNCATED for reason in reasons) / len(reasons) if reasons else None


def _length(found: list[tuple[ScoredCandidate, float]], label: float | None) -> float | None:
    return _known_mean(
        [len(scored.candidate.text or "") for scored, correct in found if label is None or correct == label]
    )


def _known_mean(values: list[int] | list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _known_sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def pool_kinds(stack: Stack, *, lambda_: float, bootstrap: Bootstrap, seed: int) -> tuple[PoolKind, ...]:
    """Each generator's own pool, then random mixed pools of the same sizes, then the whole; empty with one generator.

    All are scored by the same ensemble, which was trained on the mixed pool.
    """
    if len(stack.generators) < 2:
        return ()
    whole = int(stack.sizes.max())
    ours, by_mu = EnergyOrder.of(stack, lambda_), EnergyOrder.of(stack, 0.0)
    everything, everything_by_mu = ours.correct(whole), by_mu.correct(whole)
    rows = []
    sizes: set[int] = set()
    for index, name in enumerate(stack.generators):
        part = narrowed(stack, index)
        size = int(part.sizes.max())
        sizes.add(size)
        own, own_by_mu = EnergyOrder.of(part, lambda_).correct(size), EnergyOrder.of(part, 0.0).correct(size)
        rows.append(
            replace(
                _kind(part, name, size, (own, own_by_mu), bootstrap=bootstrap, seed=seed),
                same_size=bootstrap.proportion(np.where(np.isnan(own), math.nan, ours.correct(part.sizes))),
                whole_minus=bootstrap.mean(everything - own),
                mu_whole_minus=bootstrap.mean(everything_by_mu - own_by_mu),
            )
        )
    for size in sorted(sizes - {whole}):
        name, values = f"{MIXED}, {size} random candidates", (ours.correct(size), by_mu.correct(size))
        rows.append(_kind(stack, name, size, values, bootstrap=bootstrap, seed=seed))
    rows.append(_kind(stack, MIXED, whole, (everything, everything_by_mu), bootstrap=bootstrap, seed=seed))
    return tuple(rows)


def narrowed(stack: Stack, generator: int) -> Stack:
    """The same pools with one generator's candidates only."""
    within = stack.generator == generator
    width = max(int(within.sum(axis=1).max()), 1)
    # Stable: the candidates that stay keep the order of their ids.
    order = np.argsort(~within, axis=1, kind="stable")[:, :width]
    inside = np.take_along_axis(within, order, axis=1)

    def kept(values: Floats, empty: float) -> Floats:
        found: Floats = np.where(inside, np.take_along_axis(values, order, axis=1), empty)
        return found

    members = np.take_along_axis(stack.members, order[:, :, None], axis=1)
    return Stack(
        pools=stack.pools,
        rows=stack.rows,
        present=inside,
        members=np.where(inside[:, :, None], members, math.nan),
        penalty=kept(stack.penalty, math.inf),
        correct=kept(stack.correct, math.nan),
        violation=kept(stack.violation, math.nan),
        generator=np.where(inside, np.take_along_axis(stack.generator, order, axis=1), -1),
        answer=np.where(inside, np.take_along_axis(stack.answer, order, axis=1), -1),
        generators=stack.generators,
    )


def _kind(
    stack: Stack, name: str, size: int, ours_and_mu: tuple[Floats, Floats], *, bootstrap: Bootstrap, seed: int
) -> PoolKind:
    plain, _ = of_votes(stack, None, size, seed=seed)
    ours, by_mu = ours_and_mu
    return PoolKind(
        name=name,
        n=size,
        random=bootstrap.proportion(stack.by_chance()),
        majority=bootstrap.proportion(plain),
        ours=bootstrap.proportion(ours),
        mu_only=bootstrap.proportion(by_mu),
        oracle=bootstrap.proportion(of_oracle(stack, size)),
        same_size=NOTHING,
        whole_minus=NOTHING,
        mu_whole_minus=NOTHING,
    )
