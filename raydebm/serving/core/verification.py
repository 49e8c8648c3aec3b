"""A decision about candidates that were sampled elsewhere, by the rule of triage (``decision.rules.decide_pool``).

What the rule decides about the selection becomes a disposition about the candidates. Does not know: Ray, HTTP.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.policy import Policy
from raydebm.decision.rules import PoolDecision, decide_pool
from raydebm.records import Decision, Message, Problem, ScoredCandidate
from raydebm.serving.core.backend import Backend
from raydebm.serving.core.conversation import transcript
from raydebm.serving.core.faults import check_lengths, check_tokens, fault_of
from raydebm.serving.core.given import given_candidates, judged
from raydebm.serving.core.request import GivenProblem, check_context, policy_for, read_problem
from raydebm.serving.settings.bundle import Bundle
from raydebm.serving.settings.overrides import Overrides

Disposition = Literal["approve", "redo", "reject", "tie", "abstain"]
ReasonCode = Literal[
    "proven",
    "refuted",
    "at_or_above_threshold",
    "below_threshold",
    "sigma_below_threshold",
    "sigma_above_threshold",
    "constraint_violated",
    "tied",
    "no_answer",
    "not_a_problem",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolVerdict:
    """What a decision says about the candidates."""

    disposition: Disposition
    codes: tuple[ReasonCode, ...]
    reason: str
    tied: frozenset[str] = frozenset()
    """Keys of the answers that are equally good."""

    @property
    def is_deterministic(self) -> bool:
        """Whether an exact constraint decided."""
        return self.codes[0] in ("proven", "refuted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToVerify:
    """What a client wants to have verified."""

    task: str | None
    """None: the first of the service's tasks that can read the problem."""
    problem: str | GivenProblem
    context: tuple[Message, ...] = ()
    """Earlier turns of the chat."""
    texts: Sequence[str]
    authors: Sequence[str | None] | None = None
    """Names of the generators that wrote them; None: unknown."""
    overrides: Overrides
    passes_left: int
    """How often the client can try again."""
    tie_margin: float
    """Largest difference of two equally good answers' probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A pool with everything that was decided about it."""

    problem: Problem
    pool: tuple[ScoredCandidate, ...]
    policy: Policy
    decided: PoolDecision
    verdict: PoolVerdict
    bundle: Bundle
    """The run that decided."""


async def verification(bundle: Bundle, backend: Backend, wanted: ToVerify) -> Verification:
    """Check and score the candidates, and decide about them.

    Raises:
        ServiceError: texts are too long, no task can read the problem, or nothing could be checked and scored.
        RaydebmError: a part does not work.
    """
    check_lengths(wanted.texts, "candidates", bundle.max_candidate_chars)
    check_context(bundle, wanted.context)
    read = read_problem(bundle, wanted.task, wanted.problem)
    bundle, problem = read.bundle, read.problem
    scored_prompt = transcript(wanted.context, problem.prompt)
    check_tokens(sum(len(scored_prompt) + len(text) for text in wanted.texts), bundle.max_score_tokens)
    policy = policy_for(bundle, read.task.name, wanted.overrides)
    candidates = given_candidates(problem, wanted.texts, wanted.authors)
    pool = tuple(await judged(bundle, backend.serving(bundle), problem, candidates, scored_prompt=scored_prompt))
    if (fault := fault_of(pool)) is not None:
        raise fault
    decided = decide_pool(pool, passes_left=wanted.passes_left, policy=policy)
    verdict = verdict_of(decided, pool, policy=policy, passes_left=wanted.passes_left, tie_margin=wanted.tie_margin)
    return Verification(problem=problem, pool=pool, policy=policy, decided=decided, verdict=verdict, bundle=bundle)


def verdict_of(
    decided: PoolDecision, pool: Sequence[ScoredCandidate], *, policy: Policy, passes_left: int, tie_margin: float
) -> PoolVerdict:
    """The disposition that a decision comes to. Pure.

    Args:
        decided: what the rule of triage says about the pool.
        pool: all candidates.
        policy: by which it was decided.
        passes_left: how often the caller can try again.
        tie_margin: largest difference of two equally good answers' probabilities.
    """
    answered = [scored for scored in pool if scored.report.parsed]
    if answered and all(scored.report.proof is False for scored in answered):
        words = "every answer is refuted by an exact constraint"
        return PoolVerdict(disposition="reject", codes=("refuted",), reason=words)
    if decided.best is None:
        return PoolVerdict(disposition="redo" if passes_left else "reject", codes=("no_answer",), reason=decided.reason)
    if tied := _tied(decided.beliefs, policy, tie_margin):
        words = f"{len(tied)} answers are right with the same probability, within {tie_margin:g}"
        return PoolVerdict(
            disposition="tie",
            codes=("tied",),
            reason=words,
            tied=frozenset(belief.cluster.key for belief in tied),
        )
    disposition: dict[Decision, Disposition] = {
        Decision.ACCEPT: "approve",
        Decision.REGENERATE: "redo",
        Decision.ABSTAIN: "abstain",
    }
    return PoolVerdict(
        disposition=disposition[decided.decision], codes=_codes(decided, decided.best, policy), reason=decided.reason
    )


def _tied(beliefs: Sequence[Belief], policy: Policy, margin: float) -> Sequence[Belief]:
    """The answers that are as probable as the selected one, where one of them is right with at least ``tau_answer``."""
    if policy.posterior is None or policy.posterior.competition == "independent" or not beliefs:
        return ()
    first = beliefs[0]
    if first.cluster.proof or first.probability == 0:
        return ()
    tied = [belief for belief in beliefs if abs(belief.probability - first.probability) <= margin]
    together = sum(belief.probability for belief in tied)
    return tied if len(tied) > 1 and together >= policy.tau_answer else ()


def _codes(decided: PoolDecision, best: ScoredCandidate, policy: Policy) -> tuple[ReasonCode, ...]:
    violated: tuple[ReasonCode, ...] = ("constraint_violated",) if best.report.penalty > 0 else ()
    if best.report.proof and decided.decision is Decision.ACCEPT:
        return ("proven",)
    is_approved = decided.decision is Decision.ACCEPT
    if policy.rule == "posterior":
        return ("at_or_above_threshold" if is_approved else "below_threshold", *violated)
    is_gated = decided.signal is not None and decided.signal > policy.theta_sigma
    return ("sigma_above_threshold" if is_gated else "sigma_below_threshold", *violated)
