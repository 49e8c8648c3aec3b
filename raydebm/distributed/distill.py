"""Distillation in one task on a node that has the scorer's models."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import ray

from raydebm.config import Recipe
from raydebm.distributed.confounding import on_the_scorers_node
from raydebm.distributed.session import get_or_raise
from raydebm.errors import ScoringError
from raydebm.evaluation.studies.distillation import ScoringTime
from raydebm.records import Candidate, Energies
from raydebm.run.directory import RunDir
from raydebm.tasks import task_of

if TYPE_CHECKING:
    from raydebm.scorer.ensemble import EnsembleScorer
    from raydebm.scorer.training.student import TaughtText

MAX_TIMED_TEXTS = 512
"""Texts on which ensemble and student are timed."""

Texts = Mapping[str, Sequence[tuple[str, Candidate]]]
"""Split -> (problem's text, candidate)."""
KnownEnergies = Mapping[str, Energies]
"""By candidate id."""


def distilled_scorer(run: RunDir, student: RunDir, recipe: Recipe, texts: Texts, known: KnownEnergies) -> ScoringTime:
    """Teach one adapter what the run's ensemble says of its texts; writes ``<student>/scorer``.

    Args:
        texts: of the splits train (learnt from), validation (choose the epoch) and test (timed).
        known: energies that the run has already; other texts of train and validation are scored.

    Raises:
        PoolError: there is nothing to learn from.
        TrainingError: the loss became NaN or infinite.
        CheckpointError: the run's scorer is torn, or the student's backbone cannot be read.
        ConfigError: the student's adapter does not fit its backbone.
    """
    work = on_the_scorers_node(recipe, _distill)
    time: ScoringTime = get_or_raise(work.remote(run.absolute(), student.absolute(), recipe, texts, known))
    return time


@ray.remote
def _distill(run: RunDir, student: RunDir, recipe: Recipe, texts: Texts, known: KnownEnergies) -> ScoringTime:
    from raydebm.scorer.ensemble import EnsembleScorer, write_ensemble
    from raydebm.scorer.model.backbone import load_backbone
    from raydebm.scorer.training.member import check_member
    from raydebm.scorer.training.settings import TrainingSettings
    from raydebm.scorer.training.student import TaughtTexts, distill

    config = recipe.distillation
    load = partial(
        EnsembleScorer.load,
        device=recipe.scorer.device,
        dtype=run.scoring_type(recipe.scorer.dtype),  # so that the student learns the energies that the run has
        micro_batch_tokens=recipe.scorer.micro_batch_tokens,
    )
    ensemble = load(Path(run.root) / "scorer")
    backbone = load_backbone(recipe.scorer.backbone_of(config.adapter), device=recipe.scorer.device, dtype="float32")
    settings = TrainingSettings.from_recipe(recipe, task_of(recipe.task).defaults, config.adapter)
    check_member(config.adapter, backbone, pooling=settings.pooling, max_length=settings.max_length)
    settings = replace(
        settings,
        learning_rate=config.learning_rate or settings.learning_rate,
        batch_size=config.batch_size,
        max_epochs=config.max_epochs,
        patience=config.patience,
    )
    target = Path(student.root) / "scorer"
    shutil.rmtree(target, ignore_errors=True)
    learnt = distill(
        TaughtTexts(
            train=_taught(ensemble, texts["train"], known), held_out=_taught(ensemble, texts["validation"], known)
        ),
        teacher=ensemble.record,
        adapter=config.adapter,
        backbone=backbone,
        settings=settings,
        out_dir=target,
    )
    write_ensemble(target, learnt.folders, {**ensemble.record.meta, "distilled_from": run.root})
    timed = [(prompt, candidate.text or "") for prompt, candidate in texts["test"]][:MAX_TIMED_TEXTS]
    return ScoringTime(
        num_texts=len(timed), ensemble_s=_seconds(ensemble, timed), student_s=_seconds(load(target), timed)
    )


def _taught(
    ensemble: "EnsembleScorer", texts: Sequence[tuple[str, Candidate]], known: KnownEnergies
) -> "list[TaughtText]":
    """What the ensemble says of the texts; equal ones of a problem once, and none that it cannot score."""
    from raydebm.scorer.bisection import scores_or_errors
    from raydebm.scorer.training.student import TaughtText

    distinct: dict[tuple[str, str, str], Energies | None] = {}
    for prompt, candidate in texts:
        key = (candidate.problem_id, prompt, candidate.text or "")
        distinct[key] = distinct.get(key) or known.get(candidate.candidate_id)
    asked = [key for key, energies in distinct.items() if energies is None]
    scored = scores_or_errors(ensemble, [(prompt, text) for _, prompt, text in asked])
    for key, result in zip(asked, scored, strict=True):
        if not isinstance(result, ScoringError):
            distinct[key] = Energies(candidate_id="", members=result.members)
    return [
        TaughtText(problem_id=problem_id, prompt=prompt, text=text, mu=energies.mu, sigma=energies.sigma)
        for (problem_id, prompt, text), energies in distinct.items()
        if energies is not None
    ]


def _seconds(scorer: "EnsembleScorer", texts: Sequence[tuple[str, str]]) -> float:
    """Wall time of scoring, after a first few texts that warm up."""
    scorer.score(texts[:8])
    started = time.perf_counter()
    scorer.score(texts)
    return time.perf_counter() - started
