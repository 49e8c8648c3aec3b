"""Settings of the triage rule (paper Eq. 1, Eq. 3 and Algorithm 1), which ``rules`` applies.

The paper defines the gate twice. Its equation (Eq. 3) tests sigma of the selected candidate and abstains at once if it
is extreme. Its algorithm tests the mean sigma over the pool and always samples again before it abstains.
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
paper does not define Eq. 3 for a pool without a selectable candidate: every gate then samples again while a pass is
left.

This is ``rule="paper"``. With ``rule="posterior"`` the decision depends on the probability p that the selected answer
is right (``posterior``), and the profile defines the selection (``profiles``):

1. accept a proven answer; never return a refuted one;
2. accept when p >= ``tau_accept``;
3. else regenerate, if a pass is left;
4. else abstain when p < ``tau_answer``, or when nothing can be selected;
5. else accept.

A policy also has the limits of one request (candidates, time, money). They end the sampling and do not decide.

With ``waves`` a pass is sampled in waves. It ends when, according to ``waves.PassRule``, the remaining samples are
unlikely to change the answer, or unlikely to make it certain.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, InstanceOf, PlainSerializer, ValidationError, model_validator

from raydebm.config import DecisionConfig, GeneratorConfig, OpenAIGenerator
from raydebm.config.decision import Count, NonNegative, PolicySettings, Probability, Profile, Rule
from raydebm.config.section import faults_in
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.fields import FieldModel
from raydebm.errors import ConfigError
from raydebm.identity import content_id
from raydebm.tasks.base import TaskDefaults

LIMITS = ("budget", "deadline_ms", "max_usd")
"""Fields that limit the sampling of one request."""
FITTED = {"posterior", "prices", "guarantee", "tau_settled", "fields", "field_guarantee"}
"""Fields that neither a recipe section nor a request sets: results of calibration, and the generators' prices."""


def _read(value: Any) -> Any:
    return Posterior.from_json(value) if isinstance(value, Mapping) else value


def _model(value: Any) -> Any:
    return FieldModel.model_validate(value) if isinstance(value, Mapping) else value


def _written(value: Posterior | None) -> dict[str, Any] | None:
    return None if value is None else value.to_json()


def _sizes(value: Any) -> Any:
    """Sizes of waves as a tuple. An empty list means no waves, so that a request can override an operator's waves."""
    return (tuple(value) or None) if isinstance(value, list | tuple) else value


