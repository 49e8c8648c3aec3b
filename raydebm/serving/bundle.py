"""What a run directory gives to the service: recipe, policy, checkpoint, and the versions that answers carry.

Everything that can be wrong with a run directory is found here, before a replica starts.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from raydebm import __version__
from raydebm.config import GeneratorConfig, Recipe
from raydebm.decision.policy import Policy
from raydebm.decision.policy_file import read_policy
from raydebm.errors import ConfigError, UnknownNameError
from raydebm.generators.endpoint.hedging import HedgeAfter
from raydebm.generators.passes import PassRequests
from raydebm.identity import content_id
from raydebm.records import Reasoning
from raydebm.reporter import DEADLINE_S
from raydebm.run.addresses import is_url
from raydebm.run.directory import RunDir
from raydebm.run.ensemble import fingerprint_of, read_ensemble_file
from raydebm.serving.ceilings import DayCeilings, RequestCeilings
from raydebm.serving.decisions.record import policy_id
from raydebm.serving.decisions.writer import RecordsArgs
from raydebm.serving.ensembles import CheckpointRef
from raydebm.serving.outcomes.monitor import WatchArgs
from raydebm.serving.schema import Profile
from raydebm.serving.spending import no_prices, unpriced
from raydebm.tasks import task_of
from raydebm.tasks.base import Task

CACHE_TEXTS = 100_000
"""About 40 MB of energies."""
REQUEST_TIMEOUT_S = 300.0
ANSWER_S = 60.0
"""Serve waits so much longer than the longest deadline: a request waits in its queue before its deadline counts."""


def request_timeout_s(max_deadline_s: float | None) -> float:
    """Seconds after which Serve cuts a request off."""
    return max(REQUEST_TIMEOUT_S, (max_deadline_s or 0.0) + ANSWER_S)


class LimitArgs(BaseModel):
    """How much one ingress replica takes on. With several replicas each has these limits for itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys_file: str | None = None
    """API keys as hashes (see ``keys``), a file that every ingress replica can read; None: RAYDEBM_API_KEYS, else no
    keys are asked for."""
    requests_per_minute: float | None = Field(None, gt=0)
    """Per key; a key's own figure in the file goes before it. None: no limit."""
    max_concurrent: int | None = Field(None, ge=1)
    """Open requests per key, likewise."""
    max_running: int = Field(96, ge=1)
    """Requests that are worked on at once."""
    max_waiting: int = Field(24, ge=0)
    """Requests that wait for their turn; the next one is answered 503."""
    max_wait_s: float = Field(30.0, gt=0)
    """A request that waited so long is answered 503."""
    max_uploading: int = Field(256, ge=1)
    """Bodies that are read at once; above it the oldest is given up with a 408 (see ``uploads``). The sum of this,
    ``max_running`` and ``max_waiting`` stays below the ingress deployment's ``max_ongoing_requests``, so that health
    checks always get through."""
    max_body_s: float = Field(30.0, gt=0)
    """Seconds in which a request's whole body must come, else it is answered 408."""
    request: RequestCeilings = Field(default_factory=RequestCeilings)
    """What one request may ask for at most."""
    per_day: DayCeilings = Field(default_factory=DayCeilings)
    """What everybody together may spend on one UTC day."""
    key_per_day: DayCeilings = Field(default_factory=DayCeilings)
    """What each key may spend on one UTC day; a key's own ``per_day`` in the file goes before it."""
    ledger_file: str | None = None
    """SQLite file in which the days' spending is counted, on a disk that all ingress replicas share; None:
    ledger.sqlite of the run directory."""
    ledger_across_nodes: bool = False
    """Whether ingress replicas of several nodes share that file, whose disk then needs working file locks."""


