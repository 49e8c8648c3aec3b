"""Confounding and repair of a scorer, in one Ray task with the resources of one scorer.

Style ablation, style swap and the refitting of heads need torch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from raydebm.config import Recipe
from raydebm.cpus import usable_cpus
from raydebm.decision.table import PoolTable
from raydebm.evaluation.confounding.refit import RepairText
from raydebm.evaluation.confounding.repair_report import RepairData, RepairReport, repair
from raydebm.evaluation.confounding.report import ConfoundingReport, ConfoundingSettings, confounding_steps
from raydebm.evaluation.confounding.swap import SwapInputs, style_swaps
from raydebm.pipeline.ray.placement import cluster_nodes, share_of
from raydebm.pipeline.ray.session import get_or_raise, is_own_cluster
from raydebm.run.addresses import local_copy
from raydebm.run.directory import RunDir
from raydebm.run.tables import KnownEnergies
from raydebm.scorer.texts import score_texts

if TYPE_CHECKING:
    from raydebm.evaluation.confounding.refit import FeatureExtractor

MAX_CPUS = 8.0
"""Limit on CPUs of a task that scores without a GPU; a small encoder gains little from more."""


Step = Callable[[str], None]
"""Function called with a line before each long step."""


def confounding_of(
    run: RunDir, settings: ConfoundingSettings, swap: SwapInputs, *, name: str, on_step: Step
) -> ConfoundingReport:
    """Run screen, style ablation and style swap on the run's scorer.

    Args:
        name: the scorer's name for headings.

    Raises:
        PoolError: a generator of ``confounding.swap`` has no correct answer.
    """
    work = on_the_scorers_node(swap.recipe, _confounding)
    report: ConfoundingReport = _last(work.remote(run.absolute(), settings, swap, name), on_step)
    return report


def repaired_heads(
    run: RunDir,
    texts: Mapping[str, Sequence[RepairText]],
    settings: ConfoundingSettings,
    swap: SwapInputs,
    *,
    changes: Mapping[str, Any],
    on_step: Step,
) -> tuple[RepairReport, KnownEnergies]:
    """Refit the heads of the run's scorer and write ``<run>/repair/scorer``.

    Args:
        texts: training texts by split, ``train`` and ``validation``.
        changes: changed fields of ``RepairSettings``.

    Returns:
        The report, and the repaired scorer's energies of candidates with stored features.

    Raises:
        PoolError: too few generators have answers of both labels.
    """
    work = on_the_scorers_node(swap.recipe, _repair)
    report, known = _last(work.remote(run.absolute(), texts, settings, swap, changes), on_step)
    return report, known


def _last(items: Iterable[Any], on_step: Step) -> Any:
    """The result of a remote generator, which yields lines before it."""
    for item in map(get_or_raise, items):
        if not isinstance(item, str):
            return item
        on_step(item)
    raise AssertionError("the task ended without a result")


@ray.remote
def _confounding(
    run: RunDir, settings: ConfoundingSettings, swap: SwapInputs, name: str
) -> Iterator[str | ConfoundingReport]:
    from raydebm.scorer.ensemble import EnsembleScorer

    recipe = swap.recipe
    with local_copy(run.uri("scorer")) as folder:
        # The dtype of the run's energies, so that results are comparable.
        dtype, tokens = run.scoring_type(recipe.scorer.dtype), recipe.scorer.micro_batch_tokens
        scorer = EnsembleScorer.load(folder, dtype=dtype, micro_batch_tokens=tokens)
        if recipe.confounding.swap:
            yield f"style swap: rewriting correct answers of {', '.join(recipe.confounding.swap)}"
        yield from confounding_steps(
            _as_trained(swap.test, recipe),
            settings=settings,
            validation=_as_trained(swap.validation, recipe),
            name=name,
            scorer=scorer,
            swaps=style_swaps(swap, scorer),
        )


def _as_trained(pools: PoolTable, recipe: Recipe) -> PoolTable:
    """The pools with the texts that the scorer reads, and training labels."""
    return pools.as_scored(recipe.scorer.reasoning).with_trained_labels()


@ray.remote
def _repair(
    run: RunDir,
    texts: Mapping[str, Sequence[RepairText]],
    settings: ConfoundingSettings,
    swap: SwapInputs,
    changes: Mapping[str, Any],
) -> Iterator[str | tuple[RepairReport, KnownEnergies]]:
    from raydebm.evaluation.confounding.refit import FeatureExtractor, RepairSettings

    folder, recipe = Path(run.root), swap.recipe
    # The dtype of the run's energies, so that results are comparable.
    dtype, tokens = run.scoring_type(recipe.scorer.dtype), recipe.scorer.micro_batch_tokens
    extractor = FeatureExtractor(folder / "scorer", dtype=dtype, micro_batch_tokens=tokens)
    data = RepairData(
        train=texts["train"],
        validation=texts["validation"],
        test=_as_trained(swap.test, recipe),
        validation_pools=_as_trained(swap.validation, recipe),
    )
    yield (
        f"repair: refitting the heads on {len(data.train) + len(data.validation):,} texts, each encoded once, then "
        f"scoring {len(data.test.candidates):,} candidates with the old heads and the new ones"
    )
    report = repair(
        extractor,
        folder / "repair" / "scorer",
        data,
        repair_settings=RepairSettings(seed=recipe.seed, **changes),
        settings=settings,
    )
    yield report, _known_energies(extractor, report.result.folder, data)


def _known_energies(extractor: "FeatureExtractor", repaired: Path, data: RepairData) -> KnownEnergies:
    """Energies that the repaired heads give to all candidates whose features are cached."""
    texts = {text.candidate_id: (text.prompt, text.text) for text in (*data.train, *data.validation)}
    for pools in (data.test, data.validation_pools):
        texts |= {} if pools is None else pools.texts
    kept = dict(
        pair for pair, is_kept in zip(texts.items(), extractor.has(list(texts.values())), strict=True) if is_kept
    )
    rows = score_texts(extractor.scorer(repaired), list(kept.values()))
    return KnownEnergies(
        rows={name: replace(row, candidate_id=name) for name, row in zip(kept, rows, strict=True)},
        dtype=extractor.dtype,
    )


def on_the_scorers_node(recipe: Recipe, work: Any) -> Any:
    """Give a remote function the CPUs and the GPU share of one scoring task."""
    nodes = cluster_nodes()
    share = share_of(recipe.ray, nodes)
    if share.gpus:
        return work.options(num_cpus=share.cpus, num_gpus=share.gpus)
    # Nothing else of the run is active, so the task gets several CPUs and as many torch threads. A cluster that raydebm
    # started may count more CPUs than this machine has.
    most = min(MAX_CPUS, max(node.get("CPU", 1.0) for node in nodes))
    return work.options(num_cpus=min(most, usable_cpus()) if is_own_cluster() else most)
