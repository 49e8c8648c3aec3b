"""What readings of a recorded pool are worth: by themselves, and as evidence of the posterior.

In:   pools with labels, and readings by candidate id.
Out:  Markdown. Everything that is fitted is fitted on four fifths of the problems and judged on the other fifth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from recorded_pools import RecordedPool, checked

from raydebm.config import Recipe
from raydebm.decision.evidence.built_in_terms import DEFAULT_CONTEXT, DEFAULT_TERMS
from raydebm.decision.evidence.fitting import LabelledPool, LabelledTable, cross_fit, fit_posterior
from raydebm.decision.evidence.groups import Floats
from raydebm.decision.evidence.measuring import POOL_SCORE, SCORE
from raydebm.decision.evidence.posterior import Estimates
from raydebm.decision.evidence.profiles import winners
from raydebm.evaluation.certainty.confidence_calibration import confidence_calibration
from raydebm.evaluation.certainty.signals import Signal
from raydebm.evaluation.certainty.uncertainty import signal_rows
from raydebm.evaluation.report.table_cells import ECE_HEADERS, ece_cells, number, points, with_interval
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.records import ScoredCandidate

SIGNALS = ("entropy", "logprob", "worst")
NUM_FOLDS = 5
WITHOUT_ENERGIES = tuple(name for name in DEFAULT_TERMS if name not in ("energy", "mean_energy", "members"))
CONTEXT_WITHOUT = tuple(name for name in DEFAULT_CONTEXT if name != "pool_energy")
Scores = Mapping[str, Mapping[str, float]]
"""Signal -> candidate id -> value, higher is better."""


def labelled(recipe: Recipe, pools: Sequence[RecordedPool]) -> list[LabelledPool]:
    """The pools with their labels."""
    labelled_pools = []
    for pool in pools:
        candidates, worth = checked(recipe, pool)
        problem_id = pool.problem.problem_id
        labelled_pools.append(LabelledPool(problem_id=problem_id, candidates=candidates, worth=np.array(worth)))
    return labelled_pools


def with_scores(pools: Sequence[LabelledPool], scores: Scores) -> list[LabelledPool]:
    """The pools with the scores as evidence."""
    return [replace(pool, candidates=[_with_scores(scored, scores) for scored in pool.candidates]) for pool in pools]


def _with_scores(scored: ScoredCandidate, scores: Scores) -> ScoredCandidate:
    return replace(scored, scores={name: by_id[scored.candidate.candidate_id] for name, by_id in scores.items()})


def tables(pools: Sequence[LabelledPool], scores: Sequence[str], *, seed: int = 0) -> list[str]:
    """Both tables."""
    bootstrap = Bootstrap.of(len(pools), num_bootstrap=2000, seed=seed)
    return [*alone(pools, scores, bootstrap), "", *as_evidence(pools, scores, bootstrap)]


# ---- by themselves ---------------------------------------------------------------------------------------------------


def alone(pools: Sequence[LabelledPool], scores: Sequence[str], bootstrap: Bootstrap) -> list[str]:
    """Best of N by one score, and how well it tells right from wrong."""
    random, oracle = _mean_worth(pools), np.array([np.nanmax(pool.worth) for pool in pools])
    rows = [("random", random), (f"best author ({best_author(pools)})", worth_of_author(pools, best_author(pools)))]
    rows += [("oracle", oracle)]
    lines = [
        "| signal | best of N, % | gap closed, % | AUROC within author | AUROC within problem |",
        "|---|---:|---:|---:|---:|",
        *(f"| {name} | {with_interval(bootstrap.proportion(values))} | | | |" for name, values in rows),
    ]
    for name in scores:
        selected = _worth_of_best(pools, name)
        cells = (
            with_interval(bootstrap.proportion(selected)),
            with_interval(bootstrap.ratio(selected - random, oracle - random)),
            _with_interval(*within(pools, name, bootstrap, group=lambda answer: answer.author)),
            _with_interval(*within(pools, name, bootstrap, group=lambda answer: str(answer.problem))),
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _mean_worth(pools: Sequence[LabelledPool]) -> Floats:
    return np.array([np.nanmean(pool.worth) for pool in pools])


def best_author(pools: Sequence[LabelledPool]) -> str:
    """Who is right most often, on these very problems."""
    authors = sorted({scored.candidate.generator for pool in pools for scored in pool.candidates})
    return max(authors, key=lambda author: float(np.nanmean(worth_of_author(pools, author))))


def worth_of_author(pools: Sequence[LabelledPool], author: str) -> Floats:
    """The mean over an author's answers to each problem; 0 where it has none."""
    means = []
    for pool in pools:
        own = [scored.candidate.generator == author for scored in pool.candidates]
        worth = pool.worth[np.array(own, dtype=bool)]
        means.append(float(np.nanmean(worth)) if np.isfinite(worth).any() else 0.0)
    return np.array(means)


