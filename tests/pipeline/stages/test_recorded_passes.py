"""Later passes of recorded pools: replayed under the paper's rule, each reply for its own feedback alone."""

import asyncio

import pytest

from raydebm.config import load_recipe
from raydebm.config.reading import with_recorded_answers
from raydebm.decision.feedback import QUALITY_FEEDBACK
from raydebm.decision.replay import Recording
from raydebm.errors import GenerationError
from raydebm.generators.pool_files import answers_chat, read_pool_file
from raydebm.pipeline.context import StageContext
from raydebm.pipeline.plan import plan_of
from raydebm.pipeline.pools import default_policy
from raydebm.pipeline.stages.passes import requests_of
from raydebm.pipeline.stages.problems import make_problems

POOL = "embedded:gsm8k_small_llms"


@pytest.fixture
def small_llms(repository, tmp_path):
    """The recipe of three small LLMs, whose answers and replies come with the package, under a rule."""

    def recipe(rule, *overrides):
        file = repository / "configs" / "gsm8k_small_llms.yaml"
        loaded = load_recipe(file, overrides=[f"run_dir={tmp_path}", f"decision.rule={rule}", *overrides])
        return with_recorded_answers(loaded, POOL)

    return recipe


@pytest.fixture
def replayed(small_llms):
    """A run with problems, a problem with recorded replies, and the chat that they answer."""
    context = StageContext(recipe=small_llms("paper"))
    make_problems(context)
    candidates, _ = read_pool_file(POOL, "", ("text",), None)
    second = next(candidate for candidate in candidates if candidate.pass_index == 2)
    problem = context.problems()[second.problem_id]
    chats = [
        (
            *context.task.messages(problem),
            {"role": "assistant", "content": candidate.text},
            {"role": "user", "content": QUALITY_FEEDBACK},
        )
        for candidate in candidates
        if candidate.problem_id == problem.problem_id and candidate.pass_index == 1 and candidate.text
    ]
    return context, problem, next(chat for chat in chats if answers_chat(second, chat))


def second_pass(context, problem, chat):
    """(what the replay says, how many requests it would send)."""
    source = Recording(context.task, {}, requests_of=requests_of(context))
    with pytest.raises(GenerationError) as raised:
        asyncio.run(source.generate(problem, pass_index=2, messages=chat, arrived=lambda candidate: None))
    return str(raised.value), len(source.missing)


@pytest.mark.parametrize(("rule", "passes"), [("paper", 2), ("posterior", 1)])
def test_recorded_replies_are_a_second_pass_under_the_papers_rule(small_llms, rule, passes):
    assert default_policy(StageContext(recipe=small_llms(rule))).max_passes == passes


def test_recorded_replies_are_asked_for_where_the_feedback_is_theirs(replayed):
    words, num_requests = second_pass(*replayed)
    assert num_requests == 8
    assert "8 of 8 candidates of pass 2" in words


def test_replies_to_another_feedback_are_not_asked_for(replayed):
    context, problem, chat = replayed
    other = (*chat[:-1], {"role": "user", "content": "The sum is wrong."})
    words, num_requests = second_pass(context, problem, other)
    assert num_requests == 0
    assert words.endswith("has an answer of 'qwen-1.5b' for this problem, pass and sample, but after other feedback")


def test_the_plan_counts_recorded_replies(small_llms):
    notes = plan_of(small_llms("paper")).notes
    assert (
        "later passes: the pool has 728 replies to feedback about 91 problems; each is used where the loop gives the "
        "same feedback, and nowhere else"
    ) in notes
