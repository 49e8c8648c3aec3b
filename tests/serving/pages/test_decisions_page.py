"""The decisions page in a real browser, over decisions that the service itself made and stored."""

import socket
from types import SimpleNamespace

import httpx
import pytest

from raydebm.decisions.reader import DecisionReader
from raydebm.decisions.writer import DecisionWriter, RecordsArgs
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.tasks import get_task

pytestmark = pytest.mark.slow

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
NUM_PLAIN = 20
"""Accepted at once; with the others more than a page of 20."""


@pytest.fixture
def service(write_run, backend, script, texts, energies, puzzle, listening, tmp_path):
    """A served run with stored decisions: accepted at once, after a second pass, and two kinds of abstentions."""
    bundle = load_bundle(AppArgs(run_dir=write_run()))
    writer = DecisionWriter(bundle.records.folder, RecordsArgs(flush_s=3600))
    app = create_app(TriageService(bundle, backend, records=writer))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = dict(get_task("knights_knaves").problem_from_text(puzzle).data)

    def ask(problem, write, members):
        script(write, lambda text: members)
        body = {"problem": {"prompt": problem, "data": data}, "task": "knights_knaves"}
        reply = httpx.post(f"{address}/v1/triage", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        return reply.json()

    with listening(app, port) as address:
        for index in range(NUM_PLAIN):
            ask(f"Plain number {index}. {puzzle}", lambda request: texts["right"], energies["sure"])
        second = ask(
            f"Second thoughts. {puzzle}",
            lambda request: texts["wrong" if request.pass_index == 1 else "right"],
            energies["sure"],
        )
        unsure = ask(f"Doubtful. {puzzle}", lambda request: f"{HOSTILE} {texts['right']}", energies["unsure"])
        nothing = ask(f"{HOSTILE} {puzzle}", lambda request: texts["unreadable"], energies["sure"])
        assert [answer["decision"] for answer in (second, unsure, nothing)] == ["accept", "abstain", "abstain"]
        writer.flush()
        reader = DecisionReader(bundle.records.folder)
        ids = {row["request_id"]: row["record_id"] for row in reader.page(limit=200).rows}
        yield SimpleNamespace(
            url=f"{address}/decisions",
            second=ids[second["request_id"]],
            unsure=ids[unsure["request_id"]],
            nothing=ids[nothing["request_id"]],
            total=NUM_PLAIN + 3,
        )
    writer.close()


def lines(page):
    return page.locator("#list tbody tr")


def wait_for_focus(page, selector):
    page.locator(f"{selector}:focus").wait_for()


def wait_for_count(page, words):
    page.locator("#list-count", has_text=words).wait_for()


def test_list_filter_sort_and_pages(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"1 to {service.total} of {service.total}")
    page.get_by_label("Lines").select_option("20")
    wait_for_count(page, f"1 to 20 of {service.total}")
    assert lines(page).count() == 20
    page.get_by_role("button", name="Next").click()
    wait_for_count(page, f"21 to {service.total} of {service.total}")
    assert lines(page).count() == service.total - 20

    page.get_by_label("Words in the problem").fill("doubtful")
    page.keyboard.press("Enter")
    wait_for_count(page, "1 to 1 of 1")
    assert "text=doubtful" in page.url
    assert lines(page).first.locator(".badge").inner_text().split() == ["■", "abstain"]

    page.get_by_role("button", name="Clear the filter").click()
    page.get_by_label("Decision", exact=True).select_option("abstain")
    wait_for_count(page, "1 to 2 of 2")

    page.get_by_role("button", name="Clear the filter").click()
    wait_for_count(page, f"of {service.total}")
    page.get_by_role("button", name="Sigma").click()
    page.locator("th[aria-sort=descending]", has_text="Sigma").wait_for()
    assert "Doubtful" in lines(page).first.inner_text()

    page.go_back()
    wait_for_count(page, "1 to 2 of 2")
    page.reload()
    wait_for_count(page, "1 to 2 of 2")
    assert page.get_by_label("Decision", exact=True).input_value() == "abstain"


def test_the_overview_counts_and_has_tables(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"of {service.total}")
    tiles = page.locator("#overview-tiles").inner_text()
    assert f"{service.total}" in tiles
    assert "2 abstained" in tiles
    chart = page.locator("figure", has_text="Sigma of the selected candidate")
    assert (
        chart.locator("svg[role=img]").get_attribute("aria-label").startswith(f"{NUM_PLAIN + 1} accepted, 1 abstained")
    )
    chart.locator("summary").click()
    assert chart.locator("tbody tr").count() == 2


def test_a_decision_opens_with_everything_and_hostile_text_is_text(service, open_page):
    page = open_page(service.url)
    link = page.get_by_role("link", name="Doubtful")
    link.click()
    page.get_by_role("heading", name="One decision").wait_for()
    wait_for_focus(page, "#heading")
    page.locator(".candidate").first.wait_for()
    assert page.locator(".candidate").count() == 6
    assert "sigma 2.000" in page.locator("article dl").first.inner_text()
    page.locator(".candidate-more button").first.click()
    assert HOSTILE in page.locator(".candidate-text").first.inner_text()
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "One decision · raydebm"

    page.get_by_role("link", name="Back to the list").click()
    wait_for_count(page, f"of {service.total}")
    wait_for_focus(page, f"a[data-record='{service.unsure}']")


def test_a_decision_shows_its_passes_and_feedback(service, open_page):
    page = open_page(f"{service.url}?id={service.second}")
    page.locator(".pass h3", has_text="Pass 2").wait_for()
    assert page.locator(".pass").count() == 2
    assert "What pass 2 was told" in page.locator(".pass").first.inner_text()


def test_a_decision_without_any_answer_opens(service, open_page):
    page = open_page(f"{service.url}?id={service.nothing}")
    page.get_by_text("nothing could be selected").wait_for()
    assert HOSTILE in page.locator("article h2").first.inner_text()


def test_other_thresholds_on_an_open_decision(service, open_page):
    """Sigma 2 is not above 2.5; theta_sigma 9 is."""
    page = open_page(f"{service.url}?id={service.unsure}", expected=["400"])
    page.locator(".candidate").first.wait_for()
    page.get_by_label("theta_abstain").fill("2.5")
    again = page.locator(".again", has_text="This decision changes.")
    again.wait_for()
    assert "accept" in again.inner_text()
    page.get_by_label("theta_sigma").fill("9")
    page.locator("#again-error", has_text="theta_sigma must be below theta_abstain").wait_for()


def test_two_decisions_side_by_side(service, open_page):
    page = open_page(service.url)
    page.get_by_label("Compare: Doubtful").check()
    page.get_by_label("Compare: Second").check()
    page.get_by_role("button", name="Compare two").click()
    page.get_by_role("heading", name="Two decisions").wait_for()
    page.locator("article").nth(1).wait_for()
    assert page.locator("article").count() == 2
    differing = page.locator(".comparison tr.differs").all_inner_texts()
    assert any(row.startswith("Decision") and "abstain" in row and "accept" in row for row in differing)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))


