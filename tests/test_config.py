"""Recipes: refused with the path of what is wrong, or complete."""

import re
from pathlib import Path

import pytest
import yaml

from raydebm import tasks
from raydebm.config import (
    PAPER_ADAPTERS,
    RecordedGenerator,
    load_recipe,
    parse_recipe,
    with_recorded_answers,
)
from raydebm.config.recipe_reference import render as recipe_page
from raydebm.config.scorer import BAG_FRAC
from raydebm.decision.policy import policy_of
from raydebm.errors import ConfigError, UnknownNameError
from raydebm.tasks import get_task, task_of, task_table
from raydebm.tasks.declared.definition import reference_page as task_page

MINIMAL = {
    "name": "x",
    "task": {"name": "gsm8k"},
    "generators": [{"kind": "openai", "name": "q", "model": "m"}],
}


UNSAFE = ("", "..", "../candidates", "a/b", "progress", "Progress", "ensemble.json")
"""Names that an adapter's folder cannot have."""
ADAPTER = {"name": "a0", "rank": 8, "alpha": 16, "targets": ["Wqkv"]}


def scorer_of(**settings):
    return parse_recipe({**MINIMAL, "scorer": settings}).scorer


def test_what_an_adapter_does_not_have_of_its_own_is_not_written():
    """So that adapters which were trained before there was such a thing stay current."""
    (adapter,) = scorer_of(adapters=[ADAPTER]).adapters

    assert "layers" not in adapter.model_dump(mode="json")


def test_minimal_recipe_has_the_papers_defaults():
    recipe = parse_recipe(MINIMAL)

    assert (recipe.generation.num_samples, recipe.generation.temperature, recipe.generation.top_p) == (8, 0.7, 0.95)
    assert (recipe.pairs.max_pairs, BAG_FRAC, recipe.pairs.validation_frac) == (16, 0.8, 0.2)
    assert recipe.scorer.backbone == "answerdotai/ModernBERT-base"
    assert (recipe.decision.theta_sigma, recipe.decision.theta_abstain, recipe.decision.num_regenerate) == (0.8, 1.5, 8)