class Policy(PolicySettings):
    """All settings of a decision. Written by calibration or defined by a recipe.

    Raises:
        ConfigError: unknown key, wrong type, or a value out of range. The message lists each error.
    """

    model_config = ConfigDict(strict=True)

    rule: Rule = "paper"
    """``paper``: thresholds on sigma. ``posterior``: thresholds on the probability that the answer is right."""
    profile: Profile = "posterior"
    """Selection under ``rule="posterior"``."""
    lambda_: NonNegative = Field(1.0, alias="lambda")
    """Weight of E_constraint in E = mu + lambda * E_constraint."""
    waves: Annotated[tuple[Count, ...] | None, BeforeValidator(_sizes)] = None
    """Sizes of the waves of a pass; the last one repeats. Default: the whole pass at once."""
    budget: Count | None = None
    """Maximum number of candidates over all passes. Default: no limit."""
    deadline_ms: Count | None = None
    """Milliseconds from the request's arrival to the decision. Late generators are skipped and named. Default: no
    limit."""
    max_usd: NonNegative | None = None
    """Maximum cost of candidates in US dollars. Requests that could exceed the remainder are skipped and named.
    Default: no limit."""
    posterior: Annotated[InstanceOf[Posterior] | None, BeforeValidator(_read), PlainSerializer(_written)] = None
    """Posterior that ``rule="posterior"`` decides by. Under the paper's rule it only adds the confidence to the
    answer."""
    prices: Mapping[str, NonNegative] = Field(default_factory=dict)
    """US dollars per million completion tokens by generator, where known. With ``waves``, generators are ordered by
    skill per price."""
    guarantee: Mapping[str, Any] | None = None
    """Guarantee on returned answers (``calibration.policy_fit``). Default: no guarantee."""
    fields: Annotated[InstanceOf[FieldModel] | None, BeforeValidator(_model)] = None
    """Probability of the fields of structured answers. Default: the marginal of the answers' posterior."""
    field_guarantee: Mapping[str, Any] | None = None
    """Guarantee on the fields that are not flagged for review. Default: no guarantee."""
    tau_settled: Probability | None = Field(None, exclude=True)
    """Replacement for ``tau_accept`` in the stopping rule. Default: ``tau_accept``. Set only by calibration, which
    walks problems through all passes with the stopping rule of one threshold."""

    @model_validator(mode="after")
    def _fitted(self) -> Self:
        if self.rule == "posterior" and self.posterior is None:
            raise ValueError(
                "decision.rule is posterior, but no posterior was fitted; run `raydebm calibrate`, or set "
                "decision.rule: paper"
            )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _readable(cls, value: Any, handler: Callable[[Any], Self]) -> Self:
        # Defined last, so that it includes the errors of the other validators.
        try:
            return handler(value)
        except ValidationError as error:
            raise ConfigError("policy: " + "; ".join(_problems(error))) from error

    def __hash__(self) -> int:
        return hash(tuple(value for name, value in self if name not in FITTED))

    def replaced(self, **fields: Any) -> "Policy":
        """The policy with some fields replaced, checked.

        Raises:
            ConfigError: a value is out of range.
        """
        return Policy.model_validate({**dict(self), **fields})

    def within(self, most_ms: int) -> "Policy":
        """The policy with a deadline of at most ``most_ms``."""
        return self.replaced(deadline_ms=min(self.deadline_ms or most_ms, most_ms))

    def without_accepting(self) -> "Policy":
        """The policy that samples every pass unless an answer is proven. Waves still stop as under this policy."""
        settled = self.tau_accept if self.tau_settled is None else self.tau_settled
        return self.replaced(tau_accept=1.0, tau_settled=settled)

    def without_guarantee(self, reason: str) -> "Policy":
        """The policy with its guarantees voided. A guarantee that is already void keeps its reason."""
        void = {
            name: {**guarantee, "certified": False, "reason": reason}
            for name in ("guarantee", "field_guarantee")
            if (guarantee := getattr(self, name)) is not None and guarantee["certified"]
        }
        return self.replaced(**void) if void else self

    def settings(self) -> dict[str, Any]:
        """Settings of a recipe's ``decision`` section and the limits that are set, except ``FITTED``."""
        return self.model_dump(mode="json", by_alias=True, exclude=FITTED, exclude_none=True)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values, as in ``calibration/policy.json``."""
        value = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return value if self.prices else {name: part for name, part in value.items() if name != "prices"}

    def changed(self, changes: Mapping[str, Any]) -> "Policy":
        """The policy with some settings changed, by their JSON names.

        A change voids the guarantee unless the guarantee covers it. Even a higher threshold voids it, because the
        answers above that threshold may be wrong more often. Only the thresholds that were certified with it
        (``thresholds`` of ``guarantee``) keep it.

        Raises:
            ConfigError: unknown key, wrong type, or a value out of range.
        """
        if not changes:
            return self
        tau_answer = changes.get("tau_answer")
        if "tau_accept" not in changes and isinstance(tau_answer, int | float) and tau_answer > self.tau_accept:
            changes = {**changes, "tau_accept": tau_answer}
        # The posterior is passed as an object, because serialising and parsing it would take most of the time.
        objects = {"posterior": self.posterior, "fields": self.fields}
        settings = self.model_dump(mode="json", by_alias=True, exclude=set(objects))
        other = Policy.from_json({**settings, **objects, **changes})
        compared = Policy.model_fields.keys() - {"guarantee", "field_guarantee", "tau_settled"}
        changed = {name for name in compared if getattr(self, name) != getattr(other, name)} - _harmless(self, other)
        if changed == {"tau_field"}:
            return other._with_other_fields()
        if not changed:
            return other
        return other.without_guarantee(f"the request changed {', '.join(sorted(changed)).replace('lambda_', 'lambda')}")

    def _with_other_fields(self) -> "Policy":
        """The policy after a change of ``tau_field``, which affects only the guarantee on fields."""
        of_fields = self.field_guarantee
        if of_fields is None or not of_fields["certified"] or self.tau_field in of_fields["thresholds"]:
            return self
        return self.replaced(
            field_guarantee={**of_fields, "certified": False, "reason": "the request changed tau_field"}
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Policy":
        """Inverse of ``to_json``; absent keys take their defaults.

        Raises:
            ConfigError: unknown key, wrong type, or a value out of range.
        """
        return cls.model_validate(dict(value))


@lru_cache(maxsize=64)
def policy_id(policy: Policy) -> str:
    """Content id of all fields, including the limits of a request."""
    return content_id(policy.to_json(), length=12)


def _problems(error: ValidationError) -> Sequence[str]:
    """Validation errors in words. Unknown keys are listed with the known ones."""
    unknown = [str(problem["loc"][-1]) for problem in error.errors() if problem["type"] == "extra_forbidden"]
    if not unknown:
        return list(faults_in(error, root="decision"))
    known = [field.alias or name for name, field in Policy.model_fields.items() if not field.exclude]
    return [f"unknown key(s) {', '.join(sorted(unknown))}; known: {', '.join(known)}"]


def _harmless(before: Policy, after: Policy) -> set[str]:
    """Settings that may differ without voiding the guarantee.

    These are ``tau_answer`` if its new value is certified too, and ``tau_accept`` with one pass and no waves, where it
    has no effect.
    """
    is_one_pass = before.waves is None and after.waves is None and before.max_passes == after.max_passes == 1
    is_certified = before.guarantee is not None and after.tau_answer in before.guarantee.get("thresholds", ())
    stops_alike = is_one_pass or before.tau_accept == after.tau_accept
    return ({"tau_answer"} if is_certified and stops_alike else set()) | ({"tau_accept"} if is_one_pass else set())


def policy_of(
    config: DecisionConfig, task_defaults: TaskDefaults, generators: Sequence[GeneratorConfig] = ()
) -> Policy:
    """Policy of a recipe, with the paper's rule until a posterior is fitted.

    Args:
        config: the recipe's ``decision`` section. Its lambda defaults to the task's.
        task_defaults: defaults of the recipe's task.
        generators: the recipe's generators, which supply the prices. Local and recorded models are free.
    """
    prices = {
        one.name: (one.usd_per_million_tokens or (None, None))[1] if isinstance(one, OpenAIGenerator) else 0.0
        for one in generators
    }
    settings = config.model_dump(include=PolicySettings.model_fields.keys() - {"rule"})
    return Policy.model_validate(
        {
            **settings,
            "lambda": task_defaults.lambda_ if config.lambda_ is None else config.lambda_,
            "prices": {name: price for name, price in prices.items() if price is not None},
        }
    )
