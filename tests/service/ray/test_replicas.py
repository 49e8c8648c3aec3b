"""Replicas that are called again, that are busy or gone, and generators that break."""

import asyncio
import socket
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.serve.exceptions import BackPressureError
from ray.serve.schema import DeploymentStatus, DeploymentStatusOverview, DeploymentStatusTrigger

from raydebm.errors import GenerationError, MissingKeyError, ResourceError, ScoringError, ServiceError
from raydebm.generators.requests import answered, requests_for
from raydebm.records import Problem, Sampling
from raydebm.service.ray import handles
from raydebm.service.ray.app import failures, serve_until_interrupted
from raydebm.service.ray.deployments import GeneratorDeployment
from raydebm.service.ray.handles import NUM_TRIES, HandleBackend, with_retries
from raydebm.service.settings import AppArgs


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(handles, "FIRST_PAUSE_S", 0.0)


def call_that_raises(*errors):
    left = list(errors)

    async def call():
        if left:
            raise left.pop(0)
        return "done"

    return call


@pytest.mark.usefixtures("no_pauses")
def test_a_call_is_made_again_when_its_replica_died():
    call = call_that_raises(ActorDiedError(), ActorDiedError())
    assert asyncio.run(with_retries(call, what="scorer")) == "done"


@pytest.mark.usefixtures("no_pauses")
def test_replicas_that_keep_dying_are_a_503():
    call = call_that_raises(*[ActorDiedError()] * NUM_TRIES)
    with pytest.raises(ServiceError, match=f"scorer replicas died {NUM_TRIES} times") as caught:
        asyncio.run(with_retries(call, what="scorer"))
    assert caught.value.status == 503


def test_the_last_try_is_not_followed_by_a_pause(monkeypatch):
    monkeypatch.setattr(handles, "FIRST_PAUSE_S", 3600.0)
    with pytest.raises(ServiceError, match="died 1 times"):
        asyncio.run(asyncio.wait_for(with_retries(call_that_raises(ActorDiedError()), what="scorer", tries=1), 10))


class Full:
    """A handle's method that refuses so many calls."""

    def __init__(self, times):
        self.times, self.num_calls = times, 0

    def remote(self, *args):
        self.num_calls += 1
        return call_that_raises(*[BackPressureError(9, 8)] * (self.num_calls <= self.times))()


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("times", [0, 2, NUM_TRIES - 1, NUM_TRIES])
def test_candidates_that_were_paid_for_wait_for_the_scorer_and_the_checker(times):
    problem = Problem(task="gsm8k", problem_id="p", prompt="1+1?")
    score, check = Full(times), Full(times)
    backend = HandleBackend(None, SimpleNamespace(score=score), SimpleNamespace(check=check))
    for ask, method in ((lambda: backend.score([]), score), (lambda: backend.check(problem, []), check)):
        if times < NUM_TRIES:
            assert asyncio.run(ask()) == "done"
        else:
            with pytest.raises(ServiceError, match="too many requests wait"):
                asyncio.run(ask())
        assert method.num_calls == min(times + 1, NUM_TRIES)


class Part:
    """A handle whose ``info`` answers, or waits behind its work; everything else is done at once."""

    def __init__(self, says):
        self.says, self.is_full = says, False

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *args: self._answer(name))

    async def _answer(self, name):
        if name == "info" and self.is_full:
            await asyncio.sleep(60)
        return self.says if name == "info" else []


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(handles, "STATUS_TIMEOUT_S", 0.05)
    monkeypatch.setattr(handles, "_cancelled_with_us", lambda response: nullcontext())


async def status_while_full(*, works, serving=lambda backend: backend):
    """/health's answer while the scorer is full, after one when it was not."""
    scorer = Part({"adapters": ["a0"]})
    backend = HandleBackend(Part(["ada"]), scorer, None)
    await backend.status()
    if works:
        await backend.score([])
    scorer.is_full = True
    return await serving(backend).status()


def test_a_part_that_works_and_has_no_time_to_answer_is_healthy(quick):
    status = asyncio.run(status_while_full(works=True))
    assert status == {"generators": ["ada"], "scorer": {"adapters": ["a0"]}}


