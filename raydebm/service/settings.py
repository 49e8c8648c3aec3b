"""Settings: what a request may change, the application's arguments, and the run directory behind them.

Every error of a run directory is found here, before a replica starts. The bundle of the first run contains those of
further runs; its limits, records and keys apply to all (``load_gateway``). Independent of: HTTP, Ray.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from raydebm import __version__
from raydebm.config import GeneratorConfig, Recipe
from raydebm.config.decision import PolicySettings
from raydebm.config.section import faults_in, field_docs
from raydebm.decision.policy import LIMITS, Policy, policy_id
from raydebm.decision.policy_file import check_fits, read_policy
from raydebm.errors import ConfigError, UnknownNameError
from raydebm.identity import content_id
from raydebm.records import Reasoning
from raydebm.run.addresses import is_packaged, is_url, run_address
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import CheckpointRef, fingerprint_of, read_ensemble_file, reasoning_of
from raydebm.service.spending import Ceilings, no_prices, within_ceilings
from raydebm.service.store.record import RecordsArgs
from raydebm.tasks import task_of
from raydebm.tasks.base import Task

# ---- what a request may change --------------------------------------------------------------------------------------

Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MAX_DEPTH = 64
"""Maximum nesting of a client's own objects. Serialisers of responses fail at a few hundred."""


def writable(value: Any) -> Any:
    """Refuse values that cannot be serialised again: NaN, infinities, excessive nesting, and lone surrogates, which
    JSON can escape but neither UTF-8 nor a tokenizer can represent."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("holds a lone surrogate (such as \\ud800), which is not text") from error
    except RecursionError as error:
        raise ValueError(f"is nested more than {MAX_DEPTH} deep") from error
    except ValueError as error:
        raise ValueError("holds NaN or an infinity, which JSON cannot represent") from error
    level, depth = [value], 0
    while level := [
        part
        for inner in level
        if isinstance(inner, dict | list)
        for part in (inner.values() if isinstance(inner, dict) else inner)
    ]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"is nested more than {MAX_DEPTH} deep")
    return value


Text = Annotated[str, AfterValidator(writable)]
Data = Annotated[dict[str, Any], AfterValidator(writable)]


class Body(BaseModel):
    """Base of raydebm's own request bodies: unknown fields are refused."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", populate_by_name=True)


MAX_SAMPLES = 64
"""Maximum number of candidates per generator and pass in one request."""
MAX_PASSES = 8
MAX_DEADLINE_MS = 3_600_000
SEED_LIMIT = 2**63

_MOST = {
    "max_passes": MAX_PASSES,
    "num_regenerate": MAX_SAMPLES,
    "budget": MAX_PASSES * MAX_SAMPLES,
    "deadline_ms": MAX_DEADLINE_MS,
    "max_usd": 1e6,
}
"""Maximum values by field."""


def _with_policy_settings(body: "type[Overrides]") -> "type[Overrides]":
    """Add the settings of ``Policy`` as optional fields with their documentation. Omitted ones are None."""
    names = [name for name in PolicySettings.model_fields if name != "waves"] + ["profile", "lambda_", *LIMITS]
    fields: dict[str, Any] = {}
    docs = field_docs(Policy)
    for name in names:
        setting = Policy.model_fields[name]
        kind: Any = setting.rebuild_annotation()
        kind = Annotated[kind, Field(le=_MOST[name])] if name in _MOST else kind
        fields[name] = (kind | None, Field(None, alias=setting.alias, description=docs[name]))
    return create_model(body.__name__, __base__=body, __module__=body.__module__, __doc__=body.__doc__, **fields)