def test_a_comparison_fits_a_phone_in_both_columns(service, open_page):
    page = open_page(f"{service.url}?id={service.second}&id={service.unsure}", width=360, dark=True)
    page.locator(".comparison").wait_for()
    beyond = "document.querySelector('.comparison').parentElement"
    assert page.evaluate(f"{beyond}.scrollWidth - {beyond}.clientWidth") == 0


def test_a_title_says_where_it_is_cut(service, open_page):
    """It keeps 120 characters: "Doubtful. " and 110 of the puzzle."""
    page = open_page(f"{service.url}?id={service.unsure}")
    assert page.locator("article h2").first.inner_text().endswith("knaves alway…")


def test_replay_says_what_changes(service, open_page):
    """With theta_abstain 2.5 the doubtful one is accepted: one of all."""
    page = open_page(service.url)
    wait_for_count(page, f"of {service.total}")
    page.get_by_role("heading", name="Replay under other settings").click()
    page.get_by_label("theta_abstain").fill("2.5")
    page.get_by_role("button", name=f"Replay {service.total} decisions").click()
    headline = page.locator(".replay-headline")
    page.locator("#replay-result", has_text="Replayed").wait_for()
    assert headline.inner_text().startswith(f"1 of {service.total} change")
    assert "Doubtful" in page.locator(".changed-list").inner_text()
    page.locator(".changed-list a").click()
    page.locator(".again", has_text="This decision changes.").wait_for()


def test_replay_without_the_recorded_waves(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"of {service.total}")
    page.get_by_role("heading", name="Replay under other settings").click()
    page.get_by_label("waves").fill("none")
    page.locator("#replay-start").click()
    page.locator("#replay-result", has_text="Replayed").wait_for()
    assert page.locator(".replay-headline").inner_text().startswith(f"0 of {service.total} change")


def test_replay_tells_mistakes_in_words(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"of {service.total}")
    page.get_by_role("heading", name="Replay under other settings").click()
    page.get_by_label("theta_sigma").fill("9")
    page.locator("#replay-start").click()
    page.locator("#replay-error", has_text="theta_sigma must be below theta_abstain").wait_for()


def test_all_by_keyboard(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"of {service.total}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "filter-text"
    page.keyboard.type("second thoughts")
    page.keyboard.press("Enter")
    wait_for_count(page, "1 to 1 of 1")
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.record") == service.second:
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="One decision").wait_for()
    wait_for_focus(page, "#heading")


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("view", ["list", "one", "two"])
def test_nothing_is_in_the_way_of_keyboard_screen_reader_or_phone(service, open_page, faults_of, view, width):
    query = {"list": "", "one": f"?id={service.second}", "two": f"?id={service.second}&id={service.unsure}"}[view]
    page = open_page(service.url + query, width=width)
    if view == "list":
        wait_for_count(page, f"of {service.total}")
        page.get_by_role("heading", name="Replay under other settings").click()
        page.locator("#more-filters summary").click()
    else:
        page.locator(".candidate").first.wait_for()
    assert faults_of(page) == []
