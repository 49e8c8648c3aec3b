"""A run directory, a puzzle, and a backend without Ray whose generators and energies are written by hand.

Fixtures for ``conftest`` modules, which take them by ``from hand_written_run import ...``.
"""

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial

import httpx
import pytest

from raydebm.config import parse_recipe
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.checks import check_candidate
from raydebm.errors import ServiceError
from raydebm.generators.requests import TokenUsage, answered, unanswered
from raydebm.records import Energies
from raydebm.run.directory import RunDir
from raydebm.service.core import TriageService, request_context
from raydebm.service.routes.application import create_app
from raydebm.service.settings import AppArgs, Overrides, load_bundle
from raydebm.tasks import get_task

PUZZLE = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    'lie. You meet 2 inhabitants: Ava, and Zoey. Ava said, "Zoey is a knave if and only if Zoey is a knight." '
    '"Ava is a knave," Zoey mentioned. So who is a knight and who is a knave?'
)
"""Ava's statement cannot be true, so she is a knave; so Zoey's is true."""
RIGHT = 'Ava contradicts herself, so Zoey is right. {"Ava": "knave", "Zoey": "knight"}'
WRONG = 'Both lie. {"Ava": "knave", "Zoey": "knave"}'
UNREADABLE = "I do not know."
SURE, UNSURE = (-2.0, -2.0), (-4.0, 0.0)
"""Energies of two adapters: sigma 0, and sigma 2."""

RECIPE = {
    "name": "tiny",
    "seed": 7,
    "task": {"name": "knights_knaves"},
    "generators": [
        {"kind": "openai", "name": "ada", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None},
        {"kind": "openai", "name": "bo", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None},
    ],
    "generation": {"num_samples": 2, "max_tokens": 64},
    "scorer": {"backbone": "embedded:encoder-mini"},
    "decision": {"num_regenerate": 2},
}


PRICES = {"usd_per_million_tokens": (0.0, 15_625.0)}
"""A completion of 64 tokens, the most, costs a dollar; one of 32 tokens half of it."""


def priced(recipe, prices=PRICES):
    """The recipe with these prices of every generator."""
    return {**recipe, "generators": [{**generator, **prices} for generator in recipe["generators"]]}


USAGE = TokenUsage(prompt_tokens=10, completion_tokens=5, cost_usd=0.5)


@dataclass
class HandWritten:
    """A backend (``core.Backend``) that writes, for each request, what ``write`` says."""

    write: object = lambda request: RIGHT
    """request -> text, or None for a failed request, or an exception to raise."""
    energies: object = lambda text: SURE
    """text -> member energies, or None for one that cannot be scored."""
    requests: list = field(default_factory=list)
    scored: list = field(default_factory=list)
    served: list = field(default_factory=list)
    """The bundles that it was asked to serve."""
    ready: bool = True
    pause_s: float = 0.0
    finish_reason: str | None = None
    held: bool = False
    """As long as it is set, nothing is answered."""
    cancelled: bool = False

    async def generate(self, requests, on_candidate, *, may_repeat):
        candidates = []
        for request in requests:
            self.requests.append(request)
            try:
                await asyncio.sleep(self.pause_s)
                while self.held:
                    await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            text = self.write(request)
            if isinstance(text, Exception):
                raise text
            if text is None:
                candidate = unanswered(request, "HTTP 500")
            else:
                candidate = answered(request, text, usage=USAGE, finish_reason=self.finish_reason)
            candidates.append(candidate)
            on_candidate(candidate)
        return candidates

    async def check(self, problem, candidates):
        task = get_task(problem.task)
        return [check_candidate(task, problem, candidate) for candidate in candidates]

    async def score(self, texts):
        self.scored.extend(texts)
        all_members = [self.energies(text.text) for text in texts]
        return [
            None if members is None else Energies(candidate_id=text.candidate_id, members=members, num_tokens=9)
            for text, members in zip(texts, all_members, strict=True)
        ]

    def serving(self, bundle):
        self.served.append(bundle)
        return self

    async def status(self):
        if not self.ready:
            raise ServiceError("the scorer is still loading", 503, "not_ready")
        return {"generators": ["ada", "bo"], "scorer": {"adapters": ["a0", "a1"]}}


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


