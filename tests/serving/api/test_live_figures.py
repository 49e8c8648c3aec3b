"""`/v1/live`: what one ingress replica saw lately, kept in memory and small enough to be read every few seconds."""

import pytest

from raydebm.decisions.writer import DecisionWriter, RecordsArgs
from raydebm.records import Candidate
from raydebm.serving.api.application import create_app
from raydebm.serving.api.operations.live import LiveMeter, duration_bar, even_bar, percentile_ms
from raydebm.serving.core.service import TriageService

NOON = 1_780_000_000.0
"""A multiple of 10, so that a bin begins there."""


class Clock:
    now = NOON

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def meter(clock):
    return LiveMeter(clock=clock)


class Other:
    """A meter that keeps the names of its calls."""

    def __init__(self):
        self.calls = []

    def answered(self, **facts):
        self.calls.append("answered")

    def load(self, **facts):
        self.calls.append("load")

    def decided(self, answer):
        self.calls.append("decided")

    def drawn(self, candidates, comparisons=()):
        self.calls.append("drawn")


class Answer:
    """As much of a ``TriageResult`` as a meter looks at."""

    task, decision, num_passes, sigma, energy, latency_ms = "t", "accept", 2, 0.5, -2.0, 150.0
    stages_ms = {"generate": 100.0, "score": 20.0}  # noqa: RUF012
    violations = ()


def drawn(generator="ada", *, failed=False, cost=0.25):
    return Candidate(
        candidate_id="c",
        task="t",
        problem_id="p",
        generator=generator,
        text=None if failed else "...",
        prompt_tokens=10,
        completion_tokens=5,
        cost_usd=None if failed else cost,
    )


def test_everything_is_handed_on():
    other = Other()
    meter = LiveMeter(other)
    meter.load(num_running=1, num_waiting=0)
    meter.answered(route="/v1/live", status=200, seconds=0.1)
    meter.drawn([])
    meter.decided(Answer())
    assert other.calls == ["load", "answered", "drawn", "decided"]


def test_requests_are_counted_by_route_status_and_bin(meter, clock):
    meter.answered(route="/a", status=200, seconds=0.1)
    meter.answered(route="/a", status=429, seconds=0.1)
    clock.now += 9.9
    meter.answered(route="/a", status=499, seconds=0.1)
    clock.now += 0.2
    meter.answered(route="/b", status=503, seconds=0.1)
    figures = meter.figures(900)
    assert [(route.route, route.statuses) for route in figures.routes] == [
        ("/a", {"200": 1, "429": 1, "499": 1}),
        ("/b", {"503": 1}),
    ]
    assert [(each.at, each.requests, each.refused, each.server_errors) for each in figures.bins] == [
        (NOON, 3, 1, 0),
        (NOON + 10, 1, 0, 1),
    ]


def test_watching_does_not_change_what_is_watched(meter):
    meter.answered(route="/v1/live", status=200, seconds=0.1)
    assert meter.figures(900).routes == []


def test_decisions_are_counted_with_their_numbers(meter):
    meter.drawn([drawn(), drawn(failed=True), drawn("bo")])
    meter.decided(Answer())
    figures = meter.figures(900)
    (only,) = figures.bins
    assert (only.accepted, only.abstained, only.prompt_tokens, only.completion_tokens, only.cost_usd) == (
        1,
        0,
        30,
        15,
        0.5,
    )
    assert (figures.sigma_accept.counts, figures.sigma_abstain.counts) == ({25: 1}, {})
    assert (figures.energy_accept.width, figures.energy_accept.counts) == (0.1, {-20: 1})
    assert figures.passes == {"2": 1}
    assert {stage.stage: stage.requests for stage in figures.stages} == {"generate": 1, "score": 1, "total": 1}
    assert [(each.generator, each.written, each.failed, each.cost_usd) for each in figures.generators] == [
        ("ada", 1, 1, 0.25),
        ("bo", 1, 0, 0.25),
    ]


def test_load_is_the_most_of_a_bin_and_what_is_now(meter):
    for running in (1, 3, 2):
        meter.load(num_running=running, num_waiting=running - 1)
    figures = meter.figures(900)
    assert (figures.running, figures.waiting) == (2, 1)
    assert [(each.running, each.waiting) for each in figures.bins] == [(3, 2)]


