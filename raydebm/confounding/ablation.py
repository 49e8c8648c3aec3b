"""Rescoring of the same candidates without a feature of their style, or reduced to code or explanation.

In:   evaluated pools, and a scorer of texts.
Out:  a screen per variant: the remaining spread between generators, and the remaining gap between right and wrong.
Does not know: the implementation of the scorer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from raydebm.confounding.screen import Screen, screen, values_of_ours, with_energies
from raydebm.confounding.style import STYLES, code_only, explanation_only, without
from raydebm.errors import ScoringError
from raydebm.evaluation.pools.pool import EvaluatedPool, restricted
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.records import Energies
from raydebm.scorer.texts import TextScorer, scores_or_errors

Variant = Callable[[str], str | None]
"""Rewriting of a text. None excludes the candidate."""
Texts = Mapping[str, tuple[str, str]]
"""Candidate id -> (problem, text)."""
TEXTS_PER_CALL = 256
ORIGINAL = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """One variant of the texts."""

    name: str
    num_candidates: int
    """Scored candidates with this variant."""
    num_changed: int
    """Scored candidates whose text differs from the original."""
    num_failed: int
    """Candidates with this variant that could not be scored."""
    screen: Screen
    """Screen of the problems with such candidates, restricted to them."""
    ours_by_original: Estimate
    """Share correct of the selections from the same candidates by the energies of their original texts."""


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
    pools: Sequence[EvaluatedPool],
    scorer: TextScorer,
    *,
    lambda_: float,
    bootstrap: Bootstrap,
    best_generator: str | None = None,
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
        having = [
            index
            for index, pool in enumerate(pools)
            if any(scored.candidate.candidate_id in own for scored in pool.candidates)
        ]
        part = [restricted(pools[index], own.keys()) for index in having]
        within = Bootstrap(bootstrap.counts[:, having])
        rescreened = screen(with_energies(part, own), lambda_=lambda_, bootstrap=within, best_generator=best_generator)
        rows.append(
            AblationRow(
                name=name,
                num_candidates=sum(energy is not None for energy in own.values()),
                num_changed=changes[name],
                num_failed=sum(energy is None for energy in own.values()),
                screen=rescreened,
                ours_by_original=within.proportion(values_of_ours(with_energies(part, energies[ORIGINAL]), lambda_)),
            )
        )
    return tuple(rows)


def rescored(pools: Sequence[EvaluatedPool], scorer: TextScorer) -> list[EvaluatedPool]:
    """The same pools with the energies of another scorer."""
    texts = {ORIGINAL: _rewritten(pools, lambda text: text)}
    return with_energies(pools, _energies(scorer, texts)[ORIGINAL])


def _rewritten(pools: Sequence[EvaluatedPool], rewrite: Variant) -> dict[str, tuple[str, str]]:
    texts = {}
    for pool in pools:
        for scored in pool.candidates:
            text = None if scored.candidate.text is None else rewrite(scored.candidate.text)
            if text is not None and text.strip():
                texts[scored.candidate.candidate_id] = (pool.problem.prompt, text)
    return texts


def _energies(scorer: TextScorer, variants: Mapping[str, Texts]) -> dict[str, dict[str, Energies | None]]:
    """Energies by variant and candidate id, None if a text cannot be scored. Each distinct text is scored once."""
    distinct = list(dict.fromkeys(pair for texts in variants.values() for pair in texts.values()))
    members: dict[tuple[str, str], tuple[float, ...] | None] = {}
    for start in range(0, len(distinct), TEXTS_PER_CALL):
        part = distinct[start : start + TEXTS_PER_CALL]
        for pair, result in zip(part, scores_or_errors(scorer, part), strict=True):
            members[pair] = None if isinstance(result, ScoringError) else result.members
    return {
        variant: {
            name: None if (own := members[pair]) is None else Energies(candidate_id=name, members=own)
            for name, pair in texts.items()
        }
        for variant, texts in variants.items()
    }
