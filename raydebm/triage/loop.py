"""The two-pass loop (paper Algorithm 1), once, against three protocols.

Serving runs it with deployment handles, evaluation with recorded candidates, tests with fakes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raydebm.errors import GenerationError, ResourceError, ScoringError, ServiceError
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Decision,
    Energies,
    Message,
    Outcome,
    PassRecord,
    Problem,
    ScoredCandidate,
)
from raydebm.tasks.base import Task
from raydebm.triage.checks import unchecked
from raydebm.triage.feedback import exemplar, feedback_messages
from raydebm.triage.policy import Policy, Ruling, rule

PASS_FAILURES = (GenerationError, ScoringError, ServiceError, ResourceError, OSError)
"""What a part may raise when it is down (timeouts and lost connections are OSErrors). Anything else is a mistake of the
caller or of ours, and is never turned into a decision."""


class CandidateSource(Protocol):
    """Writes candidates, or looks them up."""

    async def generate(
        self, problem: Problem, *, pass_index: int, messages: tuple[Message, ...] | None
    ) -> list[Candidate]:
        """Candidates of one pass; a failed one carries ``error``.

        Args:
            problem: what is asked.
            pass_index: from 1.
            messages: the chat with feedback; None in the first pass, which asks as the task asks.

        Raises:
            GenerationError: the source as a whole does not work (or any of ``PASS_FAILURES``).
        """
        ...


class Checker(Protocol):
    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in their order."""
        ...


class EnergyScorer(Protocol):
    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        """Energies per candidate, in their order; None for one that could not be scored (such as NaN)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop runs on."""

    task: Task
    source: CandidateSource
    checker: Checker
    scorer: EnergyScorer


async def solve(
    problem: Problem,
    *,
    task: Task,
    policy: Policy,
    source: CandidateSource,
    checker: Checker,
    scorer: EnergyScorer,
) -> Outcome:
    """Draw, check, score, select; accept, draw again with feedback, or abstain.

    The pool grows over the passes and every pass selects from all of it. Single candidates may fail. When a whole
    later pass fails, the decision is made from what is there and the reason says so.

    Raises:
        GenerationError, ScoringError, ServiceError, ResourceError, OSError: the first pass could not be drawn or
            scored, so there is nothing to decide from.
    """
    parts = Parts(task=task, source=source, checker=checker, scorer=scorer)
    pool: tuple[ScoredCandidate, ...] = ()
    passes: list[PassRecord] = []
    messages: tuple[Message, ...] | None = None
    while True:
        pass_index = len(passes) + 1
        failure = ""
        try:
            drawn = await draw(problem, parts=parts, pass_index=pass_index, messages=messages)
        except PASS_FAILURES as error:
            if pass_index == 1:
                raise
            drawn, failure = (), f"; pass {pass_index} could not be drawn ({error}), so this rests on earlier passes"
        pool += drawn
        passes_left = 0 if failure else policy.max_passes - pass_index
        ruling = rule(pool, passes_left=passes_left, policy=policy)
        again = ruling.decision is Decision.REGENERATE
        if again:
            messages = next_messages(problem, task=task, ruling=ruling, pool=pool)
        passes.append(
            PassRecord(
                pass_index=pass_index,
                num_requested=len(drawn) if drawn or pass_index == 1 else policy.num_regenerate,
                num_failed=_num_failed(drawn) if drawn or pass_index == 1 else policy.num_regenerate,
                selected=None if ruling.best is None else ruling.best.candidate.candidate_id,
                sigma=ruling.signal,
                penalty=ruling.penalty,
                decision=ruling.decision,
                feedback=_last_words(messages) if again else None,
            )
        )
        if not again:
            return Outcome(
                problem=problem,
                decision=ruling.decision,
                best=ruling.best,
                passes=tuple(passes),
                pool=pool,
                reason=ruling.reason + failure,
            )


async def draw(
    problem: Problem, *, parts: Parts, pass_index: int, messages: tuple[Message, ...] | None
) -> tuple[ScoredCandidate, ...]:
    """One pass: candidates of the source, checked and scored at the same time.

    Raises:
        ScoringError: the checker or the scorer returned another number of results than it got candidates.
    """
    candidates = await parts.source.generate(problem, pass_index=pass_index, messages=messages)
    written = [candidate for candidate in candidates if candidate.text is not None]
    reports: dict[str, ConstraintReport] = {}
    energies: dict[str, Energies | None] = {}
    if written:
        found_reports, found_energies = await asyncio.gather(
            parts.checker.check(problem, written), parts.scorer.score(problem, written)
        )
        for what, found in (("checker", found_reports), ("scorer", found_energies)):
            if len(found) != len(written):
                raise ScoringError(
                    f"problem {problem.problem_id!r}: the {what} returned {len(found)} results for {len(written)} "
                    "candidates; it must return one each, in their order"
                )
        ids = [candidate.candidate_id for candidate in written]
        reports.update(zip(ids, found_reports, strict=True))
        energies.update(zip(ids, found_energies, strict=True))
    return tuple(
        ScoredCandidate(
            candidate=candidate,
            report=reports.get(candidate.candidate_id)
            or unchecked(candidate.candidate_id, f"no text to check: {candidate.error}"),
            energies=energies.get(candidate.candidate_id),
        )
        for candidate in candidates
    )


def next_messages(
    problem: Problem, *, task: Task, ruling: Ruling, pool: Sequence[ScoredCandidate]
) -> tuple[Message, ...]:
    """The chat of the next pass, about the selection or, when nothing can be selected, about the closest candidate."""
    return feedback_messages(task, problem, ruling.best or exemplar(pool))


def _num_failed(drawn: Sequence[ScoredCandidate]) -> int:
    return sum(scored.candidate.text is None for scored in drawn)


def _last_words(messages: tuple[Message, ...] | None) -> str | None:
    """The feedback itself: the user turn that closes the chat; None when the first chat is merely repeated."""
    if messages is None or len(messages) < 2 or messages[-2]["role"] != "assistant":
        return None
    return messages[-1]["content"]
