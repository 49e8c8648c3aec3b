"""Fit a policy with the posterior rule on labelled problems.

In:   a table of labelled pools; walks of their later passes; costs or a guarantee.
Out:  a policy with posterior, profile, thresholds and guarantee, and the evidence for it.
Independent of: files, Ray, the source of labels.

Every number that judges the policy is from cross-fitted predictions: each problem is decided by a posterior that was
fitted on other problems. Without a guarantee, a problem is answered if its expected gain is at least that of refusing:
p - (1 - p) wrong >= -refusal, so tau_answer = (wrong - refusal) / (1 + wrong). tau_accept maximises the mean gain
over the problems. With a guarantee, tau_answer is the lowest certified threshold (``guarantee``), and tau_accept
maximises the gain expected from confidences, because labels that chose it could not also test it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from raydebm.config import CostsConfig, DecisionConfig
from raydebm.config.decision import Profile
from raydebm.decision.calibration.field_fit import FieldFit, fit_fields
from raydebm.decision.calibration.profile_choice import ProfileChoice, choose_profile
from raydebm.decision.calibration.walks import GuaranteeTest, Walk, WalkOf, final_step, stops
from raydebm.decision.evidence.fitting import CrossFit, cross_fit, fit_posterior, given_worth
from raydebm.decision.evidence.pool_sizes import PoolParts
from raydebm.decision.evidence.posterior import Competition, Estimates, Posterior
from raydebm.decision.evidence.profiles import PROFILES, winners
from raydebm.decision.evidence.recalibration import recalibrated
from raydebm.decision.guarantee.guarantee import Guarantee
from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.rules import decide_pool
from raydebm.decision.sampling.waves import cut_pass
from raydebm.decision.table import Floats, Ints, PoolTable
from raydebm.errors import ConfigError, PoolError

ERRORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
"""Error rates of the table of possible guarantees."""
NUM_ACCEPT_THRESHOLDS = 20
DELTA = 0.1
"""Probability that a richer profile replaces a simpler one that is better."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyFit:
    """A policy with its evidence."""

    policy: Policy
    choice: ProfileChoice
    guarantees: tuple[Guarantee, ...]
    """Result of certifying each error rate of the table, ``ERRORS`` by default."""
    guarantee: Guarantee | None
    """Requested guarantee."""
    confidence: Floats
    """Cross-fitted confidence in each final selection under the policy's ``tau_accept``, shape (P,)."""
    worth: Floats
    """Worth of each final selection, shape (P,)."""
    num_problems: int
    """Number of labelled problems."""
    floor: float = -math.inf
    """Lowest threshold that can be certified (``Walk.floor``)."""
    fields: FieldFit | None = None
    """Fit for the fields of structured answers. None if no field is labelled."""
    field_guarantee: Guarantee | None = None
    """Requested guarantee on fields."""

    def decision_file(self) -> dict[str, Any]:
        """Contents of ``calibration/decision.json``."""
        return {
            "policy": policy_id(self.policy),
            "profile": asdict(self.choice),
            # Without the tested thresholds.
            "promises": [
                {name: value for name, value in asdict(row).items() if name != "table"} for row in self.guarantees
            ],
            "guarantee": None if self.guarantee is None else asdict(self.guarantee),
            "confidence": [None if math.isinf(value) else value for value in self.confidence.tolist()],
            "worth": self.worth.tolist(),
            "num_problems": self.num_problems,
            "floor": None if math.isinf(self.floor) else self.floor,
            **({} if self.fields is None else {"fields": self.fields.to_json()}),
            **({} if self.field_guarantee is None else {"field_guarantee": asdict(self.field_guarantee)}),
            "reliability": reliability_table(self.confidence, self.worth),
        }

    def facts(self) -> dict[str, Any]:
        """Main numbers, for display and for a manifest."""
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


