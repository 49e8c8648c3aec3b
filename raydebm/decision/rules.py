"""Selection from a pool and the decision about it under a policy: pure functions over scored candidates.

``policy`` defines the rules. This module applies them and states the reason in words.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raydebm.config.decision import Signal
from raydebm.decision.evidence.measuring import term_in_words
from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.evidence.profiles import ranked
from raydebm.decision.evidence.terms import PLAIN
from raydebm.decision.fields import UNFITTED, field_beliefs
from raydebm.decision.policy import Policy
from raydebm.records import Decision, FieldBelief, ScoredCandidate


def select(pool: Sequence[ScoredCandidate], lambda_: float) -> ScoredCandidate | None:
    """Energy minimiser argmin E. None if every E is +inf (no candidate parsed, or none could be scored).

    Ties go to the lower mu, then the earlier pass, then the smaller candidate id. A later pass without a better
    candidate therefore keeps the selection, and the order of the pool has no effect.
    """
    best: ScoredCandidate | None = None
    best_key: tuple[float, float, int, str] | None = None
    for scored in pool:
        energy = scored.total_energy(lambda_)
        if math.isinf(energy) or scored.energies is None:
            continue
        candidate = scored.candidate
        key = (energy, scored.energies.mu, candidate.pass_index, candidate.candidate_id)
        if best_key is None or key < best_key:
            best, best_key = scored, key
    return best


def signal_of(pool: Sequence[ScoredCandidate], best: ScoredCandidate | None, signal: Signal) -> float | None:
    """Gating sigma: the mean over all scored candidates (``pool_mean``), or sigma of the selected candidate. None
    if no candidate was scored or, except for ``pool_mean``, none is selected."""
    if signal != "pool_mean":
        return None if best is None or best.energies is None else best.energies.sigma
    sigmas = [scored.energies.sigma for scored in pool if scored.energies is not None]
    return math.fsum(sigmas) / len(sigmas) if sigmas else None


def decide(
    *, signal: float | None, sigma: float | None, penalty: float | None, passes_left: int, policy: Policy
) -> Decision:
    """Apply the paper's rule.

    Args:
        signal: gating sigma (see ``signal_of``). None if nothing was scored.
        sigma: sigma of the selected candidate. None without a selection.
        penalty: E_constraint of the selected candidate. None without a selection.
        passes_left: number of further passes allowed.
        policy: policy with the thresholds on sigma.
    """
    if sigma is None or penalty is None or signal is None:
        return Decision.REGENERATE if passes_left > 0 else Decision.ABSTAIN
    if policy.signal == "equation" and sigma > policy.theta_abstain and penalty == 0:
        return Decision.ABSTAIN
    if passes_left > 0 and (signal > policy.theta_sigma or penalty > 0):
        return Decision.REGENERATE
    return Decision.ABSTAIN if sigma > policy.theta_abstain else Decision.ACCEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDecision:
    """Decision about one pool, with its inputs."""

    decision: Decision
    best: ScoredCandidate | None
    signal: float | None
    penalty: float | None
    reason: str
    beliefs: tuple[Belief, ...] = ()
    """Posterior of every answer, the selected one first. Empty without a posterior, and under the paper's rule
    also without a selection."""

    @property
    def confidence(self) -> float | None:
        """Probability that the selected answer is right. None without a posterior or a selection."""
        return self.beliefs[0].probability if self.beliefs and self.best is not None else None


def decide_pool(pool: Sequence[ScoredCandidate], *, passes_left: int, policy: Policy) -> PoolDecision:
    """Select from a pool and decide about the selection. The reason is one sentence with the compared numbers."""
    if policy.rule == "posterior" and policy.posterior is not None:
        beliefs = ranked(policy.profile, pool, policy.posterior)
        decided = _decide_by_beliefs(pool, beliefs, passes_left=passes_left, policy=policy)
    else:
        decided = _decide_by_sigma(pool, passes_left=passes_left, policy=policy)
        decided = replace(decided, beliefs=beliefs_about(pool, policy, decided.best))
    return replace(decided, reason=decided.reason + _silent(pool))


def beliefs_about(pool: Sequence[ScoredCandidate], policy: Policy, best: ScoredCandidate | None) -> tuple[Belief, ...]:
    """Posterior of a pool's answers: that of ``best`` first, the others by probability. Empty without a posterior
    or without a selection."""
    if policy.posterior is None or best is None:
        return ()
    beliefs = policy.posterior.beliefs(pool)
    own = [belief for belief in beliefs if any(scored is best for scored in belief.candidates)]
    return (*own, *(belief for belief in beliefs if belief not in own)) if own else ()


def _decide_by_beliefs(
    pool: Sequence[ScoredCandidate], beliefs: tuple[Belief, ...], *, passes_left: int, policy: Policy
) -> PoolDecision:
    """Apply the rule of ``rule="posterior"``. ``beliefs`` has the profile's selection first."""
    first = beliefs[0] if beliefs and beliefs[0].probability > 0 else None
    best = None if first is None else first.best
    if first is None:
        decision = Decision.REGENERATE if passes_left > 0 else Decision.ABSTAIN
        reason = "every answer is refuted by an exact constraint" if beliefs else _nothing_selected(pool)
    else:
        decision = decide_by_confidence(first.probability, passes_left=passes_left, policy=policy)
        reason = _reason_by_posterior(first, decision, policy) + _without_energy(pool)
    return PoolDecision(
        decision=decision,
        best=best,
        signal=signal_of(pool, best, policy.signal),
        penalty=None if best is None else best.report.penalty,
        reason=reason,
        beliefs=beliefs,
    )


