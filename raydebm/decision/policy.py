"""The triage rule (paper Eq. 1, Eq. 3 and Algorithm 1), as pure functions over scored candidates.

The paper gives the gate twice. Its equation (Eq. 3) compares sigma of the selected candidate and abstains at once when
that is extreme; its algorithm compares the mean sigma over the pool and always tries again before it abstains.
``signal`` chooses the gate:

- ``selected``: sigma of the selected candidate, in the algorithm's order of steps (below);
- ``pool_mean``: the mean sigma over the pool, in the algorithm's order of steps: Algorithm 1 as printed;
- ``equation``: sigma of the selected candidate; above ``theta_abstain`` with every constraint satisfied, abstain at
  once, without another pass: Eq. 3 as printed.

The algorithm's steps:

1. regenerate, if a pass is left, when the signal is above ``theta_sigma`` or a constraint is violated;
2. else abstain when sigma of the *selected* candidate is above ``theta_abstain``, or when nothing can be selected;
3. else accept.

With ``signal="selected"`` step 2 never stops an answer that passed the gate, because theta_sigma < theta_abstain. The
paper does not say what Eq. 3 does when nothing can be selected: every gate then tries again while a pass is left.

That is ``rule="paper"``. With ``rule="posterior"`` the decision rests on the probability p that the selected answer is
right (``posterior``), and the profile says how it is selected (``profiles``):

1. accept a proven answer; never give out a refuted one;
2. accept when p >= ``tau_accept``;
3. else regenerate, if a pass is left;
4. else abstain when p < ``tau_answer``, or when nothing can be selected;
5. else accept.

A policy also holds the limits of one request (candidates, time, money). They end the sampling, never the deciding.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from raydebm.config import TriageConfig
from raydebm.decision.posterior import Belief, Posterior
from raydebm.decision.profiles import PROFILES, Profile, ranked
from raydebm.errors import ConfigError
from raydebm.records import Decision, ScoredCandidate
from raydebm.tasks.base import TaskDefaults

Rule = Literal["paper", "posterior"]
Signal = Literal["selected", "pool_mean", "equation"]
_LIMITS = {"budget": 1, "deadline_ms": 1, "max_usd": 0}
"""Fields of a policy that may be absent, and their least values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything that decides. Written by calibration or taken from a recipe.

    Raises:
        ConfigError: a value is out of range; the message names it.
    """

    lambda_: float = 1.0
    """Weight of E_constraint in E = mu + lambda * E_constraint, >= 0."""
    theta_sigma: float = 0.8
    """Accept at once only at or below this signal (energy units)."""
    theta_abstain: float = 1.5
    """Above this sigma of the selected candidate no answer is given; greater than theta_sigma."""
    signal: Signal = "selected"
    max_passes: int = 2
    """Rounds of generation, the first included."""
    num_regenerate: int = 8
    """Candidates of each later pass (N2 in the paper)."""
    budget: int | None = None
    """Most candidates over all passes, >= 1; None: no limit."""
    deadline_ms: int | None = None
    """Milliseconds, >= 1, within which the decision is made (see ``triage.deadline``); None: no limit."""
    max_usd: float | None = None
    """Most US dollars for candidates, >= 0; whoever draws them keeps to it. None: no limit."""
    rule: Rule = "paper"
    """``paper``: thresholds on sigma. ``posterior``: thresholds on the probability that the answer is right."""
    profile: Profile = "posterior"
    """How ``rule="posterior"`` selects."""
    tau_accept: float = 0.9
    """Accept without a further pass at or above this probability."""
    tau_answer: float = 0.5
    """After the last pass, give no answer below this probability; at most tau_accept."""
    posterior: Posterior | None = field(default=None, hash=False)
    """What ``rule="posterior"`` decides by; beside the paper's rule it only adds the confidence to the answer."""
    guarantee: Mapping[str, Any] | None = field(default=None, hash=False)
    """What is promised about answers (``guarantee.Guarantee.summary``); None: nothing."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lambda_) and self.lambda_ >= 0):
            raise ConfigError(f"triage.lambda must be a number >= 0, got {self.lambda_}")
        if not 0 <= self.theta_sigma < self.theta_abstain:  # written so that NaN fails too
            raise ConfigError(
                "triage needs 0 <= theta_sigma < theta_abstain, "
                f"got theta_sigma={self.theta_sigma} and theta_abstain={self.theta_abstain}"
            )
        if self.signal not in get_args(Signal):
            raise ConfigError(f"triage.signal must be one of {', '.join(get_args(Signal))}, got {self.signal!r}")
        if self.max_passes < 1 or self.num_regenerate < 1:
            raise ConfigError(
                "triage.max_passes and triage.num_regenerate must be >= 1, "
                f"got {self.max_passes} and {self.num_regenerate}"
            )
        self._check_rule()
        for name, least in _LIMITS.items():
            limit = getattr(self, name)
            if limit is not None and not (math.isfinite(limit) and limit >= least):
                raise ConfigError(f"{name} must be a number >= {least}, got {limit}")

    def _check_rule(self) -> None:
        for name, known in (("rule", get_args(Rule)), ("profile", PROFILES)):
            if getattr(self, name) not in known:
                raise ConfigError(f"triage.{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if not 0 <= self.tau_answer <= self.tau_accept <= 1:
            raise ConfigError(
                "triage needs 0 <= tau_answer <= tau_accept <= 1, "
                f"got tau_answer={self.tau_answer} and tau_accept={self.tau_accept}"
            )
        if self.rule == "posterior" and self.posterior is None:
            raise ConfigError(
                "triage.rule is posterior, but none was fitted; run `raydebm calibrate`, or set triage.rule: paper"
            )

    def within(self, most_ms: int) -> "Policy":
        """The same with a deadline that is not later than this."""
        return replace(self, deadline_ms=min(self.deadline_ms or most_ms, most_ms))

    def settings(self) -> dict[str, Any]:
        """The keys of a recipe's ``triage`` section, so that the numbers can be pasted there, and the limits that are
        set; without the fitted posterior and the guarantee."""
        limits = {name: getattr(self, name) for name in _LIMITS}
        return {
            "lambda": self.lambda_,
            "theta_sigma": self.theta_sigma,
            "theta_abstain": self.theta_abstain,
            "signal": self.signal,
            "max_passes": self.max_passes,
            "num_regenerate": self.num_regenerate,
            "rule": self.rule,
            "profile": self.profile,
            "tau_accept": self.tau_accept,
            "tau_answer": self.tau_answer,
            **{name: limit for name, limit in limits.items() if limit is not None},
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, as ``calibration/policy.json`` holds it."""
        fitted = {} if self.posterior is None else {"posterior": self.posterior.to_json()}
        promised = {} if self.guarantee is None else {"guarantee": dict(self.guarantee)}
        return {**self.settings(), **fitted, **promised}

    def changed(self, changes: Mapping[str, Any]) -> "Policy":
        """The policy with some settings changed, by their names in JSON.

        A promise does not survive a change that it was not certified for: anything but a stricter ``tau_answer``, with
        the ``tau_accept`` that it implies.

        Raises:
            ConfigError: unknown key, wrong type, or a value out of range.
        """
        before, tau_answer = self.settings(), changes.get("tau_answer")
        if "tau_accept" not in changes and isinstance(tau_answer, int | float) and tau_answer > self.tau_accept:
            changes = {**changes, "tau_accept": tau_answer}
        other = Policy.from_json({**self.to_json(), **changes})
        after = other.settings()
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        if other.posterior != self.posterior:
            changed.add("posterior")
        changed -= _harmless(self, other)
        if other.guarantee is None or not changed:
            return other
        reason = f"the request changed {', '.join(sorted(changed))}"
        return replace(other, guarantee={**other.guarantee, "certified": False, "reason": reason})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Policy":
        """Inverse of ``to_json``; absent keys take their defaults.

        Raises:
            ConfigError: unknown key, wrong type, or a value out of range.
        """
        known = cls(budget=64, deadline_ms=30_000, max_usd=0.05).to_json()
        fitted = {name: value[name] for name in ("posterior", "guarantee") if value.get(name) is not None}
        value = {name: item for name, item in value.items() if name not in ("posterior", "guarantee")}
        unknown = sorted(set(value) - set(known))
        if unknown:
            raise ConfigError(f"policy has unknown key(s) {', '.join(unknown)}; known: {', '.join(known)}")
        given = {key: item for key, item in value.items() if item is not None or key not in _LIMITS}
        for key, item in given.items():
            wanted = str if isinstance(known[key], str) else int if isinstance(known[key], int) else (int, float)
            if isinstance(item, bool) or not isinstance(item, wanted):
                raise ConfigError(f"policy key {key!r} must be like {known[key]!r}, got {item!r}")
        if not isinstance(fitted.get("guarantee", {}), Mapping):
            raise ConfigError(f"policy key 'guarantee' must be an object, got {fitted['guarantee']!r}")
        if "posterior" in fitted:
            fitted["posterior"] = Posterior.from_json(fitted["posterior"])
        return cls(**{"lambda_" if key == "lambda" else key: item for key, item in given.items()}, **fitted)


