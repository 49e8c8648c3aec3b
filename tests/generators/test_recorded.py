"""Recorded pools: reading them, and replaying them as a generator."""

import asyncio
import gzip
import json
import logging
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from raydebm.config import RecordedGenerator
from raydebm.errors import PoolError, TaskDataError
from raydebm.generators.recorded import PoolGenerator, import_pool, recorded_generators
from raydebm.records import Candidate, GenerationRequest, Problem, Sampling
from raydebm.run.directory import RunDir
from raydebm.run.tables import CANDIDATES
from raydebm.tasks.gsm8k import Gsm8k

P = Problem(task="gsm8k", problem_id="p", prompt="?")
Q = Problem(task="gsm8k", problem_id="q", prompt="?!", data={"source_id": "source/q"})


def line(problem_id="p", model="m", text="#### 1", **rest):
    return {"problem_id": problem_id, "model": model, "text": text, **rest}


@pytest.fixture
def pool(tmp_path):
    def write(*rows, name="pool.jsonl"):
        path = tmp_path / name
        content = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return str(path)

    return write


def imported(path, *, problems=(P, Q), **options):
    return import_pool(path, task="gsm8k", problems=problems, **options)


def brief(candidates):
    return [(c.problem_id, c.generator, c.sample_index, c.text) for c in candidates]


@pytest.mark.parametrize("name", ["pool.jsonl", "pool.jsonl.gz"])
def test_candidates_come_by_problem_then_model_then_sample(pool, name):
    path = pool(
        line("q", "n", "qn", sample=0),
        line("p", "m", "pm1", sample=1),
        line("p", "n", "pn", sample=0),
        line("p", "m", "pm0", sample=0),
        name=name,
    )
    assert brief(imported(path)) == [
        ("p", "m", 0, "pm0"),
        ("p", "m", 1, "pm1"),
        ("p", "n", 0, "pn"),
        ("q", "n", 0, "qn"),
    ]


def test_recorded_thinking_is_apart_from_the_answer(pool):
    (candidate,) = imported(pool(line(text="<think>#### 3?</think>\n#### 5")))
    assert (candidate.text, candidate.reasoning) == ("#### 5", "#### 3?")


def test_the_sources_own_problem_id_joins(pool):
    assert brief(imported(pool(line("source/q")))) == [("q", "m", 0, "#### 1")]


def test_of_repeated_lines_the_first_counts_and_a_warning_counts_them(pool, caplog):
    with caplog.at_level(logging.WARNING):
        candidates = imported(pool(line(text="first", sample=0), line(text="again", sample=0)))
    assert brief(candidates) == [("p", "m", 0, "first")]
    assert "1 lines" in caplog.text


def test_named_runs_get_the_same_sample_index_in_every_problem(pool):
    path = pool(
        line("p", run="monday", text="pm"), line("q", run="tuesday", text="qt"), line("p", run="tuesday", text="pt")
    )
    assert brief(imported(path)) == [("p", "m", 0, "pm"), ("p", "m", 1, "pt"), ("q", "m", 1, "qt")]


def test_lines_without_sample_or_run_are_counted_as_they_come(pool):
    assert brief(imported(pool(line(text="a"), line(text="b")))) == [("p", "m", 0, "a"), ("p", "m", 1, "b")]


def test_the_answer_may_stand_in_another_field_as_json(pool):
    path = pool(
        line(text="in words", plan=[{"day": 1, "dinner": "Caf\u00e9"}], sample=0),
        line(text="only words", plan=None, sample=1),
        line(text=None, plan=[], sample=2),
    )

    candidates = imported(path, text_fields=["plan", "text"])

    assert brief(candidates)[:2] == [("p", "m", 0, '[{"day": 1, "dinner": "Caf\u00e9"}]'), ("p", "m", 1, "only words")]
    assert candidates[2].error == "recorded without text: field 'plan' is [], field 'text' is None"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ('{"problem_id": "p", "mod', "Unterminated string"),
        ("[1, 2]", "must be a JSON object, got list"),
        ("[" * 20_000, "maximum recursion depth exceeded"),
        ({"model": "m", "text": "x"}, "field 'problem_id' must be a non-empty text, got None"),
        ({"problem_id": "p", "model": 7, "text": "x"}, "field 'model' must be a non-empty text, got 7"),
    ],
    ids=["corrupt", "list", "endless", "no-problem", "model-no-text"],
)
def test_one_bad_line_costs_no_other_line_and_is_named(pool, caplog, bad, why):
    path = pool(line(), bad)
    with caplog.at_level(logging.WARNING):
        assert brief(imported(path)) == [("p", "m", 0, "#### 1")]
    assert f"{path}:2: " in caplog.text
    assert why in caplog.text


