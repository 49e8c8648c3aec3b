"""Variants of a recipe's scorer, trained from the run's own candidates and labels (``variants`` in a recipe).

``<run_dir>/variant-<name>`` is a separate run directory. It copies every stage that its settings do not affect; a
variant on fewer generators copies their candidates and labels, and the problems that they answered. Nothing is
generated or labelled again.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from raydebm.config import Recipe, VariantConfig
from raydebm.errors import PoolError
from raydebm.pipeline.context import Facts
from raydebm.pipeline.runner import SHARED, Pipeline, child_run, share_stage
from raydebm.pipeline.studies.repair import ensure_repaired
from raydebm.pipeline.writing_lock import write_lock
from raydebm.records import Candidate
from raydebm.run.fingerprints import FILES, build_id, current_manifest, new_manifest, stage_fingerprint
from raydebm.run.stages import StageName


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """A run and its variants."""

    run: Pipeline
    variants: tuple[tuple[VariantConfig, Pipeline], ...]
    """Variants with runs of their own: not those that only repair the run's scorer."""

    @property
    def on_fewer_generators(self) -> list[Pipeline]:
        """The variants that leave generators out."""
        return [pipeline for variant, pipeline in self.variants if variant.generators is not None]


def make_variants(pipeline: Pipeline) -> Family:
    """Evaluate a run, copy its stages to its variants, and make the variants' repairs.

    A run without variants is not evaluated. Variants without a repair still have to be trained.

    Raises:
        PoolError: the generators of a variant answered none of the problems.
    """
    if not pipeline.recipe.variants:
        return Family(run=pipeline, variants=())
    shared = replace(pipeline, payer=pipeline.payer or pipeline.run)
    shared.evaluate()
    variants = []
    for variant in shared.recipe.variants:
        child = shared
        if not variant.is_recipes_own:
            child = child_run(shared, f"variant-{variant.name}", shared.recipe.with_variant(variant))
            take_over(shared, child)
            variants.append((variant, child))
        if variant.repair:
            ensure_repaired(child)
    return Family(run=shared, variants=tuple(variants))


def take_over(shared: Pipeline, child: Pipeline) -> None:
    """Copy the finished stages that a variant's settings do not affect.

    Raises:
        PoolError: no candidate matches the variant's recipe.
    """
    if _is_made_alike("labels", shared, child):
        for stage in SHARED:
            share_stage(shared, child, stage)
        if _is_made_alike("pairs", shared, child):
            share_stage(shared, child, "pairs")
            with write_lock(child.run):
                shared.run.copy_scores(child.run)
        return
    candidates = _candidates_of(shared, child.recipe)
    if not candidates:
        names = ", ".join(generator.name for generator in child.recipe.generators)
        raise PoolError(f"{shared.run.uri('candidates')} has no candidate of {names}, so {child.recipe.name} has none")
    candidate_ids = frozenset(candidate.candidate_id for candidate in candidates)
    answered = frozenset(candidate.problem_id for candidate in candidates)

    def write_candidates() -> Facts:
        return {"candidates": child.run.write_candidates(candidates)}

    def write_labels() -> Facts:
        child.run.write_reports(report for report in shared.run.reports() if report.candidate_id in candidate_ids)
        labels = (label for label in shared.run.labels() if label.candidate_id in candidate_ids)
        return {"labels": child.run.write_labels(labels)}

    writers: dict[StageName, Callable[[], Facts]] = {
        "problems": lambda: _write_problems(shared, child, answered),
        "candidates": write_candidates,
        "labels": write_labels,
    }
    for stage, write in writers.items():
        taken_from = build_id(stage, shared.run)
        current = current_manifest(stage, child.recipe, child.run)
        if current is None or current["facts"].get("taken_from") != taken_from:
            with write_lock(child.run):
                child.run.remove(stage)
                facts = {**write(), "taken_from": taken_from}
                child.run.finish(stage, new_manifest(stage, child.recipe, child.run, facts=facts))


def _is_made_alike(stage: StageName, one: Pipeline, other: Pipeline) -> bool:
    return stage_fingerprint(stage, one.recipe, one.run) == stage_fingerprint(stage, other.recipe, other.run)


def _candidates_of(shared: Pipeline, recipe: Recipe) -> list[Candidate]:
    """The run's candidates that this recipe asks for, including greedy ones."""
    default = recipe.generation.num_samples
    most = {
        generator.name: default if generator.num_samples is None else generator.num_samples
        for generator in recipe.generators
    }
    return [
        candidate
        for candidate in shared.run.candidates()
        if candidate.generator in most and (candidate.is_greedy or candidate.sample_index < most[candidate.generator])
    ]


def _write_problems(shared: Pipeline, child: Pipeline, answered: Set[str]) -> Facts:
    child.run.write_problems(row for row in shared.run.problems() if row.problem.problem_id in answered)
    child.run.write_golds(gold for gold in shared.run.golds() if gold.problem_id in answered)
    files = shared.run.facts("problems").get(FILES)
    return {"problems": len(answered), **({FILES: files} if files else {})}
