"""A run directory for the service: recipe, policy, checkpoint, and the versions in responses.

Every error of a run directory is found here, before a replica starts. The bundle of the first run contains those of
further runs; its limits, records and keys apply to all (``load_gateway``).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from raydebm import __version__
from raydebm.config import GeneratorConfig, Recipe
from raydebm.config.section import problems_in
from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.policy_file import check_fits, read_policy
from raydebm.errors import ConfigError, UnknownNameError
from raydebm.identity import content_id
from raydebm.records import Reasoning
from raydebm.run.addresses import is_packaged, is_url
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import CheckpointRef, fingerprint_of, read_ensemble_file, reasoning_of
from raydebm.service.settings.app_args import AppArgs, LimitArgs
from raydebm.service.settings.overrides import ChatOverrides
from raydebm.service.spending import no_prices, unpriced, within_ceilings
from raydebm.service.store.writer import RecordsArgs
from raydebm.tasks import task_of
from raydebm.tasks.base import Task


@dataclass(frozen=True, slots=True)
class RunSource:
    """The served generators of one run: small, and sent with every call."""

    run_dir: str
    """A local path that every replica's node can read, or a filesystem URL."""
    recipe: str
    """Content id of the recipe, which detects a rewritten one."""
    generators: tuple[str, ...]

    @classmethod
    def of(cls, run_dir: str, recipe: Recipe, generators: Sequence[str]) -> "RunSource":
        """Source of a run with a parsed recipe."""
        return cls(run_dir, _fingerprint(recipe), tuple(generators))

    def configs(self) -> tuple[GeneratorConfig, ...]:
        """The generators' sections, read from the run directory.

        Raises:
            ConfigError: it has no recipe, or a different one now.
        """
        recipe = RunDir(self.run_dir).recipe()
        if (fingerprint := _fingerprint(recipe)) != self.recipe:
            raise ConfigError(
                f"recipe.json of {self.run_dir} is now version {fingerprint}, but version {self.recipe} is served; "
                "set a new `revision` in the ingress deployment's user_config to load it"
            )
        return tuple(config for config in recipe.generators if config.name in self.generators)


def _fingerprint(recipe: Recipe) -> str:
    return content_id(recipe.model_dump(mode="json", by_alias=True), length=12)


_PROFILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A run directory, read and checked. Picklable, for replicas."""

    recipe: Recipe
    policies: Mapping[str, Policy]
    """Policies by task."""
    generators: tuple[str, ...]
    """Names of the served generators, in the recipe's order."""
    checkpoint: str
    versions: Mapping[str, str]
    max_body_bytes: int
    max_problem_chars: int = 32_000
    max_candidate_chars: int = 64_000
    """Longer texts to score are refused; a generator's longer candidate counts as failed."""
    max_score_tokens: int = 1_000_000
    """Maximum number of tokens in the texts of one scoring request, each with its problem, at four characters per
    token."""
    max_deadline_s: float | None = None
    """See ``AppArgs``."""
    allowed_hosts: tuple[str, ...] = ()
    """See ``AppArgs``."""
    profiles: Mapping[str, ChatOverrides] = field(default_factory=dict)
    """The named policies, as changes to the served one."""
    limits: LimitArgs = field(default_factory=LimitArgs)
    records: RecordsArgs | None = None
    """Storage of decisions, with its folder. None if they are not stored."""
    auditors: tuple[str, ...] | None = None
    """See ``AppArgs``."""
    run_dir: str | None = None
    """Folder of the run. None if its problems cannot be shown."""
    source: RunSource | None = None
    """Source of the generators for their replicas. Default: the replicas' first run."""
    others: Mapping[str, "Bundle"] = field(default_factory=dict)
    """Further runs behind the same address, by task. They have no others themselves."""
    reasoning: Reasoning = "answer"
    """Handling of a candidate's thinking in scoring, as in training."""

    @property
    def ledger_file(self) -> str | None:
        """Path of the SQLite file of daily spending, or None without a folder."""
        if self.limits.ledger_file is not None:
            return self.limits.ledger_file
        is_writable = self.run_dir is not None and not is_url(self.run_dir) and not is_packaged(self.run_dir)
        return f"{self.run_dir}/ledger.sqlite" if is_writable else None

    @property
    def max_samples(self) -> int:
        """Maximum number of candidates per generator in pass 1 over the operator's own settings."""
        default = self.recipe.generation.num_samples
        return max(default if config.num_samples is None else config.num_samples for config in self.generator_configs())

    @property
    def checkpoint_ref(self) -> CheckpointRef:
        """Reference to this run's adapters."""
        return CheckpointRef(self.checkpoint, self.versions["checkpoint"])

    @property
    def answering(self) -> Mapping[str, Policy]:
        """Served policies for requests without overrides, by their ids in records, over all runs."""
        own = {policy_id(served): served for served in map(self.served, self.policies.values())}
        return {**own, **{name: policy for other in self.others.values() for name, policy in other.answering.items()}}

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the served tasks, the first run's first."""
        return (*self.policies, *self.others)

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

    def task(self, name: str) -> Task:
        """The served task of that name."""
        return task_of(self.of(name).recipe.task, name)

    def served(self, policy: Policy, *, operators: Policy | None = None) -> Policy:
        """The policy within the operator's ceilings, with a deadline that the service can keep.

        Args:
            policy: one of the operator's policies, with or without a request's changes.
            operators: the operator's policy. Default: ``policy`` itself.

        Raises:
            ServiceError: 400 for more candidates of a pass than allowed.
        """
        policy = within_ceilings(policy, operators=operators or policy, ceilings=self.limits.request)
        return policy if self.max_deadline_s is None else policy.within(round(1000 * self.max_deadline_s))

    def score_deadline_s(self, own_ms: int | None) -> float | None:
        """Time limit of a scoring request in seconds, from its own deadline ``own_ms`` in milliseconds; None for no
        limit."""
        most_s = self.max_deadline_s
        return most_s if own_ms is None else own_ms / 1000 if most_s is None else min(own_ms / 1000, most_s)

    def generator_configs(self) -> tuple[GeneratorConfig, ...]:
        """The recipe's sections of the served generators."""
        return tuple(config for config in self.recipe.generators if config.name in self.generators)