@_with_policy_settings
class Overrides(Body):
    """Settings that a request may change. Default: those of the calibrated policy and the recipe."""

    waves: list[Annotated[int, Field(ge=1, le=MAX_SAMPLES)]] | None = Field(None, max_length=MAX_SAMPLES)
    """Sizes of the waves in which a pass is sampled; the last size repeats. An empty list: one wave for all."""
    num_samples: int | None = Field(None, ge=1, le=MAX_SAMPLES)
    """Candidates of each generator in pass 1."""
    generators: list[Text] | None = Field(None, min_length=1)
    """A subset of the service's generators."""
    seed: int | None = Field(None, ge=-SEED_LIMIT, lt=SEED_LIMIT)
    """Seed of the candidates. Default: the recipe's seed, so that the run's own problems give the run's candidates."""
    return_candidates: bool = False
    policy: Text | None = None
    """Named policy, as in the model id ``raydebm/<task>@<policy>``. Other fields override its settings."""

    def policy_changes(self) -> dict[str, Any]:
        """The given settings and limits, by the policy's own names."""
        return self.model_dump(by_alias=True, include=set(Policy.model_fields), exclude_none=True)


OnAbstain = Literal["refuse", "text", "best", "error"]


class ChatOverrides(Overrides):
    """The ``raydebm`` object of a chat request, and a named policy of the service."""

    on_abstain: OnAbstain = "refuse"
    """Response to an abstention. refuse: a refusal in OpenAI's format; text: its words as content, for clients that do
    not show refusals; best: the selected text anyway; error: HTTP 422."""
    kind: Annotated[Text, Field(max_length=200)] = ""
    """Kind of question, as in the run's problems; authors' skills differ by kind. Default: the kind that the task
    reads from the text."""


# ---- arguments of the application -----------------------------------------------------------------------------------

REQUEST_TIMEOUT_S = 300.0
ANSWER_S = 60.0
"""Extra time for queueing, added to the longest deadline. A deadline starts when a request leaves Serve's queue."""


def request_timeout_s(max_deadline_s: float | None) -> float:
    """Seconds until Serve cuts a request off."""
    return max(REQUEST_TIMEOUT_S, (max_deadline_s or 0.0) + ANSWER_S)


class LimitArgs(BaseModel):
    """Limits of each ingress replica. The limits per day hold for all replicas that share ``ledger_file``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys_file: str | None = None
    """File with hashes of API keys (see ``access``) that every ingress replica can read. Default: the keys in
    RAYDEBM_API_KEYS, else none are required."""
    max_running: int = Field(96, ge=1)
    """Maximum number of requests processed at once. A quarter as many can wait; further ones are answered with 503.
    Both together must be below the ingress deployment's ``max_ongoing_requests``, so that health checks get through."""
    request: Ceilings = Field(default_factory=Ceilings)
    """Maximum spending of one request, in place of the policy's ``max_usd`` and ``budget``."""
    per_day: Ceilings = Field(default_factory=Ceilings)
    """Maximum spending of all clients together per UTC day."""
    key_per_day: Ceilings = Field(default_factory=Ceilings)
    """Maximum spending of each key per UTC day. Overridden by a key's own ``per_day`` in the keys file."""
    ledger_file: str | None = None
    """SQLite file with the spending of each day, on a disk that all ingress replicas share. Default: ledger.sqlite of
    the run directory."""


class RunArgs(BaseModel):
    """A run to serve."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_dir: Annotated[str, AfterValidator(run_address)]
    """Run directory with recipe.json, scorer/ and calibration/policy.json: a local path that every replica's node can
    read, or a filesystem URL. ``demo``: the finished run in this package."""
    generators: tuple[str, ...] | None = Field(None, min_length=1)
    """Names of the generators to serve. Default: all of the recipe."""
    policy: str | None = None
    """Policy file, or ``"recipe"`` for the recipe's own thresholds. Default: calibration/policy.json of the run."""
    checkpoint: str | None = None
    """Folder or filesystem URL of another ensemble. Default: scorer/ of the run."""


