"""Generation in waves, on a real Ray: who draws fewer, what a resumed run pays, budgets, recorded pools, failures."""

import contextlib
import json

import pytest
from misbehaving_server import MisbehavingServer

from raydebm.config import parse_recipe
from raydebm.generators.requests import PassRequests
from raydebm.pipeline.ray.generate import generate, generate_in_waves
from raydebm.records import Problem
from raydebm.run.directory import RunDir
from raydebm.tasks import get_task

pytestmark = pytest.mark.ray


@pytest.fixture
def server():
    with MisbehavingServer() as running:
        yield running


@pytest.fixture
def run(tmp_path):
    return RunDir(str(tmp_path / "run"))


def problems(*prompts):
    """``length`` lets all samples give one answer, ``ok`` each its own, ``priced`` one answer for 25 cents."""
    return {prompt: Problem(problem_id=prompt, task="moody", prompt=prompt) for prompt in prompts}


def recipe_of(url, *, names=("g", "h"), num_samples=8, **generation):
    generators = [
        {"kind": "openai", "name": name, "model": "m", "base_url": url, "api_key_env": None, "max_retries": 0}
        for name in names
    ]
    return with_generation(generators, num_samples=num_samples, **generation)


def with_generation(generators, **generation):
    settings = {"waves": [4, 4, 8], "greedy": False, "max_tokens": 8} | generation
    tree = {"name": "test", "task": {"name": "moody"}, "generators": generators, "generation": settings}
    return parse_recipe(tree)


class Moody:
    """The plug-in task with the chat that the server understands."""

    def __init__(self):
        self._task = get_task("moody")
        self.defaults = self._task.defaults

    def messages(self, problem):
        return ({"role": "user", "content": problem.prompt},)


def requests_of(recipe, asked):
    passes = PassRequests(recipe=recipe, task=Moody())
    return [request for problem in asked.values() for request in passes.first(problem, greedy=recipe.generation.greedy)]


def sample(recipe, run, asked, **options):
    return generate_in_waves(requests_of(recipe, asked), recipe=recipe, run=run, problems=asked, **options)


def table(run):
    return list(run.candidates())


def drawn(run):
    counts = {}
    for candidate in table(run):
        counts.setdefault(candidate.problem_id, []).append((candidate.generator, candidate.sample_index))
    return counts


ASKED = problems("easy: length", "hard: ok")


@pytest.fixture(scope="module")
def sampled(local_ray, tmp_path_factory):
    """(server, recipe, run, summary, progress) of one problem that is settled early and one that never is."""
    run, progress = RunDir(str(tmp_path_factory.mktemp("sampled"))), []
    with MisbehavingServer() as server:
        recipe = recipe_of(server.url)
        summary = sample(recipe, run, ASKED, on_progress=lambda done, total: progress.append((done, total)))
        yield server, recipe, run, summary, progress


def test_a_problem_that_is_settled_early_draws_fewer(sampled):
    server, _, run, summary, progress = sampled
    # Four equal votes of 16 keep their lead with probability 0.956.
    assert drawn(run)["easy: length"] == [("g", 0), ("g", 1), ("h", 0), ("h", 1)]
    assert len(drawn(run)["hard: ok"]) == 16
    assert server.num_requests == summary.num_ok == 20
    assert progress[-1] == (20, 20)


def test_what_is_sampled_in_waves_is_part_of_what_is_sampled_at_once(sampled, server, run):
    """Another server gives the same answers."""
    recipe, in_waves = recipe_of(server.url), sampled[2]
    generate(requests_of(recipe, ASKED), recipe=recipe, run=run, problems=ASKED.values())
    ids = {candidate.candidate_id for candidate in table(in_waves)}
    assert [candidate.candidate_id for candidate in table(in_waves)] == [
        candidate.candidate_id for candidate in table(run) if candidate.candidate_id in ids
    ]


def test_a_resumed_run_pays_nothing_twice_and_reaches_the_same_table(local_ray, server, run, tmp_path):
    """The first run dies in its second wave; another, undisturbed one says what the table should be."""
    recipe, asked = recipe_of(server.url), problems("easy: length", "hard: ok", "harder: ok")

    def die(done, total):
        if done >= 16:
            raise RuntimeError("the driver has had enough")

    with pytest.raises(RuntimeError, match="had enough"):
        sample(recipe, run, asked, on_progress=die)
    assert run.manifest("candidates") is None
    summary = sample(recipe, run, asked)
    assert server.num_requests == 4 + 16 + 16
    assert summary.num_reused >= 12

    other = RunDir(str(tmp_path / "other"))
    sample(recipe, other, asked)
    ids = [candidate.candidate_id for candidate in table(run)]
    assert ids == [candidate.candidate_id for candidate in table(other)]
    assert [candidate.text for candidate in table(run)] == [candidate.text for candidate in table(other)]


def test_the_budget_holds_over_all_waves(local_ray, server, run):
    recipe = recipe_of(server.url, names=("g",), num_samples=8, waves=[2], max_usd=0.5, max_failed_frac=0.9)
    summary = sample(recipe, run, problems("p: priced"))
    assert (summary.num_ok, summary.usd, server.num_requests) == (2, 0.5, 2)
    assert "budget of $0.5 reached" in summary.errors[0][0]


def test_recorded_pools_are_read_in_waves(local_ray, run, tmp_path):
    pool = tmp_path / "pool.jsonl"
    answers = {"same": lambda number: "x", "different": str}
    rows = [
        {"problem_id": name, "model": "m", "text": answer(number), "sample": number}
        for name, answer in answers.items()
        for number in range(16)
    ]
    pool.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    recorded = {"kind": "recorded", "name": "g", "model": "m", "pool": str(pool)}
    recipe = with_generation([recorded], num_samples=16)
    summary = sample(recipe, run, problems(*answers))
    assert {name: len(samples) for name, samples in drawn(run).items()} == {"same": 4, "different": 16}
    # Recorded answers have no token counts, so what was saved is known in samples alone.
    assert (summary.saved.num_samples, summary.saved.completion_tokens) == (12, None)


def test_servers_take_turns_in_every_wave_the_running_one_first(local_ray, server, run, monkeypatch):
    """Samples that all differ need 2 waves of 4 for 8."""
    seen = []

    @contextlib.contextmanager
    def running(config, *, host):
        seen.append(f"start {config.name}")
        yield config.model_copy(update={"url": server.url})
        seen.append(f"end {config.name}")

    monkeypatch.setattr("raydebm.pipeline.ray.generate.running", running)
    servers = [{"kind": "vllm", "name": name, "model": "m", "python": "python3"} for name in "vw"]
    summary = sample(with_generation(servers, num_samples=4, waves=[4]), run, problems("hard: ok"))
    assert seen == ["start v", "end v", "start w", "end w", "start v", "end v"]
    assert summary.num_ok == 8
