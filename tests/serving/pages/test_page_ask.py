"""The ask page in a real browser, against a real HTTP server whose generators and energies are written by hand."""

import asyncio
import hashlib
import json
import threading
import time

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.records import Problem
from raydebm.run.directory import RunDir
from raydebm.run.tables import SplitProblem
from raydebm.serving.access.keys import ApiKey, Keyring
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.serving.settings.gateway import load_gateway
from raydebm.tasks import get_task

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture
def run_dir(write_run, puzzle):
    run = RunDir(write_run(policy=Policy(theta_sigma=0.8, theta_abstain=1.5, num_regenerate=2)))
    data = get_task("knights_knaves").problem_from_text(puzzle).data
    problems = [
        Problem(task="knights_knaves", problem_id=f"p{index}", prompt=puzzle, data=data, difficulty="2 people")
        for index in range(3)
    ]
    run.write_problems(SplitProblem(problem=problem, split="test") for problem in problems)
    return run.root


@pytest.fixture
def start(run_dir, listening, free_port):
    """Starts the service over a backend; returns its address."""
    with_context = []

    def start_(backend, *, keyring=None, prefix="", **args):
        app = create_app(TriageService(load_bundle(AppArgs(run_dir=run_dir, **args)), backend), keyring=keyring)
        server = listening(Starlette(routes=[Mount(prefix, app)]) if prefix else app, free_port)
        with_context.append(server)
        return server.__enter__()

    yield start_
    for server in with_context:
        server.__exit__(None, None, None)


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


def ready(page):
    until(page, "document.querySelector('#task').options.length > 0")
    return page


def ask(page, text=None):
    """Draw a sample problem (or type ``text``), and ask."""
    ready(page)
    if text is None:
        page.get_by_role("button", name="Draw one").click()
        until(page, "document.querySelector('#problem').value !== ''")
    else:
        page.get_by_label("Text of the problem").fill(text)
    page.get_by_role("button", name="Ask", exact=True).click()


def decided(page):
    page.wait_for_selector("#decision-card:not([hidden])")
    return page.locator("#decision-card").inner_text()


def first_wrong(texts):
    """Pass 1 breaks a rule, pass 2 does not."""
    return lambda request: texts["wrong" if request.pass_index == 1 else "right"]


def test_a_sample_problem_is_asked_and_answered(start, backend, open_page, texts):
    page = open_page(start(backend))
    ask(page)
    words = decided(page)
    assert "accept" in words
    assert "Ava" in words
    assert "every constraint holds" in words
    rows = page.locator(".candidate")
    assert rows.count() == 4
    assert "selected" in rows.first.inner_text()
    assert {request.problem_id for request in backend.requests} <= {"p0", "p1", "p2"}
    assert "Accepted" in page.locator("#announcer").inner_text()


def test_a_typed_problem_is_asked_as_a_text(start, backend, open_page, puzzle):
    page = open_page(start(backend))
    ask(page, puzzle)
    assert "accept" in decided(page)
    assert not {request.problem_id for request in backend.requests} & {"p0", "p1", "p2"}


def test_a_sample_that_was_changed_is_a_problem_of_its_own(start, backend, open_page, puzzle):
    page = ready(open_page(start(backend)))
    page.get_by_role("button", name="Draw one").click()
    until(page, "document.querySelector('#problem').value !== ''")
    page.get_by_label("Text of the problem").fill(puzzle + " ")
    assert "sent as a text of its own" in page.locator("#problem-note").inner_text()


def test_samples_are_stepped_through_by_number(start, backend, open_page):
    page = ready(open_page(start(backend)))
    page.get_by_role("button", name="Next problem").click()
    until(page, "document.querySelector('#problem-note').textContent.includes('p0')")
    page.get_by_role("button", name="Previous problem").click()
    until(page, "document.querySelector('#problem-note').textContent.includes('p2')")
    page.get_by_label("Number of the problem").fill("2")
    page.get_by_label("Number of the problem").press("Enter")
    until(page, "document.querySelector('#problem-note').textContent.includes('p1')")


