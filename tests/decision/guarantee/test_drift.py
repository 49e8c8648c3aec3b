"""Whether a generator still writes as it did on the calibration problems."""

import math
from random import Random

import pytest

from raydebm.decision.guarantee.drift import DriftWatch, GeneratorReference, figures_of
from raydebm.errors import ConfigError
from raydebm.testing import scored_candidate


def written(generator, answer, energies=(0.0, 2.0), text="four", **facts):
    return scored_candidate(answer, energies=energies, generator=generator, text=text, **facts)


def test_figures_of_two_generators_by_hand():
    pool = [
        written("ada", "A", (0.0, 2.0)),  # mu 1, sigma 1
        written("ada", None, (3.0, 3.0)),  # mu 3, sigma 0
        written("bo", "A", (-1.0, -1.0), text="x" * 9),
        written("bo", "B", (5.0, 7.0), text="x" * 9, pass_index=2),
        scored_candidate("A", generator="bo", text=None),
    ]

    figures = figures_of(pool)

    assert figures["ada"] == {
        "length": pytest.approx(math.log(5) - math.log(10)),
        "energy": 3.0,  # 2 - (-1)
        "sigma": 0.5,
        "missing": 0.5,
        "agreement": 0.5,
        "lowest": 0.0,
    }
    assert (figures["bo"]["energy"], figures["bo"]["missing"], figures["bo"]["lowest"]) == (-3.0, 0.0, 1.0)


def test_a_generator_alone_is_not_compared_with_others():
    pool = [written("ada", "A", (0.0, 2.0)), written("ada", "A", (1.0, 1.0)), written("ada", "B", (1.0, 1.0))]

    figures = figures_of(pool)["ada"]

    assert (figures["energy"], figures["agreement"], figures["lowest"]) == (1.0, pytest.approx(2 / 3), 1.0)


def test_problems_that_are_harder_for_all_alike_change_no_relative_figure():
    easy = [written("ada", "A", (0.0, 2.0)), written("bo", "A", (1.0, 5.0))]
    hard = [written("ada", "A", (7.0, 9.0)), written("bo", "A", (8.0, 12.0))]

    assert figures_of(easy) == figures_of(hard)


def test_what_was_not_scored_has_no_energy():
    assert set(figures_of([written("ada", "A", None)])["ada"]) == {"length", "missing", "agreement"}


def test_a_reference_comes_back_from_json():
    reference = GeneratorReference.of([[written("ada", "A")], [written("ada", None)]])

    assert reference.values["ada"]["missing"] == (0.0, 1.0)
    assert GeneratorReference.from_json(reference.to_json()) == reference


def test_a_damaged_reference_is_refused():
    with pytest.raises(ConfigError, match="generator 'ada' has a wrong entry 'mood'; calibrate the run again"):
        GeneratorReference.from_json({"ada": {"mood": [1.0]}})


# ---- the alarm, by simulation ----------------------------------------------------------------------------------------

FIGURE_NAMES = ("energy", "length")


def normal(random, *, shift=0.0):
    """One decision of a generator whose figures are standard normal, the energy shifted."""
    return {"ada": {"energy": random.gauss(shift, 1.0), "length": random.gauss(0.0, 1.0)}}


def reference_from(random, num=100):
    seen = [normal(random)["ada"] for _ in range(num)]
    return GeneratorReference({"ada": {name: tuple(sorted(each[name] for each in seen)) for name in FIGURE_NAMES}})


def test_false_alarms_stay_below_the_stated_rate_over_200_streams():
    delta, num_alarms = 0.2, 0
    for stream in range(200):
        random = Random(stream)
        watch = DriftWatch(reference_from(random, num=40), delta=delta)
        for _ in range(60):
            watch.observe(normal(random))
        num_alarms += bool(watch.alarms())

    assert num_alarms <= 200 * delta


@pytest.mark.parametrize("before", [0, 50])
def test_a_shift_of_two_standard_deviations_is_found_within_60_decisions(before):
    figures = []
    for stream in range(10):
        random = Random(1000 + stream)
        watch = DriftWatch(reference_from(random), delta=0.05)
        for _ in range(before):
            watch.observe(normal(random))
        assert watch.alarms() == []
        for _ in range(60):
            watch.observe(normal(random, shift=2.0))
        figures.append([state.figure for state in watch.alarms()])

    assert figures == [["energy"]] * 10


def test_a_model_that_stops_giving_answers_is_found_and_named():
    random = Random(3)
    calibration = [[written("ada", "A"), written("bo", "A" if random.random() < 0.9 else None)] for _ in range(100)]
    watch = DriftWatch(GeneratorReference.of(calibration))
    for _ in range(60):
        watch.observe(figures_of([written("ada", "A"), written("bo", None)]))

    alarms = {(state.generator, state.figure) for state in watch.alarms()}
    assert ("bo", "missing") in alarms
    assert ("ada", "missing") not in alarms
    words = next(state.words for state in watch.alarms() if state.figure == "missing")
    assert words.startswith("generator 'bo' no longer writes as it did when the run was calibrated: the share of its")


def test_too_few_calibration_problems_are_not_bet_on():
    watch = DriftWatch(GeneratorReference.of([[written("ada", "A")]] * 19))
    assert watch.states() == []
    assert watch.observe(figures_of([written("ada", "A")])) == []


def test_a_generator_without_a_reference_is_left_out():
    watch = DriftWatch(GeneratorReference.of([[written("ada", "A")]] * 20))
    assert watch.observe({"zoe": {"length": 1.0}}) == []