def _harmless(before: Policy, after: Policy) -> set[str]:
    """Settings that may differ without voiding a promise: answering less; and what ends the sampling, where there is
    one pass or it only follows a stricter ``tau_answer``."""
    is_stricter = after.tau_answer >= before.tau_answer
    is_one_pass = before.max_passes == after.max_passes == 1
    is_implied = is_stricter and before.tau_accept <= after.tau_accept == after.tau_answer
    return ({"tau_answer"} if is_stricter else set()) | ({"tau_accept"} if is_one_pass or is_implied else set())


def policy_of(config: TriageConfig, task_defaults: TaskDefaults) -> Policy:
    """The policy that a recipe states; lambda falls back to the task's."""
    return Policy(
        lambda_=task_defaults.lambda_ if config.lambda_ is None else config.lambda_,
        theta_sigma=config.theta_sigma,
        theta_abstain=config.theta_abstain,
        signal=config.signal,
        max_passes=config.max_passes,
        num_regenerate=config.num_regenerate,
        tau_accept=config.tau_accept,
        tau_answer=config.tau_answer,
    )


def select(pool: Sequence[ScoredCandidate], lambda_: float) -> ScoredCandidate | None:
    """The energy minimiser argmin E, or None when every E is +inf (nothing parsed, or nothing could be scored).

    Ties go to the lower mu, then to the earlier pass, then to the smaller candidate id: a later pass that adds
    nothing better leaves the selection as it was, and the order of the pool never matters.
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
    """The sigma that gates: the mean over every scored candidate of the pool (``pool_mean``), else the selected one's.

    None when there is no such candidate.
    """
    if signal != "pool_mean":
        return None if best is None or best.energies is None else best.energies.sigma
    sigmas = [scored.energies.sigma for scored in pool if scored.energies is not None]
    return math.fsum(sigmas) / len(sigmas) if sigmas else None


def decide(
    *, signal: float | None, sigma: float | None, penalty: float | None, passes_left: int, policy: Policy
) -> Decision:
    """The rule itself.

    Args:
        signal: the gating sigma (see ``signal_of``), None when nothing was scored.
        sigma: sigma of the selected candidate, None when nothing could be selected.
        penalty: E_constraint of the selected candidate, None when nothing could be selected.
        passes_left: how many more rounds may be drawn.
        policy: thresholds.
    """
    if sigma is None or penalty is None or signal is None:
        return Decision.REGENERATE if passes_left > 0 else Decision.ABSTAIN
    if policy.signal == "equation" and sigma > policy.theta_abstain and penalty == 0:
        return Decision.ABSTAIN
    if passes_left > 0 and (signal > policy.theta_sigma or penalty > 0):
        return Decision.REGENERATE
    return Decision.ABSTAIN if sigma > policy.theta_abstain else Decision.ACCEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A decision about one pool, with what it was based on."""

    decision: Decision
    best: ScoredCandidate | None
    signal: float | None
    penalty: float | None
    reason: str
    beliefs: tuple[Belief, ...] = ()
    """What is believed about every answer of the pool, the selected one first; empty without a posterior."""

    @property
    def confidence(self) -> float | None:
        """Probability that the selected answer is right; None without a posterior or a selection."""
        return self.beliefs[0].probability if self.beliefs and self.best is not None else None


