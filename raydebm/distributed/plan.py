"""What a run would do and cost, before anything is sent (``raydebm run --dry-run``)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.config import OpenAIGenerator, Recipe
from raydebm.distributed.stages import Pipeline
from raydebm.records import GenerationRequest, Problem
from raydebm.tasks import get_task


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One generator's share. Prompt tokens are an estimate (four characters each); the rest are upper bounds."""

    generator: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    max_usd: float | None
    """None when the recipe states no prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rows: tuple[PlanRow, ...]
    notes: tuple[str, ...]


def _row(name: str, requests: Sequence[GenerationRequest], recipe: Recipe) -> PlanRow:
    config = next(generator for generator in recipe.generators if generator.name == name)
    prompt = sum(sum(len(message["content"]) for message in request.messages) // 4 + 1 for request in requests)
    completion = sum(request.sampling.max_tokens for request in requests)
    cost = None
    if isinstance(config, OpenAIGenerator):
        prices = (config.usd_per_million_prompt_tokens, config.usd_per_million_completion_tokens)
        if prices[0] is not None and prices[1] is not None:
            cost = (prompt * prices[0] + completion * prices[1]) / 1e6
    elif config.kind in {"transformers", "recorded"}:
        cost = 0.0
    return PlanRow(
        generator=name, requests=len(requests), prompt_tokens=prompt, completion_tokens=completion, max_usd=cost
    )


def _problems(recipe: Recipe) -> list[Problem]:
    task = get_task(recipe.task.name)
    found: list[Problem] = []
    for source in (recipe.task.train, recipe.task.test):
        loaded = task.load(source.split, source=source.source, limit=source.limit, seed=recipe.seed)
        found += [problem for problem, _ in loaded]
    return found


def plan_of(recipe: Recipe) -> Plan:
    """Load the problems and count the requests of the first pass.

    Raises:
        TaskDataError: the problems cannot be loaded.
    """
    problems = _problems(recipe)
    requests = Pipeline(recipe=recipe).requests(problems)
    by_generator: dict[str, list[GenerationRequest]] = {generator.name: [] for generator in recipe.generators}
    for request in requests:
        by_generator[request.generator].append(request)
    rows = tuple(_row(name, found, recipe) for name, found in by_generator.items())
    known = [row.max_usd for row in rows if row.max_usd is not None]
    total = f"${sum(known):,.2f}" + ("" if len(known) == len(rows) else " plus what has no price")
    kinds = Counter(generator.kind for generator in recipe.generators)
    return Plan(
        rows=rows,
        notes=(
            f"{len(problems):,} problems, {len(requests):,} requests, at most {total} for the first pass; completions "
            "are counted at their token limit, so a run usually costs a fraction of it",
            f"second pass: at most {recipe.triage.num_regenerate} more requests per validation problem and lambda, and "
            "per regenerated test problem",
            f"then {len(recipe.scorer.adapters)} adapters on {recipe.scorer.backbone} are trained in parallel",
            f"generators: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}; "
            f"run directory: {recipe.resolved_run_dir}",
        ),
    )
