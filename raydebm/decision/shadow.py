"""What a second policy would have decided about a request that another policy answered.

In:   what the loop returned, the policy that decided, the other one.
Out:  a ``Shadow``, stored with the decision. The same candidates, energies and reports; no model is called.
Does not know: Ray, HTTP, files.
"""

from dataclasses import dataclass
from typing import Literal

from raydebm.decision.policy import Policy
from raydebm.decision.redecide import Redecision, recorded_outcome, redecide
from raydebm.records import Decision, Outcome, ScoredCandidate

PolicyRole = Literal["first", "canary"]
"""Which policy answered: the first one, or the second one as its canary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """What the policy that did not answer would have decided."""

    policy_id: str
    """Its id with the limits of the request, as stored decisions have it."""
    version: str
    """Id of its file (``policy_id``), as in ``versions`` of a decision that it answers."""
    decision: str
    """``accept``, ``abstain``, or ``regenerate``: it would have sampled what was not sampled, so what it would have
    come to is not known."""
    as_it_stands: str
    """``accept`` or ``abstain``: what it comes to on the candidates at hand."""
    agrees: bool | None
    """Whether it decides the same, and gives out the same answer; None where that is not known."""
    same_answer: bool
    """Whether it selects the same answer, given out or not."""
    vote_key: str | None
    """What its answer is compared by."""
    selected: str | None
    """Candidate id."""
    answer: str | None
    """Answer of the selected candidate, in the task's canonical text."""
    confidence: float | None
    stop_reason: str | None
    """Why it would have ended the last pass; None without waves."""
    num_passes: int
    num_candidates: int
    """How many of the candidates it would have paid for."""
    cost_usd: float | None
    """What these cost; None where no generator reports cost."""
    exact: bool
    """False: a later pass answers feedback about a candidate that this policy would not have selected."""
    reason: str


def shadow_of(outcome: Outcome, *, decided_by: Policy, other: Policy, policy_id: str, version: str) -> Shadow:
    """What ``other`` would have decided about an outcome of ``decided_by``.

    Args:
        outcome: of the loop.
        decided_by: the policy that answered.
        other: the second opinion.
        policy_id: the other's id.
        version: of the other's file.
    """
    recorded = recorded_outcome(outcome, record_id="", policy=decided_by)
    again = redecide(recorded, policy=other)
    same_answer = _is_same(outcome.best, again.best)
    return Shadow(
        policy_id=policy_id,
        version=version,
        decision=str(again.decision),
        as_it_stands=str(again.as_it_stands),
        agrees=_agrees(outcome, again, same_answer=same_answer),
        same_answer=same_answer,
        vote_key=None if again.best is None else again.best.report.vote_key,
        selected=again.selected,
        answer=None if again.best is None else again.best.report.answer,
        confidence=again.confidence,
        stop_reason=None if again.stop_reason is None else str(again.stop_reason),
        num_passes=again.num_passes,
        num_candidates=again.num_candidates,
        cost_usd=again.cost_usd,
        exact=again.exact,
        reason=again.reason,
    )


def _is_same(one: ScoredCandidate | None, other: ScoredCandidate | None) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or (one.report.vote_key is not None and one.report.vote_key == other.report.vote_key)


def _agrees(outcome: Outcome, again: Redecision, *, same_answer: bool) -> bool | None:
    if again.decision is Decision.REGENERATE:
        return None
    return again.decision is outcome.decision and (again.decision is Decision.ABSTAIN or same_answer)
