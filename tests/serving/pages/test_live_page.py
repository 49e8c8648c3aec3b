"""The live page in a real browser, on a server in this process."""

import re

import httpx
import pytest

from raydebm.serving.api.application import create_app
from raydebm.serving.api.operations.live import LiveMeter
from raydebm.serving.core.service import TriageService

pytestmark = pytest.mark.slow


@pytest.fixture
def address(bundle, backend, listening, free_port):
    """A service that remembers what it did."""
    meter = LiveMeter()
    with listening(create_app(TriageService(bundle, backend, meter=meter), live=meter), free_port) as url:
        yield url


def ask(address, problem):
    return httpx.post(f"{address}/v1/triage", json={"problem": problem}, timeout=60)


def tile(page, name):
    return page.locator("#tiles .tile", has=page.get_by_text(name, exact=True))


def test_figures_appear_and_are_read_again(address, open_page, puzzle, script, energies):
    """An accepted one, then one that abstains (sigma 2), then one that is no problem: 422."""
    assert ask(address, puzzle).status_code == 200
    page = open_page(f"{address}/live")
    tile(page, "Decisions").get_by_text("1", exact=True).wait_for()
    assert "100.0 %" in tile(page, "Accepted").inner_text()

    script(energies=lambda text: energies["unsure"])
    assert ask(address, puzzle).status_code == 200
    assert ask(address, "x").status_code == 422
    tile(page, "Decisions").get_by_text("2", exact=True).wait_for()
    assert "50.0 %" in tile(page, "Accepted").inner_text()
    page.locator("#routes tr", has_text="/v1/triage").get_by_text("200: 2, 422: 1").wait_for()
    assert page.locator("#stages tbody tr").count() == 4
    assert [row.split()[0] for row in page.locator("#generators tbody tr").all_inner_texts()] == ["ada", "bo"]
    chart = page.locator("figure", has_text="Sigma")
    assert "1 accepted, 1 abstained." in chart.locator("svg[role=img]").get_attribute("aria-label")


def test_a_table_stays_open_and_pause_stops_reading(address, open_page, puzzle):
    ask(address, puzzle)
    page = open_page(f"{address}/live")
    tile(page, "Decisions").get_by_text("1", exact=True).wait_for()
    page.locator("figure", has_text="Energy").locator("summary").click()
    ask(address, puzzle)
    tile(page, "Decisions").get_by_text("2", exact=True).wait_for()
    assert page.locator("figure", has_text="Energy").locator("details").get_attribute("open") is not None

    page.get_by_role("button", name="Pause").click()
    button = page.get_by_role("button", name="Go on")
    assert button.get_attribute("aria-pressed") == "true"
    ask(address, puzzle)
    assert tile(page, "Decisions").locator("dd").inner_text() == "2"
    button.click()
    tile(page, "Decisions").get_by_text("3", exact=True).wait_for()


def test_the_window_can_be_chosen(address, open_page):
    page = open_page(f"{address}/live")
    page.locator("#tiles .tile").first.wait_for()
    with page.expect_response(re.compile(r"/v1/live\?window_s=3600")):
        page.get_by_label("The last").select_option("3600")


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_in_the_way_of_keyboard_screen_reader_or_phone(address, open_page, faults_of, puzzle, width):
    ask(address, puzzle)
    page = open_page(f"{address}/live", width=width)
    page.locator("#routes tbody code").first.wait_for()
    assert faults_of(page) == []
    assert page.locator(".table-scroll:not([tabindex='0'])").count() == 0


def test_figures_of_replicas_are_added_up(address, open_page):
    """The module that does it, with two replicas' figures: their bins, bars and generators."""
    page = open_page(f"{address}/live")
    one = {
        "running": 1,
        "waiting": 0,
        "bins": [{"at": 100, "requests": 2, "running": 1}],
        "routes": [{"route": "/a", "statuses": {"200": 2}, "milliseconds": {"counts": {"40": 2}}}],
        "stages": [{"stage": "total", "milliseconds": {"counts": {"40": 1}}}],
        "generators": [{"generator": "g", "written": 1, "cost_usd": 0.5}],
        "sigma_accept": {"width": 0.02, "counts": {"0": 1}},
        "sigma_abstain": {"width": 0.02, "counts": {"99": 1}},
        "energy_accept": {"width": 0.1, "counts": {"-5": 1}},
        "energy_abstain": {"width": 0.1, "counts": {}},
        "passes": {"1": 1},
        "violations": {},
        "writer": {"written": 1, "dropped": 0, "waiting": 0, "last_error": None},
    }
    figures = page.evaluate(
        """async (one) => {
          const { addUp, histogram, percentile } = await import("./static/live_figures.js");
          const total = addUp([one, one]);
          const route = total.routes.get("/a").counts;
          return { running: total.running, bin: total.bins.get(100), route: Object.fromEntries(route),
            cost: total.generators.get("g").cost_usd, written: total.writer.written,
            sigma: histogram(total.sigma), median: percentile(route, 0.5), none: percentile(new Map(), 0.5) };
        }""",
        one,
    )
    assert (figures["running"], figures["bin"]) == (2, {"at": 100, "requests": 4, "running": 2})
    assert (figures["route"], figures["cost"], figures["written"]) == ({"40": 4}, 1.0, 2)
    assert figures["median"] == pytest.approx(10 ** (40.5 / 20))
    assert figures["none"] is None
    bars = figures["sigma"]
    assert (sum(bars["accept"]), sum(bars["abstain"])) == (2, 2)
    assert len(bars["accept"]) <= 30
    assert (bars["edges"][0], bars["edges"][-1]) == (0, 2)


def test_a_duration_is_rounded_before_it_is_split(address, open_page):
    """119.6 s are 2 minutes, not 1 minute and 60 seconds; so are 999.6 ms a second."""
    page = open_page(f"{address}/live")
    words = page.evaluate(
        """async (values) => {
          const { duration } = await import("./static/base.js");
          return values.map(duration);
        }""",
        [999.4, 999.6, 9_994, 9_996, 59_940, 59_960, 119_400, 119_600, None],
    )
    assert words == ["999 ms", "1.00 s", "9.99 s", "10.0 s", "59.9 s", "1 min 0 s", "1 min 59 s", "2 min 0 s", "\u2013"]
