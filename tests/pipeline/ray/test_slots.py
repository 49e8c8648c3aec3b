"""Slots: which adapters share one, and which of them a dead worker counts against. Ray Train itself: test_train.py."""

import json
import threading

import pytest
import ray.train
from scorer_parts import recipe_for

from raydebm.pipeline.ray import slots
from raydebm.pipeline.ray.placement import WorkerShare
from raydebm.pipeline.ray.slots import SharedBackbone, SlotContext, deal
from raydebm.pipeline.ray.train_worker import Refusal
from raydebm.run.directory import RunDir
from raydebm.scorer.training.training_job import DONE_FILE, TrainingJob

WEIGHTS = "weights"


def jobs_of(folder, num_adapters, **changes):
    recipe = recipe_for(folder, num_adapters=num_adapters)
    run = RunDir(str(folder))
    shared = {
        "recipe": recipe,
        "run": run,
        "stage": "scorer",
        "data": "d",
        "device": "cpu",
        "graph_gib": None,
    } | changes
    return [TrainingJob(adapter=adapter, plan="p", **shared) for adapter in recipe.scorer.adapters]


def context_of(backbone):
    return SlotContext(
        groups=None,
        backbone=SharedBackbone(weights=None, fingerprint=WEIGHTS),
        share=WorkerShare(cpus=1, gpus=0),
        is_own_cluster=True,
    )


@pytest.mark.parametrize(
    ("num_slots", "expected"),
    [
        pytest.param(2, ["a0 a2 a4", "a1 a3"], id="in turn"),
        pytest.param(1, ["a0 a1 a2 a3 a4"], id="one process for all"),
        pytest.param(6, ["a0", "a1", "a2", "a3", "a4"], id="no slot is empty"),
    ],
)
def test_adapters_are_dealt_to_slots_in_turn(tmp_path, num_slots, expected):
    dealt = deal(jobs_of(tmp_path, 5), num_slots)

    assert [" ".join(job.adapter.name for job in slot) for slot in dealt] == expected


def stored_of(job):
    return [(stored.epoch, stored.address) for stored in job.checkpoints()]


class Runs:
    """Ray Train runs by script: each run starts adapters in turn, "+" completes one, "x" loses a worker in it, "!"
    refuses it, "d" finds the disk full. The run ends at its (restarts + 1)th lost worker, as Ray Train's does."""

    def __init__(self, script: dict[str, str]) -> None:
        self._script = {name: list(steps) for name, steps in script.items()}
        self.seen: list[str] = []

    def __call__(self, jobs, context):
        self.seen.append(" ".join(job.adapter.name for job in jobs))
        num_lost = 0
        for job in jobs:
            while not job.is_complete(WEIGHTS):
                job.record_start(1)
                step = self._script[job.adapter.name].pop(0)
                if step in "!d":
                    return Refusal(adapter=job.adapter.name, reason="diverged", refuses_all=step == "d")
                if step == "x":
                    num_lost += 1
                    if num_lost > job.max_restarts:
                        raise ray.train.WorkerGroupError("lost", {0: RuntimeError("the worker died")})
                    continue
                done = {"plan": job.plan, "backbone_fingerprint": WEIGHTS, "summary": {}}
                job.run.write_json(done, job.stage, job.adapter.name, DONE_FILE)
        return None


@pytest.mark.parametrize(
    ("script", "failed", "runs"),
    [
        pytest.param({"a0": "+", "a1": "+", "a2": "+"}, set(), ["a0 a1 a2"], id="nothing happens"),
        pytest.param({"a0": "x+", "a1": "x+", "a2": "x+"}, set(), ["a0 a1 a2", "a1 a2"], id="restarts are per adapter"),
        pytest.param({"a0": "+", "a1": "xx", "a2": "+"}, {"a1"}, ["a0 a1 a2", "a2"], id="one dies too often"),
        pytest.param({"a0": "!", "a1": "+", "a2": "+"}, {"a0"}, ["a0 a1 a2", "a1 a2"], id="one is refused"),
        pytest.param({"a0": "!", "a1": "xx", "a2": "!"}, {"a0", "a1", "a2"}, ["a0 a1 a2", "a1 a2", "a2"], id="all"),
        pytest.param({"a0": "+", "a1": "d", "a2": ""}, {"a1", "a2"}, ["a0 a1 a2"], id="the disk is full"),
    ],
)
def test_an_adapter_that_fails_does_not_take_its_slots_others_along(tmp_path, monkeypatch, script, failed, runs):
    fake = Runs(script)
    monkeypatch.setattr(slots, "_fit", fake)
    monkeypatch.setattr(slots, "get_or_raise", lambda fingerprint: fingerprint)
    context = context_of(tmp_path)

    outcome = slots._fit_slot(jobs_of(tmp_path, 3, max_restarts=1), context, threading.Event())

    assert set(outcome) == failed
    assert fake.seen == runs


def test_a_worker_that_dies_before_it_begins_is_not_started_for_ever(tmp_path, monkeypatch):
    def dies(jobs, context):
        raise ray.train.WorkerGroupError("lost", {0: RuntimeError("no memory to import torch")})

    monkeypatch.setattr(slots, "_fit", dies)
    monkeypatch.setattr(slots, "get_or_raise", lambda fingerprint: fingerprint)
    context = context_of(tmp_path)

    outcome = slots._fit_slot(jobs_of(tmp_path, 2), context, threading.Event())

    assert outcome == dict.fromkeys(["a0", "a1"], "RuntimeError: no memory to import torch")


def test_a_disk_that_ray_train_itself_cannot_write_to_is_told_with_the_remedy(tmp_path, monkeypatch):
    refused = "OSError: [Errno 30] Cannot create directory '/runs/r'. Detail: [errno 30] Read-only file system"

    def cannot_begin(jobs, context):
        raise ray.exceptions.RayError(f"The actor died:\n{refused}")

    monkeypatch.setattr(slots, "_fit", cannot_begin)

    outcome = slots._fit_slot(jobs_of(tmp_path, 1), context_of(tmp_path), threading.Event())

    assert outcome == {"a0": f"RayError: {refused}; make it writable; finished epochs are kept"}


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param([1, 2, 3], [(3, "2"), (2, "1")], id="the last two, the newest first"),
        pytest.param([1, 2, 2], [(2, "2"), (1, "0")], id="one made again takes its own place"),
        pytest.param([1, 2, 1], [(1, "2")], id="later ones go"),
    ],
)
def test_a_job_knows_its_last_two_stored_epochs(tmp_path, recorded, expected):
    (job,) = jobs_of(tmp_path, 1)
    for place, epoch in enumerate(recorded):
        job.record_checkpoint(epoch, f"/somewhere/slot-1/{place}")

    assert stored_of(job) == [(epoch, f"{tmp_path}/scorer/progress/slot-1/{place}") for epoch, place in expected]


@pytest.mark.parametrize(
    ("plan", "weights", "expected"), [("p", WEIGHTS, True), ("q", WEIGHTS, False), ("p", "", False)]
)
def test_an_adapter_is_complete_for_the_data_settings_and_weights_it_came_from(tmp_path, plan, weights, expected):
    (job,) = jobs_of(tmp_path, 1)
    (tmp_path / "scorer" / "a0").mkdir(parents=True)
    facts = {"plan": plan, "backbone_fingerprint": weights}
    (tmp_path / "scorer" / "a0" / DONE_FILE).write_text(json.dumps(facts))

    assert job.is_complete(WEIGHTS) is expected