def fields_of(pool: Sequence[ScoredCandidate], decided: PoolDecision, policy: Policy) -> tuple[FieldBelief, ...]:
    """Every field of the pool with the selected answer's value (``field_beliefs``). Empty without a selection."""
    return field_beliefs(
        pool,
        decided.best,
        beliefs=decided.beliefs,
        reference=PLAIN if policy.posterior is None else policy.posterior.reference,
        model=policy.fields or UNFITTED,
    )


def final_decision(decided: PoolDecision, policy: Policy) -> Decision:
    """Decision without a further pass."""
    if policy.rule == "posterior":
        return (
            Decision.ABSTAIN
            if decided.confidence is None
            else decide_by_confidence(decided.confidence, passes_left=0, policy=policy)
        )
    energies = None if decided.best is None else decided.best.energies
    sigma = None if energies is None else energies.sigma
    return decide(signal=decided.signal, sigma=sigma, penalty=decided.penalty, passes_left=0, policy=policy)


def decide_by_confidence(confidence: float, *, passes_left: int, policy: Policy) -> Decision:
    """Apply the rule of ``rule="posterior"`` to the probability that the selection is right."""
    if confidence >= policy.tau_accept:
        return Decision.ACCEPT
    if passes_left > 0:
        return Decision.REGENERATE
    return Decision.ACCEPT if confidence >= policy.tau_answer else Decision.ABSTAIN


def _reason_by_posterior(first: Belief, decision: Decision, policy: Policy) -> str:
    if first.cluster.proof:
        return "an exact constraint proves the answer"
    p = first.probability
    threshold = (
        f"tau_accept {policy.tau_accept:.4g}"
        if decision is Decision.REGENERATE or p >= policy.tau_accept
        else f"tau_answer {policy.tau_answer:.4g}"
    )
    side = "below" if decision is not Decision.ACCEPT else "at or above"
    is_graded = policy.posterior is not None and policy.posterior.outcome == "violation"
    what = "1 minus the answer's expected violation is" if is_graded else "the answer is right with probability"
    broken = f"; {_violated(first.best)}" if first.best.report.penalty > 0 else ""
    evidence = _evidence_in_words(first, decision)
    return f"{what} {p:.3g}, {side} {threshold}; {evidence}{broken}"


def _evidence_in_words(belief: Belief, decision: Decision, count: int = 3) -> str:
    """Largest terms of evidence for and against the answer in log-odds, such as ``share of candidates +1.2``.

    The side that supports the decision is first.
    """
    terms = sorted(belief.contributions.items(), key=lambda term: -abs(term[1]))
    parts = [("for" if value > 0 else "against", name, value) for name, value in terms if abs(value) >= 0.005]
    order = ("for", "against") if decision is Decision.ACCEPT else ("against", "for")
    words = [
        f"{side} it {', '.join(f'{_part_in_words(name)} {value:+.2f}' for _, name, value in shown[:count])}"
        for side in order
        if (shown := [part for part in parts if part[0] == side])
    ]
    return f"evidence (log-odds): {'; '.join(words)}" if words else "no evidence for or against it"


