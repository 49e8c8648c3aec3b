"""A small run directory with a trained scorer, made without Ray: word problems, two generators, two adapters."""

import pytest
import yaml

from raydebm.config import parse_recipe
from raydebm.records import Candidate, Pair, Problem
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import new_manifest
from raydebm.run.tables import SplitProblem
from raydebm.scorer.pairs import training_groups

PROBLEMS = [
    Problem(task="gsm8k", problem_id=f"p{index}", prompt=f"What is {index} plus 2?", data={}) for index in range(4)
]
SPLIT_OF = {"p0": "train", "p1": "train", "p2": "validation", "p3": "test"}


def candidates():
    """Of each problem one good answer by bo and one bad answer by dee."""
    for index, problem in enumerate(PROBLEMS):
        for generator, value in (("bo", index + 2), ("dee", index + 3)):
            yield Candidate(
                candidate_id=f"c{index}-{generator}",
                task="gsm8k",
                problem_id=problem.problem_id,
                generator=generator,
                text=f"The sum is {value}.\n#### {value}",
            )


def recipe_of(run_dir):
    return parse_recipe(
        {
            "name": "sums",
            "seed": 3,
            "run_dir": str(run_dir),
            "task": {"name": "gsm8k", "train": {"split": "train", "source": "hub:openai/gsm8k"}},
            "generators": [
                {"kind": "recorded", "name": name, "pool": "pool.jsonl", "model": name} for name in ("bo", "dee")
            ],
            "scorer": {
                "backbone": "embedded:encoder-mini",
                "max_length": 96,
                "adapters": [
                    {"name": "a0", "rank": 2, "alpha": 4, "targets": ["Wqkv"]},
                    {"name": "a1", "rank": 2, "alpha": 4, "targets": ["Wqkv", "Wi"]},
                ],
            },
            "training": {"max_epochs": 1, "learning_rate": 1e-3},
        }
    )


def finish(run, stage, recipe, **facts):
    run.finish(stage, new_manifest(stage, recipe, run, facts=facts))


def train(run, recipe, pairs):
    from raydebm.scorer.checkpoint import write_ensemble
    from raydebm.scorer.model.backbone import load_backbone
    from raydebm.scorer.training.adapter import train_adapter
    from raydebm.scorer.training.schedule import AdapterData
    from raydebm.scorer.training.settings import TrainingSettings
    from raydebm.tasks import task_of

    backbone = load_backbone(recipe.scorer.backbone, device="cpu")
    groups = {split: training_groups(split_pairs, candidates(), PROBLEMS) for split, split_pairs in pairs.items()}
    folders = {
        adapter.name: train_adapter(
            adapter,
            AdapterData(train=groups["train"], validation=groups["validation"]),
            backbone=backbone,
            settings=TrainingSettings.from_recipe(recipe, task_of(recipe.task).defaults),
            out_dir=run / "scorer" / adapter.name,
            report=lambda report: None,
        ).folder
        for adapter in recipe.scorer.adapters
    }
    write_ensemble(run / "scorer", folders, {"recipe": recipe.name})


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """Complete up to the scorer; neither calibrated nor evaluated."""
    folder = tmp_path_factory.mktemp("run")
    recipe, run = recipe_of(folder), RunDir(str(folder))
    run.write_recipe(recipe)
    run.write_problems(
        SplitProblem(problem=problem, split="test" if problem.problem_id == "p3" else "train") for problem in PROBLEMS
    )
    run.write_candidates(candidates())
    pairs = {
        split: [
            Pair(problem_id=name, chosen=f"c{name[1:]}-bo", rejected=f"c{name[1:]}-dee")
            for name, part in SPLIT_OF.items()
            if part == split
        ]
        for split in ("train", "validation")
    }
    for split, split_pairs in pairs.items():
        run.write_pairs(split_pairs, split)
    finish(run, "pairs", recipe, train={"pairs": 2, "problems": 2}, validation={"pairs": 1, "problems": 1})
    train(folder, recipe, pairs)
    finish(run, "scorer", recipe)
    return folder


@pytest.fixture(scope="session")
def metadata_of():
    """The YAML block at the top of a card."""

    def read(card):
        _, block, _ = card.split("---\n", 2)
        return yaml.safe_load(block)

    return read
