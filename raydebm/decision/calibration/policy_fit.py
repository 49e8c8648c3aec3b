"""From labelled problems to a policy that decides by the posterior.

In:   labelled pools; what their later passes would bring; costs or a promise.
Out:  a policy with posterior, profile, thresholds and guarantee, and everything to show for it.
Does not know: files, Ray, where labels come from.

Every number that judges the policy comes from cross-fitted predictions: each problem is decided by a posterior that was
fitted on other problems. Without a promise a problem is worth answering when its expected gain is above that of
refusing: p - (1 - p) wrong >= -refusal, so tau_answer = (wrong - refusal) / (1 + wrong). tau_accept maximises the mean
gain over the problems' passes. With a promise, tau_answer is the lowest certified threshold (``guarantee``), and
tau_accept maximises the gain that the confidences expect: labels that chose it could not test it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from raydebm.config import DecisionConfig
from raydebm.config.policy import Profile
from raydebm.decision.calibration.costs import answer_threshold
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """Labelled problems walked through every pass; P problems, S passes."""

    confidence: Floats
    """(P, S): of the selection after each pass; -inf where nothing can be selected. A walk that ended early repeats its
    last pass."""
    worth: Floats
    """(P, S): worth of the selection, 0 without one; NaN for unlabelled."""
    floor: float = -math.inf
    """Nothing is promised by thresholds below it (``guarantee.certify``)."""


WalkOf = Callable[[Sequence[Policy]], Walk]
"""Walks the pools' problems through all passes, each under its own policy."""


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

    def to_json(self) -> dict[str, Any]:
        """The contents of ``calibration/decision.json``."""
        return {
            "profile": self.choice.to_json(),
            "promises": [guarantee.to_json() for guarantee in self.promises],
            "guarantee": None if self.guarantee is None else self.guarantee.to_json(),
            "confidence": [None if math.isinf(value) else value for value in self.confidence.tolist()],
            "worth": self.worth.tolist(),
            "num_problems": self.num_problems,
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
    promises: Sequence[float] = PROMISES,
) -> PolicyFit:
    """Fit posterior, profile and thresholds.

    Args:
        base: gives lambda, passes and limits.
        config: costs, and the promise.
        profile: None: chosen by tests.
        walk: for policies of several passes; None: one pass.
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
        return _walked(table, crossed, chosen, own, policy=current, walk=walk)

    steps, started = walked(policy), policy.tau_accept
    policy = _with_thresholds(policy, steps, config)
    if policy.waves is not None and policy.tau_accept != started:
        steps = walked(policy)
    test = _PromiseTest.of(policy, steps, walked)
    fitted = _fitted(policy, test, choice, config=config, promises=promises)
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
    base = _with_thresholds(policy.replaced(rule="posterior", guarantee=None), steps, config)
    test = _PromiseTest.of(base, steps, walked=None)
    return _fitted(base, test, choice, config=config, promises=promises)


def _fitted(
    policy: Policy, test: "_PromiseTest", choice: ProfileChoice, *, config: DecisionConfig, promises: Sequence[float]
) -> PolicyFit:
    """A policy with thresholds, the promise that was asked for, and what else may be promised."""
    assert policy.posterior is not None
    binary, level = policy.posterior.outcome == "correct", config.confidence
    guarantee: Guarantee | None = None
    if config.max_error == "auto":
        guarantee = test.smallest(min_coverage=config.min_coverage, confidence=level, binary=binary)
    elif config.max_error is not None:
        guarantee = test.certify(config.max_error, confidence=level, binary=binary)
    if guarantee is not None:
        tau = 1.0 if guarantee.tau is None else guarantee.tau
        policy = promised(policy.replaced(tau_accept=test.tau_accept(tau)), guarantee)
    confidence, worth = final_step(test.steps_at(policy.tau_accept), policy.tau_accept)
    labelled = ~np.isnan(worth)
    return PolicyFit(
        policy=policy,
        choice=choice,
        promises=tuple(test.certify(error, confidence=level, binary=binary) for error in promises),
        guarantee=guarantee,
        confidence=confidence[labelled],
        worth=worth[labelled],
        num_problems=choice.num_problems,
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
    """Mean gain per labelled problem, in right answers; per problem as the confidences expect it where a promise is
    asked for."""
    confidence, worth = final_step(steps, tau_accept)
    if config.max_error is not None:
        worth = np.where(np.isfinite(confidence), confidence, 0.0)
    costs = config.costs
    gain = np.where(confidence >= tau_answer, worth - costs.wrong * (1 - worth), -costs.refusal)
    return float(np.nanmean(gain - costs.pass_ * _stops(steps, tau_accept)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PromiseTest:
    """Thresholds of answering, each tested on the walk of the policy that it implies.

    ``tau_accept`` is at least ``tau_answer``, so a threshold above it changes where problems stop. In waves it also
    changes what is sampled; then thresholds above it share the walk of the next value of a short list.
    """

    steps: tuple[Walk, ...]
    """One that serves every ``tau_accept``; in waves one for each of ``accept``."""
    accept: tuple[float, ...]
    """Values of ``tau_accept``, the policy's own first; fixed by confidences alone."""
    is_free: bool
    """Any ``tau_accept`` above the policy's own may be chosen, because it only says where a walk ends."""

    @classmethod
    def of(cls, policy: Policy, steps: Walk, walked: Callable[[Policy], Walk] | None) -> "_PromiseTest":
        """
        Args:
            steps: under the policy.
            walked: walks the problems under another one; None where that is not possible.
        """
        own = policy.tau_accept
        if policy.waves is None or walked is None:
            return cls(steps=(steps,), accept=(own,), is_free=policy.waves is None)
        above = steps.confidence[np.isfinite(steps.confidence) & (steps.confidence > own)]
        accept = sorted({own, 1.0, *([float(np.median(above))] if len(above) else [])})
        more = [walked(policy.replaced(tau_accept=tau)) for tau in accept[1:]]
        return cls(steps=(steps, *more), accept=tuple(accept), is_free=False)

    def tau_accept(self, tau: float) -> float:
        """Where problems stop under the policy that answers from ``tau`` on."""
        if self.is_free:
            return max(self.accept[0], tau)
        return next((value for value in self.accept if value >= tau), self.accept[-1])

    def steps_at(self, tau_accept: float) -> Walk:
        """The walk under this ``tau_accept``."""
        return self.steps[0 if self.is_free else self.accept.index(tau_accept)]

    def certify(self, error: float, *, confidence: float, binary: bool) -> Guarantee:
        """The lowest threshold at which this error may be promised."""
        first, losses = self._labelled()
        return certify(
            first, losses, max_error=error, confidence=confidence, binary=binary, floor=self.steps[0].floor, at=self._at
        )

    def smallest(self, *, min_coverage: float, confidence: float, binary: bool) -> Guarantee:
        """The smallest error that may be promised at this coverage."""
        first, losses = self._labelled()
        return certify_smallest(
            first, losses, min_coverage=min_coverage, confidence=confidence, binary=binary, floor=self.steps[0].floor,
            at=self._at,
        )  # fmt: skip

    def _labelled(self) -> tuple[Floats, Floats]:
        confidence, losses = self._at(self.accept[0])
        labelled = ~np.isnan(losses)
        return confidence[labelled], losses[labelled]

    def _at(self, tau: float) -> tuple[Floats, Floats]:
        tau_accept = self.tau_accept(tau)
        confidence, worth = final_step(self.steps_at(tau_accept), tau_accept)
        return confidence, 1 - worth


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