def test_paper_adapters():
    assert [(a.name, a.rank, a.alpha, a.targets, a.dropout) for a in PAPER_ADAPTERS] == [
        ("a0", 8, 16, ("Wqkv",), 0.2),
        ("a1", 8, 16, ("Wqkv", "Wo"), 0.2),
        ("a2", 16, 32, ("Wqkv",), 0.2),
        ("a3", 4, 8, ("Wqkv",), 0.2),
        ("a4", 8, 16, ("Wqkv", "Wi"), 0.2),
    ]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seeed": 1}, r"seeed: unknown key\n.*`raydebm reference` lists"),
        ({"pairs": {"max_pair": 3}}, r"pairs\.max_pair"),
        ({"generation": {"top_p": 1.5}}, r"generation\.top_p.*got 1\.5"),
        ({"decision": {"theta_sigma": 2.0}}, "theta_sigma must be below"),
        ({"decision": {"regenerate_with": "nobody"}}, "'nobody' is not one of the generators q"),
        ({"generators": []}, "at least one generator"),
        ({"generators": [{"kind": "openai", "name": "q", "model": "m"}] * 2}, "more than once: q"),
        ({"scorer": {"adapters": []}}, "at least one adapter"),
        ({"name": "../other"}, r"name: a name must not be empty, contain '\.\.'"),
        ({"scorer": {"adapters": [ADAPTER, {**ADAPTER, "rank": 4}]}}, r"distinct names, got \['a0', 'a0'\]"),
        ({"task": {"name": "gsm8k", "train": {"split": "train", "id_range": [0.5, 0.5]}}}, "id_range"),
        *(({"scorer": {"adapters": [{**ADAPTER, "name": name}]}}, r"adapters\.0") for name in UNSAFE),
        *(({"baselines": [{"kind": "eorm", "name": name}]}, r"baselines\.0") for name in ("../candidates", "", "a/b")),
        *(
            ({"generators": [{**MINIMAL["generators"][0], "name": name}]}, "a name must not be empty")
            for name in ("", "../x")
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_wrong_recipe_is_refused_with_its_path(change, match):
    with pytest.raises(ConfigError, match=match):
        parse_recipe({**MINIMAL, **change})


def test_every_mistake_is_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_recipe({**MINIMAL, "seeed": 1, "pairs": {"validation_frac": 2}})

    assert "seeed" in str(caught.value)
    assert "pairs.validation_frac" in str(caught.value)


def test_environment_variables_are_read(monkeypatch):
    monkeypatch.setenv("POOL_DIR", "/data")

    assert parse_recipe({**MINIMAL, "run_dir": "${POOL_DIR}/x"}).run_dir == "/data/x"


def test_an_unset_variable_falls_back_to_its_default(monkeypatch):
    monkeypatch.delenv("POOL_DIR", raising=False)

    assert parse_recipe({**MINIMAL, "run_dir": "${POOL_DIR:-here}/x"}).run_dir == "here/x"


def test_an_unset_variable_without_default_is_named(monkeypatch):
    monkeypatch.delenv("POOL_DIR", raising=False)

    with pytest.raises(ConfigError, match=r"run_dir: environment variable POOL_DIR is not set"):
        parse_recipe({**MINIMAL, "run_dir": "${POOL_DIR}/x"})


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (f"generation.num_samples={10**22}", "generation.num_samples: Input should be less than or equal to 100000"),
        ("generation.waves=[8, 100001]", "generation.waves.1: Input should be less than or equal to 100000"),
        ("generators.0.num_samples=100001", "generators.0.*num_samples: Input should be less than or equal to 100000"),
        ("decision.max_passes=101", "decision.max_passes: Input should be less than or equal to 100"),
    ],
)
def test_a_count_that_must_be_a_slip_is_refused(setting, words):
    with pytest.raises(ConfigError, match=rf"{words} \(got 1"):
        parse_recipe(MINIMAL, overrides=[setting])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "cannot be read as UTF-8 text: .*directory"),
        ("latin.yaml", "cannot be read as UTF-8 text"),
        ("alias.yaml", "is not YAML: Circular"),
        ("date.yaml", "is not YAML: month must be in 1..12"),
    ],
)
def test_a_file_that_is_no_recipe_is_named(tmp_path, name, words):
    (tmp_path / "latin.yaml").write_bytes("name: caf\u00e9".encode("latin-1"))
    (tmp_path / "alias.yaml").write_text("name: &a [*a]")
    (tmp_path / "date.yaml").write_text("name: 2024-13-45")
    with pytest.raises(ConfigError, match=f"recipe '{tmp_path / name}' {words}"):
        load_recipe(tmp_path / name)


def test_a_recipe_survives_being_stored(tmp_path):
    recipe = parse_recipe({**MINIMAL, "decision": {"lambda": 2.0}})
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe.model_dump(mode="json", by_alias=True)), encoding="utf-8")

    assert load_recipe(file) == recipe


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confounding": {"swap": ["z"]}}, "'z' is not one of the generators q"),
        (
            {
                "confounding": {"swap": ["q"]},
                "generators": [{"kind": "recorded", "name": "q", "model": "m", "pool": "p"}],
            },
            "recorded generators cannot rewrite; give confounding.rewriter",
        ),
        (
            {"confounding": {"rewriter": {"kind": "vllm", "name": "w", "model": "m"}}},
            "confounding.rewriter: .*'w' needs the `url`",
        ),
        (
            {"confounding": {"swap": ["q"]}, "generators": [{"kind": "vllm", "name": "q", "model": "m"}]},
            "confounding.swap: .*give generator 'q' the `url` .* or give confounding.rewriter",
        ),
    ],
)
def test_a_style_swap_needs_a_known_source_and_someone_to_write(change, message):
    with pytest.raises(ConfigError, match=message):
        parse_recipe({**MINIMAL, **change})


def test_run_dir_fills_in_name_and_task():
    recipe = parse_recipe({**MINIMAL, "run_dir": "s3://b/{name}-{task}"})

    assert recipe.resolved_run_dir == "s3://b/x-gsm8k"


def test_recorded_answers_keep_names_and_numbers_and_ask_no_model():
    asked = {"kind": "openai", "name": "g", "model": "large", "num_samples": 3, "max_tokens": 50, "logprobs": True}
    [generator] = with_recorded_answers(parse_recipe({**MINIMAL, "generators": [asked]}), "pool.parquet").generators

    assert generator == RecordedGenerator(name="g", model="g", pool="pool.parquet", num_samples=3)


