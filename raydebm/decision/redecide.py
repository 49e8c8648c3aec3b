"""Repeat a recorded decision: the same candidates under another policy, budget or scorer.

In:   the outcome of one decision, its policy, another policy, optionally new energies.
Out:  the decision under these settings, and whether it is exact.
Independent of: files, models, upstream endpoints. Nothing is sampled.

A later pass was sampled with feedback about the best candidate at that time. If the new policy also samples again but
with feedback about another candidate, the recorded pass is used instead, and ``exact`` is False. If the new policy
needs a pass that was not sampled, or more samples of a pass, the result is REGENERATE.

Under another policy with waves, or with other energies, a recorded pass is cut to what the new policy would have
sampled (``waves.cut_pass``). The cut is at the end of a wave, although a live wave may end before its last candidates
have arrived. If neither has changed, every pass ends where it did in the record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raydebm.decision.policy import Policy
from raydebm.decision.rules import decide_pool, fields_of, final_decision
from raydebm.decision.sampling.waves import cut_pass
from raydebm.decision.stopping.settled import StopReason
from raydebm.records import Decision, Energies, FieldBelief, Outcome, ScoredCandidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Redecision:
    """Decision under the new settings."""

    decision: Decision
    """REGENERATE if a pass, or a part of a pass, is needed that is not in the record."""
    as_it_stands: Decision
    """ACCEPT or ABSTAIN: ``decision``, or if that is REGENERATE, the decision from the recorded candidates."""
    best: ScoredCandidate | None
    signal: float | None
    penalty: float | None
    confidence: float | None
    """Probability that ``best`` is right. None without a posterior or a selection."""
    num_passes: int
    num_candidates: int
    """Number of candidates used, including failed ones."""
    exact: bool
    """False if a recorded later pass was used although the new policy would have sampled it with feedback about another
    candidate, or with another ``fresh_share``."""
    reason: str
    fields: tuple[FieldBelief, ...]
    """Every field of the pool with the selected answer's value, if that answer is structured."""

    @property
    def selected(self) -> str | None:
        """Id of the selected candidate. None if nothing could be selected."""
        return None if self.best is None else self.best.candidate.candidate_id


def with_energies(outcome: Outcome, energies: Mapping[str, Energies | None]) -> Outcome:
    """The outcome with energies of another ensemble in its pool.

    Args:
        energies: energies by candidate id. None or absent if the candidate could not be scored.
    """
    pool = [replace(scored, energies=energies.get(scored.candidate.candidate_id)) for scored in outcome.pool]
    return replace(outcome, pool=pool)


def redecide(
    outcome: Outcome, recorded: Policy, policy: Policy | None = None, *, is_rescored: bool = False
) -> Redecision:
    """Run the loop over a record. The recorded policy reproduces the recorded decision and selection.

    Args:
        outcome: stored decision with its pool.
        recorded: policy of the stored decision.
        policy: policy to decide by. Default: the recorded policy. Under a smaller budget the first pass is cut as if
            ``num_samples`` were smaller: every generator's first sample, then every generator's second, and so on. No
            pass is sampled once the budget is spent.
        is_rescored: whether the energies differ from those that the passes were sampled with.
    """
    policy = recorded if policy is None else policy
    pool: list[ScoredCandidate] = []
    exact, cut = True, False
    num_recorded = max(1, len(outcome.passes))
    for pass_index in range(1, num_recorded + 1):
        drawn = [scored for scored in outcome.pool if scored.candidate.pass_index == pass_index]
        candidates, lacking = _sampled(
            drawn, pass_index, outcome=outcome, recorded=recorded, policy=policy, pool=pool, is_rescored=is_rescored
        )
        cut = cut or len(candidates) < len(drawn)
        pool += candidates
        if lacking:
            decided = decide_pool(pool, passes_left=0, policy=policy)
            decided = replace(decided, decision=Decision.REGENERATE, reason=lacking)
            break
        # A last pass without candidates could not be sampled: the loop then decides from the earlier ones.
        lost = pass_index > 1 and pass_index == num_recorded and not drawn
        passes_left = 0 if lost or _left(policy, pool) == 0 else policy.max_passes - pass_index
        decided = decide_pool(pool, passes_left=passes_left, policy=policy)
        if decided.decision is not Decision.REGENERATE or pass_index == num_recorded:
            break
        selected = None if decided.best is None else decided.best.candidate.candidate_id
        exact = exact and selected == outcome.passes[pass_index - 1].selected and not (selected is None and cut)
        exact = exact and policy.fresh_share == recorded.fresh_share
    is_open = decided.decision is Decision.REGENERATE
    return Redecision(
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
        fields=fields_of(pool, decided, policy),
    )


