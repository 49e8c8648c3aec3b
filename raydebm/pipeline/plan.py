"""Plan and cost of a run before anything is sent (``raydebm run --dry-run``)."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from raydebm.config import Recipe
from raydebm.generators.recorded import PoolGenerator, recorded_generators
from raydebm.generators.requests import CostEstimate, PassRequests, estimate_cost
from raydebm.pipeline.context import StageContext
from raydebm.pipeline.pools import default_policy
from raydebm.pipeline.stages.problems import answerable, load_problems
from raydebm.records import GenerationRequest
from raydebm.run.fingerprints import NOT_COMPLETE, why_not_current
from raydebm.run.stages import STAGES

DEVICES = Path("/dev")
"""Folder with the driver's GPU devices (``nvidia0`` and so on), counted there because importing torch is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Cost of the first pass per generator, and notes on the rest."""

    estimates: tuple[CostEstimate, ...]
    notes: tuple[str, ...]


def plan_of(recipe: Recipe) -> Plan:
    """Load the problems and count the requests of the first pass. Needs no Ray and no key.

    Raises:
        TaskDataError: the problems or a recorded pool cannot be read.
        UnknownNameError: a model is not in its recorded pool.
        PoolError: the recorded pools answer none of the problems.
    """
    context = StageContext(recipe=recipe)
    loaded = list(load_problems(recipe))
    pools = list(recorded_generators(recipe.generators, problems=[problem for _, problem, _ in loaded]))
    problems = [problem for _, problem, _ in answerable(recipe, loaded, pools=pools)]
    requests = context.requests(problems)
    recorded = _Recorded(recipe, pools)
    estimates = estimate_cost(recorded.counted(requests), recipe.generators)
    kinds = Counter(generator.kind for generator in recipe.generators)
    return Plan(
        estimates=estimates,
        notes=(
            f"{len(problems):,} problems, {len(requests):,} requests, {_total(estimates)} for the first pass; "
            "completions are counted at their token limit, so a run usually costs a fraction of it",
            *_dropped(len(loaded) - len(problems)),
            *recorded.notes(len(requests)),
            *_waves(context.passes),
            *_later_passes(context),
            f"then {len(recipe.scorer.adapters)} adapters on {recipe.scorer.backbone} are trained",
            *_one_gpu(recipe),
            *_baselines(recipe),
            *_main_results(recipe),
            _stages(context),
            f"generators: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}; "
            f"run directory: {recipe.resolved_run_dir}",
        ),
    )


def _stages(context: StageContext) -> str:
    """Current and missing stages of the run directory."""
    reasons = {stage.name: why_not_current(stage.name, context.recipe, context.run) for stage in STAGES}
    complete = list(takewhile(lambda name: reasons[name] is None, reasons))
    missing = [name for name in reasons if name not in complete]
    again = f" ({missing[0]}: {reasons[missing[0]]})" if missing and reasons[missing[0]] != NOT_COMPLETE else ""
    return f"stages to make: {', '.join(missing) or 'none'}{again}; complete: {', '.join(complete) or 'none'}"


def _later_passes(context: StageContext) -> Iterator[str]:
    if context.recorded_replies is not None:
        replies = [candidate for candidate in context.recorded_replies[0] if candidate.pass_index > 1]
        yield (
            f"later passes: the pool has {len(replies):,} replies to feedback about "
            f"{len({reply.problem_id for reply in replies}):,} problems; each is used where the loop gives the same "
            "feedback, and nowhere else"
        )
    elif default_policy(context).max_passes > 1:
        yield (
            f"later passes: at most {context.recipe.decision.num_regenerate} more requests in each, per validation "
            "problem and policy tried, and per regenerated test problem"
        )


def _waves(passes: PassRequests) -> Iterator[str]:
    if passes.waves is not None:
        sizes = ", ".join(map(str, passes.waves))
        yield (
            f"each problem is sampled in waves of {sizes} and so on until its vote is settled, so this is the "
            "maximum number of requests"
        )
    yield from passes.remarks_on_waves


def _dropped(count: int) -> Iterator[str]:
    if count:
        yield f"{count:,} more problems are left out, because no recorded pool answers them"


class _Recorded:
    """Number of requests that the recorded pools can answer; the others count as failed."""

    def __init__(self, recipe: Recipe, pools: Sequence[PoolGenerator]) -> None:
        self._recipe, self._pools = recipe, {pool.name: pool for pool in pools}
        self._requested, self._missing = Counter[str](), Counter[str]()

    def counted(self, requests: Iterable[GenerationRequest]) -> Iterator[GenerationRequest]:
        """The same requests, counted as they pass."""
        for request in requests:
            if pool := self._pools.get(request.generator):
                self._requested[pool.name] += 1
                self._missing[pool.name] += not pool.has_answer(request)
            yield request

    def notes(self, num_requests: int) -> Iterator[str]:
        if not self._pools:
            return
        total, missing = self._requested.total(), +self._missing
        yield f"recorded pools answer {total - missing.total():,} of {total:,} requests" + (
            f"; not recorded: {', '.join(f'{count:,} of {name}' for name, count in missing.items())}" if missing else ""
        )
        if missing.total() > self._recipe.generation.max_failed_frac * num_requests:
            yield (
                f"that is more than generation.max_failed_frac = {self._recipe.generation.max_failed_frac:g} allows, "
                "so the run would stop: ask for fewer samples, or name the field that holds the answer in text_fields"
            )


def _one_gpu(recipe: Recipe) -> Iterator[str]:
    config, num_adapters = recipe.ray, len(recipe.scorer.adapters)
    num_gpus = 0 if "RAY_ADDRESS" in os.environ else len(list(DEVICES.glob("nvidia[0-9]*")))
    shares = config.gpus_per_adapter is None or 0 < config.gpus_per_adapter < 1
    if num_gpus == 1 and shares and num_adapters > 1:
        yield (
            f"one GPU for {num_adapters} adapters: set ray.gpus_per_adapter=1, which trains one after another; several "
            "at once are no faster and each holds a copy of the backbone (docs/training.md)"
        )


def _baselines(recipe: Recipe) -> Iterator[str]:
    if recipe.baselines:
        names = ", ".join(f"{baseline.name} ({baseline.kind})" for baseline in recipe.baselines)
        judges = any(baseline.kind == "judge" for baseline in recipe.baselines)
        asks = "; a judge gets a request for each distinct candidate, which the estimate leaves out" if judges else ""
        yield f"baselines score the validation and test candidates: {names}{asks}"


def _main_results(recipe: Recipe) -> Iterator[str]:
    if recipe.task.data != "paper":
        return
    from raydebm.evaluation.paper.paper_tables import rows_without_source  # loads SciPy, which other plans do not need

    missing = rows_without_source(recipe)
    yield "the paper's table of main results: " + (
        f"no source for {', '.join(missing)}" if missing else "every row has its source"
    )


def _total(estimates: tuple[CostEstimate, ...]) -> str:
    known = [estimate.usd_high for estimate in estimates if estimate.usd_high is not None]
    total = f"at most ${sum(known):,.2f}"
    return total if len(known) == len(estimates) else f"{total} plus requests without a price"
