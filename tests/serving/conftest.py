"""A run directory, a puzzle, and a backend without Ray whose generators and energies are written by hand."""

import asyncio
import contextlib
import json
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import uvicorn

from raydebm.config import parse_recipe
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.checks import check_candidate
from raydebm.errors import ServiceError
from raydebm.generators.requests import answered, unanswered
from raydebm.records import Energies
from raydebm.run.directory import RunDir
from raydebm.serving.bundle import AppArgs, load_bundle
from raydebm.serving.routes import create_app
from raydebm.serving.service import TriageService
from raydebm.tasks import get_task

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside this one

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
    "triage": {"num_regenerate": 2},
}


@dataclass
class HandWritten:
    """A backend (serving.parts.Backend) that writes, for each request, what ``write`` says."""

    write: object = lambda request: RIGHT
    """request -> text, or None for a failed request, or an exception to raise."""
    energies: object = lambda text: SURE
    """text -> member energies, or None for one that cannot be scored."""
    requests: list = field(default_factory=list)
    scored: list = field(default_factory=list)
    ready: bool = True
    pause_s: float = 0.0
    finish_reason: str | None = None
    held: bool = False
    """As long as it is set, nothing is answered."""
    cancelled: bool = False

    async def generate(self, requests, on_candidate, *, hedge):
        found = []
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
            facts = {"prompt_tokens": 10, "completion_tokens": 5, "cost_usd": 0.5, "finish_reason": self.finish_reason}
            candidate = unanswered(request, "HTTP 500") if text is None else answered(request, text, **facts)
            found.append(candidate)
            on_candidate(candidate)
        return found

    async def check(self, problem, candidates):
        task = get_task(problem.task)
        return [check_candidate(task, problem, candidate) for candidate in candidates]

    async def score(self, texts):
        self.scored.extend(texts)
        members = [self.energies(text.text) for text in texts]
        return [
            None if found is None else Energies(candidate_id=text.candidate_id, members=found, num_tokens=9)
            for text, found in zip(texts, members, strict=True)
        ]

    async def status(self):
        if not self.ready:
            raise ServiceError("the scorer is still loading", 503, "not_ready")
        return {"generators": ["ada", "bo"], "scorer": {"adapters": ["a0", "a1"]}}


class Client:
    """Plain HTTP against the ASGI application, no network."""

    def __init__(self, app):
        self.transport = httpx.ASGITransport(app=app)

    def request(self, method, path, **kwargs):
        async def send():
            async with httpx.AsyncClient(transport=self.transport, base_url="http://localhost") as client:
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


@pytest.fixture
def write_run(tmp_path):
    """Makes a run directory as the pipeline leaves it (with an ensemble.json only); returns its path."""

    def write(recipe=RECIPE, policy=None, *, without=()):
        run = RunDir(str(tmp_path / "run"))
        resolved = parse_recipe(recipe).model_dump(mode="json", by_alias=True)
        if "recipe" not in without:
            run.write_json(resolved, "recipe.json")
        if "policy" not in without:
            run.write_json((policy or Policy(num_regenerate=2)).to_json(), "calibration", "policy.json")
        if "scorer" not in without:
            run.write_json({"backbone": "embedded:encoder-mini", "adapters": ["a0", "a1"]}, "scorer", "ensemble.json")
        return run.root

    return write


@pytest.fixture
def bundle(write_run):
    return load_bundle(
        AppArgs(run_dir=write_run(), max_problem_chars=2000, max_candidate_chars=2000, max_body_bytes=20_000)
    )


@pytest.fixture
def backend():
    return HandWritten()


@pytest.fixture
def app(bundle, backend):
    return create_app(TriageService(bundle, backend))


@pytest.fixture
def client(app):
    return Client(app)


@pytest.fixture
def client_of():
    """Makes a client of another application."""
    return Client


@contextlib.contextmanager
def serving(app, port):
    """The application on a real server, on a thread; yields its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started:
        assert thread.is_alive(), f"the server could not listen at port {port}"
        assert time.monotonic() < deadline, "the server did not start in time"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)


@pytest.fixture(scope="session")
def listening():
    return serving


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


def sse_events(text):
    """(event name or None, data text) of every event; comments as ("comment", text)."""
    events = []
    for block in text.strip().split("\n\n"):
        name, data = None, []
        for line in block.splitlines():
            if line.startswith(":"):
                name, data = "comment", [line[1:].strip()]
            elif line.startswith("event:"):
                name = line.partition(":")[2].strip()
            elif line.startswith("data:"):
                data.append(line.partition(":")[2].strip())
        events.append((name, "\n".join(data)))
    return events


@pytest.fixture
def read_events():
    return sse_events


@pytest.fixture
def chunks_of():
    """The JSON chunks of an SSE text, without comments, named events and [DONE]."""
    return lambda text: [json.loads(data) for name, data in sse_events(text) if name is None and data != "[DONE]"]


@pytest.fixture
def texts():
    """Completions for the puzzle: right, wrong (it violates a statement), without an answer."""
    return {"right": RIGHT, "wrong": WRONG, "unreadable": UNREADABLE}


@pytest.fixture
def energies():
    return {"sure": SURE, "unsure": UNSURE}


# ---- a run directory with real parts --------------------------------------------------------------------------------


def tiny_tokenizer():
    """Byte-level, so that it reads any text; with a chat template for the causal model."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[CLS]", "[SEP]"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", eos_token="[SEP]"
    )
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    return fast


