"""The pages on a real Ray Serve: served by the ingress, candidates of real replicas, energies of real adapters."""

import pytest
from live_service import KEY

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def open_at(live_service, open_page):
    return lambda path: open_page(live_service.url + path, key=KEY)


def test_a_sample_problem_is_asked_regenerated_and_answered(open_at, eventually):
    page = open_at("/")
    # By evaluation from outside; Playwright's own way is forbidden by the page's security policy.
    assert eventually(lambda: page.evaluate("document.querySelector('#task').options.length > 0"))
    page.locator("#policy-details summary").click()
    page.get_by_label("Named policy").select_option("recorded-only")
    page.get_by_role("button", name="Draw one").click()
    assert eventually(lambda: page.evaluate("document.querySelector('#problem').value !== ''"))
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector("#decision-card.is-accept:not([hidden])")
    assert "Ava" in page.locator("#decision .answer").inner_text()
    assert page.locator(".pass").count() == 2
    assert "mended" in page.locator(".pass").nth(1).inner_text()
    assert page.locator(".candidate").count() == 4
    assert page.locator(".candidate").first.locator(".member").count() == 2


def test_a_decision_is_on_the_decisions_page_when_it_is_written(live_service, open_at, puzzle, eventually):
    answer = live_service.ask(puzzle).json()
    assert answer["decision"] == "accept"

    def is_written():
        rows = live_service.get("/v1/decisions").json()["data"]
        return any(row["request_id"] == answer["request_id"] for row in rows)

    assert eventually(is_written)
    page = open_at("/decisions")
    stored = live_service.get("/v1/decisions").json()["data"]
    record = next(row["record_id"] for row in stored if row["request_id"] == answer["request_id"])
    page.locator(f"#list tbody a[data-record='{record}']").click()
    page.locator(".pass h3", has_text="Pass 2").wait_for()
    assert page.locator(".candidate.is-selected").count() == 1
