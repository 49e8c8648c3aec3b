"""The service compares its generators with their calibration, and says when one has changed."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from two_runs import LIKE_THEM, QUESTIONS

from raydebm.decision.guarantee.drift import GeneratorReference
from raydebm.decision.guarantee.drift_monitor import DriftMonitor
from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir
from raydebm.serving.api.application import create_app
from raydebm.serving.api.operations.live import LiveMeter
from raydebm.serving.api.outcomes.assembly import drift_monitors
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.serving.settings.gateway import load_gateway

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
    """Keeps how many bets of which task each decision moved."""

    def __init__(self):
        super().__init__()
        self.moved = []

    def compared(self, task, states):
        super().compared(task, states)
        self.moved.append((task, len(states)))


@pytest.fixture
def meter():
    return Told()


@pytest.fixture
def client(watched, backend, meter, client_of):
    bundle = watched()
    service = TriageService(bundle, backend, meter=meter, drift=drift_monitors(bundle, meter))
    return client_of(create_app(service, live=meter))


def test_a_generator_that_stops_answering_is_named_in_health_and_live_figures(client, script, texts):
    script(lambda request: texts["unreadable"] if request.generator == "bo" else right(request))
    for number in range(40):
        assert client.post("/v1/triage", {"problem": puzzle_of(number)}).status_code == 200

    (warning,) = client.get("/health").json()["warnings"]
    assert warning.startswith(
        "task 'knights_knaves': generator 'bo' no longer writes as it did when the run was calibrated: the share of its"
    )
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
        client.post("/v1/triage", {"problem": puzzle_of(0)})
    assert meter.moved == [("knights_knaves", 2)]


OTHER_SAMPLING = ({"num_samples": 1}, {"generators": ["ada"]}, {"waves": [1]}, {"budget": 2})


@pytest.mark.parametrize("body", OTHER_SAMPLING, ids=lambda body: next(iter(body)))
def test_requests_that_sample_otherwise_do_not_count(client, meter, body):
    assert client.post("/v1/triage", {"problem": puzzle_of(0), **body}).status_code == 200
    assert meter.moved == []


@pytest.mark.parametrize(
    ("ceiling", "is_compared"), [({"budget": 64}, True), ({"budget": 3}, False), ({"num_samples": 1}, False)]
)
def test_a_ceiling_ends_the_comparison_only_where_it_leaves_candidates_out(
    watched, backend, meter, client_of, ceiling, is_compared
):
    bundle = watched(limits={"request": ceiling})
    service = TriageService(bundle, backend, meter=meter, drift=drift_monitors(bundle, meter))

    client_of(create_app(service, live=meter)).post("/v1/triage", {"problem": puzzle_of(0)})

    assert bool(meter.moved) == is_compared


@pytest.fixture
def gateway(two_runs):
    """Two runs that know their calibration."""
    args = two_runs()
    for folder, names in ((args.run_dir, ("ada", "bo")), (args.further_runs[0].run_dir, ("ada",))):
        reference = {name: ANSWERS_ALWAYS[name] for name in names}
        RunDir(folder).write_json(reference, "calibration", "generators.json")
    return lambda: load_gateway(args)


@pytest.fixture
def client_of_two(gateway, backend, meter, client_of):
    bundle = gateway()
    service = TriageService(bundle, backend, meter=meter, drift=drift_monitors(bundle, meter))
    return client_of(create_app(service, live=meter))


def test_a_decision_is_compared_with_the_calibration_of_its_own_run(client_of_two, meter):
    for task, question in (("gsm8k", LIKE_THEM), ("knights_knaves", puzzle_of(0))):
        client_of_two.post("/v1/triage", {"problem": question, "task": task})
    assert meter.moved == [("gsm8k", 1), ("knights_knaves", 2)]


def test_a_generator_of_a_further_run_is_named_with_its_task(client_of_two, script, texts):
    """The first run has a generator of the same name, which goes on answering."""
    script(lambda request: texts["unreadable"] if request.task == "gsm8k" else right(request))
    client_of_two.post("/v1/triage", {"problem": puzzle_of(0), "task": "knights_knaves"})
    for question in QUESTIONS[:40]:
        client_of_two.post("/v1/triage", {"problem": question, "task": "gsm8k"})

    (warning,) = client_of_two.get("/health").json()["warnings"]
    assert warning.startswith("task 'gsm8k': generator 'ada' no longer writes as it did")
    means = {(each["task"], each["generator"]): each["mean"] for each in client_of_two.get("/v1/live").json()["drift"]}
    assert means == {("gsm8k", "ada"): 1.0, ("knights_knaves", "ada"): 0.0, ("knights_knaves", "bo"): 0.0}


def test_a_change_of_one_run_leaves_the_monitors_of_the_others(gateway, meter):
    running = drift_monitors(gateway(), meter)
    changed = gateway()
    further = changed.of("gsm8k")
    values = GeneratorReference({"ada": {"missing": (1.0,) * 50}})
    changed = replace(changed, others={**changed.others, "gsm8k": replace(further, reference=values)})
    monitors = drift_monitors(changed, meter, running=running)
    assert monitors["knights_knaves"] is running["knights_knaves"]
    assert monitors["gsm8k"] is not running["gsm8k"]


def test_watching_costs_no_answer(watched, backend, puzzle, client_of):
    class Broken(DriftMonitor):
        def _is_new(self, problem):
            raise RuntimeError("broken")

    bundle = watched()
    drift = {"knights_knaves": Broken(bundle.reference, task="knights_knaves", delta=0.05)}
    reply = client_of(create_app(TriageService(bundle, backend, drift=drift))).post("/v1/triage", {"problem": puzzle})
    assert reply.json()["decision"] == "accept"


def test_a_run_without_a_reference_is_not_watched(bundle, meter):
    assert (bundle.reference, drift_monitors(bundle, meter)) == (None, {})


def test_watching_can_be_turned_off(watched, meter):
    bundle = watched(watch={"drift_delta": None})
    assert bundle.reference == GeneratorReference({n: {"missing": (0.0,) * 50} for n in ("ada", "bo")})
    assert drift_monitors(bundle, meter) == {}


def test_a_torn_reference_ends_the_start(write_run):
    run_dir = write_run()
    (Path(run_dir) / "calibration" / "generators.json").write_text(json.dumps(ANSWERS_ALWAYS)[:-3])
    with pytest.raises(ConfigError, match=r"generators\.json is not JSON"):
        load_bundle(AppArgs(run_dir=run_dir))