class AppArgs(RunArgs):
    """The ``args`` of the application in ``serve_config.yaml``. Unknown keys are refused."""

    further_runs: tuple[RunArgs, ...] = ()
    """Runs of other tasks to serve at the same address, each as the model ``raydebm/<task>``."""
    device: str = "auto"
    """Device of the scorer: ``auto``, ``cpu``, ``cuda``."""
    max_deadline_s: float | None = Field(240.0, ge=1, allow_inf_nan=False)
    """Longest deadline in seconds from a request's arrival, and the deadline of requests without their own. It must be
    below Serve's ``request_timeout_s``, which ends a request without an answer. With null, only a request's own
    deadline applies."""
    max_body_bytes: int = Field(1_000_000, ge=1_000)
    allowed_hosts: tuple[str, ...] = ()
    """Host names that a service without keys accepts, in addition to localhost and IP addresses."""
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Named policies: settings of a request by name. ``strict: {theta_sigma: 0.3}`` gives the models
    ``raydebm/<task>@strict``, of every task."""
    limits: LimitArgs = Field(default_factory=LimitArgs)
    records: RecordsArgs | None = Field(default_factory=RecordsArgs)
    """Storage of decisions. Default: they are stored in the run directory, except for the packaged run. Null: never."""
    auditors: tuple[str, ...] | None = Field(None, min_length=1)
    """Reporters whose outcomes test the guarantee, such as an audit of random requests. Default: all."""

    def of_run(self, run: RunArgs) -> "AppArgs":
        """The arguments for another run alone."""
        own = {name: getattr(run, name) for name in RunArgs.model_fields}
        return self.model_copy(update={**own, "further_runs": ()})


def parse_args(given: Mapping[str, Any], *, where: str = "the application's args") -> AppArgs:
    """Parse the application's arguments. Raises ConfigError with all unknown keys and wrong values in one message."""
    try:
        return AppArgs.model_validate(given)
    except ValidationError as error:
        faults = "; ".join(faults_in(error, root=where))
        raise ConfigError(f"{where} do not define a service: {faults}") from error


# ---- the run directory ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunSource:
    """The served generators of one run: small, and sent with every call."""

    run_dir: str
    """A local path that every replica's node can read, or a filesystem URL."""
    recipe: str
    """Content id of the recipe, to detect a rewritten one."""
    generators: tuple[str, ...]

    def configs(self) -> tuple[GeneratorConfig, ...]:
        """The generators' sections, read from the run directory. Raises ConfigError for a rewritten recipe."""
        recipe = RunDir(self.run_dir).recipe()
        if (fingerprint := recipe_id(recipe)) != self.recipe:
            raise ConfigError(
                f"recipe.json of {self.run_dir} is now version {fingerprint}, but version {self.recipe} is served; "
                "set a new `revision` in the ingress deployment's user_config to load it"
            )
        return tuple(config for config in recipe.generators if config.name in self.generators)


def recipe_id(recipe: Recipe) -> str:
    """Id of a recipe's content."""
    return content_id(recipe.model_dump(mode="json", by_alias=True), length=12)


_PROFILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A run directory, read and checked, with the operator's arguments. Picklable, for replicas."""

    recipe: Recipe
    policy: Policy
    generators: tuple[str, ...]
    """Names of the served generators, in the recipe's order."""
    checkpoint: str
    versions: Mapping[str, str]
    args: AppArgs
    max_problem_chars: int = 32_000
    max_candidate_chars: int = 64_000
    """Longer texts to score are refused; a generator's longer candidate counts as failed."""
    max_score_tokens: int = 1_000_000
    """Maximum number of tokens in the texts of one scoring request, each with its problem, at four characters per
    token."""
    profiles: Mapping[str, ChatOverrides]
    """The named policies, as changes to the served one."""
    records: RecordsArgs | None
    """Storage of decisions, with its folder. None if they are not stored."""
    run_dir: str
    source: RunSource
    """Source of the generators for their replicas."""
    others: Mapping[str, "Bundle"] = field(default_factory=dict)
    """Further runs behind the same address, by task. They have no others themselves."""
    reasoning: Reasoning
    """Handling of a candidate's thinking in scoring, as in training."""

    @property
    def ledger_file(self) -> str | None:
        """Path of the SQLite file of daily spending. None by default for a run at a URL or in the package."""
        if self.args.limits.ledger_file is not None:
            return self.args.limits.ledger_file
        is_writable = not is_url(self.run_dir) and not is_packaged(self.run_dir)
        return f"{self.run_dir}/ledger.sqlite" if is_writable else None

    @property
    def max_samples(self) -> int:
        """Largest number of candidates of a generator in pass 1, by the recipe."""
        default = self.recipe.generation.num_samples
        return max(default if config.num_samples is None else config.num_samples for config in self.generator_configs())

    @property
    def checkpoint_ref(self) -> CheckpointRef:
        """Reference to this run's adapters."""
        return CheckpointRef(self.checkpoint, self.versions["checkpoint"])

    @property
    def answering(self) -> Mapping[str, Policy]:
        """Served policies for requests without overrides, by their ids in records, over all runs."""
        return {policy_id(served): served for served in (run.served(run.policy) for run in self.runs)}

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the served tasks, the first run's first."""
        return (self.recipe.task.name, *self.others)

    @property
    def runs(self) -> tuple["Bundle", ...]:
        """This run and the further ones, each alone."""
        return (self.alone, *self.others.values())

    @property
    def all_generators(self) -> tuple[str, ...]:
        """Names of the served generators of all runs; runs may reuse a name for different generators."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.generators))

    @property
    def alone(self) -> "Bundle":
        """This run without the further ones."""
        return replace(self, others={}) if self.others else self

    def of(self, task_name: str) -> "Bundle":
        """The run of a served task."""
        return self.others.get(task_name, self)

    @property
    def task(self) -> Task:
        """The task of this run."""
        return task_of(self.recipe.task)

    def served(self, policy: Policy, *, operators: Policy | None = None) -> Policy:
        """The policy within the operator's ceilings and ``max_deadline_s``. Raises ServiceError 400 if a later pass has
        more candidates than the operator's policy allows."""
        return _served(policy, operators or policy, self.args.limits.request, self.args.max_deadline_s)

    def generator_configs(self) -> tuple[GeneratorConfig, ...]:
        """The recipe's sections of the served generators."""
        return tuple(config for config in self.recipe.generators if config.name in self.generators)


@lru_cache(maxsize=64)
def _served(policy: Policy, operators: Policy, ceilings: Ceilings, max_deadline_s: float | None) -> Policy:
    policy = within_ceilings(policy, operators=operators, ceilings=ceilings)
    return policy if max_deadline_s is None else policy.within(round(1000 * max_deadline_s))


def load_bundle(args: AppArgs) -> Bundle:
    """Read and check the run directory ``args.run_dir``, without further runs (see ``load_gateway``)."""
    run = RunDir(args.run_dir)
    recipe = run.recipe()
    task = task_of(recipe.task)
    known = tuple(config.name for config in recipe.generators)
    for name in args.generators or ():
        if name not in known:
            raise UnknownNameError("generator", name, known)
    generators = tuple(name for name in known if name in (args.generators or known))
    policy = read_policy(run, recipe, task, args.policy)
    if args.policy not in (None, "recipe"):
        check_fits(policy, recipe, task, what=f"policy {args.policy!r}")
    checkpoint = args.checkpoint or run.uri("scorer")
    ensemble = read_ensemble_file(checkpoint)
    _check_ceilings(args.limits, recipe, generators, run)
    records = args.records
    if records is not None and records.folder is None:
        records = None if is_packaged(run.root) else records.model_copy(update={"folder": run.uri("records")})
    return Bundle(
        recipe=recipe,
        policy=policy,
        generators=generators,
        checkpoint=checkpoint,
        versions={
            "raydebm": __version__,
            "recipe": recipe.name,
            "backbone": ensemble.get("backbone", recipe.scorer.backbone),
            "checkpoint": fingerprint_of(ensemble),
            "policy": policy_id(policy),
        },
        args=args,
        profiles=_profiles(args, recipe, policy, generators),
        records=records,
        run_dir=run.root,
        source=RunSource(run.root, recipe_id(recipe), generators),
        reasoning=reasoning_of(ensemble),
    )