def load_bundle(args: AppArgs) -> Bundle:
    """Read and check the run directory ``args.run_dir``, without further runs (see ``load_gateway``).

    Raises:
        ConfigError: the run directory, its recipe or its policy is missing or wrong; an unknown generator.
        UnknownNameError: an unknown task.
        CheckpointError: it has no trained ensemble.
    """
    run = RunDir(args.run_dir)
    recipe = run.recipe()
    task = task_of(recipe.task)
    generators = _generators(recipe, args.generators)
    policy = read_policy(run, recipe, task, args.policy)
    if args.policy not in (None, "recipe"):
        check_fits(policy, recipe, task, what=f"policy {args.policy!r}")
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
            "backbone": ensemble.get("backbone", recipe.scorer.backbone),
            "checkpoint": fingerprint_of(ensemble),
            "policy": policy_id(policy),
        },
        max_body_bytes=args.max_body_bytes,
        max_deadline_s=args.max_deadline_s,
        allowed_hosts=args.allowed_hosts,
        profiles=_profiles(args, recipe, policy, generators),
        limits=args.limits,
        records=_records(run, args.records),
        auditors=args.auditors,
        run_dir=run.root,
        source=RunSource.of(run.root, recipe, generators),
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
    others: dict[str, Bundle] = {}
    places = {name: first.run_dir for name in first.tasks}
    for run in args.further_runs:
        bundle = replace(load_bundle(args.of_run(run)), records=first.records)
        for name in bundle.tasks:
            if name in places:
                raise ConfigError(
                    f"further_runs: task {name!r} is served from {places[name]} and from {bundle.run_dir}; a task has "
                    "one run, so remove one of them, or serve it as a separate application"
                )
            places[name] = bundle.run_dir
            others[name] = bundle
        if bundle.recipe.evidence:
            raise ConfigError(
                f"further_runs: {bundle.run_dir} counts baselines as evidence ({bundle.recipe.evidence[0].name}), which"
                " only the first run can; make it the first one (`run_dir`), or serve it as a separate application"
            )
    return replace(first, others=others)


def _records(run: RunDir, args: RecordsArgs | None) -> RecordsArgs | None:
    if args is None or (args.folder is None and is_packaged(run.root)):
        return None
    return args.model_copy(update={"folder": args.folder or run.uri("records")})


def _generators(recipe: Recipe, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Raises UnknownNameError for a generator that the recipe lacks."""
    kinds = {config.name: config.kind for config in recipe.generators}
    for name in wanted or ():
        if name not in kinds:
            raise UnknownNameError("generator", name, kinds)
    return tuple(name for name in kinds if wanted is None or name in wanted)


def _check_prices(recipe: Recipe, generators: Sequence[str], max_usd: float | None, *, where: str) -> None:
    """Raise ConfigError if money is limited and one of the generators has no prices."""
    without = unpriced(config for config in recipe.generators if config.name in generators)
    if max_usd is not None and without:
        raise ConfigError(f"{where}: {no_prices(without)}")


def _check_ceilings(limits: LimitArgs, recipe: Recipe, generators: Sequence[str], run: RunDir) -> None:
    """Raise ConfigError for ceilings that cannot be kept."""
    for where, max_usd in (
        ("limits.request", limits.request.usd),
        ("limits.per_day", limits.per_day.usd),
        ("limits.key_per_day", limits.key_per_day.usd),
    ):
        _check_prices(recipe, generators, max_usd, where=where)
    is_counted = limits.per_day.is_limit or limits.key_per_day.is_limit
    if is_counted and limits.ledger_file is None and (not run.is_local or is_packaged(run.root)):
        raise ConfigError(
            "limits.per_day needs a file on a disk that all ingress replicas share and can write, which the run at "
            f"{run.root} is not; set limits.ledger_file"
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
            raise ConfigError("; ".join(problems_in(error, root=where))) from error
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        if changes.policy is not None:
            raise ConfigError(f"{where} names another policy {changes.policy!r}; write its values instead")
        for wanted in changes.generators or ():
            if wanted not in generators:
                raise UnknownNameError("generator", wanted, generators)
        _check_prices(recipe, changes.generators or generators, changed.get("max_usd"), where=where)
    return profiles
