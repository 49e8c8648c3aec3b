"""Changes of a running ingress replica that meet each other, or that cannot be made: the replica, in this process."""

import asyncio
import contextlib
import shutil
from types import SimpleNamespace

import pytest
from decisions_by_hand import report

from raydebm.decision.policy import Policy, policy_id
from raydebm.errors import CheckpointError
from raydebm.run.directory import RunDir
from raydebm.service.ray.ingress import TriageIngress
from raydebm.service.settings import AppArgs, load_bundle
from raydebm.service.store.outcomes import OutcomeLog

OLD, NEW = Policy(theta_sigma=0.8, max_passes=1), Policy(theta_sigma=0.4, max_passes=1)


class Parts:
    """The handle of every deployment. The first thing that is asked for after ``asked`` was cleared is loaded when it
    may be, all others at once."""

    def __init__(self):
        self.may_load, self.asked = asyncio.Event(), asyncio.Event()
        self.may_load.set()
        self.load = SimpleNamespace(remote=lambda what: asyncio.ensure_future(self._load()))

    async def _load(self):
        is_first = not self.asked.is_set()
        self.asked.set()
        if is_first:
            await self.may_load.wait()

    def broadcast(self, method, what):
        return self

    async def results_async(self, **settings):
        return []


@pytest.fixture
def root(write_run, tmp_path):
    """A run, and a second ensemble, in ``other``."""
    folder = write_run(policy=OLD)
    RunDir(str(tmp_path / "other")).write_json(
        {"backbone": "embedded:encoder-mini", "adapters": ["a0"]}, "ensemble.json"
    )
    return folder


def replica(args, parts):
    if isinstance(args, str):
        args = AppArgs(run_dir=args, records=None)
    (ingress, *_) = TriageIngress.__bases__  # below it is a wrapper of Serve's for replicas
    begun = ingress(load_bundle(args), parts, parts, parts)
    begun.__serve_build_asgi_app__()
    return begun


def served(ingress):
    return ingress._service.bundle.versions["policy"]


async def ended(ingress):
    """The change that runs has ended."""
    with contextlib.suppress(asyncio.CancelledError):
        await ingress._reloading


def test_a_policy_file_that_is_replaced_during_a_change_is_taken_with_the_next_revision(root, tmp_path):
    other = str(tmp_path / "other")

    async def scene():
        parts = Parts()
        ingress = replica(root, parts)
        await ingress.reconfigure({})
        assert served(ingress) == policy_id(OLD)
        parts.asked.clear()
        parts.may_load.clear()
        await ingress.reconfigure({"checkpoint": other})  # has read the old policy, and loads adapters
        await parts.asked.wait()
        RunDir(root).write_json(NEW.to_json(), "calibration", "policy.json")
        await ingress.reconfigure({"checkpoint": other, "revision": "2"})
        parts.may_load.set()
        await ended(ingress)
        return served(ingress), ingress._service.bundle.checkpoint_ref.folder

    assert asyncio.run(scene()) == (policy_id(NEW), other)


def test_a_bad_user_config_keeps_a_replica_from_starting(root):
    with pytest.raises(CheckpointError):
        asyncio.run(replica(root, Parts()).reconfigure({"checkpoint": "/nowhere"}))


# ---- guarantees ------------------------------------------------------------------------------------------------------


def test_a_change_while_outcomes_cannot_be_read_claims_nothing_again(write_run, tmp_path):
    records = tmp_path / "kept"
    guaranteed = OLD.replaced(guarantee={"max_error": 0.1, "confidence": 0.9, "certified": True, "problems": 9})
    args = AppArgs(run_dir=write_run(policy=guaranteed), records={"folder": str(records)})
    (policy,) = load_bundle(args).answering
    log = OutcomeLog(str(records))
    for place in range(9):
        report(log, f"r{place}", False, policy_id=policy)

    async def scene():
        ingress = replica(args, Parts())
        await ingress.reconfigure({})
        before = ingress._service.claims
        shutil.move(log.root, f"{log.root}-away")
        (records / "outcomes").write_text("no folder")
        await ingress.reconfigure({"revision": "2"})
        await ended(ingress)
        return before, ingress._service.claims

    before, after = asyncio.run(scene())
    assert before is not after
    assert None not in [claims.suspension(policy) for claims in (before, after)]
