"""Several runs behind one address: the first run's bundle with those of the others.

In:   the application's arguments.
Out:  one ``Bundle``.
"""

from dataclasses import replace

from raydebm.errors import ConfigError
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import Bundle, load_bundle


def load_gateway(args: AppArgs) -> Bundle:
    """Read and check every run that the arguments name.

    Raises:
        ConfigError: a run directory, its recipe or its policy is missing or wrong; two runs are of one task; a further
            run needs baselines as evidence.
        UnknownNameError: an unknown task or generator.
        CheckpointError: there is no trained ensemble in a run.
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
                    "one run, so take one of them out, or serve it by an application of its own"
                )
            places[name] = bundle.run_dir
            others[name] = bundle
        if bundle.recipe.evidence:
            raise ConfigError(
                f"further_runs: {bundle.run_dir} counts baselines as evidence ({bundle.recipe.evidence[0].name}), which"
                " only the first run can; make it the first one (`run_dir`), or serve it by an application of its own"
            )
    return replace(first, others=others)
