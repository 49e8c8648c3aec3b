"""The pages on a real Ray Serve: served by the ingress, candidates of real replicas, energies of real adapters."""

import re
import shutil
import time

import httpx
import pytest

from raydebm.serving.launch import deployed
from raydebm.serving.openapi import PUZZLE
from raydebm.store import PROBLEMS, RunDir, problem_row
from raydebm.tasks import get_task

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(local_ray, live_run, repository, new_port, tmp_path_factory):
    """The live run with its problem in the table, as the pipeline leaves it."""
    problem = get_task("knights_knaves").problem_from_text(PUZZLE)
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(live_run, folder / "run")
    run = RunDir(str(folder / "run"))
    run.write_table([problem_row(problem, "test")], PROBLEMS, "problems", "problems.parquet")
    args = {
        "run_dir": run.root,
        "generators": ["recorded"],
        "threads": 1,
        "device": "cpu",
        "dtype": "float32",
        "records": {"folder": str(folder / "kept"), "flush_s": 0.2},
    }
    with deployed(repository / "serve_config.yaml", port=new_port(), args=args, timeout_s=600) as address:
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


def test_a_request_shows_on_the_live_page_at_once_and_on_the_decisions_page_when_it_is_written(url, open_page, puzzle):
    assert httpx.post(f"{url}/v1/triage", json={"problem": puzzle}, timeout=120).json()["decision"] == "accept"
    page = open_page(url + "/live")
    some = re.compile("[1-9]")
    page.locator("#tiles .tile", has=page.get_by_text("Decisions", exact=True)).get_by_text(some).first.wait_for()
    page.locator("#parts", has_text="2 adapters").wait_for()
    page.locator("#parts", has_text=re.compile("[1-9][0-9]* written")).wait_for()

    page.get_by_role("link", name="Decisions").click()
    page.locator("#list tbody a").first.click()
    page.locator(".pass h3", has_text="Pass 2").wait_for()
    assert page.locator(".candidate.is-selected").count() == 1
