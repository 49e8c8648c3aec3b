"""Experiments on texts: rescoring without features of style."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from raydebm.decision.table import PoolTable
from raydebm.errors import ScoringError
from raydebm.evaluation.confounding.screen import Screen, screen
from raydebm.evaluation.confounding.style import STYLES, code_only, explanation_only, without
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
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