def _sampled(
    drawn: list[ScoredCandidate],
    pass_index: int,
    *,
    outcome: Outcome,
    recorded: Policy,
    policy: Policy,
    pool: Sequence[ScoredCandidate],
    is_rescored: bool,
) -> tuple[list[ScoredCandidate], str]:
    """Candidates of a pass that the policy would have sampled, and a description of those that the record lacks, empty
    if it lacks none."""
    stop = outcome.passes[pass_index - 1].stop if outcome.passes else None
    if stop is not None and not is_rescored and policy == recorded:
        return drawn, ""
    left = _left(policy, pool)
    candidates = _kept(drawn, pass_index, recorded=recorded, policy=policy, left=left)
    num_until = sum(scored.candidate.pass_index <= pass_index for scored in outcome.pool)
    asks_for_more = _asks_for_more(len(drawn), num_until, pass_index, recorded=recorded, policy=policy)
    # The number of further samples in a first pass is unknown.
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
        sampled, stop_reason = cut_pass(candidates, policy, earlier=pool, num_planned=num_planned)
        candidates = list(sampled)
        is_short = stop_reason is None
    # A deadline or a failure ends a pass under any rule.
    is_whole = stop is None or stop.reason == StopReason.BUDGET
    if not (asks_for_more if is_whole else is_short) or stop_reason not in (None, StopReason.BUDGET):
        return candidates, ""
    of_how_many = f" of {num_planned}" if num_planned > len(candidates) else ""
    lacking = f"more of pass {pass_index} would be sampled than the {len(candidates)}{of_how_many} that are recorded"
    return candidates, lacking


def _asks_for_more(num_drawn: int, num_until: int, pass_index: int, *, recorded: Policy, policy: Policy) -> bool:
    """Whether the policy would request more samples than the recorded policy could have.

    True if its later passes are larger, or if the recorded budget ended this pass and the new budget is larger or
    absent.

    Args:
        num_drawn: candidates of the pass.
        num_until: candidates of this and all earlier passes.
    """
    if not num_drawn or (policy.budget is not None and policy.budget <= num_until):
        return False
    if pass_index > 1 and policy.num_regenerate > recorded.num_regenerate:
        return True
    spent = recorded.budget is not None and num_until >= recorded.budget
    is_full = pass_index > 1 and num_drawn >= policy.num_regenerate
    return spent and not is_full


def _left(policy: Policy, pool: Sequence[ScoredCandidate]) -> int | None:
    return None if policy.budget is None else policy.budget - len(pool)


def _kept(
    drawn: list[ScoredCandidate], pass_index: int, *, recorded: Policy, policy: Policy, left: int | None
) -> list[ScoredCandidate]:
    """Candidates of a pass that the policy would have requested within the remaining budget, in request order."""
    most = len(drawn) if left is None else left
    if pass_index > 1 and policy.num_regenerate < recorded.num_regenerate:
        most = min(most, policy.num_regenerate)
    if most >= len(drawn):
        return drawn
    first = sorted(range(len(drawn)), key=lambda place: (drawn[place].candidate.sample_index, place))[:most]
    return [drawn[place] for place in sorted(first)]
