"""The GPU check's command at small sizes on the CPU, so that it works on the day when there is a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.study]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu_check") / "report.json"
    command = [sys.executable, "benchmarks/gpu_check.py", "--device", "cpu", "--small", "--out", str(out)]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=300, capture_output=True)
    return json.loads(out.read_text())


def test_every_part_is_measured(report):
    assert list(report) == ["machine", "peak", "equality", "scoring", "training"]


def test_energies_in_float32_are_the_cpus(report):
    assert report["equality"]["float32"]["max_difference"] < 1e-5


def test_energies_in_bfloat16_are_near(report):
    equality = report["equality"]

    assert 0 < equality["bfloat16"]["max_difference"] < 0.1 * equality["spread"]


def test_both_ways_to_score_have_a_rate(report):
    scoring = report["scoring"]

    assert (scoring["adapters"], scoring["texts"], scoring["tokens"]) == (5, 4, 40)
    assert all(scoring[name]["candidates_per_s"] > 0 for name in ("raydebm", "PEFT set_adapter loop, one padded batch"))


def test_packed_texts_have_a_rate_and_the_padded_ones_energies(report):
    eager, compiled = (report["scoring"][name] for name in ("packed, eager", "packed, compiled"))

    assert eager["candidates_per_s"] > 0
    assert compiled["candidates_per_s"] > 0
    assert eager["max_difference"] < 0.01
    assert compiled["max_difference"] < 0.01
    assert "compile_s" not in eager
    assert compiled["compile_s"] > 0


def test_adapters_train_together(report):
    ways = [(row["adapters"], row["how"]) for row in report["training"]]
    assert ways == [
        (1, "processes, a copy each"),
        (2, "processes, a copy each"),
        (2, "processes, one copy of the weights"),
        (2, "threads, one copy of the weights"),
    ]
    assert all(row["steps_per_s"] > 0 for row in report["training"])


def test_without_a_gpu_the_command_says_what_to_do():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu_check.py"], cwd=REPOSITORY, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip

    assert done.returncode == 2
    assert "torch sees no GPU; try the command without one by --device cpu --small" in done.stderr
