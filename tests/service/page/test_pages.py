"""The pages in a real browser, against a real HTTP server whose generators and energies are written by hand."""

import asyncio
import json
import math
import threading
import time

import httpx
import pytest
from decisions_by_hand import key_of, keyring
from starlette.applications import Starlette
from starlette.routing import Mount

from raydebm import tasks
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.records import Problem
from raydebm.run.directory import RunDir
from raydebm.run.tables import SplitProblem
from raydebm.service.core import TriageService
from raydebm.service.routes.application import create_app
from raydebm.service.settings import AppArgs, load_bundle
from raydebm.service.store.outcomes import OutcomeLog
from raydebm.service.store.record import DecisionWriter
from raydebm.tasks import get_task
from raydebm.tasks.declared import DeclaredTask

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
PAPER = Policy(theta_sigma=0.8, theta_abstain=1.5, num_regenerate=2)
BY_VOTES = Policy(
    rule="posterior",
    posterior=Posterior(weights={"votes": 1.0}, context_weights={"none": -math.log(4)}),
    tau_accept=0.5,
    tau_answer=0.25,
    max_passes=1,
    guarantee={"max_error": 0.1, "confidence": 0.95, "certified": False, "problems": 12, "reason": f"few {HOSTILE}"},
)
"""With shares 3/4 and 1/4 of the candidates, and 1/4 for none of them, p is 3/5 and 1/5."""


@pytest.fixture
def run_dir(write_run, puzzle):
    run = RunDir(write_run(policy=PAPER))
    data = get_task("knights_knaves").problem_from_text(puzzle).data
    run.write_problems(
        [SplitProblem(problem=Problem(task="knights_knaves", problem_id="p0", prompt=puzzle, data=data), split="test")]
    )
    return run.root


@pytest.fixture
def start(listening, new_port):
    """Starts the service over a backend; returns its address. ``start.flush()`` writes its decisions."""
    servers, writers = [], []

    def start_(backend, run_dir, *, keyring=None, prefix="", **args):
        bundle = load_bundle(AppArgs(run_dir=run_dir, **args))
        writers.append(DecisionWriter(bundle.records.folder, flush_s=3600))
        app = create_app(TriageService(bundle, backend, records=writers[-1]), keyring=keyring)
        servers.append(listening(Starlette(routes=[Mount(prefix, app)]) if prefix else app, new_port()))
        return servers[-1].__enter__()

    start_.flush = lambda: [writer.flush() for writer in writers]
    yield start_
    for server in servers:
        server.__exit__(None, None, None)
    for writer in writers:
        writer.close()


@pytest.fixture
def gated(backend):
    """The backend, whose generators hold back the last candidate of a pass until ``gate`` is set."""

    class Gated(type(backend)):
        async def generate(self, requests, *watching, **options):
            first = await super().generate(requests[:-1], *watching, **options)
            try:
                while not self.gate.is_set():
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.left.set()
                raise
            return first + await super().generate(requests[-1:], *watching, **options)

    gated_backend = Gated()
    gated_backend.gate, gated_backend.left = threading.Event(), threading.Event()
    return gated_backend