def test_candidates_are_shown_with_their_numbers_while_others_are_written(start, gated, open_page):
    page = open_page(start(gated))
    ask(page)
    until(page, "document.querySelectorAll('.candidate').length === 3")
    until(page, "document.querySelectorAll('.candidate .mu').length === 3")
    assert page.locator("#decision-card").is_hidden()
    assert page.locator(".slot-scored").count() == 3
    assert page.locator(".slot-waiting").count() == 1
    gated.gate.set()
    decided(page)
    assert page.locator(".candidate").count() == 4


def test_stop_ends_the_work_of_the_service(start, gated, open_page):
    page = open_page(start(gated))
    ask(page)
    until(page, "document.querySelectorAll('.candidate').length === 3")
    page.get_by_role("button", name="Stop").click()
    assert gated.left.wait(60)
    until(page, "document.querySelector('#progress-words').textContent.startsWith('stopped')")
    assert page.get_by_role("button", name="Ask", exact=True).is_enabled()


def test_candidates_stand_in_the_order_of_their_energies(start, backend, open_page, texts):
    backend.write = lambda request: texts["right"] + f" #{request.sample_index}"
    backend.energies = lambda text: (-5.0, -5.0) if text.endswith("1") else (-1.0, -3.0)
    page = open_page(start(backend))
    ask(page)
    decided(page)
    energies = [
        text.split("=")[0].strip() for text in page.locator(".candidate .plot-words:has(strong)").all_inner_texts()
    ]
    assert energies == ["E −5.000", "E −5.000", "E −2.000", "E −2.000"]  # noqa: RUF001 - the page writes a real minus
    assert page.locator(".candidate").first.locator(".member").count() == 2


def test_violations_are_marked_in_the_text_and_named(start, backend, open_page, texts):
    backend.write = lambda request: texts["wrong"]
    page = open_page(start(backend))
    ask(page)
    decided(page)
    assert "with 1 violation" in page.locator(".decision-head").inner_text()
    row = page.locator(".candidate").first
    assert "1 violation" in row.inner_text()
    assert row.locator(".bar-penalty").count() == 1
    row.get_by_role("button").click()
    assert '"Zoey": "knave"' in " ".join(row.locator("mark").all_inner_texts())
    assert 'Zoey said "Ava is a knave"' in row.locator(".violation").inner_text()


def test_what_a_later_pass_was_told_and_what_it_changed(start, backend, open_page, texts):
    backend.write = first_wrong(texts)
    page = open_page(start(backend))
    ask(page)
    assert "accept" in decided(page)
    cards = page.locator(".pass")
    assert cards.count() == 2
    assert "Your answer breaks these rules" in cards.nth(0).locator("blockquote").inner_text()
    assert "regenerate" in cards.nth(0).inner_text()
    assert "✓ mended" in cards.nth(1).inner_text()
    cards.nth(1).get_by_text("Its words, before and after").click()
    assert "Both lie" in " ".join(cards.nth(1).locator("del").all_inner_texts())


def test_an_abstention_says_why_and_shows_no_answer(start, backend, open_page, energies):
    backend.energies = lambda text: energies["unsure"]
    page = open_page(start(backend))
    ask(page)
    words = decided(page)
    assert "Why no answer is given" in words
    assert "sigma 2 of the selected candidate is above theta_abstain 1.5" in words
    assert page.locator("#decision .answer").count() == 0
    assert "sigma 2.000" in page.locator(".gate svg").get_attribute("aria-label")


