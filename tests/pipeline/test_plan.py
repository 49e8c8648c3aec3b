"""What a dry run says of recorded pools, before anything is started."""

import json
from itertools import islice

import pytest

from raydebm.config import (
    JudgeBaseline,
    OpenAIGenerator,
    TransformersGenerator,
    changed_recipe,
    load_recipe,
    parse_recipe,
)
from raydebm.evaluation.paper.paper_tables import rows_without_source
from raydebm.generators.recorded import recorded_generators
from raydebm.pipeline.plan import plan_of
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.problems import load_problems
from raydebm.tasks import get_task
from raydebm.tasks.knights_knaves.puzzles import make_puzzle

SOURCES = {"train": {"split": "train", "source": "generate:2-3", "limit": 6},
           "test": {"split": "test", "source": "generate:2-3", "limit": 4}}  # fmt: skip


@pytest.fixture
def recipe(tmp_path):
    """Ten problems; of the first eight one answer each, of model m, is in the pool."""
    task = get_task("knights_knaves")
    loaded = [task.load(split, source="generate:2-3", seed=0) for split in ("train", "test")]
    ids = [
        problem.problem_id for pairs, limit in zip(loaded, (6, 4), strict=True) for problem, _ in islice(pairs, limit)
    ]
    pool = tmp_path / "pool.jsonl"
    rows = [{"problem_id": problem_id, "model": "m", "code": "x"} for problem_id in ids[:8]]
    pool.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    def build(*, num_samples, text_fields=("code",), max_failed_frac=0.5):
        generator = {"kind": "recorded", "name": "g", "model": "m", "pool": str(pool), "num_samples": num_samples,
                     "text_fields": list(text_fields)}  # fmt: skip
        return parse_recipe(
            {"name": "t", "task": {"name": "knights_knaves", **SOURCES}, "generators": [generator],
             "generation": {"greedy": False, "max_failed_frac": max_failed_frac}, "run_dir": str(tmp_path / "run")}
        )  # fmt: skip

    return build


def test_problems_without_a_recording_are_counted_and_left_out(recipe):
    notes = plan_of(recipe(num_samples=1)).notes

    assert notes[0].startswith("8 problems, 8 requests")
    assert notes[1] == "2 more problems are left out, because no recorded pool answers them"
    assert notes[2] == "recorded pools answer 8 of 8 requests"


def test_they_are_left_out_too_where_a_live_model_writes_later_passes_alone(recipe):
    writer = OpenAIGenerator(name="w", model="m", api_key_env=None, num_samples=0)
    mixed = {"generators": (*recipe(num_samples=1).generators, writer)}
    assert plan_of(recipe(num_samples=1).model_copy(update=mixed)).notes[1].startswith("2 more problems are left out")


def test_missing_recordings_are_counted_by_generator(recipe):
    assert "recorded pools answer 8 of 16 requests; not recorded: 8 of g" in plan_of(recipe(num_samples=2)).notes


def test_a_plan_that_would_stop_for_missing_recordings_says_so(recipe):
    def warns(num_samples):
        return any("the run would stop" in note for note in plan_of(recipe(num_samples=num_samples)).notes)

    assert (warns(2), warns(3)) == (False, True)


def test_baselines_are_named_with_what_a_judge_costs(recipe):
    judge = JudgeBaseline(name="j", generator=OpenAIGenerator(name="w", model="m", api_key_env=None))
    planned = recipe(num_samples=1).model_copy(update={"baselines": (judge,)})

    assert [note for note in plan_of(planned).notes if note.startswith("baselines")] == [
        "baselines score the validation and test candidates: j (judge); a judge gets a request for each "
        "distinct candidate, which the estimate leaves out"
    ]


