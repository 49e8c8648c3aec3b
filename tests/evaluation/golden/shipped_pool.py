"""A run on the shipped pool with made-up energies, calibrated and evaluated in this process.

    python tests/evaluation/golden/shipped_pool.py

writes the golden files again; a commit that does so says which number changed, and why.
"""

import json
import random
import tempfile
from pathlib import Path

import pytest

from raydebm.config import load_recipe, with_recorded_answers
from raydebm.decision.sampling.checks import check_candidate
from raydebm.generators import build_generator
from raydebm.identity import seed_for
from raydebm.pipeline.context import StageContext
from raydebm.pipeline.stages.calibration import make_calibration
from raydebm.pipeline.stages.energies import adapters_out_of_bag
from raydebm.pipeline.stages.evaluation import make_evaluation
from raydebm.pipeline.stages.pairs import make_pairs
from raydebm.pipeline.stages.problems import make_problems
from raydebm.records import Verdict
from raydebm.run.tables import ENERGIES, EnergyRow
from raydebm.tasks.labels import label_candidate

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
FILES = {"metrics.json": ("evaluation", "metrics.json"), "policy.json": ("calibration", "policy.json")}


def results(run_dir):
    """The JSON texts of the files of a new run, by name."""
    overrides = [f"run_dir={run_dir}", "name=golden"]
    recipe = load_recipe(REPOSITORY / "configs" / "gsm8k_small_llms.yaml", overrides=overrides)
    context = StageContext(with_recorded_answers(recipe, "embedded:gsm8k_small_llms"), command="golden")
    run = context.run
    make_problems(context)
    problems, golds = context.problems(), context.golds()
    candidates = _answers(context, problems)
    labels = [label_candidate(context.task, problems[one.problem_id], golds[one.problem_id], one) for one in candidates]
    run.write_candidates(candidates)
    run.write_labels(labels)
    run.write_reports(check_candidate(context.task, problems[one.problem_id], one) for one in candidates)
    make_pairs(context)
    run.write_json({"format": 2, "made_up": True}, "scorer", "ensemble.json")
    unseen = adapters_out_of_bag(context)
    splits = {name: split for split, names in context.splits().items() for name in names}
    energies = (
        EnergyRow(candidate_id=one.candidate_id, members=_energies(label), num_tokens=9).of_members(
            unseen.get(one.problem_id, ())
        )
        for one, label in zip(candidates, labels, strict=True)
        if not one.is_greedy and (splits[one.problem_id] != "train" or one.problem_id in unseen)
    )
    run.write_records(ENERGIES, energies, "energies", "energies.parquet")
    for stage in ("problems", "candidates", "labels", "pairs", "scorer", "energies"):
        run.finish(stage, {})
    make_calibration(context)
    run.finish("calibration", {})
    with pytest.MonkeyPatch.context() as patch:  # drawing takes longer than all the rest
        patch.setattr("raydebm.evaluation.report.evaluation_report.write_report", _write_metrics)
        make_evaluation(context)
    return {name: json.dumps(run.needed_object(*place), indent=1) + "\n" for name, place in FILES.items()}


def _write_metrics(result, run):
    """All but the versions of this machine."""
    metrics = {name: value for name, value in result.to_json().items() if name != "versions"}
    run.write_json(metrics, "evaluation", "metrics.json")


def _answers(context, problems):
    """All recorded answers, problem by problem."""
    pools = {one.name: build_generator(one, problems=problems.values()) for one in context.recipe.generators}
    requests = [request for one in problems.values() for request in context.passes.first(one, greedy=True)]
    return [pools[request.generator].reply(request) for request in requests]


def _energies(label):
    """Five adapters: right answers are lower by one on average."""
    noise = random.Random(seed_for("energy", label.candidate_id))
    return tuple(noise.gauss(0.0, 1.5) - (label.verdict is Verdict.CORRECT) for _ in range(5))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name, text in results(folder).items():
            (HERE / name).write_text(text, encoding="utf-8")
