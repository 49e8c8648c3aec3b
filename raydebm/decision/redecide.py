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
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace

from raydebm.decision.batch import decide_pools
from raydebm.decision.policy import Policy
from raydebm.decision.rules import PoolDecision, final_decision
from raydebm.decision.sampling.waves import cut_pass
from raydebm.decision.stopping.settled import StopReason
from raydebm.errors import ConfigError
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
    """The loop over a record. The recorded policy without a budget gives the recorded decision and selection.

    Args:
        recorded: the decision.
        policy: None: the recorded one.
        budget: most candidates of the whole request; None: the policy's. The first pass is cut as a smaller
            ``num_samples`` would cut it: every generator's first sample, then every generator's second, and so on; no
            pass is drawn when it is spent.

    Raises:
        ConfigError: the budget is below 1.
    """
    return redecide_all([recorded], policy=policy, budget=budget)[0]


def redecide_all(
    recorded: Sequence[Recorded], *, policy: Policy | None = None, budget: int | None = None
) -> list[Redecision]:
    """``redecide`` for many decisions, whose pools are measured together, pass by pass: several times as fast.

    Args:
        recorded: the decisions.
        policy: under which all of them are made again; None: the first one's own.
        budget: as for ``redecide``.

    Raises:
        ConfigError: the budget is below 1.
    """
    if budget is not None and budget < 1:
        raise ConfigError(f"the budget must be at least 1 candidate, got {budget}")
    if not recorded:
        return []
    policy = recorded[0].policy if policy is None else policy
    walks = [_walk(each, policy, budget) for each in recorded]
    asked = [next(walk) for walk in walks]
    by_place: dict[int, Redecision] = {}
    waiting = list(range(len(walks)))
    while waiting:
        pools, passes_left = zip(*(asked[place] for place in waiting), strict=True)
        decided_pools = decide_pools(pools, passes_left=passes_left, policy=policy)
        for place, decided in zip(waiting, decided_pools, strict=True):
            try:
                asked[place] = walks[place].send(decided)
            except StopIteration as end:
                by_place[place] = end.value
        waiting = [place for place in waiting if place not in by_place]
    return [by_place[place] for place in range(len(walks))]


Asked = tuple[list[ScoredCandidate], int]
"""A pool about which the loop asks for a decided, and how many passes are left."""


def _walk(recorded: Recorded, policy: Policy, budget: int | None) -> Generator[Asked, PoolDecision, Redecision]:
    """The loop over one record; asks for a decided after each pass."""
    budget = policy.budget if budget is None else budget
    pool: list[ScoredCandidate] = []
    exact, cut = True, False
    num_recorded = max(1, len(recorded.selections))
    for pass_index in range(1, num_recorded + 1):
        drawn = [scored for scored in recorded.pool if scored.candidate.pass_index == pass_index]
        part = _sampled(drawn, pass_index, recorded=recorded, policy=policy, budget=budget, pool=pool)
        cut = cut or len(part.candidates) < len(drawn)
        pool += part.candidates
        if part.lacking:
            decided = replace((yield pool, 0), decision=Decision.REGENERATE, reason=part.lacking)
            break
        # A last pass without candidates is one that could not be drawn: the loop then decides from what is there.
        lost = pass_index > 1 and pass_index == num_recorded and not drawn
        passes_left = 0 if lost or _left(budget, pool) == 0 else policy.max_passes - pass_index
        decided = yield pool, passes_left
        if decided.decision is not Decision.REGENERATE or pass_index == num_recorded:
            break
        selected = None if decided.best is None else decided.best.candidate.candidate_id
        exact = exact and selected == recorded.selections[pass_index - 1] and not (selected is None and cut)
        exact = exact and policy.fresh_share == recorded.policy.fresh_share
    redecision = _redecision(recorded.record_id, decided, pool, policy=policy, num_passes=pass_index, exact=exact)
    return replace(redecision, stop_reason=part.stop_reason)


def _redecision(
    record_id: str,
    decided: PoolDecision,
    pool: Sequence[ScoredCandidate],
    *,
    policy: Policy,
    num_passes: int,
    exact: bool,
) -> Redecision:
    costs = [scored.candidate.cost_usd for scored in pool if scored.candidate.cost_usd is not None]
    as_it_stands = decided.decision
    if as_it_stands is Decision.REGENERATE:
        as_it_stands = final_decision(decided, policy)
    return Redecision(
        record_id=record_id,
        decision=decided.decision,
        as_it_stands=as_it_stands,
        best=decided.best,
        signal=decided.signal,
        penalty=decided.penalty,
        confidence=decided.confidence,
        num_passes=num_passes,
        num_candidates=len(pool),
        exact=exact,
        reason=decided.reason,
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
    budget: int | None,
    pool: Sequence[ScoredCandidate],
) -> _Part:
    """The candidates of a pass that the policy would have sampled."""
    left, stop = _left(budget, pool), recorded.stop(pass_index)
    if stop is not None and not recorded.is_rescored and (policy, budget) == (recorded.policy, recorded.policy.budget):
        return _Part(drawn, stop_reason=stop.reason)
    candidates = _kept(drawn, pass_index, recorded=recorded, policy=policy, left=left)
    asks_for_more = _asks_for_more(drawn, pass_index, recorded=recorded, policy=policy, budget=budget)
    planned = len(drawn) if stop is None else stop.num_planned
    num_planned = _planned(planned, pass_index, policy, left, at_least=len(candidates), asks_for_more=asks_for_more)
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


def _asks_for_more(
    drawn: Sequence[ScoredCandidate], pass_index: int, *, recorded: Recorded, policy: Policy, budget: int | None
) -> bool:
    """Whether the policy would ask for more samples than all that the recorded one could ask for in a pass: its later
    passes are larger, or the recorded budget ended here and there is none, or a larger one."""
    if not drawn or (budget is not None and budget <= _num_until(recorded, pass_index)):
        return False
    if pass_index > 1 and policy.num_regenerate > recorded.policy.num_regenerate:
        return True
    spent = recorded.policy.budget is not None and _num_until(recorded, pass_index) >= recorded.policy.budget
    is_full = pass_index > 1 and len(drawn) >= policy.num_regenerate
    return spent and not is_full


def _num_until(recorded: Recorded, pass_index: int) -> int:
    """Candidates of the recorded passes up to this one."""
    return sum(scored.candidate.pass_index <= pass_index for scored in recorded.pool)


def _planned(
    recorded: int, pass_index: int, policy: Policy, left: int | None, *, at_least: int, asks_for_more: bool
) -> int:
    """Samples of a whole pass within the policy's limits. How many more than the ``recorded`` ones a first pass would
    have is not known."""
    limits = [] if left is None else [left]
    if pass_index > 1:
        limits.append(policy.num_regenerate)
    if pass_index == 1 or not asks_for_more:
        limits.append(recorded)
    return max(min(limits), at_least)


def _left(budget: int | None, pool: Sequence[ScoredCandidate]) -> int | None:
    return None if budget is None else budget - len(pool)


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
