"""What of a running service can change, ensembles beside each other, and the exchange of the application."""

import asyncio
import hashlib
import json
import os
import shutil

import pytest
import yaml
from fastapi import FastAPI
from hand_written_run import Clock, session

from raydebm.errors import CheckpointError, ConfigError
from raydebm.run.ensemble_file import CheckpointRef, read_ref
from raydebm.service.access import LOOK_EVERY_S, Keyring
from raydebm.service.ray.deployments import ENSEMBLE_IDLE_S, Ensembles
from raydebm.service.ray.ingress import Exchangeable, changed_args, check_same_evidence
from raydebm.service.settings import AppArgs, LimitArgs

KEYS = [letter * 20 for letter in "abc"]


# ---- arguments ------------------------------------------------------------------------------------------------------


def test_a_key_of_user_config_takes_the_place_of_the_argument():
    args = AppArgs(run_dir="run", max_body_bytes=1001, policies={"one": {"lambda": 2.0}}, limits={"max_running": 5})
    changed = changed_args(args, {"policy": "recipe", "limits": {"keys_file": "k"}})
    assert (changed.policy, changed.max_body_bytes) == ("recipe", 1001)
    assert changed.limits == LimitArgs(keys_file="k")  # as a whole: max_running is the default again
    assert changed.policies["one"] == {"lambda": 2.0}


@pytest.mark.parametrize("key", ["run_dir", "device", "generators", "records", "polcy"])
def test_what_needs_new_replicas_is_refused_by_name(key):
    with pytest.raises(ConfigError, match=f"'{key}' cannot be changed while the service runs"):
        changed_args(AppArgs(run_dir="run"), {key: "x"})


def test_a_wrong_value_is_refused_by_its_place():
    with pytest.raises(ConfigError, match=r"limits\.max_running"):
        changed_args(AppArgs(run_dir="run"), {"limits": {"max_running": 0}})


READER = {"kind": "reader", "name": "reader", "model": "m", "evidence": True}


def test_baselines_that_no_replica_has_loaded_are_refused(recipe, bundle_of):
    running = bundle_of()
    wanted = bundle_of({**recipe, "baselines": [READER]})
    with pytest.raises(ConfigError, match="other baselines as evidence"):
        check_same_evidence(running, wanted)


def test_a_rewritten_recipe_is_another_source_of_generators(recipe, bundle_of):
    running = bundle_of()
    wanted = bundle_of({**recipe, "seed": 8})
    check_same_evidence(running, wanted)
    assert running.source != wanted.source
    with pytest.raises(ConfigError, match=f"is now version {wanted.source.recipe}"):
        running.source.configs()


# ---- the application ------------------------------------------------------------------------------------------------


def answering(words, gate=None):
    app = FastAPI()

    @app.get("/words")
    async def answer():
        if gate is not None:
            await gate.wait()
        return words

    return app


def test_a_request_that_runs_ends_on_the_application_that_it_began_with():
    async def scene():
        gate = asyncio.Event()
        shown = Exchangeable(answering("old", gate))
        async with session(shown) as client:
            running = asyncio.create_task(client.get("/words"))
            for _ in range(20):
                await asyncio.sleep(0)
            shown.app = answering("new")
            later = await client.get("/words")
            gate.set()
            return (await running).json(), later.json()

    assert asyncio.run(scene()) == ("old", "new")


# ---- ensembles ------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoints(live_run, tmp_path):
    """Two folders with the same adapters under different fingerprints."""
    first = shutil.copytree(f"{live_run}/scorer", tmp_path / "first")
    second = shutil.copytree(first, tmp_path / "second")
    record = json.loads((second / "ensemble.json").read_text())
    record["meta"]["name"] = "second"
    (second / "ensemble.json").write_text(json.dumps(record))
    return read_ref(str(first)), read_ref(str(second))


def test_two_ensembles_lie_beside_each_other_on_one_backbone_until_one_is_idle(checkpoints):
    first, second = checkpoints
    clock = Clock()
    held = Ensembles(device="cpu", dtype="float32", clock=clock)
    held.put(first, held.read(first))
    clock.now += 1

    async def scene():
        newer = await held.get(second)
        assert newer is await held.get(second)
        return newer.scorer

    newer = asyncio.run(scene())
    assert held.fingerprints == [first.fingerprint, second.fingerprint]
    assert held.latest is newer
    assert len({id(ensemble.backbone) for ensemble in held.loaded.values()}) == 1
    clock.now += ENSEMBLE_IDLE_S + 1
    asyncio.run(held.get(second))
    assert held.fingerprints == [second.fingerprint]


def test_adapters_that_were_overwritten_are_not_taken_for_the_old_ones(checkpoints):
    first, second = checkpoints
    held = Ensembles(device="cpu", dtype="float32")
    wrong = CheckpointRef(second.folder, first.fingerprint)
    with pytest.raises(CheckpointError, match=f"now contains checkpoint {second.fingerprint}"):
        asyncio.run(held.get(wrong))
    assert held.fingerprints == []


# ---- keys -----------------------------------------------------------------------------------------------------------


def write_keys(path, *keys):
    """As a mounted secret changes: a new file takes the old one's place."""
    entries = [{"name": f"key-{key[0]}", "sha256": hashlib.sha256(key.encode()).hexdigest()} for key in keys]
    newer = path.with_suffix(".new")
    newer.write_text(yaml.safe_dump({"keys": entries}))
    os.replace(newer, path)


@pytest.fixture
def watched(tmp_path):
    """The keyring of a file with the first key, the file, and the clock that the keyring looks at."""
    path, clock = tmp_path / "keys.yaml", Clock()
    write_keys(path, KEYS[0])
    return Keyring(path=str(path), clock=clock), path, clock


def known(keyring):
    return [key[0] for key in KEYS if keyring.owner(f"Bearer {key}") is not None]


def test_a_changed_keys_file_counts_after_a_few_seconds(watched):
    keyring, path, clock = watched
    write_keys(path, KEYS[1], KEYS[2])
    assert known(keyring) == ["a"]
    clock.now += LOOK_EVERY_S
    assert known(keyring) == ["b", "c"]
    assert keyring.refusal is None


@pytest.mark.parametrize("content", ["keys: [", "keys: []", None], ids=["no-yaml", "no-keys", "gone"])
def test_a_keys_file_that_turns_bad_leaves_the_old_keys_in_force_and_says_so(watched, content):
    keyring, path, clock = watched
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    clock.now += LOOK_EVERY_S
    assert known(keyring) == ["a"]
    assert "the last good API keys stay in force" in keyring.refusal
    write_keys(path, KEYS[1])
    clock.now += LOOK_EVERY_S
    assert known(keyring) == ["b"]
    assert keyring.refusal is None
