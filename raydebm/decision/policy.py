"""What decides about a pool of candidates: the settings of the triage rule (paper Eq. 1, Eq. 3 and Algorithm 1).

``rules`` carries them out.

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

With ``waves`` a pass is sampled in waves, and ends as soon as ``waves.PassRule`` says that the rest of it could hardly
change the answer, or make it certain.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from raydebm.config import GeneratorConfig, OpenAIGenerator, TriageConfig
from raydebm.decision.posterior import Posterior
from raydebm.decision.profiles import PROFILES, Profile
from raydebm.errors import ConfigError
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
    waves: tuple[int, ...] | None = None
    """Sizes of the waves in which a pass is sampled, the last one repeating; None: the whole pass at once."""
    epsilon: float = 0.05
    """With waves, in [0, 1): chance that is accepted of losing the answer that the whole pass would give."""
    eta: float = 0.05
    """With waves, in [0, 1]: a pass ends when the chance of ever reaching ``tau_accept`` is below this."""
    prices: Mapping[str, float] = field(default_factory=dict, hash=False)
    """US dollars per million completion tokens by generator, where they are known. With ``waves``, generators are asked
    in the order of their skill per price."""
    tau_settled: float | None = field(default=None, compare=False)
    """What the stopping rule takes for ``tau_accept``; None: ``tau_accept``. Only calibration sets it, which walks
    problems through all passes with the stopping rule of one threshold."""
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
        self._check_waves()
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

    def _check_waves(self) -> None:
        if self.waves is not None and (not self.waves or any(size < 1 for size in self.waves)):
            raise ConfigError(
                f"triage.waves must be sizes >= 1, got {list(self.waves)}; leave it out to sample a pass at once"
            )
        if not 0 <= self.epsilon < 1 or not 0 <= self.eta <= 1:  # written so that NaN fails too
            raise ConfigError(
                f"triage.epsilon must be in [0, 1) and triage.eta in [0, 1], got {self.epsilon} and {self.eta}"
            )
        for name, price in self.prices.items():
            if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < math.inf:
                raise ConfigError(f"the price of generator {name!r} must be a number >= 0, got {price!r}")

    def within(self, most_ms: int) -> "Policy":
        """The same with a deadline that is not later than this."""
        return replace(self, deadline_ms=min(self.deadline_ms or most_ms, most_ms))

    def without_accepting(self) -> "Policy":
        """The same, going through every pass, each stopped by its waves as under this policy."""
        settled = self.tau_accept if self.tau_settled is None else self.tau_settled
        return replace(self, tau_accept=1.0, tau_settled=settled)

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
            "epsilon": self.epsilon,
            "eta": self.eta,
            **({} if self.waves is None else {"waves": list(self.waves)}),
            **{name: limit for name, limit in limits.items() if limit is not None},
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, as ``calibration/policy.json`` holds it."""
        fitted = {} if self.posterior is None else {"posterior": self.posterior.to_json()}
        promised = {} if self.guarantee is None else {"guarantee": dict(self.guarantee)}
        prices = {"prices": dict(self.prices)} if self.prices else {}
        return {**self.settings(), **fitted, **prices, **promised}

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
        changed |= {name for name in ("posterior", "prices") if getattr(other, name) != getattr(self, name)}
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
        known = cls(budget=64, deadline_ms=30_000, max_usd=0.05, waves=(4, 8)).settings()
        parts = {name: value[name] for name in _PARTS if value.get(name) is not None}
        given = {key: item for key, item in value.items() if key not in _PARTS}
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ConfigError(f"policy has unknown key(s) {', '.join(unknown)}; known: {', '.join([*known, *_PARTS])}")
        for name in [name for name, item in given.items() if item is None and name in (*_LIMITS, "waves")]:
            del given[name]
        for key, item in given.items():
            wanted = _type_of(known[key])
            if isinstance(item, bool) or not isinstance(item, wanted):
                raise ConfigError(f"policy key {key!r} must be like {known[key]!r}, got {item!r}")
        if "waves" in given:
            given["waves"] = _waves_of(given["waves"])
        for name in ("guarantee", "prices"):
            if not isinstance(parts.get(name, {}), Mapping):
                raise ConfigError(f"policy key {name!r} must be an object, got {parts[name]!r}")
        if "posterior" in parts:
            parts["posterior"] = Posterior.from_json(parts["posterior"])
        return cls(**{"lambda_" if key == "lambda" else key: item for key, item in given.items()}, **parts)


_PARTS = ("posterior", "prices", "guarantee")
"""What a policy has beside its settings."""


def _type_of(example: Any) -> type | tuple[type, ...]:
    if isinstance(example, list):
        return (list, tuple)
    return str if isinstance(example, str) else int if isinstance(example, int) else (int, float)


def _waves_of(value: Sequence[Any]) -> tuple[int, ...] | None:
    """Sizes of waves; none of them: the whole pass at once, so that a request can undo an operator's waves."""
    if any(isinstance(size, bool) or not isinstance(size, int) for size in value):
        raise ConfigError(f"policy key 'waves' must be whole numbers, got {list(value)!r}")
    return tuple(value) or None


def _harmless(before: Policy, after: Policy) -> set[str]:
    """Settings that may differ without voiding a promise: answering less; without waves, the stopping rule's, and what
    ends the sampling where there is one pass or it only follows a stricter ``tau_answer``."""
    is_stricter = after.tau_answer >= before.tau_answer
    harmless = {"tau_answer"} if is_stricter else set()
    if before.waves is not None or after.waves is not None:
        return harmless
    is_one_pass = before.max_passes == after.max_passes == 1
    is_implied = is_stricter and before.tau_accept <= after.tau_accept == after.tau_answer
    return harmless | {"epsilon", "eta"} | ({"tau_accept"} if is_one_pass or is_implied else set())


def policy_of(config: TriageConfig, task_defaults: TaskDefaults, generators: Sequence[GeneratorConfig] = ()) -> Policy:
    """The policy that a recipe states; lambda falls back to the task's.

    Args:
        config: the recipe's section ``triage``.
        task_defaults: of the recipe's task.
        generators: the recipe's, for their prices. Models of our own and recorded ones are free.
    """
    prices = {found.name: _price_of(found) for found in generators}
    return Policy(
        lambda_=task_defaults.lambda_ if config.lambda_ is None else config.lambda_,
        theta_sigma=config.theta_sigma,
        theta_abstain=config.theta_abstain,
        signal=config.signal,
        max_passes=config.max_passes,
        num_regenerate=config.num_regenerate,
        tau_accept=config.tau_accept,
        tau_answer=config.tau_answer,
        waves=config.waves,
        epsilon=config.epsilon,
        eta=config.eta,
        prices={name: price for name, price in prices.items() if price is not None},
    )


def _price_of(config: GeneratorConfig) -> float | None:
    return config.usd_per_million_completion_tokens if isinstance(config, OpenAIGenerator) else 0.0
