"""A run directory, a puzzle, and a backend without Ray whose generators and energies are written by hand."""

import contextlib
import json
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
import uvicorn

from raydebm.config import parse_recipe
from raydebm.decision.policy import Policy
from raydebm.generators.requests import TokenUsage, answered
from raydebm.run.directory import RunDir
from raydebm.tasks import get_task

sys.path.insert(0, str(Path(__file__).parent))  # for the modules next to this one

from hand_written_run import (  # noqa: F401 - the fixtures are this module's own
    PUZZLE,
    RIGHT,
    WRONG,
    app,
    backend,
    bundle,
    client,
    client_of,
    energies,
    puzzle,
    recipe,
    script,
    texts,
    write_run,
)
from two_runs import two_runs  # noqa: F401 - likewise


@contextlib.contextmanager
def serving(application, port):
    """The application on a real server, on a thread; yields its address."""
    server = uvicorn.Server(uvicorn.Config(application, host="127.0.0.1", port=port, log_level="critical"))
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
    from raydebm.scorer.training.adapter_data import AdapterData
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
            AdapterData(train=groups[:3], validation=groups[3:]),
            backbone=backbone,
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
            usage=TokenUsage(completion_tokens=5),
        )
        for pass_index, text in ((1, WRONG), (2, RIGHT))
        for index in range(2)
    ]
    pool = folder / "run" / "pool.parquet"
    run.write_records(CANDIDATES, recorded, "pool.parquet")
    live_recipe = {
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
    run.write_json(parse_recipe(live_recipe).model_dump(mode="json", by_alias=True), "recipe.json")
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

    declared = load_recipe(declared_folder / "recipe.yaml", overrides=[f"run_dir={declared_folder / 'run'}"])
    (declared_folder / "task.yaml").unlink()
    return declared


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
    source = (repository / "tests" / "serving" / "page_faults.js").read_text(encoding="utf-8")
    return lambda page: page.evaluate(source.partition("\n")[2])


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