def test_a_change_of_the_service_forgets_nothing_of_its_parts(quick):
    status = asyncio.run(status_while_full(works=True, serving=lambda backend: backend.serving(None)))
    assert status["scorer"] == {"adapters": ["a0"]}


def test_a_part_that_gives_neither_results_nor_an_answer_is_not_healthy(quick):
    with pytest.raises(ServiceError, match="the scorer did not answer within"):
        asyncio.run(status_while_full(works=False))


def test_an_error_of_ours_comes_back_without_the_remote_traceback():
    remote = RayTaskError("check", "Traceback: secret", ScoringError("bad weights")).as_instanceof_cause()
    with pytest.raises(ScoringError) as caught:
        asyncio.run(with_retries(call_that_raises(remote), what="scorer"))
    assert str(caught.value) == "bad weights"


def overview(status, message):
    return DeploymentStatusOverview(
        status=DeploymentStatus(status),
        status_trigger=DeploymentStatusTrigger.UNSPECIFIED,
        replica_states={},
        message=message,
    )


def test_a_failed_start_is_told_in_the_words_of_the_failed_replica():
    message = failures(
        {
            "GeneratorDeployment": overview("DEPLOY_FAILED", "retried 3 times:\n Traceback\nMissingKeyError: no key\n"),
            "ScorerDeployment": overview("UPDATING", "still loading"),
            "ConstraintDeployment": overview("HEALTHY", ""),
        }
    )
    assert message == "GeneratorDeployment: MissingKeyError: no key"


def test_a_used_port_is_refused_before_ray_starts(write_run, monkeypatch):
    monkeypatch.setattr("ray.init", lambda *args, **kwargs: pytest.fail("Ray was started"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ResourceError, match=rf"127\.0\.0\.1:{port} is in use; choose another port"):
            serve_until_interrupted(AppArgs(run_dir=write_run()), port=port)


def test_a_missing_key_is_refused_before_ray_starts(write_run, recipe, monkeypatch, free_port):
    monkeypatch.setattr("ray.init", lambda *args, **kwargs: pytest.fail("Ray was started"))
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # other tests of the session may have started one
    generator = {**recipe["generators"][0], "api_key_env": "RAYDEBM_NO_SUCH_KEY"}
    root = write_run({**recipe, "generators": [generator]})
    with pytest.raises(MissingKeyError, match="RAYDEBM_NO_SUCH_KEY is not set"):
        serve_until_interrupted(AppArgs(run_dir=root), port=free_port)


class Breaking:
    """Answers the first request, then breaks; or leaves the rest out silently."""

    def __init__(self, error=None):
        self.error = error

    async def stream(self, requests):
        yield answered(requests[0], "first")
        if self.error is not None:
            raise self.error


def deployment_of(**generators):
    made = GeneratorDeployment([], "nowhere")
    made.first.update(generators)
    return made


async def drawn(deployment, requests):
    """The candidates in the order of the requests."""
    by_id = {one.candidate_id: one async for batch in deployment.stream(requests) for one in batch}
    return [by_id[request.candidate_id] for request in requests]


def requests_of(name):
    problem = Problem(task="gsm8k", problem_id="p", prompt="1+1?")
    chat = ({"role": "user", "content": "1+1?"},)
    return requests_for(problem, chat, generator=name, sampling=Sampling(), samples=range(2), run_seed=0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GenerationError("model is gone"), "generator 'bad' failed: model is gone"),
        (OSError("no route"), "generator 'bad' failed: no route"),
        (None, "generator 'bad' gave no answer to this request"),
    ],
)
def test_a_generator_that_breaks_halfway_gives_rows_with_errors_for_the_rest(error, words):
    candidates = asyncio.run(drawn(deployment_of(bad=Breaking(error)), requests_of("bad")))
    assert [candidate.text for candidate in candidates] == ["first", None]
    assert candidates[1].error == words


def test_one_broken_generator_leaves_the_others_alone():
    class Good:
        async def stream(self, requests):
            for request in reversed(requests):
                yield answered(request, "fine")

    requests = requests_of("bad") + requests_of("good")
    candidates = asyncio.run(drawn(deployment_of(bad=Breaking(OSError("x")), good=Good()), requests))
    assert [candidate.candidate_id for candidate in candidates] == [request.candidate_id for request in requests]
    assert [candidate.text for candidate in candidates] == ["first", None, "fine", "fine"]
