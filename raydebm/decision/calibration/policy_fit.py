"""From labelled problems to a policy that decides by the posterior.

In:   labelled pools; what their later passes would bring; costs or a promise.
Out:  a policy with posterior, profile, thresholds and guarantee, and everything to show for it.
Does not know: files, Ray, where labels come from.

Every number that judges the policy comes from cross-fitted predictions: each problem is decided by a posterior that was
fitted on other problems. Without a promise a problem is worth answering when its expected gain is above that of
refusing: p - (1 - p) wrong >= -refusal, so tau_answer = (wrong - refusal) / (1 + wrong). tau_accept maximises the mean
gain over the problems' passes. With a promise, tau_answer is the lowest certified threshold (``guarantee``).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from raydebm.config import DecisionConfig
from raydebm.config.policy import Profile
from raydebm.decision.calibration.costs import answer_threshold
from raydebm.decision.calibration.walks import Walk, WalkOf, joined
from raydebm.decision.evidence.fitting import CrossFit, LabelledPool, LabelledTable, cross_fit, fit_posterior
from raydebm.decision.evidence.groups import Floats, Ints
from raydebm.decision.evidence.posterior import Estimates, Outcome, Posterior
from raydebm.decision.evidence.profile_choice import ProfileChoice, choose_profile
from raydebm.decision.evidence.profiles import PROFILES, winners
from raydebm.decision.evidence.recalibration import recalibrated
from raydebm.decision.guarantee.guarantee import Guarantee, certify, certify_smallest
from raydebm.decision.guarantee.promise import promised
from raydebm.decision.policy import Policy
from raydebm.decision.rules import decide_pool
from raydebm.decision.sampling.waves import cut_pass
from raydebm.errors import ConfigError, PoolError

PROMISES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
"""Errors of the table "what may be promised"."""
NUM_ACCEPT_THRESHOLDS = 20
MAX_WALKS = 6
"""With waves, walks until ``tau_accept`` is settled; the last one has ``tau_accept`` 1, which nothing raises."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyFit:
    """A policy with its evidence."""

    policy: Policy
    choice: ProfileChoice
    promises: tuple[Guarantee, ...]
    """What may be promised at ``PROMISES``."""
    guarantee: Guarantee | None
    """The promise that was asked for."""
    confidence: Floats
    """(P,), cross-fitted, of the final selection under the policy's ``tau_accept``."""
    worth: Floats
    """(P,)"""
    num_problems: int
    """Labelled problems."""
    floor: float = -math.inf
    """Nothing is promised by thresholds below it (``Walk.floor``)."""

    def to_json(self) -> dict[str, Any]:
        """The contents of ``calibration/decision.json``."""
        return {
            "profile": self.choice.to_json(),
            "promises": [guarantee.to_json() for guarantee in self.promises],
            "guarantee": None if self.guarantee is None else self.guarantee.to_json(),
            "confidence": [None if math.isinf(value) else value for value in self.confidence.tolist()],
            "worth": self.worth.tolist(),
            "num_problems": self.num_problems,
            "floor": None if math.isinf(self.floor) else self.floor,
        }

    def facts(self) -> dict[str, Any]:
        """The few numbers to show and to keep in a manifest."""
        answered = self.confidence >= self.policy.tau_answer
        return {
            "profile": self.policy.profile,
            "tau_accept": self.policy.tau_accept,
            "tau_answer": self.policy.tau_answer,
            "answered_frac": float(answered.mean()),
            "worth_answered": float(self.worth[answered].mean()) if answered.any() else None,
            "certified": None if self.guarantee is None else self.guarantee.certified,
            "num_labelled": self.num_problems,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledProblems:
    """Labelled problems of one task, none of which an ensemble member trained on."""

    pools: Sequence[LabelledPool]
    """Candidates of the first pass."""
    task: str
    outcome: Outcome
    """Whether labels say right and wrong or have a violation score."""


def fit_policy(
    problems: LabelledProblems,
    *,
    base: Policy,
    config: DecisionConfig,
    profile: Profile | None = None,
    walk: WalkOf | None = None,
    unlearned: Callable[[Policy], Walk] | None = None,
    promises: Sequence[float] = PROMISES,
) -> PolicyFit:
    """Fit posterior, profile and thresholds.

    Args:
        base: gives lambda, passes and limits.
        config: costs, and the promise.
        profile: None: chosen by tests.
        walk: for policies of several passes; None: one pass.
        unlearned: walks, under the policy with the posterior of all pools, problems that nothing is learned from and
            that the thresholds and the promise count all the same; None: there are none.
        promises: errors of the table "what may be promised".

    Raises:
        PoolError: fewer than two labelled problems, or none of them has an answer that can be read.
    """
    known = [pool for pool in problems.pools if pool.is_labelled]
    if len(known) < 2:
        raise PoolError(f"a posterior needs at least 2 labelled problems, got {len(known)} of {len(problems.pools)}")
    table = LabelledTable.of(known, base.lambda_)
    if not table.table.num_clusters:
        raise PoolError(f"no candidate of the {len(known)} labelled problems has an answer that can be read")

    def fit(used: Any = None) -> Posterior:
        return fit_posterior(table, lambda_=base.lambda_, task=problems.task, outcome=problems.outcome, used=used)

    crossed = cross_fit(table, fit)
    by_profile = {name: _worth(name, table, crossed) for name in PROFILES}
    choice = choose_profile(by_profile, delta=config.delta)
    if profile is not None:
        choice = replace(choice, profile=profile, tests=())
    chosen = _selected(choice.profile, table, crossed)
    posterior = recalibrated(fit(), table, crossed, chosen)
    policy = base.replaced(rule="posterior", profile=choice.profile, posterior=posterior, guarantee=None)
    own = [
        recalibrated(other, table, crossed, chosen, used=crossed.fold != fold)
        for fold, other in enumerate(crossed.posteriors)
    ]

    def walked(current: Policy) -> Walk:
        steps = _walked(table, crossed, chosen, own, policy=current, walk=walk)
        return steps if unlearned is None else joined(steps, unlearned(current.without_accepting()))

    steps = walked(policy)
    policy, guarantee = _with_promise(_with_thresholds(policy, steps, config), steps, config, problems.outcome)
    if policy.waves is not None:
        policy, guarantee, steps = _in_waves(policy, walked, config, problems.outcome)
    fitted = _fitted(policy, guarantee, choice, steps, level=config.confidence, promises=promises)
    return replace(fitted, num_problems=len(known))


def fit_thresholds(
    policy: Policy, steps: Walk, *, config: DecisionConfig, promises: Sequence[float] = PROMISES
) -> PolicyFit:
    """Choose thresholds, and certify the promise, for a policy whose posterior and profile stay as they are.

    Args:
        policy: has a posterior, which was fitted on other problems than those that walk.
        steps: labelled problems under this policy.
        config: costs, and the promise.
        promises: errors of the table "what may be promised".

    Raises:
        ConfigError: the policy has no posterior.
        PoolError: no problem is labelled.
    """
    if policy.posterior is None:
        raise ConfigError("thresholds are chosen for a policy with a posterior, and this one has none; calibrate first")
    labelled = steps.worth[~np.isnan(steps.worth[:, -1]), -1]
    if not len(labelled):
        raise PoolError(f"none of {len(steps.worth)} problems is labelled, so no threshold can be chosen; label some")
    choice = ProfileChoice(
        profile=policy.profile,
        delta=config.delta,
        worth={policy.profile: float(labelled.mean())},
        tests=(),
        num_problems=len(labelled),
    )
    base = policy.replaced(rule="posterior", guarantee=None)
    outcome = policy.posterior.outcome
    fitted, guarantee = _with_promise(_with_thresholds(base, steps, config), steps, config, outcome)
    return _fitted(fitted, guarantee, choice, steps, level=config.confidence, promises=promises)


def _fitted(
    policy: Policy,
    guarantee: Guarantee | None,
    choice: ProfileChoice,
    steps: Walk,
    *,
    level: float,
    promises: Sequence[float],
) -> PolicyFit:
    """A policy with the walks of its labelled problems; ``level`` is the confidence of promises."""
    assert policy.posterior is not None
    final = _labelled_step(steps, policy.tau_accept)
    return PolicyFit(
        policy=policy,
        choice=choice,
        promises=tuple(_certified(final, error, level, policy.posterior.outcome) for error in promises),
        guarantee=guarantee,
        confidence=final.confidence[:, 0],
        worth=final.worth[:, 0],
        num_problems=choice.num_problems,
        floor=steps.floor,
    )


def _selected(profile: Profile, labelled_table: LabelledTable, crossed: CrossFit) -> Ints:
    """(P,): the profile's cluster of each pool, by the posterior that did not see the pool."""
    selected = np.full(len(labelled_table.pools), -1, dtype=np.intp)
    estimates = Estimates(probability=crossed.probability, none=crossed.none)
    for fold, posterior in enumerate(crossed.posteriors):
        inside = crossed.fold == fold
        selected[inside] = winners(profile, labelled_table.table, estimates, posterior)[inside]
    return selected


def _worth(profile: Profile, labelled_table: LabelledTable, crossed: CrossFit) -> Floats:
    selected = _selected(profile, labelled_table, crossed)
    return np.where(selected >= 0, _at(labelled_table.given_worth, selected), 0.0)


def _at(values: Floats, places: Any) -> Floats:
    """Values at places; 0 at -1."""
    return np.where(places >= 0, values[places], 0.0) if len(values) else np.zeros(len(places))


def _walked(
    labelled_table: LabelledTable,
    crossed: CrossFit,
    chosen: Ints,
    own: Sequence[Posterior],
    *,
    policy: Policy,
    walk: WalkOf | None,
) -> Walk:
    """Every problem under the posterior that was fitted and recalibrated on the other folds; ``own`` has it by fold."""
    if walk is not None or policy.waves is not None:
        policies = [policy.without_accepting().replaced(posterior=own[fold]) for fold in crossed.fold]
        return _first_pass_in_waves(labelled_table.pools, policies) if walk is None else walk(policies)
    owner = labelled_table.table.pool_of_cluster
    confidence = np.full(len(chosen), -math.inf)
    for fold, posterior in enumerate(own):
        probability, _ = posterior.recalibrate(crossed.probability, crossed.none, owner)
        inside = (crossed.fold == fold) & (chosen >= 0)
        confidence[inside] = probability[chosen[inside]]
    worth = np.where(chosen >= 0, _at(labelled_table.given_worth, chosen), 0.0)
    return Walk(confidence=confidence[:, None], worth=worth[:, None])


def _first_pass_in_waves(pools: Sequence[LabelledPool], policies: Sequence[Policy]) -> Walk:
    """Each problem's first pass, cut to what its policy would have sampled of it."""
    confidence, worth = np.full((len(pools), 1), -math.inf), np.zeros((len(pools), 1))
    for place, (pool, policy) in enumerate(zip(pools, policies, strict=True)):
        decided = decide_pool(cut_pass(pool.candidates, policy).candidates, passes_left=0, policy=policy)
        if decided.best is None or decided.confidence is None:
            continue
        ids = [scored.candidate.candidate_id for scored in pool.candidates]
        confidence[place] = decided.confidence
        worth[place] = pool.worth[ids.index(decided.best.candidate.candidate_id)]
    return Walk(confidence=confidence, worth=worth)


def final_step(steps: Walk, tau_accept: float) -> tuple[Floats, Floats]:
    """(confidence, worth) of each problem where it stops: at the first pass that reaches ``tau_accept``, else the
    last."""
    stops = _stops(steps, tau_accept)
    rows = np.arange(len(stops))
    return steps.confidence[rows, stops], steps.worth[rows, stops]


def _labelled_step(steps: Walk, tau_accept: float) -> Walk:
    """``final_step`` of the problems whose selection is labelled there, as walks of one pass."""
    confidence, worth = final_step(steps, tau_accept)
    labelled = ~np.isnan(worth)
    return Walk(confidence=confidence[labelled, None], worth=worth[labelled, None], floor=steps.floor)


def _stops(steps: Walk, tau_accept: float) -> Any:
    passed = steps.confidence >= tau_accept
    passed[:, -1] = True
    return passed.argmax(axis=1)


def _with_thresholds(policy: Policy, steps: Walk, config: DecisionConfig) -> Policy:
    """``tau_answer`` from the costs, ``tau_accept`` from the problems' passes."""
    tau_answer = answer_threshold(config.costs)
    if steps.confidence.shape[1] == 1:
        return policy.replaced(tau_answer=tau_answer, tau_accept=max(policy.tau_accept, tau_answer))
    first = steps.confidence[:, 0]
    usable = first[np.isfinite(first) & (first >= tau_answer)]
    grid = {tau_answer, 1.0, max(policy.tau_accept, tau_answer)}
    if len(usable):
        grid |= {float(value) for value in np.quantile(usable, np.linspace(0, 1, NUM_ACCEPT_THRESHOLDS))}
    best = max(sorted(grid), key=lambda tau: _gain(steps, tau, tau_answer, config))
    return policy.replaced(tau_answer=tau_answer, tau_accept=best)


def _gain(steps: Walk, tau_accept: float, tau_answer: float, config: DecisionConfig) -> float:
    """Mean gain per labelled problem, in right answers."""
    confidence, worth = final_step(steps, tau_accept)
    costs = config.costs
    gain = np.where(confidence >= tau_answer, worth - costs.wrong * (1 - worth), -costs.refusal)
    return float(np.nanmean(gain - costs.pass_ * _stops(steps, tau_accept)))


def _certified(final: Walk, error: float, level: float, outcome: Outcome) -> Guarantee:
    """
    Args:
        final: walks of one pass, all labelled.
        error: the promised one.
        level: confidence of the promise.
        outcome: what labels say.
    """
    confidence, losses, binary = final.confidence[:, 0], 1 - final.worth[:, 0], outcome == "correct"
    return certify(confidence, losses, max_error=error, confidence=level, binary=binary, floor=final.floor)


def _promised(final: Walk, config: DecisionConfig, outcome: Outcome) -> Guarantee | None:
    if config.max_error is None:
        return None
    if config.max_error != "auto":
        return _certified(final, config.max_error, config.confidence, outcome)
    return certify_smallest(
        final.confidence[:, 0],
        1 - final.worth[:, 0],
        min_coverage=config.min_coverage,
        confidence=config.confidence,
        binary=outcome == "correct",
        floor=final.floor,
    )


def _with_promise(
    policy: Policy, steps: Walk, config: DecisionConfig, outcome: Outcome
) -> tuple[Policy, Guarantee | None]:
    """The policy with the certified threshold; where nothing is certified, only proven answers are given out.

    ``tau_accept`` decides where a problem stops, and is at least ``tau_answer``. Where the certified threshold would
    raise it, the promise is tested again with the raised one, so that what is promised is what will be done.
    """
    while True:
        guarantee = _promised(_labelled_step(steps, policy.tau_accept), config, outcome)
        if guarantee is None:
            return policy, None
        tested = promised(policy, guarantee)
        if steps.confidence.shape[1] == 1 or tested.tau_accept == policy.tau_accept:
            return tested, guarantee
        policy = policy.replaced(tau_accept=tested.tau_accept)


def _in_waves(
    policy: Policy, walked: Callable[[Policy], Walk], config: DecisionConfig, outcome: Outcome
) -> tuple[Policy, Guarantee | None, Walk]:
    """The policy with the promise that holds for its own stopping rule, the promise, and the walk it was tested on."""
    num_walks = 0
    while True:
        steps = walked(policy)
        num_walks += 1
        tested, guarantee = _with_promise(policy, steps, config, outcome)
        if tested.tau_accept == policy.tau_accept:
            return tested, guarantee, steps
        policy = tested if num_walks < MAX_WALKS - 1 else tested.replaced(tau_accept=1.0)


def reliability_table(confidence: Floats, worth: Floats, num_bins: int = 10) -> list[dict[str, float]]:
    """Bins of equal numbers of problems by confidence: mean confidence, mean worth, number."""
    order = np.argsort(confidence, kind="stable")
    return [
        {"confidence": float(confidence[rows].mean()), "worth": float(worth[rows].mean()), "problems": len(rows)}
        for rows in np.array_split(order, num_bins)
        if len(rows)
    ]


def promise_rows(promises: Sequence[Guarantee]) -> list[dict[str, Any]]:
    """The table "what may be promised", without the thresholds that were tried."""
    return [{name: value for name, value in asdict(row).items() if name != "table"} for row in promises]
