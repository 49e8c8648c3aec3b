"""Distillation of a run's ensemble into one adapter.

In:   the pipeline of a finished run (what is missing is made first).
Out:  ``<run>/distilled``, a run directory with the student as its scorer, and a report of what that costs and saves.
"""

from raydebm.config import Recipe
from raydebm.errors import ConfigError
from raydebm.evaluation.provenance import command_line
from raydebm.evaluation.report.distillation_tables import distillation_summary, distillation_tables
from raydebm.evaluation.report.document import ReportDocument
from raydebm.evaluation.studies.distillation import DistillationStudy, distillation_study
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.studies.changed_scorer import new_scorer, run_of_scorer
from raydebm.pipeline.studies.reproduction import scored_variant
from raydebm.records import Candidate, Energies
from raydebm.run.directory import RunDir
from raydebm.run.stages import DISTILLED

FOLDER = "distilled"


def distill_run(pipeline: Pipeline) -> tuple[DistillationStudy, str]:
    """Teach one adapter what the run's ensemble says, evaluate it, and compare; returns the report's address too.

    The student learns from the candidates of the training problems, with or without a label, and its epoch is chosen on
    those of the validation problems. ``<run>/distilled`` can be served like any other run. Its
    posterior is fitted on validation problems alone: the student has learned from all training problems.

    Raises:
        ConfigError: the run directory is not a local path.
        PoolError: no candidate of a training problem has a text.
    """
    if not pipeline.run.is_local:
        raise ConfigError(
            f"distill writes a checkpoint folder below the run; {pipeline.run.root!r} is not a local path"
        )
    from raydebm.distributed.distill import distilled_scorer

    pipeline.evaluate()
    folder = RunDir(pipeline.run.uri(FOLDER))
    texts = {split: _texts(pipeline, split) for split in (TRAIN, VALIDATION, TEST)}
    with new_scorer(folder, DISTILLED, {"distilled_from": pipeline.run.root, "scorer": pipeline.basis("scorer")}):
        time = distilled_scorer(pipeline.run, folder, pipeline.recipe, texts, _known_energies(pipeline))
        student = run_of_scorer(pipeline, _recipe_of_student(pipeline.recipe, folder.root))
        student.evaluate()
    study = distillation_study(
        scored_variant(pipeline),
        scored_variant(student),
        time=time,
        num_bootstrap=pipeline.recipe.evaluation.num_bootstrap,
        seed=pipeline.recipe.seed,
    )
    page = ReportDocument(
        title=f"Distillation: {pipeline.name}",
        summary=distillation_summary(study),
        tables=distillation_tables(study),
        provenance={"command": command_line(), "seed": str(pipeline.recipe.seed)},
    )
    return study, page.write(folder, "distillation")


def _known_energies(pipeline: Pipeline) -> dict[str, Energies]:
    """Energies of the run by candidate id, those of single adapters (out of bag) left out."""
    rows = ((row.members, row.energies) for row in pipeline.run.energies())
    return {
        energies.candidate_id: energies
        for members, energies in rows
        if members is not None and energies is not None and None not in members
    }


def _texts(pipeline: Pipeline, split: str) -> list[tuple[str, Candidate]]:
    """(problem's text, candidate as the scorer reads it) of a split's first pass."""
    problems = {problem.problem_id: problem for problem in pipeline.problems_of(split)}
    return [
        (problems[candidate.problem_id].prompt, candidate.as_scored(pipeline.recipe.scorer.reasoning))
        for candidate in pipeline.run.candidates()
        if candidate.problem_id in problems and candidate.text is not None
    ]


def _recipe_of_student(recipe: Recipe, run_dir: str) -> Recipe:
    from raydebm.scorer.training.student import HIGH, LOW

    members = tuple(recipe.distillation.adapter.model_copy(update={"name": name}) for name in (LOW, HIGH))
    scorer = recipe.scorer.model_copy(update={"adapters": members})
    return recipe.model_copy(update={"run_dir": run_dir, "scorer": scorer})
