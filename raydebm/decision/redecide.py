"""Deciding again about what was recorded: the same candidates under another policy, budget or scorer.

In:   the pool of one decision with its passes, a policy, perhaps a budget or new energies.
Out:  what would have been decided, and whether that is certain.
Does not know: files, models, upstream endpoints. Nothing is drawn.

A later pass was sampled about the candidate that was best at that time. Where the new policy would also have sampled
again, but about another candidate, the recorded pass stands in for the one that would have been sampled, and the result
says so (``exact`` is False). Where the new policy would sample a pass that was never sampled, or more of a pass than
was sampled, the result is REGENERATE.

Under another policy with waves, or with other energies, a recorded pass is cut to what its rule would have sampled
(``waves.cut_pass``), at the ends of waves; live, a wave may also end before its last candidates have come. Where
nothing changed, every pass ends where it ended.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raydebm.decision.policy import Policy
from raydebm.decision.rules import decide_pool, final_decision
from raydebm.decision.sampling.waves import cut_pass
from raydebm.decision.stopping.settled import StopReason
from raydebm.records import Decision, Energies, Outcome, PassStop, ScoredCandidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One decision as far as it matters for deciding again."""

    record_id: str
    problem_id: str
    policy: Policy
    """Under which it was made."""
    decision: Decision
    selected: str | None
    """Candidate id of the energy minimiser."""
    selections: tuple[str | None, ...]
    """The energy minimiser after each pass; as many as there were passes, also those that could not be drawn."""
    pool: Sequence[ScoredCandidate]
    """All passes, in the order in which they were asked for."""
    stops: tuple[PassStop | None, ...] = ()
    """Why each pass ended, None where it was not sampled in waves; empty where none was."""
    is_rescored: bool = False
    """The energies are others than those by which its passes ended."""

    def stop(self, pass_index: int) -> PassStop | None:
        """Why a pass ended; None where it was sampled at once."""
        return self.stops[pass_index - 1] if pass_index <= len(self.stops) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redecision:
    """What would have been decided."""

    record_id: str
    decision: Decision
    """REGENERATE: a pass, or the rest of one, would be drawn that is not in the record."""
    as_it_stands: Decision
    """ACCEPT or ABSTAIN: ``decision``, or what it comes to when that pass cannot be drawn."""
    best: ScoredCandidate | None
    signal: float | None
    penalty: float | None
    confidence: float | None
    """Probability that ``best`` is right; None without a posterior or a selection."""
    num_passes: int
    num_candidates: int
    """How many candidates were paid for; those that failed included."""
    exact: bool
    """False: a pass that was used answers feedback about a candidate that the new policy would not have selected, or
    another share of it answers feedback."""
    reason: str
    stop_reason: str | None = None
    """Why the last pass would have ended (``StopReason``); None under a policy without waves, and where more of it
    would be sampled."""
    cost_usd: float | None = None
    """US dollars for the candidates that count in ``num_candidates``; None where no cost is recorded."""

    @property
    def selected(self) -> str | None:
        """Id of the selected candidate; None where nothing could be selected."""
        return None if self.best is None else self.best.candidate.candidate_id


def recorded_outcome(outcome: Outcome, *, record_id: str, policy: Policy) -> Recorded:
    """What the loop returned, as something to decide about again."""
    return Recorded(
        record_id=record_id,
        problem_id=outcome.problem.problem_id,
        policy=policy,
        decision=outcome.decision,
        selected=None if outcome.best is None else outcome.best.candidate.candidate_id,
        selections=tuple(record.selected for record in outcome.passes),
        pool=outcome.pool,
        stops=tuple(record.stop for record in outcome.passes),
    )


def with_energies(recorded: Recorded, energies: Mapping[str, Energies | None]) -> Recorded:
    """The same pool under another ensemble: energies by candidate id; None or absent: it could not be scored."""
    pool = [replace(scored, energies=energies.get(scored.candidate.candidate_id)) for scored in recorded.pool]
    return replace(recorded, pool=pool, is_rescored=True)


