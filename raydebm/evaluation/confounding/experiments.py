"""Experiments on texts: rescoring without features of style, and linear probes of the energy heads' features.

Folds of a probe are by problem. A successful probe shows that the features contain the information, not that the energy
uses it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from raydebm.decision.table import PoolTable
from raydebm.errors import ScoringError
from raydebm.evaluation.confounding.screen import Screen, screen
from raydebm.evaluation.confounding.style import STYLES, code_only, explanation_only, without
from raydebm.evaluation.stats.effects import standardized_logistic
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.identity import seed_for
from raydebm.scorer.texts import TextScorer, scores_or_errors

Variant = Callable[[str], str | None]
"""Function that rewrites a text, or returns None to exclude the candidate."""
Texts = Mapping[str, tuple[str, str]]
"""(problem, text) by candidate id."""
TEXTS_PER_CALL = 256
ORIGINAL = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    name: str
    num_candidates: int
    num_changed: int
    """Scored candidates whose text differs from the original."""
    num_failed: int
    screen: Screen
    """Screen of the rescored candidates alone."""
    paper_by_original: Estimate
    """Share of problems solved if the same candidates are selected by the energies of their original texts."""


def variants() -> dict[str, Variant]:
    """The original, each feature of style removed separately, then cumulatively, then code and explanation
    separately."""
    names = tuple(STYLES)
    together = [names[:count] for count in range(2, len(names) + 1)]
    return {
        ORIGINAL: lambda text: text,
        **{f"no {name}": STYLES[name] for name in names},
        **{f"no {' + '.join(several)}": partial(without, names=several) for several in together},
        "code only": code_only,
        "explanation only": explanation_only,
    }


def style_ablation(
    pools: PoolTable, scorer: TextScorer, *, lambda_: float, bootstrap: Bootstrap, best_generator: str | None = None
) -> tuple[AblationRow, ...]:
    """Rescore every variant of every candidate. Equal texts of a problem are scored once over all variants.

    Variants that change no candidate (such as LaTeX where there is none) are omitted. E_constraint is that of the
    original.

    Args:
        bootstrap: Resamples of as many problems as there are pools.
    """
    texts = {name: _rewritten(pools, rewrite) for name, rewrite in variants().items()}
    original = texts[ORIGINAL]
    changes = {name: sum(own[one] != original[one] for one in own) for name, own in texts.items()}
    texts = {name: own for name, own in texts.items() if changes[name] or name == ORIGINAL}
    energies = _energies(scorer, texts)
    rows = []
    for name, own in energies.items():
        part = pools.kept(
            np.array([scored.candidate.candidate_id in texts[name] for scored in pools.candidates], dtype=bool)
        )
        having = np.flatnonzero(part.sizes)
        part, within = part.of_pools(having), bootstrap.of_items(having)
        rescreened = screen(part.with_members(own), lambda_=lambda_, bootstrap=within, best_generator=best_generator)
        by_original = part.with_members(energies[ORIGINAL])
        rows.append(
            AblationRow(
                name=name,
                num_candidates=len(own),
                num_changed=changes[name],
                num_failed=len(texts[name]) - len(own),
                screen=rescreened,
                paper_by_original=within.proportion(by_original.correct_at(by_original.select(lambda_))),
            )
        )
    return tuple(rows)


def rescored(pools: PoolTable, scorer: TextScorer) -> PoolTable:
    """The same pools with the energies of another scorer."""
    texts = {ORIGINAL: _rewritten(pools, lambda text: text)}
    return pools.with_members(_energies(scorer, texts)[ORIGINAL])


def _rewritten(pools: PoolTable, rewrite: Variant) -> Texts:
    rewritten = {name: (prompt, rewrite(text)) for name, (prompt, text) in pools.texts.items()}
    return {name: (prompt, text) for name, (prompt, text) in rewritten.items() if text is not None and text.strip()}


def _energies(scorer: TextScorer, variants: Mapping[str, Texts]) -> dict[str, dict[str, tuple[float, ...]]]:
    """Energies by variant and candidate id of the texts that can be scored. Each distinct text is scored once."""
    distinct = list(dict.fromkeys(pair for texts in variants.values() for pair in texts.values()))
    members: dict[tuple[str, str], tuple[float, ...]] = {}
    for start in range(0, len(distinct), TEXTS_PER_CALL):
        part = distinct[start : start + TEXTS_PER_CALL]
        for pair, result in zip(part, scores_or_errors(scorer, part), strict=True):
            if not isinstance(result, ScoringError):
                members[pair] = result.members
    return {
        variant: {name: members[pair] for name, pair in texts.items() if pair in members}
        for variant, texts in variants.items()
    }


FOLDS = 5
Names = np.ndarray[tuple[int], np.dtype[np.str_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    target: str
    accuracy: Estimate
    """Share of candidates classified correctly out of fold, with a bootstrap interval over problems."""
    majority: float
    """Accuracy of guessing without the features: the most frequent class. For generators, the most frequent one among
    those with a row of the same problem, because the features also identify the problem."""
    num_classes: int
    num_candidates: int
    lift: Estimate


def probes(pools: PoolTable, features: NDArray[np.float32], *, seed: int) -> tuple[ProbeRow, ...]:
    """Fit probes for the generator, the generator among correct candidates, a length above the problem's median, and
    correctness.

    The second probe is the most informative: among a problem's correct answers, quality does not reveal the generator.
    A target with one class, or with fewer problems than folds, is omitted.

    Args:
        features: Features of the candidates, shape (R, F).
    """
    problem, correct, length = pools.pool_of_row, pools.correct, pools.length
    writers = np.array(pools.authors)[pools.author_of_row]
    medians = np.zeros(len(problem))
    for own in np.unique(problem):
        medians[problem == own] = np.median(length[problem == own])
    targets = (
        ("generator", writers, np.full(len(problem), True)),
        ("generator (correct answers)", writers, correct == 1),
        ("longer than the problem's median answer", np.where(length > medians, "longer", "shorter"), length != medians),
        ("correct", np.where(correct == 1, "correct", "incorrect"), ~np.isnan(correct)),
    )
    found = []
    for name, labels, known in targets:
        problems, of_row = np.unique(problem[known], return_inverse=True)
        if len(np.unique(labels[known])) < 2 or len(problems) < FOLDS:
            continue
        hit = _hits(features[known], labels[known], of_row, seed=seed_for(seed, "probe", name))
        guessed = labels[known] == _commonest(labels[known], of_row, within=name.startswith("generator"))
        columns = (hit, guessed, np.ones(len(hit)))
        hits, guesses, sizes = (np.bincount(of_row, column, len(problems)).astype(np.float64) for column in columns)
        bootstrap = Bootstrap.of(len(problems), seed=seed)
        found.append(
            ProbeRow(
                target=name,
                accuracy=bootstrap.ratio(hits, sizes),
                majority=float(guessed.mean()),
                num_classes=len(np.unique(labels[known])),
                num_candidates=len(hit),
                lift=bootstrap.ratio(hits - guesses, sizes),
            )
        )
    return tuple(found)


def _commonest(labels: Names, problem: NDArray[np.intp], *, within: bool) -> Names:
    """The most frequent class; with ``within``, for every row the most frequent among those of its problem."""
    classes, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    has = np.full((problem.max() + 1, len(classes)), not within)
    has[problem, place] = True
    guesses: Names = classes[np.where(has, counts, -1).argmax(axis=1)][problem]
    return guesses


def _hits(features: NDArray[np.float32], labels: Names, problem: NDArray[np.intp], *, seed: int) -> NDArray[np.bool_]:
    """Whether each row is classified correctly by a model fitted on other problems."""
    # Imported here because the import takes seconds and many commands do not need it.
    from sklearn.model_selection import GroupKFold

    hit = np.zeros(len(labels), dtype=bool)
    for train, test in GroupKFold(n_splits=FOLDS, shuffle=True, random_state=seed).split(features, groups=problem):
        if len(np.unique(labels[train])) < 2:
            hit[test] = labels[test] == labels[train][0]
            continue
        model = standardized_logistic(inverse_penalty=0.1, max_iter=300)
        hit[test] = model.fit(features[train], labels[train]).predict(features[test]) == labels[test]
    return hit