def _part_in_words(name: str) -> str:
    return "log-odds of an average answer" if name == "base" else term_in_words(name)


def _decide_by_sigma(pool: Sequence[ScoredCandidate], *, passes_left: int, policy: Policy) -> PoolDecision:
    best = select(pool, policy.lambda_)
    signal = signal_of(pool, best, policy.signal)
    sigma = best.energies.sigma if best is not None and best.energies is not None else None
    penalty = None if best is None else best.report.penalty
    decision = decide(signal=signal, sigma=sigma, penalty=penalty, passes_left=passes_left, policy=policy)
    if best is None or sigma is None or signal is None:
        reason = _nothing_selected(pool)
    else:
        reason = _reason(decision, best, signal=signal, sigma=sigma, policy=policy) + _unscored(pool)
    return PoolDecision(decision=decision, best=best, signal=signal, penalty=penalty, reason=reason)


def _reason(decision: Decision, best: ScoredCandidate, *, signal: float, sigma: float, policy: Policy) -> str:
    name = "mean sigma of the pool" if policy.signal == "pool_mean" else "sigma"
    gate = f"{name} {signal:.4g} is {_side(signal, policy.theta_sigma)} theta_sigma {policy.theta_sigma:g}"
    if decision is Decision.ABSTAIN:
        text = f"sigma {sigma:.4g} of the selected candidate is above theta_abstain {policy.theta_abstain:g}"
        return text if best.report.penalty == 0 else f"{text}; {_violated(best)}"
    if best.report.penalty > 0:
        return f"{_violated(best)}; {gate}"
    if decision is Decision.ACCEPT and signal > policy.theta_sigma:
        return f"{gate} but no pass is left, and sigma {sigma:.4g} is not above theta_abstain {policy.theta_abstain:g}"
    return f"{gate} and every constraint holds"


def _side(value: float, threshold: float) -> str:
    return "above" if value > threshold else "at or below"


def _violated(best: ScoredCandidate) -> str:
    messages = "; ".join(violation.message for violation in best.report.violations)
    return f"the selected candidate violates constraints (E_constraint {best.report.penalty:.4g}): {messages}"


def _unscored(pool: Sequence[ScoredCandidate]) -> str:
    missing = sum(scored.energies is None and scored.candidate.text is not None for scored in pool)
    return f"; {missing} of {len(pool)} candidates could not be scored and were left out" if missing else ""


def _silent(pool: Sequence[ScoredCandidate]) -> str:
    """Note that names generators without any text. Empty if no generator has one, because the reason then says so."""
    written = {scored.candidate.generator for scored in pool if scored.candidate.text is not None}
    silent = sorted({scored.candidate.generator for scored in pool} - written)
    return f"; nothing came from {', '.join(silent)}" if silent and written else ""


def _without_energy(pool: Sequence[ScoredCandidate]) -> str:
    """Note that some of the texts have no energies. Empty if all or none have them."""
    written = [scored for scored in pool if scored.candidate.text is not None]
    missing = sum(scored.energies is None for scored in written)
    return f"; {missing} of {len(written)} candidates have no energy" if 0 < missing < len(written) else ""


def _nothing_selected(pool: Sequence[ScoredCandidate]) -> str:
    if not pool:
        return "no candidate was sampled"
    failures = [scored.candidate.error for scored in pool if scored.candidate.text is None]
    if len(failures) == len(pool):
        return f"all {len(pool)} candidates failed to generate; the first error: {failures[0]}"
    written = [scored for scored in pool if scored.candidate.text is not None]
    unchecked = [scored.report.error for scored in written if scored.report.error is not None]
    counts = {
        "failed to generate": len(failures),
        "did not parse": sum(not s.report.parsed and s.report.error is None for s in written),
        f"could not be checked ({unchecked[0] if unchecked else ''})": len(unchecked),
        "could not be scored": sum(s.report.parsed and s.energies is None for s in written),
    }
    counted = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"no candidate can be selected: of {len(pool)}, {counted}"
