"""The loop over passes (paper Algorithm 1), written against the protocols of ``sampling.one_pass``.

The service runs it with deployment handles, evaluation with recorded candidates, tests with fakes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm import tracing
from raydebm.decision.feedback import exemplar, feedback_messages
from raydebm.decision.policy import Policy
from raydebm.decision.rules import decide_pool, fields_of
from raydebm.decision.sampling.deadline import is_late, now_s
from raydebm.decision.sampling.one_pass import Parts, sample_pass
from raydebm.decision.sampling.waves import PassWaves
from raydebm.errors import GenerationError, LimitReachedError, ResourceError, ScoringError, ServiceError
from raydebm.records import Decision, Message, Outcome, PassRecord, PassStop, Problem, ScoredCandidate

PASS_FAILURES = (GenerationError, ScoringError, ServiceError, ResourceError, OSError)
"""Errors of an unavailable component (timeouts and lost connections are OSErrors). Any other exception is a bug or a
misuse and is never turned into a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SampledPass:
    """Result of one pass."""

    candidates: tuple[ScoredCandidate, ...] = ()
    num_requested: int = 0
    num_failed: int = 0
    stop: PassStop | None = None
    """Reason for the end of the pass. None if it was not sampled in waves."""
    lost: str = ""
    """Reason for the failure, as the end of a sentence. Empty if the pass did not fail."""


async def solve(problem: Problem, *, parts: Parts, policy: Policy) -> Outcome:
    """Sample, check, score and select; then accept, sample again with feedback, or abstain.

    The pool grows over the passes, and every pass selects from the whole pool. Single candidates may fail. If a whole
    later pass fails or a limit forbids it, the earlier candidates decide, and the reason says so.

    Args:
        parts: source, checker and scorer. The source observes the deadline's ``sample_until_s``.
        policy: thresholds, passes, and the budget of candidates. A spent budget allows no further pass.

    Raises:
        GenerationError, ScoringError, ServiceError, ResourceError, OSError: the first pass failed, so there are no
        candidates to decide from.
    """
    pool: tuple[ScoredCandidate, ...] = ()
    passes: list[PassRecord] = []
    messages: tuple[Message, ...] | None = None
    longest_s = 0.0
    while True:
        pass_index, started_s = len(passes) + 1, now_s()
        sampled = await _sample(
            problem, parts=parts, policy=policy, pass_index=pass_index, earlier=pool, messages=messages,
            longest_s=longest_s,
        )  # fmt: skip
        longest_s = max(longest_s, now_s() - started_s)
        pool += sampled.candidates
        is_spent = policy.budget is not None and len(pool) >= policy.budget
        passes_left = 0 if sampled.lost or is_spent else policy.max_passes - pass_index
        decided = decide_pool(pool, passes_left=passes_left, policy=policy)
        again = decided.decision is Decision.REGENERATE
        feedback = None
        if again:
            quoted = decided.best or exemplar(pool)
            messages = feedback_messages(parts.task, problem, quoted)
            feedback = None if quoted is None else messages[-1]["content"]
        record = PassRecord(
            pass_index=pass_index,
            num_requested=sampled.num_requested,
            num_failed=sampled.num_failed,
            selected=None if decided.best is None else decided.best.candidate.candidate_id,
            sigma=decided.signal,
            penalty=decided.penalty,
            decision=decided.decision,
            feedback=feedback,
            confidence=decided.confidence,
            stop=sampled.stop,
        )
        passes.append(record)
        num_late = sum(is_late(scored.candidate) for scored in pool)
        late = f"; {num_late} of {len(pool)} candidates came too late" if num_late else ""
        reason = decided.reason + sampled.lost + late
        parts.observer.decided(record, reason, decided.beliefs)
        if not again:
            return Outcome(
                problem=problem,
                decision=decided.decision,
                best=decided.best,
                passes=tuple(passes),
                pool=pool,
                reason=reason,
                fields=fields_of(pool, decided, policy),
            )


async def _sample(
    problem: Problem,
    *,
    parts: Parts,
    policy: Policy,
    pass_index: int,
    earlier: Sequence[ScoredCandidate],
    messages: tuple[Message, ...] | None,
    longest_s: float,
) -> _SampledPass:
    """Sample one pass, or return the reason for its failure. Raises only in the first pass."""
    so = "so the decision uses earlier passes only"
    waves: PassWaves | None = None
    if policy.waves is not None:
        waves = PassWaves(
            policy, pass_index=pass_index, earlier=earlier, deadline=parts.deadline, on_wave=parts.observer.waved
        )
    if pass_index > 1 and parts.deadline is not None:
        refusal = parts.deadline.refusal(longest_s)
        if refusal is not None:
            return _SampledPass(lost=f"; pass {pass_index} was not started ({refusal}), {so}")
    try:
        with tracing.span("pass", {"raydebm.pass": pass_index}):
            candidates = await sample_pass(problem, parts=parts, pass_index=pass_index, messages=messages, waves=waves)
    except LimitReachedError as error:
        if pass_index == 1:
            raise
        return _SampledPass(lost=f"; pass {pass_index} was not started ({error}), {so}")
    except PASS_FAILURES as error:
        if pass_index == 1:
            raise
        count = policy.num_regenerate
        lost = f"; pass {pass_index} could not be sampled ({error}), {so}"
        return _SampledPass(num_requested=count, num_failed=count, lost=lost)
    if pass_index > 1 and not candidates:
        return _SampledPass(lost=f"; pass {pass_index} returned no candidate, {so}")
    num_failed = sum(scored.candidate.text is None for scored in candidates)
    stop = None if waves is None else waves.stop(candidates)
    num_cancelled = 0 if stop is None else stop.num_cancelled
    return _SampledPass(
        candidates=candidates, num_requested=len(candidates) + num_cancelled, num_failed=num_failed, stop=stop
    )
