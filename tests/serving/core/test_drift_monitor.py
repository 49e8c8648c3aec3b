"""The service compares its generators with their calibration, and says when one has changed."""

import json
import re
from pathlib import Path

import pytest

from raydebm.decision.guarantee.drift import GeneratorReference
from raydebm.decision.guarantee.drift_monitor import DriftMonitor
from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir
from raydebm.serving.api.application import create_app
from raydebm.serving.api.operations.live import LiveMeter
from raydebm.serving.api.outcomes.assembly import drift_monitor
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.serving.settings.gateway import load_gateway
from raydebm.serving.spending.candidate_store import CandidateStore

ANSWERS_ALWAYS = {name: {"missing": [0.0] * 50} for name in ("ada", "bo")}
NAMES = ("Ava", "Zoey", "Mia", "Liam", "Noah", "Emma", "Jack", "Lily")


def puzzle_of(number):
    """A text that the task reads; each number below 56 has other people."""
    one, other = NAMES[number % 8], NAMES[(number // 8 + number + 1) % 8]
    return (
        "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves "
        f'always lie. You meet 2 inhabitants: {one}, and {other}. {one} said, "{other} is a knave if and only if '
        f'{other} is a knight." "{one} is a knave," {other} mentioned. So who is a knight and who is a knave?'
    )


def right(request):
    one, other = re.findall(r"You meet 2 inhabitants: (\w+), and (\w+)\.", request.messages[-1]["content"])[-1]
    return json.dumps({one: "knave", other: "knight"})


@pytest.fixture
def watched(write_run):
    run_dir = write_run()
    RunDir(run_dir).write_json(ANSWERS_ALWAYS, "calibration", "generators.json")
    return lambda **args: load_bundle(AppArgs(run_dir=run_dir, **args))


class Told(LiveMeter):
    """Keeps how many bets each decision moved."""

    def __init__(self):
        super().__init__()
        self.moved = []

    def compared(self, states):
        super().compared(states)
        self.moved.append(len(states))


@pytest.fixture
def meter():
    return Told()


@pytest.fixture
def client(watched, backend, meter, client_of):
    bundle = watched(reuse_s=60)
    service = TriageService(
        bundle, backend, meter=meter, drift=drift_monitor(bundle, meter), candidate_store=CandidateStore(":memory:")
    )
    return client_of(create_app(service, live=meter))


def test_a_generator_that_stops_answering_is_named_in_health_and_live_figures(client, script, texts):
    script(lambda request: texts["unreadable"] if request.generator == "bo" else right(request))
    for number in range(40):
        assert client.post("/v1/triage", {"problem": puzzle_of(number)}).status_code == 200

    (warning,) = client.get("/health").json()["warnings"]
    assert warning.startswith("generator 'bo' no longer writes as it did when the run was calibrated: the share of its")
    by_name = {each["generator"]: each for each in client.get("/v1/live").json()["drift"]}
    assert (by_name["bo"]["figure"], by_name["bo"]["mean"], by_name["bo"]["reference_mean"]) == ("missing", 1.0, 0.0)
    assert by_name["bo"]["alarmed_at"] <= 40
    assert by_name["ada"]["alarmed_at"] is None


def test_without_a_change_nothing_is_said(client, script):
    script(right)
    for number in range(10):
        client.post("/v1/triage", {"problem": puzzle_of(number)})
    assert client.get("/health").json()["warnings"] == []


def test_a_problem_counts_once(client, meter):
    for _ in range(3):
        client.post("/v1/triage", {"problem": puzzle_of(0), "fresh": True})
    assert meter.moved == [2]


OTHER_SAMPLING = ({"num_samples": 1}, {"generators": ["ada"]}, {"waves": [1]}, {"budget": 2})


@pytest.mark.parametrize("body", OTHER_SAMPLING, ids=lambda body: next(iter(body)))
def test_requests_that_sample_otherwise_do_not_count(client, meter, body):
    assert client.post("/v1/triage", {"problem": puzzle_of(0), **body}).status_code == 200
    assert meter.moved == []


def test_decisions_of_a_further_run_do_not_count(two_runs, backend, meter, client_of):
    args = two_runs()
    RunDir(args.run_dir).write_json(ANSWERS_ALWAYS, "calibration", "generators.json")
    bundle = load_gateway(args)
    service = TriageService(bundle, backend, meter=meter, drift=drift_monitor(bundle, meter))
    client = client_of(create_app(service, live=meter))
    client.post(
        "/v1/triage", {"problem": "Ida buys 9 eggs and gives 2 to Ben. How many eggs are left?", "task": "gsm8k"}
    )
    assert meter.moved == []
    client.post("/v1/triage", {"problem": puzzle_of(0), "task": "knights_knaves"})
    assert meter.moved == [2]


def test_reused_candidates_do_not_count_again(client, meter):
    client.post("/v1/triage", {"problem": puzzle_of(0), "num_samples": 1})
    client.post("/v1/triage", {"problem": puzzle_of(0)})
    assert meter.moved == []


def test_watching_costs_no_answer(watched, backend, puzzle, client_of):
    class Broken(DriftMonitor):
        def _is_new(self, problem):
            raise RuntimeError("broken")

    bundle = watched()
    drift = Broken(bundle.reference, delta=0.05)
    reply = client_of(create_app(TriageService(bundle, backend, drift=drift))).post("/v1/triage", {"problem": puzzle})
    assert reply.json()["decision"] == "accept"


def test_a_run_without_a_reference_is_not_watched(bundle, meter):
    assert (bundle.reference, drift_monitor(bundle, meter)) == (None, None)


def test_watching_can_be_turned_off(watched, meter):
    bundle = watched(watch={"drift_delta": None})
    assert bundle.reference == GeneratorReference({n: {"missing": (0.0,) * 50} for n in ("ada", "bo")})
    assert drift_monitor(bundle, meter) is None


def test_a_torn_reference_ends_the_start(write_run):
    run_dir = write_run()
    (Path(run_dir) / "calibration" / "generators.json").write_text(json.dumps(ANSWERS_ALWAYS)[:-3])
    with pytest.raises(ConfigError, match=r"generators\.json is not JSON"):
        load_bundle(AppArgs(run_dir=run_dir))