def load_gateway(args: AppArgs) -> Bundle:
    """Read and check every run of the arguments.

    Raises:
        ConfigError: a run directory, its recipe or its policy is missing or wrong; two runs have the same task; a
            further run needs baselines as evidence.
        UnknownNameError: an unknown task or generator.
        CheckpointError: a run has no trained ensemble.
    """
    first = load_bundle(args)
    runs = {first.tasks[0]: first}
    for run in args.further_runs:
        bundle = replace(load_bundle(args.of_run(run)), records=first.records)
        (name,) = bundle.tasks
        if name in runs:
            raise ConfigError(
                f"further_runs: task {name!r} is served from {runs[name].run_dir} and from {bundle.run_dir}; a task "
                "has one run, so remove one of them, or serve it as a separate application"
            )
        runs[name] = bundle
        if bundle.recipe.evidence:
            raise ConfigError(
                f"further_runs: {bundle.run_dir} counts baselines as evidence ({bundle.recipe.evidence[0].name}), which"
                " only the first run can; make it the first one (`run_dir`), or serve it as a separate application"
            )
    return replace(first, others={name: run for name, run in runs.items() if run is not first})


def _check_prices(recipe: Recipe, generators: Sequence[str], max_usd: float | None, *, where: str) -> None:
    """Raise ConfigError if money is limited and one of the generators has no prices."""
    fault = no_prices(config for config in recipe.generators if config.name in generators)
    if max_usd is not None and fault:
        raise ConfigError(f"{where}: {fault}")


def _check_ceilings(limits: LimitArgs, recipe: Recipe, generators: Sequence[str], run: RunDir) -> None:
    """Raise ConfigError for ceilings that cannot be enforced."""
    for where, max_usd in (
        ("limits.request", limits.request.usd),
        ("limits.per_day", limits.per_day.usd),
        ("limits.key_per_day", limits.key_per_day.usd),
    ):
        _check_prices(recipe, generators, max_usd, where=where)
    is_counted = {limits.per_day, limits.key_per_day} != {Ceilings()}
    if is_counted and limits.ledger_file is None and (not run.is_local or is_packaged(run.root)):
        raise ConfigError(
            "limits per day need a file on a disk that all ingress replicas share and can write, and the run at "
            f"{run.root} is not on one; set limits.ledger_file"
        )


def _profiles(args: AppArgs, recipe: Recipe, policy: Policy, generators: tuple[str, ...]) -> dict[str, ChatOverrides]:
    """The named policies, checked against the served one, so that an invalid one fails at the start and not in a
    request."""
    _check_prices(recipe, generators, policy.max_usd, where="the served policy")
    profiles = {}
    for name, given in args.policies.items():
        where = f"policy {name!r}"
        if not _PROFILE_NAME.fullmatch(name):
            raise ConfigError(f"policy name {name!r} must be letters, digits, '.', '_' and '-'; rename it")
        try:
            profiles[name] = changes = ChatOverrides.model_validate(given)
            changed = changes.policy_changes()
            policy.changed(changed)
        except ValidationError as error:
            raise ConfigError("; ".join(faults_in(error, root=where))) from error
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        if changes.policy is not None:
            raise ConfigError(f"{where} names another policy {changes.policy!r}; write its values instead")
        for wanted in changes.generators or ():
            if wanted not in generators:
                raise UnknownNameError("generator", wanted, generators)
        _check_prices(recipe, changes.generators or generators, changed.get("max_usd"), where=where)
    return profiles