def test_recorded_answers_are_refused_where_a_model_must_rewrite():
    recipe = parse_recipe({**MINIMAL, "confounding": {"swap": [MINIMAL["generators"][0]["name"]]}})
    with pytest.raises(ConfigError, match=r"answers of 'pool\.parquet'(.|\n)*recorded generators cannot rewrite"):
        with_recorded_answers(recipe, "pool.parquet")


PAGES = pytest.mark.parametrize("render", [recipe_page, task_page], ids=["recipes", "task files"])


@pytest.mark.parametrize(("file", "render"), [("recipe.md", recipe_page), ("task_file.md", task_page)])
def test_the_reference_is_up_to_date(repository, file, render):
    """`raydebm reference > docs/recipe.md`, `raydebm reference --task-file > docs/task_file.md` after a change."""
    assert (repository / "docs" / file).read_text(encoding="utf-8") == render()


@PAGES
def test_every_key_has_a_meaning(render):
    assert [line for line in render().splitlines() if line.endswith("| - |")] == []


@PAGES
def test_every_link_of_the_reference_has_a_heading(render):
    titles = {line.removeprefix("## ").lower() for line in render().splitlines() if line.startswith("## ")}

    assert set(re.findall(r"\]\(#([^)]*)\)", render())) <= titles


def test_shipped_recipes_are_valid(repository):
    files = [*(repository / "configs").glob("*.yaml"), repository / "raydebm" / "cli" / "starter" / "recipe.yaml"]

    assert len([load_recipe(file) for file in files]) >= 3


BY_TASK = {**MINIMAL, "by_task": {"knights_knaves": {"decision": {"theta_sigma": 0.5}, "training": {"patience": 3}}}}


def test_what_a_recipe_says_of_one_task_holds_for_that_task_alone():
    others = parse_recipe({**BY_TASK, "decision": {"theta_sigma": 0.7, "max_passes": 3}})
    own = parse_recipe(
        {**BY_TASK, "decision": {"theta_sigma": 0.7, "max_passes": 3}}, overrides=["task.name=knights_knaves"]
    )

    assert (others.decision.theta_sigma, others.training.patience) == (0.7, None)
    assert (own.decision.theta_sigma, own.decision.max_passes, own.training.patience) == (0.5, 3, 3)


def test_an_override_comes_before_what_the_recipe_says_of_the_task():
    settings = ["task.name=knights_knaves", "decision.theta_sigma=0.6"]

    assert parse_recipe(BY_TASK, overrides=settings).decision.theta_sigma == 0.6


@pytest.mark.parametrize(
    ("by_task", "match"),
    [
        ([1], r"by_task must map names of tasks to sections, such as .*got \[1\]"),
        ({"gsm8k": 0.5}, r"by_task must map .*got \{'gsm8k': 0\.5\}"),
        ({"gsm8k": {"decision": {"theta": 0.5}}}, r"decision\.theta"),
        ({"gsm8k": {"task": 5}}, r"task: .*\(got 5\)"),
        ({"gsm8k": {"task": {"name": "musr"}}}, r"by_task\.gsm8k\.task\.name: .*cannot be one of them"),
    ],
    ids=["list", "number", "unknown key", "number as task", "name"],
)
def test_wrong_settings_of_a_task_are_refused(by_task, match):
    with pytest.raises(ConfigError, match=match):
        parse_recipe({**MINIMAL, "by_task": by_task})


def test_a_misspelt_task_of_settings_is_refused():
    tree = {**MINIMAL, "by_task": {"gsm8kk": {"training": {"patience": 3}}}}

    with pytest.raises(UnknownNameError, match=r"unknown task in by_task 'gsm8kk' \(did you mean 'gsm8k'\?\)"):
        parse_recipe(tree, known_tasks=task_table)


def test_settings_may_be_of_a_users_own_task(tmp_path, monkeypatch):
    file = tmp_path / "reply.yaml"
    file.write_text("name: reply")
    monkeypatch.setattr(tasks, "_ADDED", {"mine": object})
    changes = {"training": {"patience": 3}}

    for name in (str(file), "mine", "musr"):
        parse_recipe({**MINIMAL, "by_task": {name: changes}}, known_tasks=task_table)


def test_numbers_that_json_lacks_are_refused():
    with pytest.raises(ConfigError, match="should be a finite number"):
        parse_recipe(MINIMAL, overrides=["training.learning_rate=.inf"])


