"""Labelled pools of a recipe whose generators are all recorded, in this process: no Ray, no run directory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raydebm.config import Recipe
from raydebm.decision.sampling.checks import check_candidate
from raydebm.generators.passes import PassRequests
from raydebm.generators.recorded import recorded_generators
from raydebm.identity import content_id
from raydebm.labels import label_candidate
from raydebm.pipeline.stages.problems import answerable, load_problems
from raydebm.records import Candidate, ConstraintReport, Gold, Problem, ScoredCandidate, Verdict
from raydebm.tasks import task_of

WORTH: Mapping[Verdict, float] = {Verdict.CORRECT: 1.0, Verdict.INCORRECT: 0.0, Verdict.UNLABELED: float("nan")}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPool:
    """One problem with its candidates that have text."""

    split: str
    """``train`` or ``test`` of the recipe."""
    problem: Problem
    gold: Gold
    candidates: tuple[Candidate, ...]


def recorded_pools(recipe: Recipe, *, most: int | None = None) -> list[RecordedPool]:
    """Pools in the order of hashed problem ids, so that the first of them are a random part.

    Args:
        recipe: all of its generators are of kind ``recorded``.
        most: problems; None: all.
    """
    loaded = sorted(
        answerable(recipe, list(load_problems(recipe))), key=lambda row: content_id("order", row[1].problem_id)
    )
    problems = [problem for _, problem, _ in loaded[:most]]
    requests = PassRequests(recipe=recipe, task=task_of(recipe.task))
    generators = {generator.name: generator for generator in recorded_generators(recipe.generators, problems=problems)}
    return [
        RecordedPool(
            split=split,
            problem=problem,
            gold=gold,
            candidates=tuple(
                reply
                for request in requests.first(problem)
                if (reply := generators[request.generator].reply(request)).text is not None
            ),
        )
        for split, problem, gold in loaded[:most]
    ]


def checked(recipe: Recipe, pool: RecordedPool) -> tuple[list[ScoredCandidate], list[float]]:
    """The candidates with their checks, without energies, and what each is worth by its label."""
    task = task_of(recipe.task)
    reports: Sequence[ConstraintReport] = [
        check_candidate(task, pool.problem, candidate) for candidate in pool.candidates
    ]
    labels = [label_candidate(task, pool.problem, pool.gold, candidate) for candidate in pool.candidates]
    return (
        [
            ScoredCandidate(candidate=candidate, report=report, energies=None)
            for candidate, report in zip(pool.candidates, reports, strict=True)
        ],
        [WORTH[label.verdict] for label in labels],
    )
