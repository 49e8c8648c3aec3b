"""A run directory, a puzzle, and a backend without Ray whose generators and energies are written by hand."""

import contextlib
import io
import json
import logging
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
import uvicorn

from raydebm.service.logs import REQUEST_ID, JsonLines
from raydebm.tasks import get_task

sys.path.insert(0, str(Path(__file__).parent))  # for the modules next to this one

from hand_written_run import (  # noqa: F401 - the fixtures are this module's own
    PUZZLE,
    RIGHT,
    WRONG,
    app,
    app_of,
    backend,
    bundle,
    bundle_of,
    client,
    client_of,
    context_of,
    decided,
    energies,
    official,
    puzzle,
    recipe,
    script,
    texts,
    write_run,
)
from tiny_service_run import make_models, make_run
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


@pytest.fixture
def read_events():
    """(event name or None, data) of every event of a text, without comments."""

    def read(text):
        blocks = [block for block in text.strip().split("\n\n") if not block.startswith(":")]
        fields = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
        return [(each.get("event"), each["data"]) for each in fields]

    return read


@pytest.fixture
def lines():
    """Everything the package logs, as the service writes it."""
    stream, logger = io.StringIO(), logging.getLogger("raydebm")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(REQUEST_ID.get))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)
    logger.setLevel(level)


# ---- a run directory with real parts --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    """Folders of a random encoder and a random causal model."""
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def live_run(tmp_path_factory, tiny_models):
    """A finished run: a recorded generator that is wrong in pass 1 and right in pass 2, a random Llama, an ensemble."""
    return make_run(tmp_path_factory.mktemp("live"), *tiny_models)


@pytest.fixture(scope="session")
def local_backend():
    """Makes a run's backend of the deployments' own code, in this process: Serve's local testing mode, no Ray."""
    from ray import serve

    from raydebm.service.ray.deployments import ConstraintDeployment, GeneratorDeployment, ScorerDeployment
    from raydebm.service.ray.handles import HandleBackend

    def make(served, name):
        def local(kind, *args):
            bound = serve.deployment(kind).bind(*args)
            return serve.run(bound, name=f"{name}-{kind.__name__}", _local_testing_mode=True)

        return HandleBackend(
            local(GeneratorDeployment, served.generator_configs(), served.run_dir),
            # Serve's batching needs a replica; the batched work itself does not.
            local(ScorerDeployment, served.checkpoint, "cpu", "float32"),
            local(ConstraintDeployment),
        )

    return make


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
            replies.append(live_service.get("/health"))
            return replies[-1].status_code == 200

        assert eventually(answered), replies[-1].text
        return replies[-1].json()

    return ask


@pytest.fixture(scope="package")
def declared_folder(tmp_path_factory):
    """The files that `raydebm task new` writes, until ``declared_recipe`` has read them."""
    from local_service import NAME

    from raydebm.cli.starter import task_files

    folder = tmp_path_factory.mktemp("declared")
    for name, content in task_files(NAME, str(folder)).items():
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
    source = (repository / "tests" / "service" / "page_faults.js").read_text(encoding="utf-8")
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