def session(app, **options):
    """An httpx client of an ASGI application, without a network."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost", **options)


def chat_body(text, **changes):
    """A body of ``/v1/chat/completions`` with one message."""
    return {"model": "raydebm/knights_knaves", "messages": [{"role": "user", "content": text}], **changes}


class Client:
    """Plain HTTP against the ASGI application, one request at a time."""

    def __init__(self, app):
        self.app = app

    def request(self, method, path, **kwargs):
        async def send():
            async with session(self.app) as client:
                return await client.request(method, path, **kwargs)

        return asyncio.run(send())

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, body=None, **kwargs):
        return self.request("POST", path, json=body, **kwargs)


@pytest.fixture(scope="session")
def puzzle():
    return PUZZLE


@pytest.fixture
def recipe():
    return RECIPE


def run_at(folder, recipe=RECIPE, policy=None, **ensemble):
    """Makes a run directory as the pipeline leaves it (with an ensemble.json only); returns its path."""
    run = RunDir(str(folder))
    run.write_json(parse_recipe(recipe).model_dump(mode="json", by_alias=True), "recipe.json")
    run.write_json((policy or Policy(num_regenerate=2)).to_json(), "calibration", "policy.json")
    own = {"backbone": "embedded:encoder-mini", "adapters": ["a0", "a1"], **ensemble}
    run.write_json(own, "scorer", "ensemble.json")
    return run.root


@pytest.fixture
def write_run(tmp_path):
    return partial(run_at, tmp_path / "run")


@pytest.fixture
def bundle(write_run):
    served = load_bundle(AppArgs(run_dir=write_run(), max_body_bytes=20_000))
    return replace(served, max_problem_chars=2000, max_candidate_chars=2000)


@pytest.fixture
def backend():
    return HandWritten()


@pytest.fixture
def context_of(puzzle):
    """Makes the puzzle's request to a run, with these settings."""
    return lambda bundle, **changes: request_context(
        bundle, Overrides(**changes), request_id="abc", task_name=None, problem=puzzle
    )


@pytest.fixture
def decided(bundle, backend, context_of):
    """What the service decides about the puzzle, without its routes."""
    return lambda **changes: asyncio.run(TriageService(bundle, backend).triage(context_of(bundle, **changes)))


@pytest.fixture
def app(bundle, backend):
    return create_app(TriageService(bundle, backend))


@pytest.fixture
def client(app):
    return Client(app)


@pytest.fixture
def official(app):
    """Uses OpenAI's own client of the application, in an async function."""
    import openai

    def run(use):
        async def inside():
            http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app))
            return await use(openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="x", http_client=http))

        return asyncio.run(inside())

    return run


@pytest.fixture
def bundle_of(write_run):
    """Makes the bundle of a run with a recipe and a policy, under these arguments of the application."""
    return lambda recipe=RECIPE, policy=None, **args: load_bundle(AppArgs(run_dir=write_run(recipe, policy), **args))


@pytest.fixture
def app_of(backend):
    """Makes the application of a bundle, with these parts of the service and of the application."""

    def make(bundle, *, backend=backend, keyring=None, ledger=None, **parts):
        return create_app(TriageService(bundle, backend, **parts), keyring=keyring, ledger=ledger)

    return make


@pytest.fixture
def client_of(app_of):
    """Makes a client of another bundle or application."""
    return lambda served, **parts: Client(served if callable(served) else app_of(served, **parts))


@pytest.fixture
def script(backend):
    """Set what the generators write and what the ensemble says."""

    def of(write=None, energies=None):
        if write is not None:
            backend.write = write
        if energies is not None:
            backend.energies = energies
        return backend

    return of


@pytest.fixture
def texts():
    """Completions for the puzzle: right, wrong (it violates a statement), without an answer."""
    return {"right": RIGHT, "wrong": WRONG, "unreadable": UNREADABLE}


@pytest.fixture
def energies():
    return {"sure": SURE, "unsure": UNSURE}
