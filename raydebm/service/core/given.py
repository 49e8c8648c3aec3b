"""Candidates supplied by a client: as records, checked and scored."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from raydebm.errors import ServiceError
from raydebm.generators.replies import split_reasoning
from raydebm.identity import content_id
from raydebm.records import Candidate, Energies, Problem, ScoredCandidate, scored_text
from raydebm.scorer.texts import TextToScore
from raydebm.service.core.activity import Activity
from raydebm.service.core.parts import NO_ANSWER, NO_ENERGY, Backend, Baselines, Scorer
from raydebm.service.settings.bundle import Bundle

T = TypeVar("T")

UNKNOWN_AUTHOR = "client"


def given_candidates(problem: Problem, texts: Sequence[str]) -> list[Candidate]:
    """Records in the order of the texts. Thinking is separated from the answer, as for sampled candidates.

    Ids do not depend on the order, so neither do ties.
    """
    seen: Counter[str] = Counter()
    candidates = []
    for index, given in enumerate(texts):
        answer, thinking = split_reasoning(given)
        candidates.append(
            Candidate(
                candidate_id=content_id("given", problem.problem_id, given, seen[given]),
                task=problem.task,
                problem_id=problem.problem_id,
                generator=UNKNOWN_AUTHOR,
                text=answer,
                reasoning=thinking,
                sample_index=index,
            )
        )
        seen[given] += 1
    return candidates


async def judged(
    bundle: Bundle, backend: Backend, problem: Problem, candidates: Sequence[Candidate]
) -> list[ScoredCandidate]:
    """Check and score candidates, with baseline scores if baselines are evidence."""

    async def baseline_scores() -> list[Mapping[str, float]]:
        if not bundle.recipe.evidence:
            return [{} for _ in candidates]
        return await Baselines(backend, Activity(None)).scores(problem, candidates)

    energies, reports, scores = await asyncio.gather(
        Scorer(backend, Activity(None), None, bundle.reasoning).score(problem, candidates),
        backend.check(problem, candidates),
        baseline_scores(),
    )
    return [
        ScoredCandidate(candidate=candidate, report=report, energies=own_energies, scores=own_scores, kind=problem.kind)
        for candidate, report, own_energies, own_scores in zip(candidates, reports, energies, scores, strict=True)
    ]


async def scored_pairs(
    bundle: Bundle, backend: Backend, pairs: Sequence[tuple[str, str]]
) -> list[tuple[Energies | None, str | None]]:
    """Energies of (problem, candidate) texts, in order, without checks; with an error where there are none.

    A text without an answer after its thinking gets no energy.
    """
    answers = [split_reasoning(second) for _, second in pairs]
    texts = [
        TextToScore(str(index), first, scored_text(text, thinking, bundle.reasoning) or text)
        for index, ((first, _), (text, thinking)) in enumerate(zip(pairs, answers, strict=True))
        if thinking is None or text.strip()
    ]
    energies = await backend.score(texts) if texts else []
    by_id = {text.candidate_id: each for text, each in zip(texts, energies, strict=True)}
    found = [by_id.get(str(index)) for index in range(len(pairs))]
    errors = [NO_ENERGY if str(index) in by_id else NO_ANSWER for index in range(len(pairs))]
    return [(own, None if own else error) for own, error in zip(found, errors, strict=True)]


async def within_deadline(work: Awaitable[T], most_s: float | None, *, received: float | None) -> T:
    """Await the work, and cancel it at its deadline.

    Args:
        work: awaitable to wait for.
        most_s: deadline in seconds from arrival. Default: no limit.
        received: ``time.perf_counter()`` at arrival. Default: now.

    Raises:
        ServiceError: 504.
    """
    spent_s = 0.0 if received is None else time.perf_counter() - received
    try:
        async with asyncio.timeout(None if most_s is None else max(0.0, most_s - spent_s)) as time_is_up:
            return await work
    except TimeoutError as error:
        if not time_is_up.expired():
            raise
        message = f"the texts were not scored within {most_s:g} s; send fewer in one request"
        raise ServiceError(message, 504, "deadline_exceeded") from error