def fit_policy(
    table: PoolTable,
    *,
    base: Policy,
    config: DecisionConfig,
    task: str = "",
    competition: Competition = "exclusive",
    checkpoint: str = "",
    profile: Profile | None = None,
    walk: WalkOf | None = None,
    errors: Sequence[float] = ERRORS,
    terms: Sequence[str] | None = None,
    context: Sequence[str] | None = None,
) -> PolicyFit:
    """Fit posterior, profile and thresholds.

    Args:
        table: problems of one task that no adapter was trained on, with the candidates of the first pass. Unlabelled
            problems are ignored.
        base: policy that supplies lambda, passes and limits.
        config: costs and the requested guarantee.
        task: name of the problems' task.
        competition: whether different answers to one problem exclude each other. Defined by the task.
        checkpoint: fingerprint of the ensemble that computed the energies. Default: unknown.
        profile: profile to use. Default: chosen by tests.
        walk: function that walks the problems through several passes. Default: one pass.
        errors: error rates of the table of possible guarantees.
        terms: terms about answers that may have weight. Default: all.
        context: terms about "none of them" that may have weight. Default: all.

    Raises:
        PoolError: fewer than two labelled problems, or no problem with a parsed answer.
    """
    num_problems, table = table.num_pools, table.with_worth()
    if table.num_pools < 2:
        raise PoolError(f"a posterior needs at least 2 labelled problems, got {table.num_pools} of {num_problems}")
    if not table.num_clusters:
        raise PoolError(f"no candidate of the {table.num_pools} labelled problems has an answer that can be read")

    def fit(used: Any = None) -> Posterior:
        posterior = fit_posterior(
            table,
            lambda_=base.lambda_,
            task=task,
            competition=competition,
            terms=terms,
            context=context,
            used=used,
        )
        return replace(posterior, checkpoint=checkpoint)

    crossfit = cross_fit(table, fit)
    given = _given_worth(table, crossfit)
    # Without energies these profiles select what the posterior selects, so testing them would repeat its test.
    idle = () if np.isfinite(table.answered.mu).any() else ("energy", "energy_vote")
    by_profile = {name: _at(given, _selected(name, table, crossfit)) for name in PROFILES if name not in idle}
    choice = choose_profile(by_profile, delta=DELTA)
    if profile is not None:
        choice = replace(choice, profile=profile, tests=())
    predictions = _Predictions.of(choice.profile, table, crossfit)
    policy = base.replaced(
        rule="posterior", profile=choice.profile, posterior=predictions.calibrated(fit()), guarantee=None
    )
    own = [predictions.calibrated(other, fold) for fold, other in enumerate(crossfit.posteriors)]

    def walked(current: Policy) -> Walk:
        return predictions.walked(own, policy=current, walk=walk)

    fitted = _fitted(_tested(policy, walked, config), choice, config=config, errors=errors)
    fields = fit_fields(table, crossfit, own, predictions.selected)
    return with_fields(replace(fitted, num_problems=table.num_pools), fields, config)


def with_fields(fit: PolicyFit, fields: FieldFit | None, config: DecisionConfig) -> PolicyFit:
    """The fit with a model of the fields, and the requested guarantee on them.

    Raises:
        ConfigError: a guarantee on fields is requested, but no field is labelled.
    """
    if fields is None:
        if config.max_field_error is not None:
            raise ConfigError(
                f"decision.max_field_error is {config.max_field_error:g}, but no answer has labelled fields; use a "
                "task with structured answers and reference answers, or leave it out"
            )
        return fit
    policy = fit.policy.replaced(fields=fields.model)
    if config.max_field_error is None:
        return replace(fit, policy=policy, fields=fields)
    guarantee = fields.certify(config.max_field_error, config.confidence)
    stated = _stated(guarantee)
    policy = policy.replaced(tau_field=stated["tau"], field_guarantee=stated)
    return replace(fit, policy=policy, fields=fields, field_guarantee=guarantee)


def fit_thresholds(
    policy: Policy, walked: Callable[[Policy], Walk], *, config: DecisionConfig, errors: Sequence[float] = ERRORS
) -> PolicyFit:
    """Choose thresholds and certify the guarantee, with posterior and profile fixed.

    Args:
        policy: policy with a posterior that was fitted on other problems than those walked.
        walked: function that walks labelled problems under a policy with other thresholds.
        config: costs and the requested guarantee.
        errors: error rates of the table of possible guarantees.

    Raises:
        ConfigError: the policy has no posterior.
        PoolError: no problem is labelled.
    """
    if policy.posterior is None:
        raise ConfigError(
            "thresholds need a policy with a posterior, but this one has none; run `raydebm calibrate` first"
        )
    tested = _tested(policy.replaced(rule="posterior", guarantee=None), walked, config)
    worth = tested.test.steps[0].worth[:, -1]
    labelled = worth[~np.isnan(worth)]
    if not len(labelled):
        raise PoolError(f"none of {len(worth)} problems is labelled, so no threshold can be chosen; label some")
    choice = ProfileChoice(
        profile=policy.profile,
        delta=DELTA,
        worth={policy.profile: float(labelled.mean())},
        tests=(),
        num_problems=len(labelled),
    )
    return _fitted(tested, choice, config=config, errors=errors)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tested:
    """A policy with thresholds, and the walks that guarantees are tested on."""

    policy: Policy
    test: GuaranteeTest
    """Test of the requested guarantee."""
    table: GuaranteeTest
    """Test for the table of possible guarantees. If labels chose the policy's ``tau_accept``, this test uses another
    value that labels did not choose."""


