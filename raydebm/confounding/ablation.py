"""Rescoring: the same candidates without a feature of their style, or only their code, or only their explanation.

In:   evaluated pools, and a scorer of texts.
Out:  a screen per variant: what is left of the spread between generators, and of the gap between right and wrong.
Does not know: how texts are scored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from raydebm.confounding.screen import Screen, screen, values_of_ours, with_energies
from raydebm.confounding.style import STYLES, code_only, explanation_only, without
from raydebm.errors import ScoringError
from raydebm.evaluation.pools.pool import EvaluatedPool, restricted
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.records import Energies, ScoredCandidate
from raydebm.scorer.bisection import TextScorer, scores_or_errors

Variant = Callable[[str], str | None]
"""A text's rewriting; None leaves the candidate out."""
TEXTS_PER_CALL = 256
ORIGINAL = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """One variant of the texts."""

    name: str
    description: str
    num_candidates: int
    """Candidates that have this variant and were scored."""
    num_changed: int
    """Those of them whose text differs from the original."""
    num_failed: int
    """Candidates that have this variant and could not be scored."""
    screen: Screen
    """The screen of the problems that have such candidates, on these candidates alone."""
    ours_by_original: Estimate
    """Correct, where the same candidates are chosen from by the energies of their original texts."""


def variants(*, styles: Sequence[str] = tuple(STYLES)) -> dict[str, tuple[str, Variant]]:
    """Name -> (description, rewriting): the original, each feature alone, all up to it, code and explanation."""
    by_name: dict[str, tuple[str, Variant]] = {ORIGINAL: ("as generated", lambda text: text)}
    for name in styles:
        by_name[f"no {name}"] = (f"without {name}", STYLES[name])
    for count in range(2, len(styles) + 1):
        names = tuple(styles[:count])
        by_name[f"no {' + '.join(names)}"] = (f"without {', '.join(names)}", _without(names))
    by_name["code only"] = ("the code alone; candidates without code are left out", code_only)
    by_name["explanation only"] = (
        "everything but the code; candidates that are only code are left out",
        explanation_only,
    )
    return by_name


def _without(names: tuple[str, ...]) -> Variant:
    return lambda text: without(text, names)


def style_ablation(
    pools: Sequence[EvaluatedPool],
    scorer: TextScorer,
    *,
    lambda_: float,
    bootstrap: Bootstrap,
    best_generator: str | None = None,
    chosen: Mapping[str, tuple[str, Variant]] | None = None,
) -> tuple[AblationRow, ...]:
    """Rescore every variant of every candidate. Equal texts of a problem are scored once over all variants.

    Variants that change no candidate (no LaTeX anywhere) are left out. E_constraint stays that of the original.

    Args:
        bootstrap: over as many problems as there are pools.
        chosen: which variants; None: all of ``variants()``.
    """
    wanted = dict(variants() if chosen is None else chosen)
    original = {
        scored_candidate.candidate.candidate_id: scored_candidate.candidate.text
        for pool in pools
        for scored_candidate in pool.candidates
    }
    texts = {name: _rewritten(pools, rewrite) for name, (_, rewrite) in wanted.items()}
    changes = {name: _num_changed(rewritten, original) for name, rewritten in texts.items()}
    texts = {name: rewritten for name, rewritten in texts.items() if changes[name] or name == ORIGINAL}
    distinct = list(dict.fromkeys(pair for rewritten in texts.values() for pair in rewritten.values()))
    scored = _scored(scorer, distinct)
    by_variant = {
        name: {candidate_id: _energies(candidate_id, scored[pair]) for candidate_id, pair in rewritten.items()}
        for name, rewritten in texts.items()
    }
    rows = []
    for name, energies in by_variant.items():
        having = [
            index
            for index, pool in enumerate(pools)
            if any(_id(scored_candidate) in energies for scored_candidate in pool.candidates)
        ]
        part = [restricted(pools[index], energies.keys()) for index in having]
        within = Bootstrap(bootstrap.counts[:, having])
        before = with_energies(part, by_variant[ORIGINAL]) if ORIGINAL in by_variant else part
        rows.append(
            AblationRow(
                name=name,
                description=wanted[name][0],
                num_candidates=sum(energy is not None for energy in energies.values()),
                num_changed=changes[name],
                num_failed=sum(energy is None for energy in energies.values()),
                screen=screen(
                    with_energies(part, energies), lambda_=lambda_, bootstrap=within, best_generator=best_generator
                ),
                ours_by_original=within.proportion(values_of_ours(before, lambda_)),
            )
        )
    return tuple(rows)


def _id(scored: ScoredCandidate) -> str:
    return scored.candidate.candidate_id


def _rewritten(pools: Sequence[EvaluatedPool], rewrite: Variant) -> dict[str, tuple[str, str]]:
    """Candidate id -> (problem, text) of the candidates that have the variant."""
    texts = {}
    for pool in pools:
        for scored in pool.candidates:
            text = None if scored.candidate.text is None else rewrite(scored.candidate.text)
            if text is not None and text.strip():
                texts[scored.candidate.candidate_id] = (pool.problem.prompt, text)
    return texts


def _num_changed(rewritten: Mapping[str, tuple[str, str]], original: Mapping[str, str | None]) -> int:
    """Candidates whose text differs, those that the variant leaves out not counted."""
    return sum(text != original[candidate_id] for candidate_id, (_, text) in rewritten.items())


def _scored(scorer: TextScorer, texts: Sequence[tuple[str, str]]) -> dict[tuple[str, str], tuple[float, ...] | None]:
    members: dict[tuple[str, str], tuple[float, ...] | None] = {}
    for start in range(0, len(texts), TEXTS_PER_CALL):
        part = texts[start : start + TEXTS_PER_CALL]
        for pair, result in zip(part, scores_or_errors(scorer, part), strict=True):
            members[pair] = None if isinstance(result, ScoringError) else result.members
    return members


def _energies(candidate_id: str, members: tuple[float, ...] | None) -> Energies | None:
    return None if members is None else Energies(candidate_id=candidate_id, members=members)


def rescored(pools: Sequence[EvaluatedPool], scorer: TextScorer) -> list[EvaluatedPool]:
    """The same pools under another scorer."""
    texts = _rewritten(pools, lambda text: text)
    scored = _scored(scorer, list(dict.fromkeys(texts.values())))
    return with_energies(
        pools, {candidate_id: _energies(candidate_id, scored[pair]) for candidate_id, pair in texts.items()}
    )
