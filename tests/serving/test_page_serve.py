"""The ask page on a real Ray Serve: served by the ingress, candidates of real replicas, energies of real adapters."""

import shutil
import socket
import time

import pytest

from raydebm.serving.launch import deployed
from raydebm.serving.openapi import PUZZLE
from raydebm.store import PROBLEMS, RunDir, problem_row
from raydebm.tasks import get_task

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(local_ray, live_run, repository, tmp_path_factory):
    """The live run with its problem in the table, as the pipeline leaves it."""
    problem = get_task("knights_knaves").problem_from_text(PUZZLE)
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(live_run, folder / "run")
    run = RunDir(str(folder / "run"))
    run.write_table([problem_row(problem, "test")], PROBLEMS, "problems", "problems.parquet")
    args = {"run_dir": run.root, "generators": ["recorded"], "threads": 1, "device": "cpu", "dtype": "float32"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with deployed(repository / "serve_config.yaml", port=port, args=args, timeout_s=240) as address:
        yield address


def until(page, expression):
    """Wait until JavaScript holds; Playwright's own way is forbidden by the page's security policy."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never so: {expression}"
        page.wait_for_timeout(50)


def test_a_sample_problem_is_asked_regenerated_and_answered(url, open_page):
    page = open_page(url + "/")
    until(page, "document.querySelector('#task').options.length > 0")
    page.get_by_role("button", name="Draw one").click()
    until(page, "document.querySelector('#problem').value !== ''")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector("#decision-card.is-accept:not([hidden])")
    assert "Ava" in page.locator("#decision .answer").inner_text()
    assert page.locator(".pass").count() == 2
    assert "mended" in page.locator(".pass").nth(1).inner_text()
    assert page.locator(".candidate").count() == 4
    assert page.locator(".candidate").first.locator(".member").count() == 2