def _tested(base: Policy, walked: Callable[[Policy], Walk], config: DecisionConfig) -> _Tested:
    """Choose the thresholds of a policy and walk the problems under them."""
    steps, is_guaranteed = walked(base), config.max_error is not None
    policy = _with_thresholds(base, steps.expected() if is_guaranteed else steps, config.costs)
    own = walked(policy) if policy.waves is not None and policy.tau_accept != base.tau_accept else steps
    test = GuaranteeTest.of(policy, own, walked)
    if is_guaranteed or steps.confidence.shape[1] == 1:
        return _Tested(policy=policy, test=test, table=test)
    if test.is_free:
        unlabelled = _with_thresholds(base, steps.expected(), config.costs).tau_accept
        return _Tested(policy=policy, test=test, table=replace(test, accept=(unlabelled,)))
    all_passes = replace(test, steps=test.steps[-1:], accept=test.accept[-1:])
    return _Tested(policy=policy, test=test, table=all_passes)


def _fitted(tested: _Tested, choice: ProfileChoice, *, config: DecisionConfig, errors: Sequence[float]) -> PolicyFit:
    """Policy fit with the requested guarantee and the table of possible ones."""
    policy, test = tested.policy, tested.test
    assert policy.posterior is not None
    binary, level = policy.posterior.outcome == "correct", config.confidence
    guarantee: Guarantee | None = None
    if config.max_error == "auto":
        guarantee = test.smallest(min_coverage=config.min_coverage, confidence=level, binary=binary)
    elif config.max_error is not None:
        guarantee = test.certify(config.max_error, confidence=level, binary=binary)
    if guarantee is not None:
        stated = _stated(guarantee)
        tau_accept = test.tau_accept(stated["tau"])
        policy = policy.replaced(tau_answer=stated["tau"], tau_accept=tau_accept, guarantee=stated)
    confidence, worth = final_step(test.steps_at(policy.tau_accept), policy.tau_accept)
    labelled = ~np.isnan(worth)
    return PolicyFit(
        policy=policy,
        choice=choice,
        guarantees=tuple(tested.table.certify(error, confidence=level, binary=binary) for error in errors),
        guarantee=guarantee,
        confidence=confidence[labelled],
        worth=worth[labelled],
        num_problems=choice.num_problems,
        floor=test.steps_at(policy.tau_accept).floor,
    )


def _stated(guarantee: Guarantee) -> dict[str, Any]:
    """The guarantee in the form stored in a policy. It lists all certified thresholds, because a request may use any of
    them. Without a certified threshold, tau is 1, so only proven answers are returned."""
    tau = 1.0 if guarantee.tau is None else guarantee.tau
    facts = {name: getattr(guarantee, name) for name in ("max_error", "confidence", "certified", "problems")}
    return {**facts, "tau": tau, "thresholds": guarantee.certified_thresholds}


def _selected(profile: Profile, table: PoolTable, crossfit: CrossFit) -> Ints:
    """Cluster selected by the profile in each pool, from the posterior that did not see the pool. Shape (P,)."""
    selected = np.full(table.num_pools, -1, dtype=np.intp)
    estimates = Estimates(probability=crossfit.probability, none=crossfit.none)
    for fold, posterior in enumerate(crossfit.posteriors):
        inside = crossfit.fold == fold
        selected[inside] = winners(profile, table, estimates, posterior)[inside]
    return selected


def _given_worth(table: PoolTable, crossfit: CrossFit) -> Floats:
    """Worth of the returned candidate of each cluster, from the posterior that did not see its pool. Shape (C,)."""
    fold = crossfit.fold[table.pool_of_cluster]
    by_fold = [given_worth(table, posterior.reference) for posterior in crossfit.posteriors]
    return np.choose(fold, by_fold) if len(fold) else np.empty(0)