def _worth_of_best(pools: Sequence[LabelledPool], name: str) -> Floats:
    best = []
    for pool in pools:
        values = np.array([scored.scores[name] for scored in pool.candidates])
        best.append(float(np.nanmean(pool.worth[values == values.max()])))
    return np.array(best)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    problem: int
    author: str
    right: bool
    value: float


def within(
    pools: Sequence[LabelledPool], name: str, bootstrap: Bootstrap, *, group: Callable[[_Item], str]
) -> tuple[float, float, float]:
    """AUROC over the pairs of a right and a wrong answer of the same group, with its 95 % interval over problems."""
    groups: dict[str, list[_Item]] = {}
    for place, pool in enumerate(pools):
        for scored, worth in zip(pool.candidates, pool.worth, strict=True):
            if np.isfinite(worth):
                answer = _Item(
                    problem=place,
                    author=scored.candidate.generator,
                    right=bool(worth > 0.5),
                    value=scored.scores[name],
                )
                groups.setdefault(group(answer), []).append(answer)
    weights = np.vstack([np.ones(len(pools)), bootstrap.counts])
    top, bottom = np.zeros(len(weights)), np.zeros(len(weights))
    for items in groups.values():
        right, wrong = ([answer for answer in items if answer.right is side] for side in (True, False))
        if not right or not wrong:
            continue
        values = [np.array([answer.value for answer in side])[:, None] for side in (right, wrong)]
        won = (values[0] > values[1].T) + 0.5 * (values[0] == values[1].T)
        own, other = (weights[:, [answer.problem for answer in side]] for side in (right, wrong))
        if len({answer.problem for answer in items}) == 1:  # a problem that occurs twice brings its pairs twice
            top += own[:, 0] * won.sum()
            bottom += own[:, 0] * won.size
        else:
            top += ((own @ won) * other).sum(axis=1)
            bottom += own.sum(axis=1) * other.sum(axis=1)
    aurocs = top / np.maximum(bottom, 1e-12)
    low, high = np.quantile(aurocs[1:], [0.025, 0.975])
    return float(aurocs[0]), float(low), float(high)


def _with_interval(value: float, low: float, high: float) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


# ---- as evidence -----------------------------------------------------------------------------------------------------


def as_evidence(pools: Sequence[LabelledPool], scores: Sequence[str], bootstrap: Bootstrap) -> list[str]:
    """The posterior without energies, with and without scores, each problem decided by what other problems taught."""
    labelled_table = LabelledTable.of(pools)
    vote = _selected(labelled_table, "vote", ())[0]
    plain = _selected(labelled_table, "posterior", ())[0]
    lines = [
        f"| selection | right, % | minus vote | minus posterior without | AUROC | {' | '.join(ECE_HEADERS)} "
        "| 80 % most certain, % |",
        "|---|---:|---:|---:|---:|---:|---|---:|",
    ]
    variants: list[tuple[str, str, tuple[str, ...]]] = [("vote", "vote", ()), ("posterior without", "posterior", ())]
    variants += [(f"posterior with {name}", "posterior", (name,)) for name in scores]
    readings = tuple(name for name in scores if name in SIGNALS)
    variants += [("posterior with all readings", "posterior", readings)] if len(readings) > 1 else []
    variants += [("posterior with everything", "posterior", tuple(scores))] if len(scores) > len(readings) > 0 else []
    for name, profile, used in variants:
        worth, confidence = _selected(labelled_table, profile, used)
        (signal,) = signal_rows([Signal("confidence", "", confidence)], worth, bootstrap)
        calibration = confidence_calibration("confidence", "right", confidence, worth, bootstrap)
        cells = (
            with_interval(bootstrap.proportion(worth)),
            points(bootstrap.mean(worth - vote)),
            points(bootstrap.mean(worth - plain)),
            number(signal.auroc),
            *ece_cells(calibration.ece),
            with_interval(signal.accuracy_at_80),
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _selected(labelled_table: LabelledTable, profile: str, scores: Sequence[str]) -> tuple[Floats, Floats]:
    """(worth, confidence) of each problem's selection, by the posterior of the other folds."""
    terms = (*WITHOUT_ENERGIES, *(SCORE + name for name in scores))
    context = (*CONTEXT_WITHOUT, *(POOL_SCORE + name for name in scores))
    crossed = cross_fit(
        labelled_table,
        lambda used: fit_posterior(labelled_table, lambda_=1.0, terms=terms, context=context, used=used),
        num_folds=NUM_FOLDS,
    )
    estimates = Estimates(probability=crossed.probability, none=crossed.none)
    chosen, worth = np.full(len(labelled_table.pools), -1, dtype=np.intp), np.zeros(len(labelled_table.pools))
    for fold, posterior in enumerate(crossed.posteriors):
        inside = crossed.fold == fold
        chosen[inside] = winners(profile, labelled_table.table, estimates, posterior)[inside]  # type: ignore[arg-type]
        given = labelled_table.given_worth(posterior.reference)
        worth[inside] = np.where(chosen >= 0, given[chosen], 0.0)[inside]
    return worth, np.where(chosen >= 0, crossed.probability[chosen], 0.0)