class AppArgs(BaseModel):
    """The ``args`` of the application in ``serve_config.yaml``. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_dir: str
    """Holds recipe.json, scorer/ and calibration/policy.json: a local path that every replica's node can read, or a
    filesystem URL."""
    task: str | None = None
    """None: the recipe's task."""
    generators: tuple[str, ...] | None = Field(None, min_length=1)
    """A subset of the recipe's generators; None: all of them."""
    policy: str | None = None
    """None: calibration/policy.json of the run; ``"recipe"``: the recipe's own thresholds; else a policy file."""
    checkpoint: str | None = None
    """None: scorer/ of the run; else another ensemble's folder or filesystem URL."""
    device: str = "auto"
    """Of the scorer: ``auto``, ``cpu``, ``cuda``."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    threads: int | None = Field(None, ge=1)
    """CPU threads of one scorer replica and of local generators; None: torch's default."""
    batching: bool = True
    """Score the candidates of requests that arrive together in one batch."""
    cache_texts: int = Field(CACHE_TEXTS, ge=0)
    """Texts whose energies each scorer replica keeps, so that equal ones are scored once; 0: none."""
    hedge_after_ms: Literal["p95"] | Annotated[float, Field(gt=0)] | None = None
    """A request to an endpoint that takes longer is sent a second time, and the first answer counts: after so many
    milliseconds, or after the 95th percentile of what its last requests took (see ``generators.hedging``). None: never,
    because it costs up to a tenth more."""
    max_deadline_s: float | None = Field(240.0, ge=1, allow_inf_nan=False)
    """Seconds from its arrival within which every request is decided: the deadline of one that gives none, and the
    longest that one may give. It stays below Serve's ``request_timeout_s``, which cuts a request off without an answer.
    None: no request has a deadline but its own."""
    max_check_s: float = Field(DEADLINE_S, gt=0, allow_inf_nan=False)
    """Seconds for the checks of one candidate, public tests included; one that takes longer fails, and no other."""
    max_problem_chars: int = Field(32_000, ge=1)
    max_candidate_chars: int = Field(64_000, ge=1)
    """Longer texts to score are refused; a generator's longer candidate counts as failed."""
    max_score_tokens: int = Field(1_000_000, ge=1)
    """Of all texts to score in one request, each with its problem; estimated at four characters a token."""
    max_body_bytes: int = Field(1_000_000, ge=1_000)
    allowed_hosts: tuple[str, ...] = ()
    """Names under which a service without keys answers, beside localhost and addresses (see ``hosts``)."""
    policies: dict[str, Profile] = Field(default_factory=dict)
    """Named changes to the served policy: ``strict: {theta_sigma: 0.3}`` gives the models ``raydebm/<task>@strict``."""
    passthrough: str | None = None
    """Generator that answers the chats that are no problem of a served task; None: these are refused."""
    limits: LimitArgs = Field(default_factory=LimitArgs)
    records: RecordsArgs | None = Field(default_factory=RecordsArgs)
    """How decisions are stored; None: they are not."""
    watch: WatchArgs = Field(default_factory=WatchArgs)
    """What outcomes that users report are held against."""

    @property
    def hedge_after(self) -> HedgeAfter | None:
        """In seconds."""
        after = self.hedge_after_ms
        return after / 1000 if isinstance(after, int | float) else after


_PROFILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A run directory, read and checked. Everything in it can be sent to replicas."""

    recipe: Recipe
    policies: Mapping[str, Policy]
    """One per served task; the order is the order in which ``raydebm/auto`` tries them."""
    generators: tuple[str, ...]
    """Names of the served generators, in the recipe's order."""
    checkpoint: str
    versions: Mapping[str, str]
    max_problem_chars: int
    max_body_bytes: int
    max_candidate_chars: int = 64_000
    max_score_tokens: int = 1_000_000
    max_deadline_s: float | None = None
    """See ``AppArgs``."""
    allowed_hosts: tuple[str, ...] = ()
    """See ``AppArgs``."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """The named policies, as changes to the served one."""
    passthrough: str | None = None
    """Generator of the chats that are no problem of a served task; None: these are refused."""
    limits: LimitArgs = field(default_factory=LimitArgs)
    records: RecordsArgs | None = None
    """Where decisions are stored, the folder filled in; None: they are not."""
    watch: WatchArgs = field(default_factory=WatchArgs)
    """What reported outcomes are held against."""
    run_dir: str | None = None
    """Of the run; None: nobody can look at the run's problems."""
    reasoning: Reasoning = "answer"
    """What the scorer reads of a candidate that thinks before it answers, as it was trained."""

    @property
    def ledger_file(self) -> str | None:
        """Path of the SQLite file of the days' spending; None: there is no folder for it."""
        if self.limits.ledger_file is not None:
            return self.limits.ledger_file
        return None if self.run_dir is None or is_url(self.run_dir) else f"{self.run_dir}/ledger.sqlite"

    @property
    def max_samples(self) -> int:
        """Most candidates of one generator in pass 1 that the operator's own settings ask for."""
        default = self.recipe.generation.num_samples
        return max(default if config.num_samples is None else config.num_samples for config in self.generator_configs())

    @property
    def checkpoint_ref(self) -> CheckpointRef:
        """The adapters that score for it, and no others."""
        return CheckpointRef(self.checkpoint, self.versions["checkpoint"])

    @property
    def policy_ids(self) -> tuple[str, ...]:
        """Ids of the policies that requests without overrides are decided by, as records have them."""
        return tuple(policy_id(self.in_time(policy)) for policy in self.policies.values())

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.policies)

    def task(self, name: str) -> Task:
        """The served task of that name."""
        return task_of(self.recipe.task, name)

    def in_time(self, policy: Policy) -> Policy:
        """The policy with a deadline that the service keeps: its own, unless the service's is earlier."""
        return policy if self.max_deadline_s is None else policy.within(round(1000 * self.max_deadline_s))

    def generator_configs(self) -> tuple[GeneratorConfig, ...]:
        return tuple(config for config in self.recipe.generators if config.name in self.generators)

    @property
    def regenerator(self) -> str:
        """The generator of later passes: the recipe's, or the first one when the recipe's is not served."""
        task = self.task(self.tasks[0])
        return PassRequests(recipe=self.recipe, task=task, generators=self.generators).regenerator.name