def test_the_posteriors_rule_can_be_asked_for_with_its_thresholds(start, backend, open_page, run_dir):
    posterior = Posterior(weights={"votes": 1.0}, context_weights={"none": -30.0})
    policy = Policy(theta_sigma=0.8, theta_abstain=1.5, num_regenerate=2, posterior=posterior)
    RunDir(run_dir).write_json(policy.to_json(), "calibration", "policy.json")
    page = ready(open_page(start(backend)))
    page.locator("#policy-details summary").click()
    assert "sigma, as in the paper (as served)" in page.get_by_label("rule, what decides").inner_text()
    assert page.get_by_label("tau_accept, accept from").get_attribute("placeholder") == "0.9"
    page.get_by_label("rule, what decides").select_option("posterior")
    page.get_by_label("profile, what selects").select_option("vote")
    page.get_by_label("tau_accept, accept from").fill("0.3")
    page.get_by_label("tau_answer, refuse below").fill("0.2")
    assert page.locator("#policy-changes").inner_text() == "4 changed"
    page.get_by_text("The same request with curl").click()
    body = page.locator("#curl").inner_text()
    for line in ('"rule": "posterior"', '"profile": "vote"', '"tau_accept": 0.3', '"tau_answer": 0.2'):
        assert line in body
    ask(page)
    assert "an exact constraint proves the answer" in decided(page)
    page.get_by_role("button", name="Empty all fields").click()
    assert page.locator("#policy-changes").is_hidden()


def test_the_pools_mean_sigma_is_shown_where_it_decides(start, backend, open_page, texts):
    backend.write = lambda request: texts["right"] + f" #{request.sample_index}"
    backend.energies = lambda text: (-5.0, -5.0) if text.endswith("1") else (-3.0, -3.4)
    page = ready(open_page(start(backend)))
    page.locator("#policy-details summary").click()
    page.get_by_label("signal").select_option("pool_mean")
    ask(page)
    words = decided(page)
    assert "mean sigma of the pool 0.1 is at or below theta_sigma 0.8" in words
    assert "The thin line is the selected candidate's sigma, 0.000" in words


def test_nothing_can_be_selected_and_the_page_says_so(start, backend, open_page, texts):
    backend.write = lambda request: texts["unreadable"]
    page = open_page(start(backend))
    ask(page)
    assert "no candidate can be selected: of 6, 6 did not parse" in decided(page)
    assert page.locator(".candidate").first.locator(".rank").inner_text() == "\N{EN DASH}"
    assert "Nothing: still no candidate can be selected." in page.locator(".pass").nth(1).inner_text()


def test_texts_of_models_and_users_never_become_markup(start, backend, open_page, puzzle):
    def write(request):
        return None if request.generator == "bo" else HOSTILE + ' {"Ava": "knave", "Zoey": "knave"}'

    backend.write = write
    page = open_page(start(backend))
    ask(page, puzzle.replace("A very special", f"{HOSTILE} A very special"))
    decided(page)
    for toggle in page.locator(".candidate-more > button").all():
        toggle.click()
    assert HOSTILE in page.locator(".candidate-text").first.inner_text()
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "Ask · raydebm"


def test_what_the_form_changes_is_what_decides(start, backend, open_page):
    page = open_page(start(backend, policies={"strict": {"theta_sigma": 0.1}}))
    ready(page)
    page.locator("#policy-details summary").click()
    page.get_by_label("Named policy").select_option("strict")
    assert page.get_by_label("theta_sigma, accept up to").get_attribute("placeholder") == "0.1"
    page.get_by_label("lambda, weight of constraints").fill("2.5")
    page.get_by_label("passes at most").fill("1")
    page.get_by_label("candidates of each generator").fill("1")
    page.get_by_label("waves").fill("1, 2")
    page.locator("input[value='bo']").uncheck()
    assert "6 changed" in page.locator("#policy-changes").inner_text()
    ask(page)
    decided(page)
    policy = page.locator("#record").inner_text()
    assert "lambda 2.5" in policy
    assert "theta_sigma 0.1" in policy
    assert "max_passes 1" in policy
    assert "waves 1,2" in policy
    assert [request.generator for request in backend.requests] == ["ada"]


