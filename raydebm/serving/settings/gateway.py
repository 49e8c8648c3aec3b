"""Several runs behind one address: the first run's bundle with those of the others, and the task for any question.

In:   the application's arguments.
Out:  one ``Bundle``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raydebm.config import TaskConfig
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_id
from raydebm.errors import ConfigError, UnknownNameError
from raydebm.records import Problem
from raydebm.run.directory import RunDir
from raydebm.serving.settings.app_args import AppArgs, EqualityArgs, GeneralArgs
from raydebm.serving.settings.bundle import Bundle, load_bundle
from raydebm.serving.settings.known_problems import KnownProblems
from raydebm.serving.spending.affordability import no_prices, unpriced
from raydebm.tasks import GENERAL

GENERAL_POSTERIOR = Posterior(weights={"votes": 1.5, "authors": 0.7}, context_weights={"none": -1.0, "unparsed": 2.0})
"""Weights that no label was fitted to: one model that agrees with itself gives 0.85, two that agree 0.92, three 0.96,
two against one 0.75. Energies have no weight, for no scorer has learned such questions."""


def load_gateway(args: AppArgs) -> Bundle:
    """Read and check every run that the arguments name.

    Raises:
        ConfigError: a run directory, its recipe or its policy is missing or wrong; two runs are of one task; a further
            run needs baselines as evidence.
        UnknownNameError: an unknown task or generator.
        CheckpointError: there is no trained ensemble in a run.
    """
    gateway = load_runs(args)
    if not gateway.others:
        return gateway
    runs = {name: bundle for bundle in gateway.runs for name in bundle.policies if name != GENERAL}
    known = KnownProblems(
        {name: _problems(name, bundle) for name, bundle in runs.items()},
        {name: bundle.task(name).problem_from_text for name, bundle in runs.items()},
    )
    return replace(gateway, known=known)


def load_runs(args: AppArgs) -> Bundle:
    """``load_gateway`` without the index of known problems, which takes seconds and only requests need.

    Raises:
        ConfigError, UnknownNameError, CheckpointError: as for ``load_gateway``.
    """
    first = load_bundle(args)
    others = _further(args, first)
    if args.general is not None:
        others[GENERAL] = _general(args.general, first, others)
    return replace(first, others=others)


def _further(args: AppArgs, first: Bundle) -> dict[str, Bundle]:
    bundles: dict[str, Bundle] = {}
    places = {name: first.run_dir for name in first.tasks}
    for run in args.further_runs:
        bundle = replace(load_bundle(args.of_run(run)), records=first.records)
        for name in bundle.tasks:
            if name in places:
                raise ConfigError(
                    f"further_runs: task {name!r} is served from {places[name]} and from {bundle.run_dir}; a task has "
                    "one run, so take one of them out, or serve it by an application of its own"
                )
            places[name] = bundle.run_dir
            bundles[name] = bundle
        if bundle.recipe.evidence:
            raise ConfigError(
                f"further_runs: {bundle.run_dir} counts baselines as evidence ({bundle.recipe.evidence[0].name}), which"
                " only the first run can; make it the first one (`run_dir`), or serve it by an application of its own"
            )
    return bundles


def _general(args: GeneralArgs, first: Bundle, others: Mapping[str, Bundle]) -> Bundle:
    """The bundle of any question: votes of another run's generators, with no promise."""
    runs = {**dict.fromkeys(first.tasks, first), **others}
    if first.passthrough is not None:
        raise ConfigError(
            f"general takes every question, so nothing would be left to pass through to {first.passthrough!r}; give "
            "`general` or `passthrough`, not both"
        )
    if GENERAL in runs:
        raise ConfigError(f"general: a run of task {GENERAL!r} is served already; take `general` out")
    like = args.like or first.tasks[0]
    if like not in runs:
        raise UnknownNameError("task", like, runs)
    model = runs[like]
    recorded = {config.name for config in model.recipe.generators if config.kind == "recorded"}
    generators = tuple(name for name in model.generators if name not in recorded)
    if not generators:
        raise ConfigError(
            f"general: every generator of task {like!r} is recorded, so none has an answer to a new question; name "
            "another task in `general.like`"
        )
    _check_judge(args.equality, model, generators)
    policy = Policy(
        rule="posterior",
        profile="vote",
        posterior=GENERAL_POSTERIOR,
        tau_accept=args.tau_accept,
        tau_answer=args.tau_answer,
        max_passes=1,
    )
    return replace(
        model,
        recipe=model.recipe.model_copy(update={"task": TaskConfig(name=GENERAL), "baselines": ()}),
        policies={GENERAL: policy},
        generators=generators,
        versions={**model.versions, "policy": policy_id(policy)},
        second=None,
        is_promotable=False,
        reference=None,
        equality=args.equality,
        run_dir=None,
        others={},
        known=None,
    )


def _check_judge(args: EqualityArgs | None, model: Bundle, generators: Sequence[str]) -> None:
    """Raises UnknownNameError for a judge that does not answer there, ConfigError where its cost cannot be limited."""
    if args is None:
        return
    if args.judge not in generators:
        raise UnknownNameError("generator", args.judge, generators)
    without = unpriced(config for config in model.generator_configs() if config.name == args.judge)
    if args.max_usd is not None and without:
        raise ConfigError(f"general.equality: {no_prices(without)}")


def _problems(task_name: str, bundle: Bundle) -> Sequence[Problem]:
    """The known problems of a run's task; none where the run only serves."""
    if bundle.run_dir is None or not (run := RunDir(bundle.run_dir)).has_problems():
        return ()
    return [row.problem for row in run.problems() if row.problem.task == task_name]