def load_bundle(args: AppArgs) -> Bundle:
    """Read and check a run directory.

    Raises:
        ConfigError: the run directory, its recipe or its policy is missing or wrong; an unknown generator.
        UnknownNameError: an unknown task.
        CheckpointError: there is no trained ensemble in it.
    """
    run = RunDir(args.run_dir)
    recipe = run.recipe()
    task = task_of(recipe.task, args.task)
    generators = _generators(recipe, args.generators)
    policy = read_policy(run, recipe, task, args.policy)
    checkpoint = args.checkpoint or run.uri("scorer")
    ensemble = read_ensemble_file(checkpoint)
    _check_ceilings(args.limits, recipe, generators, run)
    return Bundle(
        recipe=recipe,
        policies={task.name: policy},
        generators=generators,
        checkpoint=checkpoint,
        versions={
            "raydebm": __version__,
            "recipe": recipe.name,
            "backbone": str(ensemble.get("backbone", recipe.scorer.backbone)),
            "checkpoint": fingerprint_of(ensemble),
            "policy": content_id(policy.to_json(), length=12),
        },
        max_problem_chars=args.max_problem_chars,
        max_body_bytes=args.max_body_bytes,
        max_candidate_chars=args.max_candidate_chars,
        max_score_tokens=args.max_score_tokens,
        max_deadline_s=args.max_deadline_s,
        allowed_hosts=args.allowed_hosts,
        profiles=_profiles(args, recipe, policy, generators),
        passthrough=_passthrough(args.passthrough, recipe, generators),
        limits=args.limits,
        records=_records(run, args.records),
        watch=args.watch,
        run_dir=run.root,
        reasoning="all" if ensemble.get("reasoning") == "all" else "answer",
    )


def _records(run: RunDir, args: RecordsArgs | None) -> RecordsArgs | None:
    return None if args is None else args.model_copy(update={"folder": args.folder or run.uri("records")})


def _generators(recipe: Recipe, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    known = [config.name for config in recipe.generators]
    if wanted is None:
        return tuple(known)
    for name in wanted:
        if name not in known:
            raise UnknownNameError("generator", name, known)
    return tuple(name for name in known if name in wanted)


def _passthrough(wanted: str | None, recipe: Recipe, generators: Sequence[str]) -> str | None:
    """Raises UnknownNameError for a generator that is not served, ConfigError for one that answers no new question."""
    if wanted is None:
        return None
    kinds = {config.name: config.kind for config in recipe.generators if config.name in generators}
    if wanted not in kinds:
        raise UnknownNameError("generator", wanted, generators)
    if kinds[wanted] == "recorded":
        raise ConfigError(
            f"passthrough: generator {wanted!r} is recorded, so it has no answer to a new question; name another one"
        )
    return wanted


def _check_prices(recipe: Recipe, generators: Sequence[str], max_usd: float | None, *, where: str) -> None:
    """Raises ConfigError when money is limited and a generator that would be asked has no prices."""
    without = unpriced(config for config in recipe.generators if config.name in generators)
    if max_usd is not None and without:
        raise ConfigError(f"{where}: {no_prices(without)}")


def _check_ceilings(limits: LimitArgs, recipe: Recipe, generators: Sequence[str], run: RunDir) -> None:
    """Raises ConfigError for ceilings that nothing could keep."""
    for where, max_usd in (
        ("limits.request", limits.request.max_usd),
        ("limits.per_day", limits.per_day.usd),
        ("limits.key_per_day", limits.key_per_day.usd),
    ):
        _check_prices(recipe, generators, max_usd, where=where)
    is_counted = limits.per_day.is_limit or limits.key_per_day.is_limit
    if is_counted and limits.ledger_file is None and not run.is_local:
        raise ConfigError(
            f"limits.per_day needs a file on a disk that all ingress replicas share, and the run lies at {run.root}; "
            "set limits.ledger_file"
        )


def _profiles(args: AppArgs, recipe: Recipe, policy: Policy, generators: tuple[str, ...]) -> dict[str, Profile]:
    """The named policies, each checked against the served one, so that a bad one ends the start and no request."""
    _check_prices(recipe, generators, policy.max_usd, where="the served policy")
    for name, changes in args.policies.items():
        if not _PROFILE_NAME.fullmatch(name):
            raise ConfigError(f"policy name {name!r} must be letters, digits, '.', '_' and '-'; rename it")
        if changes.policy is not None:
            raise ConfigError(f"policy {name!r} names another policy {changes.policy!r}; write its values instead")
        for wanted in changes.generators or ():
            if wanted not in generators:
                raise UnknownNameError("generator", wanted, generators)
        changed = changes.policy_changes()
        try:
            policy.changed(changed)
        except ConfigError as error:
            raise ConfigError(f"policy {name!r}: {error}") from error
        _check_prices(recipe, changes.generators or generators, changed.get("max_usd"), where=f"policy {name!r}")
    return dict(args.policies)