def test_a_refused_setting_is_named_at_its_place(start, backend, open_page):
    page = open_page(start(backend), expected=["400"])
    ready(page)
    page.locator("#policy-details summary").click()
    page.get_by_label("theta_sigma, accept up to").fill("3")
    ask(page)
    page.wait_for_selector("[role=alert]")
    assert "theta_sigma must be below theta_abstain" in page.locator("[role=alert]").inner_text()
    page.get_by_label("theta_sigma, accept up to").fill("-1")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector("#theta_sigma[aria-invalid=true]")
    assert page.evaluate("document.activeElement.id") == "theta_sigma"


def test_waves_that_are_no_sizes_are_named_at_their_place(start, backend, open_page):
    page = open_page(start(backend))
    ready(page)
    page.locator("#policy-details summary").click()
    page.get_by_label("waves").fill("4;4")
    ask(page)
    page.wait_for_selector("#waves[aria-invalid=true]")
    assert backend.requests == []


def test_an_empty_problem_is_not_sent(start, backend, open_page):
    page = ready(open_page(start(backend)))
    page.get_by_role("button", name="Ask", exact=True).click()
    assert "The problem is empty" in page.locator("#problem-error").inner_text()
    assert page.get_by_label("Text of the problem").get_attribute("aria-errormessage") == "problem-error"
    assert backend.requests == []


def test_a_failure_of_the_service_is_shown_in_its_words(start, backend, open_page):
    backend.write = lambda request: None
    page = open_page(start(backend))
    ask(page)
    page.wait_for_selector("[role=alert]")
    words = page.locator("[role=alert]").inner_text()
    assert "no generator answered" in words
    assert "generation_failed" in words
    until(page, "document.querySelector('#progress-words').textContent.startsWith('failed')")


def test_generators_that_failed_are_named(start, backend, open_page, texts):
    backend.write = lambda request: None if request.generator == "bo" else texts["right"]
    page = open_page(start(backend))
    ask(page)
    assert "bo: 2 of 2 failed; HTTP 500" in decided(page)


def test_generators_to_choose_are_those_of_the_task(two_runs, backend, listening, free_port, open_page):
    """The second run has ada alone."""
    with listening(create_app(TriageService(load_gateway(two_runs()), backend)), free_port) as url:
        page = open_page(url)
        ready(page)
        page.locator("#policy-details").evaluate("details => details.open = true")
        shown = {}
        for task in ("knights_knaves", "gsm8k"):
            page.locator("#task").select_option(task)
            boxes = page.locator("input[name='generators']:visible").evaluate_all(
                "boxes => boxes.map((box) => box.value)"
            )
            shown[task] = boxes
    assert shown == {"knights_knaves": ["ada", "bo"], "gsm8k": ["ada"]}


def test_a_key_is_asked_for_where_the_service_wants_one(start, backend, open_page):
    keyring = Keyring([ApiKey(name="me", sha256=hashlib.sha256(b"sesame").hexdigest())])
    page = open_page(start(backend, keyring=keyring), expected=["401"])
    page.wait_for_selector("#key-dialog[open]")
    page.get_by_label("Key", exact=True).fill("wrong")
    page.get_by_role("button", name="Use this key").click()
    until(page, "document.querySelector('#key-message').textContent.includes('refused')")
    page.wait_for_selector("#key-dialog[open]")
    page.get_by_label("Key", exact=True).fill("sesame")
    page.get_by_label("Key", exact=True).press("Enter")
    ask(page)
    assert "accept" in decided(page)
    page.reload()
    ready(page)
    assert page.locator("#key-dialog").is_hidden()
    assert "sesame" not in page.content()


def test_everything_works_by_keyboard_alone(start, backend, open_page):
    page = ready(open_page(start(backend)))

    def tab_to(what):
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("(what) => document.activeElement.matches(what)", what):
                return
        raise AssertionError(f"{what} is not reached by Tab")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip-link"
    page.keyboard.press("Enter")
    tab_to("#sample-random")
    page.keyboard.press("Space")
    until(page, "document.querySelector('#problem').value !== ''")
    tab_to("#policy-details summary")
    page.keyboard.press("Enter")
    tab_to("#max_passes")
    page.keyboard.type("1")
    tab_to("#ask")
    page.keyboard.press("Enter")
    decided(page)
    tab_to(".candidate-more > button")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert page.locator(".candidate-text").first.is_visible()