def redecide(recorded: Recorded, *, policy: Policy | None = None, budget: int | None = None) -> Redecision:
    """Run the loop over a record. The recorded policy without a budget gives the recorded decision and selection.

    Args:
        recorded: the decision.
        policy: None: the recorded one.
        budget: most candidates of the whole request; None: the policy's. The first pass is cut as a smaller
            ``num_samples`` would cut it: every generator's first sample, then every generator's second, and so on; no
            pass is drawn when it is spent.

    Raises:
        ConfigError: the budget is below 1.
    """
    policy = recorded.policy if policy is None else policy
    policy = policy if budget is None else policy.replaced(budget=budget)
    pool: list[ScoredCandidate] = []
    exact, cut = True, False
    num_recorded = max(1, len(recorded.selections))
    for pass_index in range(1, num_recorded + 1):
        drawn = [scored for scored in recorded.pool if scored.candidate.pass_index == pass_index]
        part = _sampled(drawn, pass_index, recorded=recorded, policy=policy, pool=pool)
        cut = cut or len(part.candidates) < len(drawn)
        pool += part.candidates
        if part.lacking:
            decided = decide_pool(pool, passes_left=0, policy=policy)
            decided = replace(decided, decision=Decision.REGENERATE, reason=part.lacking)
            break
        # A last pass without candidates is one that could not be drawn: the loop then decides from what is there.
        lost = pass_index > 1 and pass_index == num_recorded and not drawn
        passes_left = 0 if lost or _left(policy, pool) == 0 else policy.max_passes - pass_index
        decided = decide_pool(pool, passes_left=passes_left, policy=policy)
        if decided.decision is not Decision.REGENERATE or pass_index == num_recorded:
            break
        selected = None if decided.best is None else decided.best.candidate.candidate_id
        exact = exact and selected == recorded.selections[pass_index - 1] and not (selected is None and cut)
        exact = exact and policy.fresh_share == recorded.policy.fresh_share
    costs = [scored.candidate.cost_usd for scored in pool if scored.candidate.cost_usd is not None]
    is_open = decided.decision is Decision.REGENERATE
    return Redecision(
        record_id=recorded.record_id,
        decision=decided.decision,
        as_it_stands=final_decision(decided, policy) if is_open else decided.decision,
        best=decided.best,
        signal=decided.signal,
        penalty=decided.penalty,
        confidence=decided.confidence,
        num_passes=pass_index,
        num_candidates=len(pool),
        exact=exact,
        reason=decided.reason,
        stop_reason=part.stop_reason,
        cost_usd=math.fsum(costs) if costs else None,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """What a policy would have sampled of a recorded pass."""

    candidates: list[ScoredCandidate]
    lacking: str = ""
    """What the record lacks of it, in words."""
    stop_reason: str | None = None
    """Why it would have ended; None without waves, and where something is lacking."""


def _sampled(
    drawn: list[ScoredCandidate],
    pass_index: int,
    *,
    recorded: Recorded,
    policy: Policy,
    pool: Sequence[ScoredCandidate],
) -> _Part:
    """The candidates of a pass that the policy would have sampled."""
    stop = recorded.stop(pass_index)
    if stop is not None and not recorded.is_rescored and policy == recorded.policy:
        return _Part(drawn, stop_reason=stop.reason)
    left = _left(policy, pool)
    candidates = _kept(drawn, pass_index, recorded=recorded, policy=policy, left=left)
    asks_for_more = _asks_for_more(drawn, pass_index, recorded=recorded, policy=policy)
    # How many more than the recorded ones a first pass would have is not known.
    limits = [] if left is None else [left]
    if pass_index > 1:
        limits.append(policy.num_regenerate)
    if pass_index == 1 or not asks_for_more:
        limits.append(len(drawn) if stop is None else stop.num_planned)
    num_planned = max(min(limits), len(candidates))
    stop_reason = None
    if policy.waves is None:
        is_short = len(candidates) < num_planned
    else:
        cut = cut_pass(candidates, policy, earlier=pool, num_planned=num_planned)
        candidates, stop_reason = list(cut.candidates), cut.decision.reason
        is_short = stop_reason is None
    # What a deadline or a failure ended had no more to give, under whatever rule.
    is_whole = stop is None or stop.reason == StopReason.BUDGET
    if not (asks_for_more if is_whole else is_short) or stop_reason not in (None, StopReason.BUDGET):
        return _Part(candidates, stop_reason=stop_reason)
    of_how_many = f" of {num_planned}" if num_planned > len(candidates) else ""
    lacking = f"more of pass {pass_index} would be sampled than the {len(candidates)}{of_how_many} that are recorded"
    return _Part(candidates, lacking)


def _asks_for_more(drawn: Sequence[ScoredCandidate], pass_index: int, *, recorded: Recorded, policy: Policy) -> bool:
    """Whether the policy would ask for more samples than all that the recorded one could ask for in a pass: its later
    passes are larger, or the recorded budget ended here and there is none, or a larger one."""
    num_until = sum(scored.candidate.pass_index <= pass_index for scored in recorded.pool)
    if not drawn or (policy.budget is not None and policy.budget <= num_until):
        return False
    if pass_index > 1 and policy.num_regenerate > recorded.policy.num_regenerate:
        return True
    spent = recorded.policy.budget is not None and num_until >= recorded.policy.budget
    is_full = pass_index > 1 and len(drawn) >= policy.num_regenerate
    return spent and not is_full


def _left(policy: Policy, pool: Sequence[ScoredCandidate]) -> int | None:
    return None if policy.budget is None else policy.budget - len(pool)


def _kept(
    drawn: list[ScoredCandidate], pass_index: int, *, recorded: Recorded, policy: Policy, left: int | None
) -> list[ScoredCandidate]:
    """The candidates of a pass that the policy and what is left of the budget would have asked for, in their order."""
    most = len(drawn) if left is None else left
    if pass_index > 1 and policy.num_regenerate < recorded.policy.num_regenerate:
        most = min(most, policy.num_regenerate)
    if most >= len(drawn):
        return drawn
    first = sorted(range(len(drawn)), key=lambda place: (drawn[place].candidate.sample_index, place))[:most]
    return [drawn[place] for place in sorted(first)]