@pytest.mark.study
def test_shipped_recipes_find_most_of_their_recorded_answers(repository, shared_data, monkeypatch):
    monkeypatch.setenv("RAYDEBM_DATA", str(shared_data))
    missing = {}
    for file in sorted((repository / "configs").glob("*_recorded.yaml")):
        loaded = load_recipe(file)
        pipeline = Pipeline(recipe=loaded)
        problems = [problem for _, problem, _ in load_problems(loaded)]
        pools = {generator.name: generator for generator in recorded_generators(loaded.generators, problems=problems)}
        requests = pipeline.requests(
            [problem for problem in problems if any(pool.answers(problem.problem_id) for pool in pools.values())]
        )
        failed = sum(not pools[request.generator].has_answer(request) for request in requests)
        missing[file.stem] = failed / len(requests) / loaded.generation.max_failed_frac

    assert len(missing) >= 7
    assert {name: frac for name, frac in missing.items() if frac > 1} == {}


def test_no_later_pass_is_announced_where_a_recording_would_have_to_answer_feedback(recipe):
    recorded = recipe(num_samples=1)
    local = TransformersGenerator(name="local", model="embedded:kk-bo")
    asked = recorded.model_copy(update={"generators": (local, *recorded.generators)})

    assert not any(note.startswith("later passes") for note in plan_of(recorded).notes)
    assert any(note.startswith("later passes") for note in plan_of(asked).notes)


@pytest.mark.parametrize("task", ["gsm8k", "musr", "travelplanner", "taco", "knights_knaves"])
def test_every_row_of_the_papers_main_results_has_its_source(repository, task):
    recipe = load_recipe(repository / "configs" / "paper.yaml", overrides=[f"task.name={task}"])
    assert rows_without_source(recipe) == []


@pytest.mark.parametrize(
    ("override", "row"),
    [
        ("generation.greedy=false", "Greedy (T=0)"),
        ("generators.4.num_samples=1", "Claude Opus 4.6"),
        ("generators.6.num_samples=1", "Qwen-72B-Instruct"),
        ("baselines.0.name=reward", "Skywork-Reward (8B)"),
        ("baselines.2.name=steps", "Math-Shepherd PRM (7B)"),
    ],
)
def test_a_row_without_its_source_is_named(repository, override, row):
    recipe = load_recipe(repository / "configs" / "paper.yaml", overrides=["task.name=gsm8k"])
    recipe = parse_recipe(recipe.model_dump(mode="json", by_alias=True), overrides=[override])
    assert row in rows_without_source(recipe)


def test_a_dry_run_of_the_paper_says_that_every_row_has_its_source(repository, tmp_path):
    for split in ("train", "test"):
        rows = [{"quiz": make_puzzle(2, part=split, seed=0, index=index).quiz} for index in range(3)]
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    sources = [f"task.{split}.source={tmp_path / split}.jsonl" for split in ("train", "test")]
    recipe = load_recipe(
        repository / "configs" / "paper.yaml", overrides=["task.name=knights_knaves", f"run_dir={tmp_path}", *sources]
    )
    notes = plan_of(recipe).notes

    assert notes[0].startswith("6 problems, 234 requests")  # 4 x (8 + 1 greedy) and 3 frontier answers each
    assert "the paper's table of main results: every row has its source" in notes


@pytest.mark.parametrize(
    ("num_gpus", "ray", "is_proposed"),
    [
        (1, {}, True),
        (1, {"gpus_per_adapter": 0.2}, True),
        (1, {"gpus_per_adapter": 1}, False),
        (1, {"gpus_per_adapter": 0}, False),
        (2, {}, False),
        (0, {}, False),
    ],
)
def test_one_after_another_is_proposed_for_one_gpu(recipe, tmp_path, monkeypatch, num_gpus, ray, is_proposed):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("raydebm.pipeline.plan.DEVICES", tmp_path)
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(num_gpus))):
        (tmp_path / name).touch()
    notes = plan_of(changed_recipe(recipe(num_samples=1), {"ray": ray})).notes

    assert any("one GPU for 5 adapters: set ray.gpus_per_adapter=1" in note for note in notes) == is_proposed
