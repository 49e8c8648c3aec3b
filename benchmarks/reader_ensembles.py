"""Ensembles of heads on frozen features: members of one backbone, and members of several.

In:   labelled pools, and for each backbone its features by candidate id.
Out:  the tables of ``ensemble_kinds`` for them.

Each member learns from its own bag of the problems (``reader_heads``). Scores of a member are divided by their standard
deviation, so that no backbone outweighs another one, and negated: an energy is low where an answer is good.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from ensemble_kinds import NUM_MEMBERS, MemberEnergies, tables
from reader_heads import Features, head_scores

from raydebm.config import Recipe
from raydebm.decision.evidence.fitting import LabelledPool
from raydebm.evaluation.pools.pool import EvaluatedPool, pool_of
from raydebm.records import Label, Problem, Verdict


def ensemble_tables(recipe: Recipe, pools: Sequence[LabelledPool], backbones: Mapping[str, Features]) -> list[str]:
    """Both tables, in Markdown; the first backbone's first member is what the others are compared with."""
    members = {
        name: [_energies(head_scores(pools, features, bag=bag)) for bag in range(1, NUM_MEMBERS + 1)]
        for name, features in backbones.items()
    }
    first = next(iter(members))
    kinds = {f"one head on {first}": _together(members[first][:1])}
    kinds |= {f"{NUM_MEMBERS} heads on {name}": _together(own) for name, own in members.items()}
    mixed = [members[name][place] for place, name in enumerate(_in_turn(list(members)))]
    kinds |= {f"{NUM_MEMBERS} heads, {', '.join(members)} in turn": _together(mixed)} if len(members) > 1 else {}
    return tables([_evaluated(recipe, pool) for pool in pools], kinds, seed=recipe.seed)


def _in_turn(names: Sequence[str]) -> list[str]:
    return [names[place % len(names)] for place in range(NUM_MEMBERS)]


def _energies(scores: Mapping[str, float]) -> dict[str, float]:
    scale = float(np.std(list(scores.values()))) or 1.0
    return {candidate_id: -score / scale for candidate_id, score in scores.items()}


def _together(members: Sequence[Mapping[str, float]]) -> MemberEnergies:
    return {candidate_id: tuple(member[candidate_id] for member in members) for candidate_id in members[0]}


def _evaluated(recipe: Recipe, pool: LabelledPool) -> EvaluatedPool:
    labels = {
        scored.candidate.candidate_id: Label(
            candidate_id=scored.candidate.candidate_id, problem_id=pool.problem_id, verdict=_verdict(float(worth))
        )
        for scored, worth in zip(pool.candidates, pool.worth, strict=True)
    }
    problem = Problem(problem_id=pool.problem_id, task=recipe.task.name, prompt="")
    return pool_of(problem, pool.candidates, labels=labels)


def _verdict(worth: float) -> Verdict:
    if np.isnan(worth):
        return Verdict.UNLABELED
    return Verdict.CORRECT if worth > 0.5 else Verdict.INCORRECT