def test_a_file_without_any_usable_line_names_the_first_bad_one(pool):
    path = pool("not json", "[]")
    with pytest.raises(TaskDataError, match=r"has no usable line; the first bad line is .*pool\.jsonl:1: "):
        imported(path)


def test_a_pool_of_other_problems_shows_how_its_ids_look(pool):
    with pytest.raises(PoolError, match=r"no answer for any of the 2 problems; its problem ids look like 'math/7'"):
        imported(pool(line("math/7")))


def drawn(sample, *, temperature=0.7, text="drawn", pass_index=1):
    return Candidate(
        candidate_id=f"c{sample}-{temperature}-{pass_index}",
        task="gsm8k",
        problem_id="p",
        generator="m",
        text=text,
        pass_index=pass_index,
        sample_index=sample,
        sampling=Sampling(temperature=temperature),
        completion_tokens=5,
    )


@pytest.fixture
def parquet(tmp_path):
    def write(*candidates):
        RunDir(str(tmp_path)).write_records(CANDIDATES, candidates, "candidates.parquet")
        return str(tmp_path / "candidates.parquet")

    return write


def test_our_own_parquet_comes_back_unchanged(parquet):
    candidates = [drawn(0), drawn(1), drawn(0, temperature=0.0), drawn(0, pass_index=2)]
    pool_candidates = imported(parquet(*candidates))
    assert sorted(pool_candidates, key=lambda c: c.candidate_id) == sorted(candidates, key=lambda c: c.candidate_id)


