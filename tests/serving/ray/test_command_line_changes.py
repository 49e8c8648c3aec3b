"""What the command line changes is taken by a service that runs: the ingress replica, in this process."""

import asyncio
import json

import httpx
import pytest

from raydebm.cli import main
from raydebm.decision.policy import Policy, policy_id
from raydebm.serving.ray import policy_watch
from raydebm.serving.ray.ingress import TriageIngress
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle

FIRST, SECOND = Policy(theta_sigma=0.8, max_passes=1), Policy(theta_sigma=10.0, theta_abstain=20.0, max_passes=1)
DEADLINE_S = 120


@pytest.fixture
def root(write_run, monkeypatch):
    monkeypatch.setattr(policy_watch, "LOOK_EVERY_S", 0.01)
    return write_run(policy=FIRST)


@pytest.fixture
def policy_file(tmp_path):
    file = tmp_path / "second.json"
    file.write_text(json.dumps(SECOND.to_json()))
    return str(file)


class Running:
    """One ingress replica without the parts that decide."""

    def __init__(self, root):
        self.root = root
        args = AppArgs(run_dir=root, records=None)
        (ingress, *_) = TriageIngress.__bases__  # below it is a wrapper of Serve's for replicas
        self._ingress = ingress(load_bundle(args), None, None, None, args)
        transport = httpx.ASGITransport(app=self._ingress.__serve_build_asgi_app__())
        self._client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def change(self, action, *arguments):
        def command():
            with pytest.raises(SystemExit) as ended:
                main(["policies", action, *arguments, "--run-dir", self.root])
            assert ended.value.code == 0

        await asyncio.to_thread(command)

    async def decides_by(self, first, second=None):
        """Wait until it does."""
        wanted = policy_id(first), None if second is None else policy_id(second)
        versions = None
        async with asyncio.timeout(DEADLINE_S):
            while versions != wanted:
                body = (await self._client.get("/v1/policies")).json()
                versions = body["first"]["version"], body["second"] and body["second"]["version"]
                await asyncio.sleep(0.01)

    def run(self, scene):
        async def begun():
            await self._ingress.reconfigure({})
            await scene

        asyncio.run(begun())


@pytest.fixture
def service(root):
    return Running(root)


def test_a_trial_a_promotion_and_a_roll_back_are_taken(service, policy_file):
    async def scene():
        await service.change("try", policy_file)
        await service.decides_by(FIRST, SECOND)
        await service.change("promote")
        await service.decides_by(SECOND)
        await service.change("rollback")
        await service.decides_by(FIRST)

    service.run(scene())


def test_the_end_of_a_trial_is_taken(service, policy_file):
    async def scene():
        await service.change("try", policy_file)
        await service.decides_by(FIRST, SECOND)
        await service.change("drop")
        await service.decides_by(FIRST)

    service.run(scene())