def rule(pool: Sequence[ScoredCandidate], *, passes_left: int, policy: Policy) -> Ruling:
    """Select from a pool and decide about the selection; the reason is one sentence with the numbers compared."""
    if policy.rule == "posterior" and policy.posterior is not None:
        return _rule_by_posterior(pool, policy.posterior, passes_left=passes_left, policy=policy)
    ruling = _rule_by_sigma(pool, passes_left=passes_left, policy=policy)
    return replace(ruling, beliefs=beliefs_about(pool, policy, ruling.best))


def beliefs_about(pool: Sequence[ScoredCandidate], policy: Policy, best: ScoredCandidate | None) -> tuple[Belief, ...]:
    """What the policy's posterior believes about a pool's answers, that of ``best`` first, the others by probability.

    Empty without a posterior or without a selection.
    """
    if policy.posterior is None or best is None:
        return ()
    beliefs = policy.posterior.beliefs(pool)
    own = [belief for belief in beliefs.beliefs if any(scored is best for scored in belief.candidates)]
    return (*own, *(belief for belief in beliefs.beliefs if belief not in own)) if own else ()


def _rule_by_posterior(
    pool: Sequence[ScoredCandidate], posterior: Posterior, *, passes_left: int, policy: Policy
) -> Ruling:
    beliefs = ranked(policy.profile, posterior.beliefs(pool), posterior)
    return rule_by_beliefs(pool, beliefs, passes_left=passes_left, policy=policy)