def test_a_parquet_file_of_something_else_is_named(tmp_path):
    (tmp_path / "candidates.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(TaskDataError, match=r"candidates\.parquet is not a readable Parquet table"):
        imported(str(tmp_path / "candidates.parquet"))


CHAT = ({"role": "user", "content": "?"},)


def request(problem_id="p", *, sample=0, pass_index=1, temperature=0.7, messages=CHAT):
    return GenerationRequest(
        task="gsm8k",
        problem_id=problem_id,
        generator="small",
        messages=messages,
        sampling=Sampling(temperature=temperature, max_tokens=99),
        seed=3,
        pass_index=pass_index,
        sample_index=sample,
    )


def replay(path, *requests, problems=(), model="m", **options):
    generator = PoolGenerator(RecordedGenerator(name="small", pool=path, model=model, **options), problems=problems)

    async def all_replies():
        replies = [candidate async for candidate in generator.stream(requests)]
        await generator.aclose()
        return replies

    return asyncio.run(all_replies())


def test_a_request_gets_the_recording_of_its_problem_and_sample(pool):
    asked = request(sample=1)
    [reply] = replay(pool(line(text="zero", sample=0), line(text="one", sample=1), line("q", text="q")), asked)
    assert (reply.text, reply.candidate_id, reply.generator) == ("one", asked.candidate_id, "small")
    assert (reply.sampling, reply.seed) == (asked.sampling, 3)


def test_a_file_is_read_once_for_all_of_its_models(pool):
    path = pool(line(model="m"), line(model="n"))
    configs = [RecordedGenerator(name=model, pool=path, model=model) for model in ("m", "n")]
    generators = recorded_generators(configs, problems=[P])
    first = next(generators)
    os.remove(path)

    assert [generator.name for generator in (first, *generators)] == ["m", "n"]


def test_a_generator_knows_which_problems_it_can_answer(pool):
    path = pool(line("p", text=None), line("source/q"))
    [generator] = recorded_generators([RecordedGenerator(name="g", pool=path, model="m")], problems=[P, Q])

    assert [generator.answers(problem_id) for problem_id in ("p", "q", "r")] == [False, True, False]


def test_what_was_not_recorded_is_a_candidate_with_an_error(pool):
    replies = replay(pool(line(sample=0)), request(), request(sample=5), request(pass_index=2))
    assert [reply.error is None for reply in replies] == [True, False, False]
    assert "has no answer of 'm' for this problem, pass and sample" in replies[1].error


def test_a_recording_of_unknown_sampling_does_not_answer_a_greedy_request(pool):
    [reply] = replay(pool(line()), request(temperature=0.0))
    assert "has no greedy answer" in reply.error


def test_recorded_log_probabilities_come_back(parquet):
    [reply] = replay(parquet(replace(drawn(0), logprob=-0.5, worst_logprob=-2.0)), request())
    assert (reply.logprob, reply.worst_logprob) == (-0.5, -2.0)


def test_parquet_answers_by_pass_and_greediness(parquet):
    path = parquet(drawn(0), drawn(0, temperature=0.0, text="greedy"), reply_to(CHAT, text="second"))
    replies = replay(path, request(temperature=0.0), request(pass_index=2), request())
    assert [(reply.text, reply.completion_tokens) for reply in replies] == [("greedy", 5), ("second", 5), ("drawn", 5)]


DOUBT = (*CHAT, {"role": "assistant", "content": "41"}, {"role": "user", "content": "Check again."})
BLAME = (*CHAT, {"role": "assistant", "content": "40"}, {"role": "user", "content": "40 is even."})


def reply_to(chat, *, text):
    """A reply of a second pass, as a run records it: its id is that of the request."""
    candidate = drawn(0, pass_index=2, text=text)
    asked = GenerationRequest(
        task=candidate.task, problem_id="p", generator="m", messages=chat, sampling=candidate.sampling,
        seed=candidate.seed, pass_index=2,
    )  # fmt: skip
    return replace(candidate, candidate_id=asked.candidate_id)


def test_feedback_gets_the_reply_that_was_recorded_for_it(parquet):
    path = parquet(drawn(0), reply_to(DOUBT, text="to doubt"), reply_to(BLAME, text="to blame"))
    replies = replay(path, *(request(pass_index=2, messages=chat) for chat in (BLAME, DOUBT)))
    assert [reply.text for reply in replies] == ["to blame", "to doubt"]


def test_a_reply_to_another_feedback_is_not_used(parquet):
    [reply] = replay(parquet(drawn(0), reply_to(DOUBT, text="42")), request(pass_index=2, messages=BLAME))
    assert reply.text is None
    assert reply.error.endswith("has an answer of 'm' for this problem, pass and sample, but after other feedback")


def test_a_line_of_a_later_pass_is_a_bad_line(pool, caplog):
    with caplog.at_level(logging.WARNING):
        assert brief(imported(pool(line(), line(pass_index=2)))) == [("p", "m", 0, "#### 1")]
    assert "later passes are read only from Parquet, got pass 2" in caplog.text


def test_a_folder_stands_for_its_candidates(parquet):
    [reply] = replay(str(Path(parquet(drawn(0))).parent), request())
    assert reply.text == "drawn"


def test_what_was_split_when_it_was_drawn_is_not_split_again(parquet):
    [reply] = replay(parquet(replace(drawn(0, text="Write </think> to end it."), reasoning="How?")), request())
    assert reply.text == "Write </think> to end it."


def test_the_recorded_gsm8k_pool(shared_data):
    problems = [problem for problem, _ in Gsm8k().load("test", source=str(shared_data / "gsm8k"))]
    candidates = import_pool(
        shared_data / "gsm8k" / "pool_openai_example_solutions.jsonl.gz", task="gsm8k", problems=problems
    )
    assert Counter(candidate.generator for candidate in candidates) == {
        f"gpt3_{size}_{way}": 849 for size in ("6b", "175b") for way in ("finetuning", "verification")
    }
    assert all(candidate.error is None for candidate in candidates)
