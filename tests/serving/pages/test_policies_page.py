"""Two policies on the pages, in a real browser, on a server in this process."""

import contextlib

import httpx
import pytest
from two_runs import LIKE_THEM

from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.policy_history import PolicyHistory
from raydebm.decisions.writer import DecisionWriter
from raydebm.run.directory import RunDir
from raydebm.serving.api.application import create_app
from raydebm.serving.api.operations.live import LiveMeter
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.serving.settings.gateway import load_gateway

pytestmark = pytest.mark.slow

FIRST, SECOND = Policy(theta_sigma=0.8, max_passes=1), Policy(theta_sigma=10.0, theta_abstain=20.0, max_passes=1)


@pytest.fixture
def address(write_run, script, texts, energies, puzzle, listening, free_port):
    """The first policy refused a right answer that its shadow would have given out."""
    backend = script(lambda request: texts["right"], lambda text: energies["unsure"])
    root = write_run(policy=FIRST)
    PolicyHistory(RunDir(root)).try_policy(SECOND, percent=0.0)
    bundle, meter = load_bundle(AppArgs(run_dir=root)), LiveMeter()
    writer = DecisionWriter(bundle.records.folder)
    service = TriageService(bundle, backend, meter=meter, records=writer)
    with listening(create_app(service, live=meter), free_port) as url:
        answer = httpx.post(f"{url}/v1/triage", json={"problem": puzzle}, timeout=60).json()
        writer.flush()
        report = {"correct": True, "by": "audit"}
        httpx.post(f"{url}/v1/decisions/{answer['record_id']}/outcome", json=report, timeout=60).raise_for_status()
        yield url, answer["record_id"]
    writer.close()


def test_a_decision_shows_what_the_other_policy_would_have_decided(address, open_page, faults_of):
    url, record_id = address
    page = open_page(f"{url}/decisions?id={record_id}")
    card = page.locator("section", has=page.get_by_role("heading", name="The other policy, as a shadow"))
    card.wait_for()
    words = card.inner_text()
    assert "The first policy answered. The other one would have decided otherwise." in words
    assert policy_id(SECOND) in words
    assert faults_of(page) == []


def test_the_live_page_has_both_policies_side_by_side(address, open_page, faults_of):
    url, _ = address
    page = open_page(f"{url}/live")
    page.locator("#policies tbody tr").first.wait_for()
    first, second = (row.inner_text().split("\t") for row in page.locator("#policies tbody tr").all())
    assert (first[0], first[1], first[2], first[3]) == (policy_id(FIRST), "first", "1", "0.0 %")
    assert (second[0], second[1], second[2], second[3]) == (policy_id(SECOND), "shadow", "0", "100.0 %")
    assert second[6].startswith("100.0 %")
    assert (first[8], second[8]) == ("\u2013", "$2.00")  # the first gave no right answer; four candidates cost 0.5 each
    assert "agree on 0.0 % of the known choices; 1 outcome judges both." in page.locator("#policies p").inner_text()
    assert faults_of(page) == []


@pytest.fixture
def tried_in(two_runs, script, texts, puzzle, listening, free_port):
    """The address of a service of two runs, of which these tasks try a policy and have decided a question each."""
    opened = contextlib.ExitStack()

    def start(*tasks):
        args = two_runs()
        folders = {"knights_knaves": args.run_dir, "gsm8k": args.further_runs[0].run_dir}
        for task in tasks:
            PolicyHistory(RunDir(folders[task])).try_policy(SECOND, percent=0.0)
        bundle, meter = load_gateway(args), LiveMeter()
        writer = DecisionWriter(bundle.records.folder)
        opened.callback(writer.close)
        backend = script(lambda request: texts["right"] if request.task == "knights_knaves" else "#### 84")
        app = create_app(TriageService(bundle, backend, meter=meter, records=writer), live=meter)
        url = opened.enter_context(listening(app, free_port))
        for task in tasks:
            question = {"problem": puzzle if task == "knights_knaves" else LIKE_THEM, "task": task}
            httpx.post(f"{url}/v1/triage", json=question, timeout=60).raise_for_status()
        writer.flush()
        return url, {task: bundle.of(task).versions["policy"] for task in tasks}

    with opened:
        yield start


@pytest.mark.parametrize("tasks", [("gsm8k",), ("knights_knaves", "gsm8k")], ids=["further run", "both runs"])
def test_the_live_page_has_a_table_for_each_task_with_a_trial(tried_in, open_page, faults_of, tasks):
    url, versions = tried_in(*tasks)
    page = open_page(f"{url}/live")
    page.locator("#policies").get_by_role("heading", name=tasks[-1]).wait_for()
    assert page.locator("#policies h3").all_inner_texts() == list(tasks)
    for task in tasks:
        rows = page.get_by_role("region", name=f"Two policies of {task}").locator("tbody tr").all()
        cells = [row.inner_text().split("\t")[:3] for row in rows]
        assert cells == [[versions[task], "first", "1"], [policy_id(SECOND), "shadow", "0"]]
    assert faults_of(page) == []