@pytest.mark.parametrize(
    ("task", "theta_sigma", "lambda_"),
    [
        ("gsm8k", 0.8, 1.0),
        ("musr", 0.8, 1.0),
        ("travelplanner", 0.8, 2.0),
        ("taco", 0.8, 1.0),
        ("knights_knaves", 0.5, 1.0),
    ],
)
def test_the_papers_recipe_decides_by_the_papers_rule_and_thresholds(repository, task, theta_sigma, lambda_):
    recipe = load_recipe(repository / "configs" / "paper.yaml", overrides=[f"task.name={task}"])
    policy = policy_of(recipe.decision, get_task(task).defaults)

    assert (policy.rule, recipe.decision.calibrate, policy.signal) == ("paper", False, "pool_mean")
    assert (policy.theta_sigma, policy.theta_abstain, policy.lambda_) == (theta_sigma, 1.5, lambda_)
    assert (policy.max_passes, policy.num_regenerate, recipe.decision.regenerate_with) == (2, 8, "qwen-2.5-7b")


@pytest.fixture(scope="module")
def papers_recipe():
    return load_recipe(Path(__file__).parents[1] / "configs" / "paper.yaml")


def test_the_papers_recipe_asks_its_four_generators(papers_recipe):
    models = {generator.name: generator.model for generator in papers_recipe.generators if generator.num_samples != 0}
    generation = papers_recipe.generation

    assert models == {
        "qwen-2.5-7b": "qwen/qwen-2.5-7b-instruct",
        "llama-3.1-8b": "meta-llama/llama-3.1-8b-instruct",
        "gemma-4-26b": "google/gemma-4-26b-a4b-it",
        "gpt-oss-20b": "openai/gpt-oss-20b",
    }
    assert {generator.max_tokens for generator in papers_recipe.generators if "oss" in generator.name} == {4096}
    assert (generation.num_samples, generation.temperature, generation.top_p) == (8, 0.7, 0.95)
    assert {generator.num_samples for generator in papers_recipe.generators} == {None, 0}
    assert papers_recipe.scorer.reasoning == "all"


def test_the_papers_frontier_models_answer_once(papers_recipe):
    models = {
        generator.model: generator.max_tokens for generator in papers_recipe.generators if not generator.num_samples
    }
    frontier = {"anthropic/claude-opus-4.6", "anthropic/claude-sonnet-4.6", "qwen/qwen-2.5-72b-instruct"}

    assert {model: most for model, most in models.items() if model in frontier} == dict.fromkeys(frontier, 2048)


@pytest.mark.parametrize(
    ("task", "kinds"),
    [
        ("gsm8k", ["eorm", "judge", "process_reward", "reward_model"]),
        ("musr", ["judge", "reward_model"]),
        ("travelplanner", ["judge", "judge", "judge", "reward_model"]),
        ("taco", ["judge", "reward_model"]),
        ("knights_knaves", ["judge", "reward_model"]),
    ],
)
def test_the_papers_baselines_by_task(repository, task, kinds):
    recipe = load_recipe(repository / "configs" / "paper.yaml", overrides=[f"task.name={task}"])
    assert sorted(baseline.kind for baseline in recipe.baselines) == kinds
    assert {baseline.size for baseline in recipe.baselines if baseline.kind == "eorm"} <= {"published"}


def test_the_paper_has_no_constraint_and_a_style_swap_on_programs(repository):
    recipe = load_recipe(repository / "configs" / "paper.yaml", overrides=["task.name=taco"])
    assert (tuple(task_of(recipe.task).constraints), recipe.confounding.swap) == ((), ("gemma-4-26b",))


def test_the_papers_recipe_trains_its_backbones(papers_recipe):
    others = [papers_recipe.with_variant(variant).scorer.backbone for variant in papers_recipe.variants]

    assert papers_recipe.scorer.backbone == "answerdotai/ModernBERT-base"
    assert set(others) == {"answerdotai/ModernBERT-base", "microsoft/deberta-v3-base"}


def test_the_papers_recipe_has_as_many_candidates_of_one_generator_as_of_several(papers_recipe):
    recipes = {variant.name: papers_recipe.with_variant(variant) for variant in papers_recipe.variants}
    sizes = {
        name: recipe.generation.num_samples * sum(generator.num_samples != 0 for generator in recipe.generators)
        for name, recipe in recipes.items()
    }

    assert sizes["qwen"] == sizes["two-each"] == 8


def test_a_recipe_decides_by_the_posterior_where_it_names_no_rule():
    assert parse_recipe(MINIMAL).decision.rule == "posterior"