def _at(values: Floats, places: Any) -> Floats:
    """Values at the given indices; 0 where the index is -1."""
    return np.where(places >= 0, values[places], 0.0) if len(values) else np.zeros(len(places))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Predictions:
    """Out-of-fold predictions for P labelled pools and for parts of them."""

    table: PoolTable
    crossfit: CrossFit
    selected: Ints
    """Cluster that the profile selects in each pool, shape (P,)."""
    parts: PoolParts | None
    selected_of_parts: Ints | None

    @classmethod
    def of(cls, profile: Profile, table: PoolTable, crossfit: CrossFit) -> "_Predictions":
        parts = PoolParts.of(table, crossfit)
        return cls(
            table=table,
            crossfit=crossfit,
            selected=_selected(profile, table, crossfit),
            parts=parts,
            selected_of_parts=None if parts is None else _selected(profile, parts.table, parts.crossfit),
        )

    def calibrated(self, posterior: Posterior, fold: int | None = None) -> Posterior:
        """Recalibrate a posterior and correct it for small pools, on the folds other than ``fold``. Default: on all."""
        used = None if fold is None else self.crossfit.fold != fold
        whole = recalibrated(posterior, self.table, self.crossfit, self.selected, used=used)
        if self.parts is None or self.selected_of_parts is None:
            return whole
        used = None if fold is None else self.parts.crossfit.fold != fold
        return self.parts.corrected(whole, self.selected_of_parts, used=used)

    def walked(self, own: Sequence[Posterior], *, policy: Policy, walk: WalkOf | None) -> Walk:
        """Walk every problem under the posterior that was fitted and recalibrated on the other folds.

        Args:
            own: posteriors by fold.
        """
        table, crossfit, selected = self.table, self.crossfit, self.selected
        if walk is not None or policy.waves is not None:
            policies = [policy.without_accepting().replaced(posterior=own[fold]) for fold in crossfit.fold]
            return _first_pass_in_waves(table, policies) if walk is None else walk(policies)
        confidence = np.full(len(selected), -math.inf)
        for fold, posterior in enumerate(own):
            probability, _ = posterior.recalibrate(
                crossfit.probability, crossfit.none, table.pool_of_cluster, table.written
            )
            inside = (crossfit.fold == fold) & (selected >= 0)
            confidence[inside] = probability[selected[inside]]
        worth = _at(_given_worth(table, crossfit), selected)
        return Walk(confidence=confidence[:, None], worth=worth[:, None])


def _first_pass_in_waves(table: PoolTable, policies: Sequence[Policy]) -> Walk:
    """First pass of each problem, cut to the samples that its policy would have requested."""
    confidence, worth = np.full((len(policies), 1), -math.inf), np.zeros((len(policies), 1))
    for place, policy in enumerate(policies):
        rows = {table.candidates[row].candidate.candidate_id: row for row in table.rows_of(place)}
        pool = [table.candidates[row] for row in rows.values()]
        decided = decide_pool(cut_pass(pool, policy)[0], passes_left=0, policy=policy)
        if decided.best is None or decided.confidence is None:
            continue
        confidence[place] = decided.confidence
        worth[place] = table.worth[rows[decided.best.candidate.candidate_id]]
    return Walk(confidence=confidence, worth=worth)


def _with_thresholds(policy: Policy, steps: Walk, costs: CostsConfig) -> Policy:
    """Set ``tau_answer`` from the costs and ``tau_accept`` from the problems' passes."""
    tau_answer = costs.answer_threshold
    if steps.confidence.shape[1] == 1:
        return policy.replaced(tau_answer=tau_answer, tau_accept=max(policy.tau_accept, tau_answer))
    first = steps.confidence[:, 0]
    usable = first[np.isfinite(first) & (first >= tau_answer)]
    grid = {tau_answer, 1.0, max(policy.tau_accept, tau_answer)}
    if len(usable):
        grid |= {float(value) for value in np.quantile(usable, np.linspace(0, 1, NUM_ACCEPT_THRESHOLDS))}
    best = max(sorted(grid), key=lambda tau: _gain(steps, tau, tau_answer, costs))
    return policy.replaced(tau_answer=tau_answer, tau_accept=best)


def _gain(steps: Walk, tau_accept: float, tau_answer: float, costs: CostsConfig) -> float:
    """Mean gain per labelled problem. A right answer gains 1."""
    confidence, worth = final_step(steps, tau_accept)
    gain = np.where(confidence >= tau_answer, worth - costs.wrong * (1 - worth), -costs.refusal)
    return float(np.nanmean(gain - costs.pass_ * stops(steps, tau_accept)))


def reliability_table(confidence: Floats, worth: Floats, num_bins: int = 10) -> list[dict[str, float]]:
    """Reliability in bins of equal size: mean confidence, mean worth and number of problems."""
    order = np.argsort(confidence, kind="stable")
    return [
        {"confidence": float(confidence[rows].mean()), "worth": float(worth[rows].mean()), "problems": len(rows)}
        for rows in np.array_split(order, num_bins)
        if len(rows)
    ]