def until(page, expression):
    """Wait until JavaScript holds. Playwright's own way evaluates inside the page, which its policy forbids."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never so: {expression}"
        page.wait_for_timeout(50)


def ask(page, text=None):
    """Draw the sample problem (or type ``text``), and ask."""
    until(page, "document.querySelector('#task').options.length > 0")
    if text is None:
        page.get_by_role("button", name="Draw one").click()
        until(page, "document.querySelector('#problem').value !== ''")
    else:
        page.get_by_label("Text of the problem").fill(text)
    page.get_by_role("button", name="Ask", exact=True).click()


def decided(page):
    page.wait_for_selector("#decision-card:not([hidden])")
    return page.locator("#decision-card").inner_text()


# ---- asking ---------------------------------------------------------------------------------------------------------


def test_a_sample_problem_is_asked_regenerated_and_answered(start, run_dir, backend, open_page, texts):
    backend.write = lambda request: texts["wrong" if request.pass_index == 1 else "right"]
    page = open_page(start(backend, run_dir))
    ask(page)
    words = decided(page)
    assert ["accept" in words, "Ava" in words, "every constraint holds" in words] == [True, True, True]
    assert "selected" in page.locator(".candidate.is-selected").inner_text()
    assert page.locator(".pass").count() == 2
    assert "Your answer breaks these rules" in page.locator(".pass").first.locator("blockquote").inner_text()
    page.locator(".candidate", has_text="1 violation").first.locator("summary").click()
    assert 'Zoey said "Ava is a knave"' in page.locator(".candidate .violation").first.inner_text()
    assert {request.problem_id for request in backend.requests} == {"p0"}
    assert "Accepted" in page.locator("#announcer").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the full record").click()
    assert json.loads(download.value.path().read_text())["decision"] == "accept"


def test_candidates_are_shown_while_others_are_written_and_stop_ends_the_work(start, run_dir, gated, open_page):
    page = open_page(start(gated, run_dir))
    ask(page)
    until(page, "document.querySelectorAll('.candidate').length === 3")
    assert page.locator("#decision-card").is_hidden()
    page.get_by_role("button", name="Stop").click()
    assert gated.left.wait(60)
    until(page, "document.querySelector('#progress-words').textContent.startsWith('stopped')")
    gated.gate.set()
    page.get_by_role("button", name="Ask", exact=True).click()
    assert "accept" in decided(page)


def test_an_abstention_says_why_and_hostile_texts_are_texts(start, run_dir, backend, open_page, puzzle, energies):
    backend.write = lambda request: HOSTILE + ' {"Ava": "knave", "Zoey": "knight"}'
    backend.energies = lambda text: energies["unsure"]
    page = open_page(start(backend, run_dir))
    ask(page, puzzle.replace("A very special", f"{HOSTILE} A very special"))
    assert "sigma 2 of the selected candidate is above theta_abstain 1.5" in decided(page)
    assert page.locator("#decision .answer").count() == 0
    page.locator(".candidate summary").first.click()
    assert HOSTILE in page.locator(".candidate-text").first.inner_text()
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "Ask · raydebm"


def test_what_the_form_changes_is_what_decides(start, run_dir, backend, open_page):
    page = open_page(start(backend, run_dir, policies={"strict": {"theta_sigma": 0.1}}))
    until(page, "document.querySelector('#task').options.length > 0")
    page.locator("#policy-details summary").click()
    page.get_by_label("Named policy").select_option("strict")
    assert page.get_by_label("theta_sigma, accept up to").get_attribute("placeholder") == "0.1"
    page.get_by_label("lambda, weight of constraints").fill("2.5")
    page.get_by_label("candidates of each generator").fill("1")
    page.locator("input[value='bo']").uncheck()
    assert "4 changed" in page.locator("#policy-details summary").inner_text()
    page.get_by_text("The same request with curl").click()
    assert '"lambda": 2.5' in page.locator("#curl").inner_text()
    ask(page)
    words = decided(page)
    assert ["lambda 2.5" in words, "theta_sigma 0.1" in words] == [True, True]
    assert {request.generator for request in backend.requests if request.pass_index == 1} == {"ada"}


def test_a_refused_setting_is_named_at_its_place(start, run_dir, backend, open_page):
    page = open_page(start(backend, run_dir), expected=["400"])
    until(page, "document.querySelector('#task').options.length > 0")
    page.get_by_role("button", name="Ask", exact=True).click()
    assert "The problem is empty" in page.locator("#problem-error").inner_text()
    page.locator("#policy-details summary").click()
    page.get_by_label("theta_sigma, accept up to").fill("3")
    ask(page)
    page.locator("[role=alert]", has_text="theta_sigma must be below theta_abstain").wait_for()
    page.get_by_label("theta_sigma, accept up to").fill("-1")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector("#theta_sigma[aria-invalid=true]")
    assert page.evaluate("document.activeElement.id") == "theta_sigma"


def test_a_key_is_asked_for_and_kept_and_the_page_works_below_a_prefix(start, run_dir, backend, open_page):
    url = start(backend, run_dir, keyring=keyring("me"), prefix="/tools/chooser")
    page = open_page(f"{url}/tools/chooser/", expected=["401"])
    page.get_by_label("Key", exact=True).fill(key_of("me"))
    page.get_by_role("button", name="Use this key").click()
    ask(page)
    assert "accept" in decided(page)
    page.get_by_role("link", name="Decisions", exact=True).click()
    page.locator("#list-count").wait_for()
    assert page.evaluate("location.pathname") == "/tools/chooser/decisions"


# ---- answers and outcomes -------------------------------------------------------------------------------------------


def test_answers_have_their_evidence_and_an_outcome_is_reported(start, write_run, recipe, script, open_page, faults_of):
    """Votes: log(3/4) and log(1/4) are log(3)/2 = 0.55 from their mean; the log-odds of 3/5 are log(3/2) = 0.41."""

    def write(request):
        return "#### 5" if (request.generator, request.sample_index) == ("bo", 1) else "#### 4"

    folder = write_run({**recipe, "task": {"name": "gsm8k"}}, BY_VOTES)
    url = start(script(write), folder)
    page = open_page(url, width=360, dark=True)
    ask(page, "What is 2 + 2?")
    words = decided(page)
    assert "3 of 4 candidates from 2 models agree; right with probability 0.60." in words
    assert f"Nothing is guaranteed: few {HOSTILE}" in words
    card = page.locator(".answer-card").first
    assert "3 candidates from 2 models: ada, bo" in card.inner_text()
    card.locator("summary").click()
    assert card.locator("tr").all_inner_texts()[-1].split("\t") == ["log-odds in all", "+0.41"]
    page.get_by_label("Your name").fill("Ada")
    page.get_by_role("button", name="Right", exact=True).click()
    page.locator("#decision .badge", has_text="right").wait_for()
    assert httpx.get(f"{url}/v1/outcomes").json()["with_outcome"] == 1
    assert faults_of(page) == []


def test_fields_to_review_come_first(start, write_run, recipe, script, open_page, monkeypatch, faults_of):
    """Three of four candidates say that the date is 1, and all say that the total is 7: with 1/5 for none of the
    answers, p is 3/5 + 1/5 x 3.5/5, and 4/5 + 1/5 x 4.5/5."""
    task = {"name": "form", "instructions": "Answer.", "prompt": "{text}", "output": {"format": "json"}}
    monkeypatch.setattr(tasks, "_ADDED", {"form": lambda: DeclaredTask(task)})

    def write(request):
        date = 2 if (request.generator, request.sample_index) == ("bo", 1) else 1
        return json.dumps({"date": date, "total": 7})

    policy = BY_VOTES.replaced(tau_field=0.8)
    folder = write_run({**recipe, "task": {"name": "form"}}, policy)
    page = open_page(start(script(write), folder), width=360, dark=True)
    ask(page, "A form.")
    decided(page)

    assert page.locator("#decision summary", has_text="2 fields, 1 to review").count() == 1
    rows = page.locator("#decision .fields tbody tr")
    assert [" ".join(row.split()) for row in rows.all_inner_texts()] == [
        "date 1 ! review or 2, p 0.26 0.74 3", "total 7 0.98 4",
    ]  # fmt: skip
    assert rows.first.get_attribute("class") == "field-low"
    assert faults_of(page) == []


# ---- stored decisions -----------------------------------------------------------------------------------------------

NUM_PLAIN = 51
"""Accepted; with the others more than a page of 50."""


@pytest.fixture
def stored(start, run_dir, script, backend, texts, energies, puzzle):
    """A service with stored decisions: accepted ones, one refused for sigma and one without any answer."""
    url = start(backend, run_dir)
    data = dict(get_task("knights_knaves").problem_from_text(puzzle).data)

    def made(problem, write, members):
        script(write, lambda text: members)
        body = {"problem": {"prompt": problem, "data": data}, "task": "knights_knaves", "max_passes": 1}
        return httpx.post(f"{url}/v1/triage", json=body, timeout=60).json()["record_id"]

    for index in range(NUM_PLAIN):
        made(f"Plain number {index}. {puzzle}", lambda request: texts["right"], energies["sure"])
    nothing = made(f"{HOSTILE} {puzzle}", lambda request: texts["unreadable"], energies["sure"])
    unsure = made(f"Doubtful. {puzzle}", lambda request: f"{HOSTILE} {texts['right']}", energies["unsure"])
    start.flush()
    return f"{url}/decisions", unsure, nothing, OutcomeLog(f"{run_dir}/records")


def wait_for_count(page, words):
    page.locator("#list-count", has_text=words).wait_for()


def test_list_filter_sort_and_pages(stored, open_page):
    page = open_page(stored[0])
    wait_for_count(page, "1 to 50 of 53")
    page.get_by_role("button", name="Next").click()
    wait_for_count(page, "51 to 53 of 53")
    page.get_by_label("Words in the first").fill("doubtful")
    page.keyboard.press("Enter")
    wait_for_count(page, "1 to 1 of 1")
    assert "text=doubtful" in page.url
    page.get_by_role("button", name="Clear the filter").click()
    wait_for_count(page, "of 53")
    page.get_by_role("button", name="Sigma").click()
    page.locator("th[aria-sort=descending]", has_text="Sigma").wait_for()
    assert "Doubtful" in page.locator("#list tbody tr").first.inner_text()
    page.get_by_role("button", name="To review").click()
    wait_for_count(page, "1 to 2 of 2")
    page.go_back()
    wait_for_count(page, "of 53")


def test_an_abstention_is_opened_by_keyboard_and_judged(stored, open_page):
    url, unsure, _, log = stored
    page = open_page(f"{url}?decision=abstain&outcome=none")
    wait_for_count(page, "1 to 2 of 2")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.record") == unsure:
            break
    page.keyboard.press("Enter")
    page.locator("#heading:focus", has_text="One decision").wait_for()
    page.locator(".candidate summary").first.click()
    assert HOSTILE in page.locator(".candidate-text").nth(1).inner_text()
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("button", name="Right", exact=True).click()
    assert page.evaluate("document.activeElement.id") == "outcome-by"
    page.get_by_label("Your name").fill("ada")
    page.get_by_role("button", name="Right", exact=True).click()
    page.locator(".outcome-form .badge", has_text="right").wait_for()
    (report,) = log.history(unsure)
    assert (report.correct, report.by, report.decision) == (True, "ada", "abstain")
    page.get_by_role("link", name="Back to the list").click()
    wait_for_count(page, "1 to 1 of 1")


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_in_the_way_of_keyboard_screen_reader_or_phone(stored, open_page, faults_of, width):
    page = open_page(stored[0], width=width)
    wait_for_count(page, "of 53")
    assert faults_of(page) == []
    page.get_by_role("link", name="Doubtful").click()
    page.locator(".candidate").first.wait_for()
    assert faults_of(page) == []