def test_ctrl_enter_in_the_text_asks(start, backend, open_page, puzzle):
    page = ready(open_page(start(backend)))
    page.get_by_label("Text of the problem").fill(puzzle)
    page.get_by_label("Text of the problem").press("Control+Enter")
    assert "accept" in decided(page)


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1440, False)], ids=["phone-dark", "wide-light"])
def test_nothing_is_nameless_out_of_order_or_too_wide(start, backend, open_page, texts, faults_of, width, dark):
    backend.write = first_wrong({**texts, "wrong": texts["wrong"] + " " + "long" * 60})
    page = open_page(start(backend), width=width, dark=dark)
    ready(page)
    page.locator("#policy-details summary").click()
    page.locator("#curl-details summary").click()
    assert faults_of(page) == []
    ask(page)
    decided(page)
    for toggle in page.locator(".candidate-more > button").all():
        toggle.click()
    assert faults_of(page) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(17, 21, 27)" if dark else "rgb(245, 246, 248)")


def test_the_curl_command_holds_the_request(start, backend, open_page):
    page = ready(open_page(start(backend)))
    page.get_by_label("Text of the problem").fill("it's")
    page.locator("#curl-details summary").click()
    page.locator("#curl", has_text="problem").wait_for()  # it is written a moment after the typing
    words = page.locator("#curl").inner_text()
    assert "/v1/triage" in words
    assert '"problem": "it\'\\\'\'s"' in words


SPANS = """async ([text, answer, messages]) => {
  const { evidenceSpans } = await import('./static/evidence.js');
  return evidenceSpans(text, answer, messages.map((message) => ({ message })))
    .map(({ start, end, violations }) => [text.slice(start, end), violations]);
}"""
DIFF = "async ([a, b]) => (await import('./static/evidence.js')).wordDiff(a, b).map(({ kind, text }) => [kind, text])"


def test_what_counts_as_evidence(start, backend, open_page):
    page = open_page(start(backend))
    plan = '{"dinner": "Cafe Rio", "cost": 1500}'
    for text, answer, messages, expected in [
        (plan, plan, ["'Cafe Rio' is in no list"], [["Cafe Rio", [0]]]),
        (plan, plan, ["dinner is too dear"], [['"dinner": "Cafe Rio"', [0]]]),
        (plan, plan, ["it costs 1500", "1500 is above 1200"], [["1500", [0, 1]]]),
        (plan, plan, ["something else is wrong"], []),
        ("a (b) a", "x", ['it says "(b)"'], [["(b)", [0]]]),
        ("cat concatenates", "x", ['"cat" is there'], [["cat", [0]]]),
        ('knave: {"Ava": "knave"}', '{"Ava": "knave"}', ["Ava is no knave"], [['"Ava": "knave"', [0]]]),
        ("42", "42", ["the answer 42 is not a fraction"], [["42", [0]]]),
        ("", None, ['"x"'], []),
    ]:
        assert page.evaluate(SPANS, [text, answer, messages]) == expected, messages


def test_words_that_changed(start, backend, open_page):
    page = open_page(start(backend))
    assert page.evaluate(DIFF, ["Ava is a knave", "Ava is a knight!"]) == [
        ["same", "Ava is a "],
        ["gone", "knave"],
        ["new", "knight!"],
    ]


def test_it_works_below_a_path_prefix(start, backend, open_page):
    page = open_page(start(backend, prefix="/tools/chooser") + "/tools/chooser/")
    ask(page)
    assert "accept" in decided(page)
    link = page.get_by_role("link", name="Decisions")
    assert link.evaluate("link => new URL(link.href).pathname") == "/tools/chooser/decisions"


def test_the_record_can_be_taken_along(start, backend, open_page):
    page = open_page(start(backend))
    ask(page)
    decided(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the full record").click()
    record = json.loads(download.value.path().read_text())
    assert (record["decision"], len(record["candidates"])) == ("accept", 4)
