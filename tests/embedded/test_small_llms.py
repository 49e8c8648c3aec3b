"""The answers of three LLMs to problems of GSM8K that come with the package, and the recipe that reads them."""

from collections import Counter

import pytest

from raydebm.config import load_recipe, with_recorded_answers
from raydebm.embedded import local_path
from raydebm.run.folder import Folder
from raydebm.run.tables import CANDIDATES
from raydebm.tasks import get_task
from raydebm.tasks.labels import label_candidate

POOL = "embedded:gsm8k_small_llms"


@pytest.fixture(scope="module")
def problems():
    """By id: the problem, its gold and its split."""
    task = get_task("gsm8k")
    return {
        problem.problem_id: (problem, gold, split)
        for split in ("train", "test")
        for problem, gold in task.load(split, source=POOL)
    }


@pytest.fixture(scope="module")
def candidates():
    return Folder(str(local_path(POOL))).read_records(CANDIDATES, "candidates.parquet")


@pytest.fixture(scope="module")
def sampled(candidates):
    """Those of the first pass that are no greedy ones."""
    return [each for each in candidates if each.pass_index == 1 and not each.is_greedy]


def test_all_problems_have_four_samples_and_a_greedy_answer_of_each_model(candidates, problems):
    by_problem = {}
    for candidate in candidates:
        if candidate.pass_index == 1:
            by_problem.setdefault(candidate.problem_id, Counter())[candidate.generator, candidate.is_greedy] += 1

    assert by_problem.keys() == problems.keys()
    models = ("smollm2-135m", "qwen-0.5b", "qwen-1.5b")
    expected = {(model, greedy): 1 if greedy else 4 for model in models for greedy in (False, True)}
    assert all(count == expected for count in by_problem.values())


def test_doubted_problems_have_eight_replies_to_feedback(candidates, problems):
    replies = Counter(each.problem_id for each in candidates if each.pass_index == 2)

    assert {each.generator for each in candidates if each.pass_index == 2} == {"qwen-1.5b"}
    assert set(replies.values()) == {8}
    assert Counter(problems[problem_id][2] for problem_id in replies) == {"train": 40, "test": 51}


def test_samples_know_how_likely_their_model_held_them(sampled):
    assert all(each.logprob is not None and each.worst_logprob <= each.logprob <= 0 for each in sampled)


def test_the_models_are_as_good_as_the_page_says(sampled, problems):
    task = get_task("gsm8k")
    right = Counter()
    for candidate in sampled:
        problem, gold, _ = problems[candidate.problem_id]
        right[candidate.generator] += label_candidate(task, problem, gold, candidate).verdict == "correct"

    assert right == {"smollm2-135m": 10, "qwen-0.5b": 146, "qwen-1.5b": 301}


def test_the_recipe_reads_its_answers_from_the_pool(repository, candidates):
    recipe = with_recorded_answers(load_recipe(repository / "configs" / "gsm8k_small_llms.yaml"), POOL)

    assert {generator.model for generator in recipe.generators} == {each.generator for each in candidates}
