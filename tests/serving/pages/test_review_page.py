"""The review queue in a real browser, over decisions that the service itself made and stored."""

from types import SimpleNamespace

import httpx
import pytest

from raydebm.decisions.outcomes.log import OutcomeLog
from raydebm.decisions.writer import DecisionWriter, RecordsArgs
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.tasks import get_task

pytestmark = pytest.mark.slow

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
RIGHT_ANSWER = '{"Ava": "knave", "Zoey": "knight"}'
NUM_REFUSED = 12
"""More than a page of ten, with two that have a candidate of their own kind."""


@pytest.fixture
def service(write_run, backend, script, texts, energies, puzzle, listening, new_port):
    """One accepted answer; refused: ten plain ones, one without any answer, the newest wrong and hostile."""
    bundle = load_bundle(AppArgs(run_dir=write_run()))
    writer = DecisionWriter(bundle.records.folder, RecordsArgs(flush_s=3600))
    data = dict(get_task("knights_knaves").problem_from_text(puzzle).data)

    def ask(problem, write, members):
        script(write, lambda text: members)
        body = {"problem": {"prompt": problem, "data": data}, "task": "knights_knaves"}
        reply = httpx.post(f"{address}/v1/triage", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        return reply.json()

    with listening(create_app(TriageService(bundle, backend, records=writer)), new_port()) as address:
        ask(f"Sure. {puzzle}", lambda request: texts["right"], energies["sure"])
        for index in range(NUM_REFUSED - 2):
            ask(f"Plain number {index}. {puzzle}", lambda request: texts["right"], energies["unsure"])
        ask(f"Unreadable. {puzzle}", lambda request: texts["unreadable"], energies["sure"])
        last = ask(f"{HOSTILE} {puzzle}", lambda request: f"{HOSTILE} {texts['wrong']}", energies["unsure"])
        assert last["decision"] == "abstain"
        writer.flush()

        def refuse_more(count):
            for index in range(count):
                ask(f"Later number {index}. {puzzle}", lambda request: texts["right"], energies["unsure"])
            writer.flush()

        yield SimpleNamespace(
            url=f"{address}/review",
            last=last["record_id"],
            log=OutcomeLog(bundle.records.folder),
            address=address,
            refuse_more=refuse_more,
        )
    writer.close()


def cards(page):
    return page.locator("#queue > li")


def wait_for_count(page, words):
    page.locator("#count", has_text=words).wait_for()


def test_abstentions_come_newest_first_and_hostile_text_is_text(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"{NUM_REFUSED} abstentions without an outcome")
    assert cards(page).count() == 10
    assert HOSTILE in cards(page).first.inner_text()
    assert cards(page).nth(1).locator("h2").inner_text().startswith("Unreadable.")
    assert "Sure." not in page.locator("#queue").inner_text()
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("button", name="Show older ones").click()
    page.locator("#queue > li").nth(NUM_REFUSED - 1).wait_for()
    assert page.locator("#older").is_hidden()


def test_older_ones_are_shown_however_many_have_come_meanwhile(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"{NUM_REFUSED} abstentions")
    service.refuse_more(10)  # a whole page, newer than all that is shown
    page.get_by_role("button", name="Show older ones").click()
    page.locator("#queue > li").nth(NUM_REFUSED - 1).wait_for(timeout=10_000)

    assert "Plain number 0." in cards(page).last.inner_text()
    assert page.locator("#older").is_hidden()
    assert f"{NUM_REFUSED} abstentions" in page.locator("#count").inner_text()


def test_a_judgement_is_stored_with_name_and_answer_and_the_next_one_is_focused(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"{NUM_REFUSED} abstentions")
    page.get_by_label("Your name").fill("ada")
    card = cards(page).first
    card.get_by_label("Correct answer, if you know it").fill(RIGHT_ANSWER)
    card.get_by_role("button", name="Wrong").click()
    card.locator(".badge", has_text="wrong").wait_for()
    page.locator("#queue > li:nth-child(2) h2:focus").wait_for()
    (report,) = service.log.history(service.last)
    assert (report.correct, report.by, report.answer, report.decision) == (False, "ada", RIGHT_ANSWER, "abstain")

    card.get_by_role("button", name="Change").click()
    card.get_by_label("Correct answer, if you know it").fill("")
    card.get_by_role("button", name="Right").click()
    card.locator(".badge", has_text="right").wait_for()
    assert [report.correct for report in service.log.history(service.last)] == [False, True]

    page.get_by_role("button", name="Refresh").click()
    wait_for_count(page, f"{NUM_REFUSED - 1} abstentions")
    assert page.get_by_label("Your name").input_value() == "ada"


def test_without_a_name_nothing_is_sent(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"{NUM_REFUSED} abstentions")
    cards(page).first.get_by_role("button", name="Right").click()
    assert page.evaluate("document.activeElement.id") == "by"
    assert list(service.log.reports()) == []


def test_where_nothing_was_selected_nothing_can_be_right(service, open_page):
    page = open_page(service.url)
    wait_for_count(page, f"{NUM_REFUSED} abstentions")
    card = cards(page).nth(1)
    assert "Nothing could be selected" in card.inner_text()
    assert card.get_by_role("button", name="Right:").count() == 0
    page.get_by_label("Your name").fill("ada")
    card.get_by_role("button", name="None was right").click()
    card.locator(".badge", has_text="wrong").wait_for()


def test_what_the_service_refuses_is_told_in_words(service, open_page):
    page = open_page(service.url, expected=["422"])
    wait_for_count(page, f"{NUM_REFUSED} abstentions")
    page.get_by_label("Your name").fill("ada")
    card = cards(page).first
    card.get_by_label("Correct answer, if you know it").fill("I do not know")
    card.get_by_role("button", name="Wrong").click()
    card.locator(".notice-error", has_text="finds no answer in `answer`").wait_for()
    assert card.get_by_role("button", name="Wrong").is_enabled()


def test_a_decision_shows_its_outcomes_and_lists_are_filtered_by_them(service, open_page):
    body = {"correct": False, "by": HOSTILE[:90], "note": "looked it up"}
    path = f"{service.address}/v1/decisions/{service.last}/outcome"
    assert httpx.post(path, json=body, timeout=60).status_code == 200
    page = open_page(f"{service.address}/decisions?id={service.last}")
    section = page.locator("section", has_text="Outcomes, the newest first").last
    section.wait_for()
    assert "looked it up" in section.inner_text()
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("link", name="Back to the list").click()
    page.get_by_label("Outcome", exact=True).select_option("wrong")
    page.locator("#list-count", has_text="1 to 1 of 1").wait_for()
    assert "outcome=wrong" in page.url
    assert page.locator("#list tbody .badge", has_text="wrong").count() == 1


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_in_the_way_of_keyboard_screen_reader_or_phone(service, open_page, faults_of, width):
    page = open_page(service.url, width=width)
    wait_for_count(page, f"{NUM_REFUSED} abstentions")
    page.get_by_label("Your name").fill("ada")
    cards(page).first.get_by_role("button", name="Right").click()
    cards(page).first.locator(".badge", has_text="right").wait_for()
    assert faults_of(page) == []
