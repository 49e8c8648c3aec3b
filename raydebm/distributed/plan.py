"""What a run would do and cost, before anything is sent (``raydebm run --dry-run``)."""

from collections import Counter
from dataclasses import dataclass

from raydebm.config import Recipe
from raydebm.distributed.stages import Pipeline
from raydebm.generators.requests import CostEstimate, estimate_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The first pass per generator, and in words what follows it."""

    estimates: tuple[CostEstimate, ...]
    notes: tuple[str, ...]


def plan_of(recipe: Recipe) -> Plan:
    """Load the problems and count the requests of the first pass. Needs no Ray and no key.

    Raises:
        TaskDataError: the problems cannot be loaded.
    """
    pipeline = Pipeline(recipe=recipe)
    problems = [problem for _, problem, _ in pipeline.load_problems()]
    requests = pipeline.requests(problems)
    estimates = estimate_cost(requests, recipe.generators)
    kinds = Counter(generator.kind for generator in recipe.generators)
    return Plan(
        estimates=estimates,
        notes=(
            f"{len(problems):,} problems, {len(requests):,} requests, {_total(estimates)} for the first pass; "
            "completions are counted at their token limit, so a run usually costs a fraction of it",
            f"later passes: at most {recipe.triage.num_regenerate} more requests per validation problem and lambda, "
            "and per regenerated test problem",
            f"then {len(recipe.scorer.adapters)} adapters on {recipe.scorer.backbone} are trained in parallel",
            f"generators: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}; "
            f"run directory: {recipe.resolved_run_dir}",
        ),
    )


def _total(estimates: tuple[CostEstimate, ...]) -> str:
    known = [estimate.usd_high for estimate in estimates if estimate.usd_high is not None]
    total = f"at most ${sum(known):,.2f}"
    return total if len(known) == len(estimates) else f"{total} plus what has no price"