def rule_by_beliefs(
    pool: Sequence[ScoredCandidate], beliefs: tuple[Belief, ...], *, passes_left: int, policy: Policy
) -> Ruling:
    """The rule of ``rule="posterior"``, where ``beliefs`` has the profile's selection first."""
    first = beliefs[0] if beliefs and beliefs[0].probability > 0 else None
    best = None if first is None else first.best
    if first is None:
        decision = Decision.REGENERATE if passes_left > 0 else Decision.ABSTAIN
        reason = "every answer is refuted by an exact constraint" if beliefs else _nothing_selected(pool)
    else:
        decision = decide_by_confidence(first.probability, passes_left=passes_left, policy=policy)
        reason = _reason_by_posterior(first, decision, policy) + _without_energy(pool)
    return Ruling(
        decision=decision,
        best=best,
        signal=signal_of(pool, best, policy.signal),
        penalty=None if best is None else best.report.penalty,
        reason=reason,
        beliefs=beliefs,
    )


def final_decision(ruling: Ruling, policy: Policy) -> Decision:
    """What a ruling comes to when no further pass can be drawn."""
    if policy.rule == "posterior":
        return (
            Decision.ABSTAIN
            if ruling.confidence is None
            else decide_by_confidence(ruling.confidence, passes_left=0, policy=policy)
        )
    energies = None if ruling.best is None else ruling.best.energies
    sigma = None if energies is None else energies.sigma
    return decide(signal=ruling.signal, sigma=sigma, penalty=ruling.penalty, passes_left=0, policy=policy)


def decide_by_confidence(confidence: float, *, passes_left: int, policy: Policy) -> Decision:
    """The rule of ``rule="posterior"`` for a selection with this probability of being right."""
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
    what = "right" if policy.posterior is None or policy.posterior.outcome == "correct" else "in order"
    broken = f"; {_violated(first.best)}" if first.best.report.penalty > 0 else ""
    return f"the answer is {what} with probability {p:.3g}, {side} {threshold}; {evidence_in_words(first)}{broken}"


_WORDS = {
    "votes": "share of candidates",
    "authors": "number of authors",
    "skill": "skill of its authors",
    "energy": "its lowest energy",
    "mean_energy": "its mean energy",
    "members": "agreement of the adapters",
    "penalty": "constraints",
    "energy_vote": "energy-weighted share",
    "minus_energy": "its energy",
}


def evidence_in_words(belief: Belief, count: int = 3) -> str:
    """The largest terms of evidence in words, such as ``share of candidates +1.2``, in log-odds."""
    terms = [(name, value) for name, value in belief.contributions.items() if name != "base" and abs(value) >= 0.005]
    terms.sort(key=lambda term: -abs(term[1]))
    parts = [f"{_WORDS[name]} {value:+.2f}" for name, value in terms[:count]]
    return f"evidence (log-odds): {', '.join(parts)}" if parts else "there is no other answer to compare it with"


def _rule_by_sigma(pool: Sequence[ScoredCandidate], *, passes_left: int, policy: Policy) -> Ruling:
    best = select(pool, policy.lambda_)
    signal = signal_of(pool, best, policy.signal)
    sigma = best.energies.sigma if best is not None and best.energies is not None else None
    penalty = None if best is None else best.report.penalty
    decision = decide(signal=signal, sigma=sigma, penalty=penalty, passes_left=passes_left, policy=policy)
    if best is None or sigma is None or signal is None:
        reason = _nothing_selected(pool)
    else:
        reason = _reason(decision, best, signal=signal, sigma=sigma, policy=policy) + _unscored(pool)
    return Ruling(decision=decision, best=best, signal=signal, penalty=penalty, reason=reason)


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


def _without_energy(pool: Sequence[ScoredCandidate]) -> str:
    """Says so where energies were measured for some candidates only: these count for less than the others."""
    written = [scored for scored in pool if scored.candidate.text is not None]
    missing = sum(scored.energies is None for scored in written)
    return f"; {missing} of {len(written)} candidates have no energy" if 0 < missing < len(written) else ""


def _nothing_selected(pool: Sequence[ScoredCandidate]) -> str:
    if not pool:
        return "no candidate was drawn"
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