def make_models(folder):
    """A tiny random encoder of the ModernBERT architecture and a tiny random Llama; returns their folders."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, ModernBertConfig, ModernBertModel

    tokenizer = tiny_tokenizer()
    size = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 2048,
        "initializer_range": 0.2,
    }
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        encoder = ModernBertModel(ModernBertConfig(**size, **ids, cls_token_id=1, sep_token_id=2))
        babbler = LlamaForCausalLM(LlamaConfig(**size, **ids, num_key_value_heads=2))
    for name, model in (("encoder", encoder), ("babbler", babbler)):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder / "encoder", folder / "babbler"


def make_ensemble(folder, encoder):
    """Two adapters, trained for one epoch on four problems by the scorer's own code."""
    from raydebm.config import PAPER_ADAPTERS
    from raydebm.pairs import TrainingGroup
    from raydebm.scorer.ensemble import write_ensemble
    from raydebm.scorer.model.backbone import load_backbone
    from raydebm.scorer.training.adapter import train_adapter
    from raydebm.scorer.training.settings import TrainingSettings

    groups = [
        TrainingGroup(problem_id=f"p{index}", prompt=f"{PUZZLE} {index}", texts=(RIGHT, WRONG), pairs=((0, 1),))
        for index in range(4)
    ]
    backbone = load_backbone(str(encoder), device="cpu")
    settings = TrainingSettings(max_length=512, batch_size=4, patience=1, learning_rate=1e-2, max_epochs=1)
    trained = {
        adapter.name: train_adapter(
            adapter,
            backbone=backbone,
            train=groups[:3],
            validation=groups[3:],
            settings=settings,
            out_dir=folder / adapter.name,
            report=lambda report: None,
        ).folder
        for adapter in PAPER_ADAPTERS[:2]
    }
    write_ensemble(folder, trained, {"name": "live"})


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    """Folders of a random encoder and a random causal model."""
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def live_run(tmp_path_factory, tiny_models):
    """A finished run: a recorded generator that is wrong in pass 1 and right in pass 2, a random Llama, an ensemble."""
    from raydebm.records import GenerationRequest, Sampling
    from raydebm.run.tables import CANDIDATES

    folder = tmp_path_factory.mktemp("live")
    encoder, babbler = tiny_models
    run = RunDir(str(folder / "run"))
    make_ensemble(folder / "run" / "scorer", encoder)
    problem = get_task("knights_knaves").problem_from_text(PUZZLE)
    recorded = [
        answered(
            GenerationRequest(
                task=problem.task,
                problem_id=problem.problem_id,
                generator="wrong-then-right",
                messages=({"role": "user", "content": PUZZLE},),
                sampling=Sampling(),
                seed=0,
                pass_index=pass_index,
                sample_index=index,
            ),
            f"{text} ({index})".replace("} (", "} #("),
            completion_tokens=5,
        )
        for pass_index, text in ((1, WRONG), (2, RIGHT))
        for index in range(2)
    ]
    pool = folder / "run" / "pool.parquet"
    run.write_records(CANDIDATES, recorded, "pool.parquet")
    recipe = {
        "name": "live",
        "seed": 7,
        "task": {"name": "knights_knaves"},
        "generators": [
            {"kind": "recorded", "name": "recorded", "pool": str(pool), "model": "wrong-then-right"},
            {"kind": "transformers", "name": "babbler", "model": str(babbler), "num_samples": 1, "max_tokens": 8},
        ],
        "generation": {"num_samples": 2, "max_tokens": 64},
        "scorer": {"backbone": str(encoder)},
        "triage": {"num_regenerate": 2},
    }
    run.write_json(parse_recipe(recipe).model_dump(mode="json", by_alias=True), "recipe.json")
    # Random adapters disagree by any amount; these thresholds let constraints alone decide.
    run.write_json(Policy(theta_sigma=1e3, theta_abstain=1e4, num_regenerate=2).to_json(), "calibration", "policy.json")
    return run.root


