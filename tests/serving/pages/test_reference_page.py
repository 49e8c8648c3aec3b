"""The API reference in a real browser: all it shows comes from the service's own OpenAPI document."""

import json
import shlex
from urllib.parse import urlsplit

import httpx
import pytest

from raydebm.serving.access.keys import Keyring
from raydebm.serving.api.application import create_app
from raydebm.serving.api.example_requests import EXAMPLES
from raydebm.serving.core.service import TriageService

pytestmark = pytest.mark.slow


@pytest.fixture
def address(app, listening, free_port):
    with listening(app, free_port) as url:
        yield url


@pytest.fixture
def reference(address, open_page):
    """Opens the page, at one operation if it is given, and waits for it."""

    def of(operation="", **options):
        page = open_page(f"{address}/docs{operation and '#'}{operation}", **options)
        page.locator(".operation").first.wait_for()
        return page

    return of


def operations_of(address):
    paths = httpx.get(f"{address}/openapi.json", timeout=60).json()["paths"]
    return sorted(f"{method.upper()} {path}" for path, operations in paths.items() for method in operations)


def test_every_operation_of_the_document_is_shown_once(address, reference):
    page = reference()
    shown = page.locator(".operation > summary").evaluate_all(
        "all => all.map((one) => `${one.querySelector('.method').textContent} ${one.querySelector('h3').textContent}`)"
    )
    assert sorted(shown) == operations_of(address)
    assert page.locator(".contents-lines a").count() == len(shown)


def test_no_request_goes_to_another_host(chromium, address):
    """Asked of the browser's network and not of the page, with everything opened."""
    page = chromium.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/docs")
    page.locator(".operation").first.wait_for()
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.close()
    assert f"{address}/openapi.json" in asked
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(address).netloc}


def test_an_operation_says_parameters_body_and_answers(reference):
    page = reference("post-v1-triage")
    operation = page.locator("#post-v1-triage")
    assert operation.get_attribute("open") is not None
    assert page.evaluate("document.activeElement.closest('details').id") == "post-v1-triage"
    assert [heading.inner_text() for heading in operation.locator("h4").all()] == [
        "With curl",
        "Parameters in the header",
        "Body",
        "Answers",
    ]
    fields = operation.locator(".field-line", has=page.get_by_text("max_passes", exact=True))
    assert fields.first.inner_text().split("\n")[::2] == [
        "max_passes integer or null",
        "1 to 8",
        "Maximum number of passes; 1 never regenerates.",
    ]
    operation.get_by_text("9 errors").click()
    assert "The API key is missing or wrong." in operation.locator(".errors").inner_text()


def test_a_schema_inside_another_is_built_when_it_is_opened(reference):
    page = reference("post-v1-triage")
    problem = page.locator("#post-v1-triage .schema .schema", has_text="Fields of ProblemBody").first
    assert problem.locator(".field-line").count() == 0
    problem.locator("summary").click()
    assert problem.locator(".field-name").all_inner_texts() == ["prompt", "data", "problem_id", "difficulty"]


def test_the_curl_line_of_the_chosen_example_works_as_it_stands(reference):
    page = reference("post-v1-triage")
    operation = page.locator("#post-v1-triage")
    operation.get_by_label("Example").select_option("with-settings")
    words = shlex.split(operation.locator(".code-block code").inner_text().replace("\\\n", ""))
    assert words[0] == "curl"
    body = words[words.index("-d") + 1]
    assert json.loads(body) == EXAMPLES["triage"]["with settings"]
    reply = httpx.post(words[1], content=body, headers={"Content-Type": "application/json"}, timeout=60)
    assert reply.json()["decision"] == "accept"


def test_the_command_is_copied(reference):
    page = reference("get-health", permissions=["clipboard-read", "clipboard-write"])
    operation = page.locator("#get-health")
    operation.get_by_role("button", name="Copy the command").click()
    operation.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == operation.locator(".code-block").inner_text()
    assert page.locator("#announcer").inner_text() == "Copied"


def test_the_command_is_selected_where_the_browser_gives_no_clipboard(reference):
    page = reference("get-health")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    operation = page.locator("#get-health")
    operation.get_by_role("button", name="Copy the command").click()
    operation.get_by_role("button", name="Selected").wait_for()
    assert page.evaluate("getSelection().toString()") == operation.locator(".code-block").inner_text()


def test_a_keyed_service_shows_the_page_and_curl_lines_with_a_key(bundle, backend, listening, free_port, open_page):
    with listening(create_app(TriageService(bundle, backend), keyring=Keyring([])), free_port) as address:
        page = open_page(f"{address}/docs#get-v1-models")
        keyed = page.locator("#get-v1-models .code-block")
        keyed.wait_for()
        assert '-H "Authorization: Bearer $RAYDEBM_KEY"' in keyed.inner_text()
        assert "Authorization" not in page.locator("#get-health .code-block").text_content()


def test_a_document_that_cannot_be_read_is_said(chromium, address):
    page = chromium.new_page()
    page.route("**/openapi.json", lambda route: route.abort())
    page.goto(f"{address}/docs")
    page.get_by_role("alert").get_by_text("The service could not be reached.").wait_for()
    page.close()


def test_an_operation_is_reached_by_keyboard(reference):
    page = reference(width=1280)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "POST/v1/score":
            break
    page.keyboard.press("Enter")
    page.locator("#post-v1-score[open]").wait_for()
    page.locator("#post-v1-score > summary:focus").wait_for()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_in_the_way_of_keyboard_screen_reader_or_phone(reference, faults_of, width, dark):
    page = reference(width=width, dark=dark, key="x")
    assert faults_of(page) == []
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_timeout(200)
    assert faults_of(page) == []