def test_what_is_older_than_the_window_is_left_out(meter, clock):
    meter.answered(route="/a", status=200, seconds=0.1)
    clock.now += 120
    meter.answered(route="/a", status=200, seconds=0.1)
    assert sum(each.requests for each in meter.figures(60).bins) == 1
    assert sum(each.requests for each in meter.figures(300).bins) == 2


def test_an_hour_is_kept_and_no_more(meter, clock):
    for _ in range(1000):
        meter.answered(route="/a", status=200, seconds=0.1)
        clock.now += 10
    assert len(meter.figures(10**6).bins) == 360


def test_a_clock_that_is_set_back_loses_nothing(meter, clock):
    meter.answered(route="/a", status=200, seconds=0.1)
    clock.now -= 500
    meter.answered(route="/a", status=200, seconds=0.1)
    assert sum(each.requests for each in meter.figures(900).bins) == 2


@pytest.mark.parametrize(("milliseconds", "bar"), [(1.0, 0), (1.11, 0), (1.13, 1), (10.0, 20), (999.0, 59), (0.0, -60)])
def test_durations_lie_in_bars_of_a_twentieth_of_a_decade(milliseconds, bar):
    assert duration_bar(milliseconds) == bar


@pytest.mark.parametrize(("value", "bar"), [(0.0, 0), (0.05, 0), (-0.05, -1), (0.31, 3), (1e9, 2000), (-1e9, -2000)])
def test_values_lie_in_even_bars(value, bar):
    assert even_bar(value, 0.1) == bar


def test_percentiles_are_near():
    counts = {duration_bar(float(value)): 0 for value in range(1, 1001)}
    for value in range(1, 1001):
        counts[duration_bar(float(value))] += 1
    assert percentile_ms(counts, 0.5) == pytest.approx(500, rel=0.07)
    assert percentile_ms(counts, 0.95) == pytest.approx(950, rel=0.07)
    assert percentile_ms({}, 0.5) is None


@pytest.fixture
def watched(bundle, backend, client, tmp_path):
    """A client of a service that remembers what it did."""
    meter = LiveMeter()
    writer = DecisionWriter(str(tmp_path / "kept"), RecordsArgs(flush_s=3600))
    service = TriageService(bundle, backend, meter=meter, records=writer)
    yield type(client)(create_app(service, live=meter))
    writer.close()


def test_the_route_tells_what_the_service_did(watched, puzzle):
    watched.post("/v1/triage", {"problem": puzzle})
    watched.post("/v1/triage", {"problem": "x"})
    figures = watched.get("/v1/live").json()
    assert {each["route"]: each["statuses"] for each in figures["routes"]} == {"/v1/triage": {"200": 1, "422": 1}}
    assert sum(each["accepted"] for each in figures["bins"]) == 1
    assert [(each["generator"], each["written"]) for each in figures["generators"]] == [("ada", 2), ("bo", 2)]
    assert figures["writer"] == {"written": 0, "dropped": 0, "waiting": 1, "last_error": None}
    assert figures["window_s"] == 900


def test_storages_last_error_shows_no_credentials(bundle, backend, client, tmp_path):
    meter, writer = LiveMeter(), DecisionWriter(str(tmp_path / "kept"), RecordsArgs(flush_s=3600))
    writer.last_error = "Access denied to s3://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/records?secret_key=abcdef123456"
    shown = type(client)(create_app(TriageService(bundle, backend, meter=meter, records=writer), live=meter))
    words = shown.get("/v1/live").json()["writer"]["last_error"]
    writer.close()
    assert words.startswith("Access denied to s3://")
    assert "wJalrXUtnFEMI" not in words
    assert "abcdef123456" not in words


@pytest.mark.parametrize("window", ["0", "59", "3601", "x", "1e9"])
def test_a_window_is_a_minute_to_an_hour(watched, window):
    assert watched.get(f"/v1/live?window_s={window}").status_code == 400


def test_a_service_that_remembers_nothing_says_so(client):
    reply = client.get("/v1/live")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "no_figures")