# ---- services on real Ray Serve -------------------------------------------------------------------------------------


@pytest.fixture(scope="package")
def serve_turns(local_ray):
    """Which service runs on the session's Ray."""
    from live_service import Turns

    turns = Turns()
    yield turns
    turns.end()


@pytest.fixture(scope="module")
def live_service(serve_turns, live_run, repository, new_port, tmp_path_factory):
    """The service of ``live_service.py``: the same one in every module that asks for it."""
    from live_service import running

    def start():
        folder, config = tmp_path_factory.mktemp("live-service"), repository / "serve_config.yaml"
        problem = get_task("knights_knaves").problem_from_text(PUZZLE)
        return running(folder, live_run=live_run, config=config, problem=problem, port=new_port())

    return serve_turns.take("live", start)


@pytest.fixture
def healthy(live_service, eventually):
    """What GET /health says once every part has answered it in time: a busy machine answers 503 first."""

    def ask():
        replies = []

        def answered():
            replies.append(live_service.get("/health", headers={}))
            return replies[-1].status_code == 200

        assert eventually(answered), replies[-1].text
        return replies[-1].json()

    return ask


@pytest.fixture(scope="package")
def declared_folder(tmp_path_factory):
    """The files that `raydebm task new` writes, until ``declared_recipe`` has read them."""
    from local_service import NAME

    from raydebm.tasks.declared.starter import starter_files

    folder = tmp_path_factory.mktemp("declared")
    for name, content in starter_files(NAME, str(folder)).items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.fixture(scope="package")
def declared_recipe(declared_folder):
    """The starter's recipe; its task file is removed once it has been read."""
    from raydebm.config import load_recipe

    found = load_recipe(declared_folder / "recipe.yaml", overrides=[f"run_dir={declared_folder / 'run'}"])
    (declared_folder / "task.yaml").unlink()
    return found


@pytest.fixture(scope="package")
def labelled(local_ray, declared_recipe):
    """The run directory of the starter task after generation and labelling."""
    from raydebm.pipeline.runner import Pipeline

    pipeline = Pipeline(recipe=declared_recipe)
    pipeline.make("labels")
    return pipeline.run


@pytest.fixture(scope="package")
def local_service(serve_turns, labelled, declared_recipe, live_run, tiny_models, new_port, tmp_path_factory):
    """What the service of ``local_service.py`` said; it has ended."""
    from local_service import asked, complete

    complete(labelled, declared_recipe, live_run=live_run, babbler=tiny_models[1])
    serve_turns.end()
    return asked(labelled.root, port=new_port(), records=tmp_path_factory.mktemp("local") / "records")


# ---- a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium; tests that need it skip where it or Playwright is absent.

    Of one module, because Playwright keeps an event loop running in this thread while it is open: ``asyncio.run``, and
    with it the ``client`` fixture, does not work in a module that uses it.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip(f"no browser found (looked for {', '.join(names)}): apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=120_000
        )
        yield browser
        browser.close()


@pytest.fixture
def faults_of(repository):
    """What is wrong with an open page for people who use a keyboard, a screen reader or a phone: sentences."""
    script = (repository / "tests" / "serving" / "page_faults.js").read_text(encoding="utf-8")
    return lambda page: page.evaluate(script.partition("\n")[2])


@pytest.fixture
def open_page(chromium):
    """Opens an address in a page of its own; at the end no page may have logged an error or left its host.

    Options: ``width`` and ``height`` in CSS pixels, ``dark``, ``key`` (already in the tab's storage), ``expected``:
    parts of console messages that the test provokes (such as "401").
    """
    opened = []

    def open_(url, *, width=1280, height=900, dark=False, key=None, expected=(), **options):
        scheme = "dark" if dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        context.set_default_timeout(60_000)
        page, troubles = context.new_page(), []
        host = "/".join(url.split("/")[:3])

        def on_console(message):
            if message.type == "error" and not any(part in message.text for part in expected):
                troubles.append(f"console: {message.text}")

        def on_request(request):
            if not request.url.startswith((host + "/", "data:", "blob:")):
                troubles.append(f"request to {request.url}")

        page.on("console", on_console)
        page.on("pageerror", lambda error: troubles.append(f"uncaught: {error}"))
        page.on("request", on_request)
        if key is not None:
            context.add_init_script(f"sessionStorage.setItem('raydebm-api-key', {json.dumps(key)})")
        opened.append((context, troubles))
        page.goto(url)
        return page

    yield open_
    for context, _ in opened:
        context.close()
    assert [trouble for _, troubles in opened for trouble in troubles] == []
