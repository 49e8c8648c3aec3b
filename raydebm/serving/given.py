"""Candidates that a client gives: as records, checked and scored. What ``/v1/score`` and ``/v1/verify`` stand on."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from raydebm.generators.replies import split_reasoning
from raydebm.identity import content_id
from raydebm.records import Candidate, Problem, ScoredCandidate
from raydebm.serving.bundle import Bundle
from raydebm.serving.parts import Backend, Baselines, Scorer, Watch

UNKNOWN_AUTHOR = "client"


def given_candidates(
    problem: Problem, texts: Sequence[str], authors: Sequence[str | None] | None = None
) -> list[Candidate]:
    """Records in the order of the texts. Thinking is separated from the answer, as with sampled candidates.

    The ids do not depend on the order, so that no tie does.

    Args:
        problem: that they answer.
        texts: as they came.
        authors: names of the generators that wrote them; None: one unknown author wrote them all.
    """
    names = authors or [None] * len(texts)
    seen: Counter[str] = Counter()
    found = []
    for index, (given, author) in enumerate(zip(texts, names, strict=True)):
        answer, thinking = split_reasoning(given)
        found.append(
            Candidate(
                candidate_id=content_id("given", problem.problem_id, given, seen[given]),
                task=problem.task,
                problem_id=problem.problem_id,
                generator=author or UNKNOWN_AUTHOR,
                text=answer,
                reasoning=thinking,
                sample_index=index,
            )
        )
        seen[given] += 1
    return found


async def judged(
    bundle: Bundle,
    backend: Backend,
    problem: Problem,
    candidates: Sequence[Candidate],
    *,
    scored_prompt: str | None = None,
) -> list[ScoredCandidate]:
    """The candidates with their checks, energies and, where baselines are evidence, their scores.

    Args:
        bundle: says what is evidence.
        backend: checks and scores.
        problem: that they answer.
        candidates: to judge.
        scored_prompt: what stands for the problem where earlier turns of a chat belong to it.
    """
    energies, reports, scores = await asyncio.gather(
        Scorer(backend, Watch(None), scored_prompt, bundle.reasoning).score(problem, candidates),
        backend.check(problem, candidates),
        _baseline_scores(bundle, backend, problem, candidates, scored_prompt),
    )
    return [
        ScoredCandidate(candidate=candidate, report=report, energies=found, scores=own)
        for candidate, report, found, own in zip(candidates, reports, energies, scores, strict=True)
    ]


async def _baseline_scores(
    bundle: Bundle, backend: Backend, problem: Problem, candidates: Sequence[Candidate], scored_prompt: str | None
) -> list[Mapping[str, float]]:
    if not bundle.recipe.evidence:
        return [{} for _ in candidates]
    return await Baselines(backend, Watch(None), scored_prompt).scores(problem, candidates)
